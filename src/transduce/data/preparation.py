"""The preparation of text for a run: checked, cleaned and encoded once, and reused by later runs."""

import json
import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
from jaxtyping import Int
from pydantic import ValidationError

from transduce.config import DataConfig, Settings, TextConfig
from transduce.data.input_files import Inputs, open_inputs
from transduce.data.store import STORE_FILES, TokenStore, create_store, explain_cache_errors
from transduce.data.training_text import (
    FilteredPairs,
    RepetitionFinder,
    TrainingText,
    choose_held_out,
    is_blank,
    iterate_chunks,
    may_be_kept,
    split_data_tag,
)
from transduce.errors import CorpusError, RunError
from transduce.storage import DigestCache, compute_file_digest, create_folder_atomically, scratch_folder
from transduce.text import (
    SOURCE_MODEL,
    Cleaner,
    Pair,
    ParallelCorpus,
    Tokenizer,
    find_tokenizer_files,
    fit_vocabulary_size,
)

Screen: TypeAlias = Callable[
    [Sequence[tuple[str, ParallelCorpus]], tuple[str, ParallelCorpus] | None], Mapping[str, Int[np.ndarray, "..."]]
]
"""A function that finds the pairs that filters leave out.

It takes the training corpora that are not synthetic, without tags, and the validation text, each with the name of its
files. It returns, by the name of each filter, the indices of its pairs, which count through all corpora.
"""


def to_json_line(pair: Pair) -> str:
    """A line of JSON, for any characters in the pair."""
    return json.dumps(pair, ensure_ascii=False) + "\n"


def read_pairs(path: Path) -> Iterator[Pair]:
    """The pairs in a file of lines that `to_json_line` made."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            source, target = json.loads(line)
            yield source, target


def encode_text(
    training: TrainingText, tokenizer: Tokenizer, text: TextConfig, tags: Sequence[str], folder: Path
) -> list[dict[str, int]]:
    """Write the pairs that the rules keep to the store `train` in `folder`, and their text to `kept.jsonl`.

    Only `text.sampling` needs the text again; without it, `kept.jsonl` stays empty. `tags` are the tags that sources
    may begin with.

    Returns:
        For each corpus, the number of pairs left out by each rule, and of those kept.
    """
    counts = []
    with (
        (folder / "kept.jsonl").open("w", encoding="utf-8", newline="\n") as kept,
        create_store(folder / "train", tokenizer.vocabulary) as writer,
    ):
        for number in range(len(training.num_pairs)):
            cleaner = Cleaner(text)
            left_out = Counter[str](dict.fromkeys([*training.filtered.names, "held_out", "like_held_out"], 0))
            for pair, source_ids, target_ids in _encode_kept(
                training.iterate_corpus(number, left_out), tokenizer, cleaner, tags
            ):
                writer.add(tokenizer.as_source(source_ids), tokenizer.as_target(target_ids))
                if text.sampling:
                    kept.write(to_json_line(pair))
            counts.append({**left_out, **cleaner.counts})
        if not writer.num_pairs:
            rules = ", ".join(f"{rule} {count:,}" for rule, count in sum_counts(counts).items())
            raise CorpusError(
                f"none of the {sum(training.num_pairs):,} pairs of training text is left ({rules}): give more text, "
                "separate validation files, or wider limits under [text]"
            )
    return counts


def sum_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The counts of all corpora together."""
    summed: Counter[str] = Counter()
    for one in counts:
        summed.update(one)
    return dict(summed)


def _encode_kept(
    pairs: Iterable[tuple[Pair, bool]], tokenizer: Tokenizer, cleaner: Cleaner, tags: Sequence[str]
) -> Iterator[tuple[Pair, list[int], list[int]]]:
    # A tag is usually one piece, but a tokenizer that does not know it spells it in several.
    tag_pieces = {"": 0} | {tag: len(tokenizer.encode(tag)) for tag in tags}
    for chunk in iterate_chunks(pairs):
        source_ids = tokenizer.encode_all([source for (source, _), _ in chunk])
        target_ids = tokenizer.encode_targets([target for (_, target), _ in chunk])
        for (pair, is_repeated), from_source, from_target in zip(chunk, source_ids, target_ids, strict=True):
            tag, source = split_data_tag(pair[0], tags)
            num_pieces = len(from_source) - tag_pieces[tag], len(from_target)
            if cleaner.keeps(source, pair[1], *num_pieces, is_repeated=is_repeated):
                yield pair, from_source, from_target


