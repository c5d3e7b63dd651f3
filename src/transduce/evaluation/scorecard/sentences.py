"""The sentences that a scorecard is measured with: of files, or the validation text of the model's run."""

from pathlib import Path

from transduce.bundle import Bundle
from transduce.config import RunConfig, load_resolved_config
from transduce.errors import ConfigError, CorpusError
from transduce.evaluation.scorecard.behaviour import Sentence
from transduce.text import open_parallel_corpus, read_lines


def read_sentences(source: Path, reference: Path | None) -> list[Sentence]:
    """The lines of a file, with human translations if `reference` has them line for line.

    Raises:
        CorpusError: a file is missing or empty, is not UTF-8, or the two differ in number of lines.
    """
    if reference is None:
        found = [Sentence(line) for line in read_lines(source)]
        if not found:
            raise CorpusError(f"{source}: empty; at least one sentence is needed")
        return found
    corpus = open_parallel_corpus(Path(), str(source), str(reference), None, None)
    corpus.check()
    return [Sentence(*pair) for pair in corpus]


def read_validation_sentences(model: Path, bundle: Bundle) -> list[Sentence]:
    """The validation text of the run that `bundle` is in, from the prepared data that runs share.

    Sentences made of the vocabulary, as the proof of an export uses them, are no substitute: they mean nothing, so that
    their translations would show nothing of how a model behaves on text.

    Args:
        model: the path by which the bundle was found, for the message.
        bundle: the bundle.

    Raises:
        CorpusError: the bundle is not in the folder of a run, or the data of that run was deleted.
    """
    from transduce.data import find_prepared_validation  # noqa: PLC0415 - loads PyTorch

    # A run whose folder is a link has its prepared data beside the link.
    folders = dict.fromkeys([bundle.folder.absolute().parent, bundle.folder.resolve().parent])
    runs = [config for folder in folders if (config := _load_run(folder)) is not None]
    if not runs:
        raise CorpusError(
            f"{model}: is not in the folder of a run, whose validation text could be used: give --source with "
            "sentences, and --reference if there are translations"
        )
    for config in runs:
        pairs = find_prepared_validation(config.cache_folder, bundle.description.data.get("all", ""))
        if pairs is not None:
            return [Sentence(*pair) for pair in pairs]
    raise CorpusError(
        f"{runs[0].cache_folder}: no longer has the validation text of this model: give --source with sentences, and "
        "--reference if there are translations"
    )


def _load_run(folder: Path) -> RunConfig | None:
    """The run in `folder`; None if there is none."""
    try:
        return load_resolved_config(folder / "config.toml").model_copy(update={"output": str(folder)})
    except ConfigError:
        return None
