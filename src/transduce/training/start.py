"""What a fine-tuning run goes on with: from its first checkpoint on, it does not need the bundle it started from."""

from collections.abc import Callable
from pathlib import Path

from transduce.bundle import Bundle, Languages, apply_start_from, find_bundle, has_checkpoint, inherit_search_settings
from transduce.config import RunConfig, TextConfig
from transduce.data import find_prepared_tokenizer
from transduce.errors import BundleError, UserError
from transduce.text import Tokenizer
from transduce.training.run_folder import RunFolder


def settled_start(
    config: RunConfig, folder: RunFolder, cache: Path, say: Callable[[str], None], *, restart: bool
) -> tuple[RunConfig, TextConfig, Bundle | None]:
    """The run with its network and its tokenizer; with what to prepare its text; and the bundle that it starts from.

    That is `bundle.started`. A run that has checkpoints has its network in the configuration that is saved with it, its
    tokenizer with the prepared data, and no bundle: that may have been moved, or trained further.

    Raises:
        BundleError, ConfigError: see `bundle.started`.
    """
    path, saved = config.training.start_from, None if restart else folder.saved_config()
    if path is None or saved is None or saved.training.start_from != path or not has_checkpoint(folder.checkpoints):
        config, bundle = apply_start_from(config)
        return config, config.text, bundle
    given = {name: getattr(config.model, name) for name in config.model.model_fields_set - {"vocabulary"}}
    model = saved.model.model_copy(update=given)  # where they contradict each other, the folder is checked for it
    text = config.text.model_copy(update={"tokenizer": config.text.tokenizer or saved.text.tokenizer})
    begun = folder.metrics.first()
    if begun.get("start") != _digest(Path(path)):
        say(f"training.start_from = {path!r}: is not there any more, or has other weights; the run goes on without it")
    own = find_prepared_tokenizer(cache, begun.get("digests", {}).get("all", ""))
    known = text
    if own is not None and _files(text.tokenizer) != _files(own):
        known = text.model_copy(update={"tokenizer": str(own)})
    languages = Languages(source=saved.data.source_language, target=saved.data.target_language)
    config = inherit_search_settings(config.model_copy(update={"model": model, "text": text}), saved.search, languages)
    return config, known, None


def _digest(path: Path) -> str | None:
    try:
        return Bundle.open(find_bundle(path)).digest
    except BundleError:
        return None


def _files(tokenizer: str | Path | None) -> object:
    try:
        return None if tokenizer is None else Tokenizer.load(Path(tokenizer)).files
    except UserError:
        return None