@dataclass(frozen=True)
class PreparedCorpus:
    """The result of cleaning one of the training corpora."""

    name: str
    """The files of the corpus, as the configuration names them."""
    weight: float
    """The number of times that an epoch has each pair."""
    cleaning: dict[str, int]
    """The number of pairs that each rule left out, and of those that are `kept`."""


@dataclass(frozen=True)
class PreparedData:
    """The training and validation data of a run."""

    tokenizer: Tokenizer
    train: TokenStore
    validation: list[tuple[str, str]]
    """Raw text; the targets are the references that translations are scored against."""
    corpora: list[PreparedCorpus]
    """In the order in which `train` holds them, one after the other."""
    languages: tuple[str, str]
    """Codes of source and target; "" for one that is not given."""
    digests: dict[str, str]
    """SHA-256 of every input file by its name in the configuration; `all` also covers the settings."""
    folder: Path
    """The folder of the data."""
    digest_cache: DigestCache
    """The digests of the files there."""

    @property
    def cleaning(self) -> dict[str, int]:
        """The number of training pairs that each rule left out, and of those that are `kept`."""
        return sum_counts(corpus.cleaning for corpus in self.corpora)


class _Record(Settings):
    """The content of `prepared.json`: the counts of every corpus, and the digests of the other files."""

    cleaning: list[dict[str, int]]
    files: dict[str, str]


_RECORD = "prepared.json"

_FILES = {SOURCE_MODEL, "validation.jsonl", "kept.jsonl"}
"""The files that every prepared folder has."""


def prepare(
    data: DataConfig,
    text: TextConfig,
    cache: Path,
    *,
    standard_input: BinaryIO | None = None,
    recorded_digests: Mapping[str, str] | None = None,
    screen: Screen | None = None,
    report: Callable[[str], None],
) -> PreparedData:
    """Read, check, clean and encode the text, or find the result of an earlier run in `cache`.

    Args:
        data: the files.
        text: the tokenizer and the rules of cleaning.
        cache: folder for the results, with a subfolder for each digest of text and settings.
        standard_input: what `pairs = "-"` reads.
        recorded_digests: digests recorded when the run began. If the files are unchanged, data prepared by an older
            version of Transduce or SentencePiece is reused as long as it exists.
        screen: finds the pairs that the filters of `data` leave out; called only if nothing is found in `cache`.
        report: receives messages about progress, one sentence each.

    Raises:
        CorpusError: the text breaks a rule, or none of it is left after cleaning. Nothing has been written then.
        ConfigError, WriteError: `cache` cannot be written.
    """
    digest_cache = DigestCache(cache / "digests.json")
    with explain_cache_errors(cache), open_inputs(data, text, cache, standard_input, digest_cache.digest) as inputs:
        for name, omission in inputs.omissions.items():
            report(f"{'standard input' if name == '-' else name}: {omission}.")
        of_same_files = (
            [recorded_digests]
            if recorded_digests and {**recorded_digests, "all": ""} == {**inputs.digests, "all": ""}
            else []
        )
        for digests in (*of_same_files, inputs.digests):
            if (found := _find_prepared(cache, data, digests, digest_cache, report)) is not None:
                _report_spelled_tags(found.tokenizer, inputs.tags, report)
                return found
        folder = _data_folder(cache, inputs.digests["all"])
        with scratch_folder(cache, "repetitions") as scratch:
            name = "" if data.validation_corpus is None else data.validation_corpus.name
            validation_text = None if inputs.validation is None else (name, inputs.validation)
            filtered = {} if screen is None else screen(inputs.untagged, validation_text)
            if filtered.keys() != set(data.filters):
                raise ValueError(f"filters {data.filters} need a screen that finds their pairs, not {[*filtered]}")
            validation, training = _split_validation(data, text, inputs, scratch, filtered, report)
        with create_folder_atomically(folder) as path:
            _build_folder(path, training, validation, text, inputs.tags, report)
        prepared = _open_prepared(folder, data, inputs.digests, digest_cache)
        digest_cache.save()
        _report_spelled_tags(prepared.tokenizer, inputs.tags, report)
        return prepared


