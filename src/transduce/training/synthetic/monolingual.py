"""Monolingual text in training: a model translates it, and its translations are trained on as further pairs."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from transduce.bundle import Bundle, find_bundle, find_latest_checkpoint
from transduce.config import UNLIMITED_UPDATES, CorpusConfig, DataConfig, RunConfig, flatten, load_run_config, unflatten
from transduce.data import choose_generated_columns
from transduce.data.corpus_size import measure_training_text
from transduce.data.settings_for_size import choose_settings_for_size
from transduce.errors import ConfigError, RunError
from transduce.text import SYNTHETIC_TAGS, read_lines, split_name
from transduce.text.formats import PAIRS_FORMATS
from transduce.training.run_folder import RunFolder
from transduce.training.synthetic.translation import SyntheticText, describe_other_languages
from transduce.translation import TranslationOptions

TAGS = dict(zip(("monolingual_target", "monolingual_source"), SYNTHETIC_TAGS, strict=True))
"""For each setting, the tag in front of the sources of the pairs that are made from its text (Caswell et al. 2019)."""

_SUFFIXES = {"monolingual_target": "-reverse", "monolingual_source": "-forward"}
"""What is added to the name of a run's folder to name the folder of another run, which trains the model that translates
the text of this setting."""


def locate_translating_run(config: RunConfig, name: str) -> str:
    """The folder of the run that trains the model which translates the text of the setting `name`."""
    return f"{Path(config.output)}{_SUFFIXES[name]}"  # without a slash at the end, as in runs/more/


def has_monolingual_text(data: DataConfig) -> bool:
    """Whether a run is given monolingual text, in the source or the target language."""
    return any(getattr(data, name) is not None for name in TAGS)


def remove_monolingual_text(data: DataConfig) -> DataConfig:
    """The settings of the same text without its monolingual part."""
    return data.model_copy(update={key: None for name in TAGS for key in (name, f"{name}_model")})


def add_synthetic_corpora(
    config: RunConfig,
    cache: Path,
    train: Callable[[RunConfig], Path],
    report: Callable[[str], None],
    known: Collection[str] = (),
) -> DataConfig:
    """Translate the monolingual text of a run, and add the pairs to its corpora.

    Texts that were translated before are found in `cache`; a translation that was stopped goes on.

    Args:
        config: the run.
        cache: the folder for the pairs.
        train: trains a run, or goes on with it, and returns the folder of its model.
        report: receives messages about progress.
        known: names of the files of pairs that the run has already been trained on; no model is loaded for these.

    Returns:
        `config.data` with a synthetic corpus for each monolingual text, after all others.

    Raises:
        ConfigError: the run starts from a trained model, and no model for the translation is given.
        BundleError, CorpusError: a model or a text cannot be read.
        RunError: a model is to be trained, and its folder has a run with other settings.
    """
    data = config.data
    corpora = list(data.training_corpora)
    for name, tag in TAGS.items():
        if (text := getattr(data, name)) is None:
            continue
        _, ending, _ = split_name(Path(text))
        if ending.lower() in PAIRS_FORMATS:
            raise ConfigError(
                f"data.{name} = {text!r}: is read line by line, one sentence in each, and a {ending} file is not like "
                "that: write its texts to a .txt file"
            )
        is_target = name == "monolingual_target"
        open_models = partial(_open_models, config, name, train, report)
        is_sampled = data.monolingual_search == "sampling"
        options = TranslationOptions(num_samples=1, seed=config.training.seed) if is_sampled else TranslationOptions()
        file = Path(data.folder) / text
        synthetic = SyntheticText(text, partial(read_lines, file), open_models, options, is_target)
        path = synthetic.translate(cache, config.training.device, data.translation_workers, report, known)
        corpora.append(
            CorpusConfig(
                pairs=str(path.resolve()),
                columns=choose_generated_columns(data),
                weight=data.monolingual_weight,
                tag=tag,
                synthetic=True,
            )
        )
    return data.model_copy(update={"source": None, "target": None, "pairs": None, "corpora": tuple(corpora)})


def _open_models(
    config: RunConfig, name: str, train: Callable[[RunConfig], Path], report: Callable[[str], None]
) -> list[Bundle]:
    """Open the model that translates the text of the setting `name`, the only one of the list.

    It is the given one, or one that is trained for it.
    """
    setting = f"{name}_model"
    given = getattr(config.data, setting)
    if given is not None:
        bundle = Bundle.open(find_bundle(Path(given)))
        source, target = config.data.source_language, config.data.target_language
        if name == "monolingual_target":
            source, target = target, source
        if mismatch := describe_other_languages(bundle, source, target):
            raise ConfigError(
                f"data.{setting} = {given!r}: {mismatch}, and data.{name} is to be translated from {source or '?'} to "
                f"{target or '?'}: give a model that does that, or none, so that one is trained"
            )
        return [bundle]
    if config.training.start_from is not None:
        raise ConfigError(
            f"data.{name}: the run starts from {config.training.start_from}, so that its settings cannot train the "
            f"model that translates this text: give one as data.{setting}"
        )
    config = _fit_to_pairs(config)
    data = config.data
    if name == "monolingual_target":
        exchanged = {
            "swap_sides": not data.swap_sides,
            "source_language": data.target_language,
            "target_language": data.source_language,
        }
        data = data.model_copy(update=exchanged)
    # Baseline and scorecard are for the model of the run itself, not for this one.
    training = config.training.model_copy(update={"baseline": None, "scorecard_sentences": 0})
    changes = {"data": data, "training": training, "output": locate_translating_run(config, name)}
    other = _keep_length_if_finished(config.model_copy(update=changes))
    report(f"training the model that translates data.{name}, in {other.output}")
    try:
        return [Bundle.open(find_bundle(train(other)))]
    except RunError as error:
        raise RunError(
            f"{error}\nThis is the run of the model that translates data.{name}, which --restart leaves as it is: to "
            f'go on with its model, give data.{setting} = "{other.output}"; to train it anew, delete {other.output}'
        ) from error


def _fit_to_pairs(run: RunConfig) -> RunConfig:
    """The run without its monolingual text, with settings that fit its pairs.

    A setting with the value that `choose_settings_for_size` gives it for all text, monolingual text included, gets the
    value that it gives for the pairs alone, so that more monolingual text does not make another run of it. The settings
    stay if the vocabulary is not fitted to the text, as in most recipes: then they were not chosen by its size.
    """
    pairs = remove_monolingual_text(run.data)
    if run.text.vocabulary != "fitted":
        return run.model_copy(update={"data": pairs})
    time_limit = run.training.time_limit if run.training.updates >= UNLIMITED_UPDATES else None
    sizes = [measure_training_text(data, run.text) for data in (run.data, pairs)]
    is_automatic = choose_settings_for_size(sizes[0], time_limit)["preset"] == run.preset
    for_all_text, for_pairs = (
        flatten(load_run_config(None, automatic=settings)[0].model_dump(exclude_unset=True))
        for settings in (
            choose_settings_for_size(size, time_limit, None if is_automatic else run.preset) for size in sizes
        )
    )
    given = flatten(run.model_dump(exclude={"data"}, exclude_unset=True))
    own = {name: value for name, value in given.items() if for_all_text.get(name) != value}
    fitted = {name: value for name, value in for_pairs.items() if name in given or name not in for_all_text}
    return RunConfig.model_validate(unflatten(fitted | own)).model_copy(update={"data": pairs})


def _keep_length_if_finished(config: RunConfig) -> RunConfig:
    """The run `config` with the length it had when it finished, if it did, so that its model stays the same.

    After further training it would be another model, and all text would be translated again.
    """
    folder = RunFolder(Path(config.output))
    saved, checkpoint = folder.load_config(), find_latest_checkpoint(folder.checkpoints, lambda _: None)
    if saved is None or checkpoint is None or not checkpoint.state.get("finished"):
        return config
    length = {name: getattr(saved.training, name) for name in ("updates", "epochs", "time_limit", "patience")}
    return config.with_training(**length)
