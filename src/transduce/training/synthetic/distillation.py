"""Distillation: a student is trained on a teacher's translations of its text, in place of the targets or beside them.

Sequence-level knowledge distillation (Kim & Rush 2016): what one model says is more uniform than what many people
wrote, and a small network learns it better.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from transduce.bundle import Bundle, find_bundle
from transduce.config import CorpusConfig, DataConfig, RunConfig
from transduce.data import choose_generated_columns, open_corpus
from transduce.data.store import explain_cache_errors
from transduce.data.training_text import RepetitionFinder, choose_held_out, may_be_kept
from transduce.errors import ConfigError, CorpusError
from transduce.storage import replace_file, scratch_folder
from transduce.text import Cleaner
from transduce.training.synthetic.translation import SyntheticText, describe_other_languages
from transduce.translation import TranslationOptions

_LEFT_OUT = "is blank, too long, held out for validation, or the same as an earlier one"
"""Why the source of a pair is not translated."""


def make_student_text(
    config: RunConfig, cache: Path, report: Callable[[str], None], known: Collection[str] = ()
) -> DataConfig:
    """Translate the sources of a run's text by its teachers, `data.teacher` and `data.teacher_ensemble`.

    The translations stand in place of the targets, or with `data.keep_targets` in further pairs beside them.

    Given validation text keeps its targets. If none is given, pairs are held out of the training text, as for every
    run, and their sources are not translated; nor are sources that training would leave out for their own sake, such as
    those that repeat an earlier one. A corpus's tag is put in front of its sources if the teacher knows it.

    Args:
        config: the run.
        cache: the folder for the pairs.
        report: receives messages about progress.
        known: names of the files of pairs that the run has already been trained on; no teacher is loaded for these.

    Returns:
        `config.data` with each corpus replaced by a synthetic one of the same weight and tag, or with these after its
        own.

    Raises:
        BundleError, CorpusError: the teacher or the text cannot be read, no pair can be held out, or no source is left.
        ConfigError: a teacher translates other languages.
    """
    data, columns = config.data, choose_generated_columns(config.data)
    names = [str(data.teacher), *data.teacher_ensemble]
    open_teachers = functools.cache(lambda: [_open_teacher(name, data) for name in names])
    held_out = [] if data.has_validation_text else _choose_validation(config, cache)
    excluded = {source for source, _ in held_out}
    excluded |= {source.removeprefix(f"{tag} ") for source, _ in held_out for tag in data.tags}
    corpora = []
    repeated = _find_repeated_sources(config, cache)
    for corpus, is_repeated in zip(data.training_corpora, repeated, strict=True):
        read = partial(_read_sources, config, corpus, is_repeated, excluded)
        if next(read(), None) is None:
            report(f"{corpus.name}: left out: every source {_LEFT_OUT}")
            continue
        synthetic = SyntheticText(
            corpus.name,
            read,
            open_teachers,
            TranslationOptions(),
            is_target=False,
            tag=corpus.tag,
        )
        path = synthetic.translate(cache, config.training.device, data.translation_workers, report, known).resolve()
        changed = {"source": None, "target": None, "pairs": str(path), "columns": columns, "synthetic": True}
        corpora.append(corpus.model_copy(update=changed))
    if not corpora:
        raise CorpusError(f"the teacher has nothing to translate, as every source {_LEFT_OUT}: give other text")
    kept = data.training_corpora if data.keep_targets else ()
    changes: dict[str, object] = {"source": None, "target": None, "pairs": None, "corpora": (*kept, *corpora)}
    if held_out and not kept:
        changes |= {"validation_pairs": str(_write_pairs(cache, held_out)), "validation_columns": columns}
    return data.model_copy(update=changes)


def _open_teacher(name: str, data: DataConfig) -> Bundle:
    bundle, source, target = Bundle.open(find_bundle(Path(name))), data.source_language, data.target_language
    if mismatch := describe_other_languages(bundle, source, target):
        raise ConfigError(
            f"the teacher {name} {mismatch}, and this text is to be translated from {source or '?'} to "
            f"{target or '?'}: give a teacher of the same languages"
        )
    return bundle


def _find_repeated_sources(config: RunConfig, cache: Path) -> list[Iterable[int]]:
    """For each corpus, 1 for each source that is the same, tag included, as an earlier one of any corpus, otherwise 0.

    No repetition is found if those are trained on (`text.drop_duplicates`). `cache` gets scratch files.
    """
    corpora = config.data.training_corpora
    if not config.text.drop_duplicates:
        return [itertools.repeat(0) for _ in corpora]
    ends, num_pairs = [], 0
    with explain_cache_errors(cache), scratch_folder(cache, "repetitions") as scratch:
        finder = RepetitionFinder(scratch)
        for corpus in corpora:
            sources = ((source, "") for source, _ in open_corpus(config.data, corpus))
            num_pairs += sum(1 for _ in finder.record(sources))
            ends.append(num_pairs)
        return [part.tobytes() for part in np.split(finder.find_repeats(), ends[:-1])]


def _read_sources(
    config: RunConfig, corpus: CorpusConfig, is_repeated: Iterable[int], excluded: Collection[str]
) -> Iterator[str]:
    """The sources of a corpus, without its tag, whose translations can be trained on; others would be left out."""
    # The target will be another one: what is wrong with the source itself decides.
    cleaner = Cleaner(config.text.model_copy(update={"drop_copies": False}))
    untagged = open_corpus(config.data, corpus.model_copy(update={"tag": None}))
    for (source, _), is_repetition in zip(untagged, is_repeated, strict=False):
        if not is_repetition and source not in excluded and may_be_kept((source, source), cleaner):
            yield source


def _write_pairs(cache: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """Write pairs to a file in `cache` that is named by its content, and return its path."""
    lines = [json.dumps({"source": one, "target": other}, ensure_ascii=False) + "\n" for one, other in pairs]
    path = cache / f"validation-{hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}.jsonl"
    with explain_cache_errors(cache), replace_file(path) as beside:
        beside.write_text("".join(lines), encoding="utf-8", newline="\n")
    return path.resolve()


def _choose_validation(config: RunConfig, cache: Path) -> list[tuple[str, str]]:
    """The pairs that a run without a teacher would hold out of this text for validation; `cache` gets scratch files."""
    data, cleaner = config.data, Cleaner(config.text)
    num_pairs = 0

    def read_pairs() -> Iterator[tuple[str, str]]:
        nonlocal num_pairs
        for corpus in data.training_corpora:
            for pair in [] if corpus.synthetic else open_corpus(data, corpus):
                num_pairs += 1
                yield pair

    is_clean = partial(may_be_kept, cleaner=cleaner, tags=data.tags)
    with explain_cache_errors(cache), scratch_folder(cache, "repetitions") as scratch:
        finder = RepetitionFinder(scratch)
        pairs = finder.record(read_pairs()) if config.text.drop_duplicates else read_pairs()
        chosen = choose_held_out(pairs, data.held_out, is_clean)
        num_usable = num_pairs - (np.count_nonzero(finder.find_repeats()) if config.text.drop_duplicates else 0)
    if not chosen:
        raise CorpusError(
            f"none of the {num_pairs:,} pairs that no model has made can be held out for validation: give validation "
            "files, or wider limits under [text]"
        )
    return chosen[: max(1, int(num_usable) // 10)]