def _report_spelled_tags(tokenizer: Tokenizer, tags: Sequence[str], report: Callable[[str], None]) -> None:
    """Say which tags are no tokens of their own, as those that a given tokenizer was not trained with."""
    if spelled := [tag for tag in tags if not tokenizer.split_tag(tag)[0]]:
        report(
            f"warning: the given tokenizer has no token for {', '.join(spelled)} and spells each like a word, which a "
            "model learns less well: give tags that it has, or train a tokenizer (without text.tokenizer; if the run "
            'starts from a model, with training.start_vocabulary = "new").'
        )


def find_prepared_tokenizer(cache: Path, digest: str) -> Path | None:
    """The value of `text.tokenizer` for the tokenizer of prepared data with the digest `all`; None if there is none."""
    if not _is_digest(digest):
        return None
    files = find_tokenizer_files(_data_folder(cache, digest))
    if not all(path.is_file() for path in files.values()):
        return None
    return files[SOURCE_MODEL] if len(files) == 1 else _data_folder(cache, digest)


def find_prepared_validation(cache: Path, digest: str) -> list[Pair] | None:
    """The validation pairs of prepared data with the digest `all`; None if they are no longer there."""
    if not _is_digest(digest):
        return None
    folder = _data_folder(cache, digest)
    path = folder / "validation.jsonl"
    try:
        record = _Record.model_validate_json((folder / _RECORD).read_bytes())
        return list(read_pairs(path)) if compute_file_digest(path) == record.files.get(path.name) else None
    except (OSError, ValidationError):
        return None


def list_prepared_files(prepared: PreparedData) -> dict[str, Path]:
    """The files of prepared data, by their paths within its folder; `open_prepared_copy` opens copies of them."""
    record = _Record.model_validate_json((prepared.folder / _RECORD).read_bytes())
    names = [*sorted(_FILES | record.files.keys()), *(f"train/{name}" for name in STORE_FILES), _RECORD]
    return {name: prepared.folder / name for name in names}


def open_prepared_copy(cache: Path, data: DataConfig, digests: Mapping[str, str]) -> PreparedData | None:
    """Open prepared data that was copied into `cache` from another machine; None if it is not there.

    Args:
        cache: the folder of prepared data.
        data: the configuration of the run, for the names of its corpora; their files are not read.
        digests: the digests of the prepared data, by which it is found.
    """
    digest_cache = DigestCache(cache / "digests.json")
    return _find_prepared(cache, data, digests, digest_cache, lambda _: None)


def find_prepared_folder(cache: Path, digests: Mapping[str, str]) -> Path:
    """Where the prepared data with these digests is, or is to be copied to."""
    return _data_folder(cache, digests["all"])


