"""Training that starts from a trained model instead of random weights (fine-tuning)."""

from pathlib import Path

from transduce.bundle.bundle import Bundle, find_bundle
from transduce.bundle.description import Languages
from transduce.config import RunConfig, SearchConfig
from transduce.errors import ConfigError, UserError
from transduce.text import Tokenizer


def started(config: RunConfig) -> tuple[RunConfig, Bundle | None]:
    """The same run with the network and the tokenizer of the bundle that `training.start_from` names, and the bundle.

    Languages and settings of the search are the bundle's, too, where `config` gives no others.

    Raises:
        BundleError: there is none, or it is damaged.
        ConfigError: it lies in the folder of the run itself; or `config` gives a setting of the network other than the
            bundle's, `model.dropout` excepted, another size of vocabulary, or another tokenizer.
    """
    path = config.training.start_from
    if path is None:
        return config, None
    bundle = Bundle.open(find_bundle(Path(path)))
    if bundle.folder.resolve().is_relative_to(Path(config.output).resolve()):
        raise ConfigError(f"training.start_from = {path!r} lies in the run's own folder: choose another output")
    return _adopted(config, bundle), bundle


def _adopted(config: RunConfig, bundle: Bundle) -> RunConfig:
    given = {name: getattr(config.model, name) for name in sorted(config.model.model_fields_set)}
    dropout = {"dropout": given.pop("dropout")} if "dropout" in given else {}
    given.pop("vocabulary", None)  # the tokenizer's; see below
    problems = [
        f"  model.{name} = {value!r}, the bundle's is {there!r}"
        for name, value in given.items()
        if (there := getattr(bundle.model_config, name)) != value
    ]
    tokenizer, vocabulary = config.text.tokenizer, config.text.vocabulary
    if tokenizer is not None:
        if not _is_tokenizer_of(bundle, Path(tokenizer)):
            problems.append(f"  text.tokenizer = {tokenizer!r}, another than the bundle's")
    elif "vocabulary" in config.text.model_fields_set and vocabulary not in {
        "fitted",
        bundle.model_config.vocabulary,
    }:
        problems.append(f"  text.vocabulary = {vocabulary!r}, the bundle's is {bundle.model_config.vocabulary}")
    if problems:
        lines = "\n".join(problems)
        raise ConfigError(
            f"training.start_from = {config.training.start_from!r}: network and tokenizer are those of "
            f"{bundle.folder}; these settings contradict it, leave them out:\n{lines}"
        )
    model = bundle.model_config.model_copy(update=dropout)
    text = config.text.model_copy(update={"tokenizer": tokenizer or str(bundle.tokenizer_path)})
    adopted = config.model_copy(update={"model": model, "text": text})
    return with_its_ways(adopted, bundle.description.search, bundle.description.languages)


def with_its_ways(config: RunConfig, search: SearchConfig, languages: Languages) -> RunConfig:
    """The same run with what was known of languages and of translating, where `config` says nothing else.

    But for the longest source that is read at a time, which the text decides.
    """
    given = {name: getattr(config.search, name) for name in config.search.model_fields_set | {"max_pieces"}}
    known = {
        "source_language": config.data.source_language or languages.source,
        "target_language": config.data.target_language or languages.target,
    }
    data = config.data.model_copy(update=known)
    return config.model_copy(update={"search": search.model_copy(update=given), "data": data})


def _is_tokenizer_of(bundle: Bundle, path: Path) -> bool:
    try:
        return Tokenizer.load(path).files == bundle.load_tokenizer().files
    except UserError:
        return False