def _is_digest(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def _data_folder(cache: Path, digest: str) -> Path:
    if not _is_digest(digest):  # it may come from another machine, or from a file
        raise RunError(
            f"the digest of prepared text is recorded as {digest[:80]!r}, which is not 64 hexadecimal digits: restore "
            "metrics.jsonl of the run, or choose another output"
        )
    return cache / digest[:16]


def _find_prepared(
    cache: Path, data: DataConfig, digests: Mapping[str, str], digest_cache: DigestCache, report: Callable[[str], None]
) -> PreparedData | None:
    folder = _data_folder(cache, digests["all"])
    if not folder.exists():
        return None
    try:
        prepared = _open_prepared(folder, data, dict(digests), digest_cache)
    except RunError as error:
        report(f"The prepared data is damaged and is recreated: {error}")
        shutil.rmtree(folder)
        return None
    report(f"Prepared data found in {folder}: {len(prepared.train):,} pairs.")
    digest_cache.save()
    return prepared


def _open_prepared(folder: Path, data: DataConfig, digests: dict[str, str], digest_cache: DigestCache) -> PreparedData:
    path = folder / _RECORD
    try:
        record = _Record.model_validate_json(path.read_bytes())
        names = sorted(_FILES | record.files.keys())
        damaged = [name for name in names if digest_cache.digest(folder / name) != record.files.get(name)]
    except (FileNotFoundError, ValidationError) as error:
        raise RunError(f"{path}, or a file that it names, is missing or damaged: delete {folder}") from error
    if damaged:
        raise RunError(f"{folder / damaged[0]} was changed: delete {folder}")
    train = TokenStore.open(folder / "train", digest_cache.digest)
    if sum(counts.get("kept", 0) for counts in record.cleaning) != len(train):
        raise RunError(f"{path} does not match the pairs in {folder / 'train'}: delete {folder}")
    return PreparedData(
        tokenizer=Tokenizer.load(folder),
        train=train,
        validation=list(read_pairs(folder / "validation.jsonl")),
        corpora=[
            PreparedCorpus(corpus.name, corpus.weight, cleaning)
            for corpus, cleaning in zip(data.training_corpora, record.cleaning, strict=True)
        ],
        languages=data.languages,
        digests=digests,
        folder=folder,
        digest_cache=digest_cache,
    )


def _split_validation(
    data: DataConfig,
    text: TextConfig,
    inputs: Inputs,
    scratch: Path,
    filtered: Mapping[str, Int[np.ndarray, "..."]],
    report: Callable[[str], None],
) -> tuple[list[Pair], TrainingText]:
    """The validation pairs, given or held out, and the training text without those that were held out."""
    num_pairs: list[int] = []
    finder = RepetitionFinder(scratch)
    real, synthetic = (
        finder.record(pairs) if text.drop_duplicates else pairs
        for pairs in (
            _count_pairs(inputs.training[: inputs.num_real], num_pairs),
            _count_pairs(inputs.training[inputs.num_real :], num_pairs),
        )
    )
    cleaner = Cleaner(text)
    is_clean = partial(may_be_kept, cleaner=cleaner, tags=inputs.tags)
    left_out = set(np.concatenate([np.zeros(0, np.int64), *filtered.values()]).tolist())
    unfiltered = (pair for number, pair in enumerate(real) if number not in left_out)
    held_out = choose_held_out(unfiltered, data.held_out, is_clean) if inputs.validation is None else []
    for pairs in (real, synthetic):
        deque(pairs, maxlen=0)  # read to the end, so that all text is checked
    repeats = finder.find_repeats() if text.drop_duplicates else np.zeros(sum(num_pairs), bool)
    filtered_pairs = FilteredPairs.make(filtered, sum(num_pairs))
    training = TrainingText(inputs.training, num_pairs, held_out, repeats, filtered_pairs, inputs.tags)
    if inputs.validation is not None:
        return _read_validation(inputs.validation, report), training
    if sum(num_pairs) == 1:
        if any("\r" in side for corpus in inputs.training for pair in corpus for side in pair):
            raise CorpusError(
                "the text is a single pair with carriage returns (CR) in it: if its lines end in CR alone, as old "
                "spreadsheets write them, convert the files, as in: tr '\\r' '\\n' < FILE > NEW; otherwise give more "
                "pairs, or validation files"
            )
        raise CorpusError(
            "a single pair cannot be used for both training and validation: give more pairs, or validation files"
        )
    if not held_out:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in cleaner.counts.items())
        raise CorpusError(
            f"none of the {sum(num_pairs):,} pairs of training text can be held out for validation ({rules}): give "
            "more text, separate validation files, or wider limits under [text]"
        )
    # Repetitions, and pairs that filters leave out, are not trained on: a tenth of the others.
    is_usable = ~repeats & (filtered_pairs.numbers == 0)
    num_usable = np.count_nonzero(is_usable[: sum(num_pairs[: inputs.num_real])])
    held_out = held_out[: max(1, int(num_usable) // 10)]
    report(f"{len(held_out):,} of {sum(num_pairs):,} pairs are held out for validation.")
    return held_out, replace(training, held_out=held_out)


def _count_pairs(corpora: list[ParallelCorpus], num_pairs: list[int]) -> Iterator[Pair]:
    """The pairs of all corpora; `num_pairs` takes how many each has."""
    for corpus in corpora:
        num_pairs.append(0)
        for pair in corpus:
            num_pairs[-1] += 1
            yield pair
        if not num_pairs[-1]:
            corpus.check()  # raises the error if there are none


def _read_validation(corpus: ParallelCorpus, report: Callable[[str], None]) -> list[Pair]:
    given = list(corpus)
    validation = [pair for pair in given if not is_blank(pair)]
    if len(validation) < len(given):
        report(
            f"{len(given) - len(validation):,} of {len(given):,} validation pairs have a blank side and are left out."
        )
    if not validation:
        raise CorpusError(f"{corpus.name} has no pair with text on both sides; validation needs at least one")
    return validation


def _build_folder(
    path: Path,
    training: TrainingText,
    validation: list[Pair],
    text: TextConfig,
    tags: Sequence[str],
    report: Callable[[str], None],
) -> None:
    """Fills the folder `path`; `prepared.json` comes last."""
    tokenizer = _make_tokenizer(training, text, tags, report)
    for name, content in tokenizer.files.items():
        (path / name).write_bytes(content)
    if training.held_out:
        validation = _clean_held_out(validation, tokenizer, text, tags, report)
    with (path / "validation.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(to_json_line, validation))
    num_pairs = sum(training.num_pairs)
    report(f"Encoding {num_pairs:,} pairs with {tokenizer.vocabulary:,} token ids.")
    cleaning = encode_text(training, tokenizer, text, tags, path)
    counts = sum_counts(cleaning)
    if alike := counts["like_held_out"]:
        report(f"{alike:,} more share a sentence with a held-out pair, and are left out of training.")
    report(f"{counts['kept']:,} of {num_pairs:,} pairs are kept for training.")
    names = sorted(_FILES | tokenizer.files.keys())
    record = _Record(cleaning=cleaning, files={name: compute_file_digest(path / name) for name in names})
    (path / _RECORD).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")


def _clean_held_out(
    held_out: list[Pair],
    tokenizer: Tokenizer,
    text: TextConfig,
    tags: Sequence[str],
    report: Callable[[str], None],
) -> list[Pair]:
    again = ((pair, False) for pair in held_out)
    kept = [pair for pair, _, _ in _encode_kept(again, tokenizer, Cleaner(text), tags)]
    if not kept:
        raise CorpusError(
            f"none of the {len(held_out):,} pairs that were held out for validation is within the limits under [text]: "
            "give separate validation files, or wider limits"
        )
    if len(kept) < len(held_out):
        report(f"{len(held_out) - len(kept):,} of those held out exceed the limits under [text], and are left out.")
    return kept


def _make_tokenizer(
    training: TrainingText, text: TextConfig, tags: Sequence[str], report: Callable[[str], None]
) -> Tokenizer:
    if text.tokenizer is not None:
        return Tokenizer.load(Path(text.tokenizer))
    fitted = text.vocabulary == "fitted"
    vocabulary = fit_vocabulary_size(sum(training.num_pairs)) if text.vocabulary == "fitted" else text.vocabulary
    report(f"Training a tokenizer of {vocabulary:,} token ids.")
    # Source and target share one vocabulary (paper 5.1).
    sentences = (side for pair in training for side in (split_data_tag(pair[0], tags)[1], pair[1]) if side.strip())
    return Tokenizer.train(sentences, vocabulary, text.algorithm, tags=tags, shrink=fitted)
