"""Formats of parallel text: how the name of a file says its format, and what reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from transduce.errors import ConfigError, CorpusError
from transduce.text.corpus import ParallelCorpus
from transduce.text.formats.arrow import is_saved_dataset, open_parquet, open_saved_dataset
from transduce.text.formats.columns import SideSelection
from transduce.text.formats.json_records import open_json
from transduce.text.formats.moses import open_two_files, open_zip
from transduce.text.formats.tables import open_csv, open_tsv
from transduce.text.formats.tmx import open_tmx
from transduce.text.lines import check_file, split_name


class PairsFormat(NamedTuple):
    """A format of files with both sides.

    Args:
        open: opens such a file.
        may_be_compressed: whether its name may have another ending, for compression.
    """

    open: Callable[[Path, SideSelection], ParallelCorpus]
    may_be_compressed: bool = True


PAIRS_FORMATS = {
    ".tsv": PairsFormat(open_tsv),
    ".csv": PairsFormat(open_csv),
    ".json": PairsFormat(open_json),
    ".jsonl": PairsFormat(open_json),
    ".ndjson": PairsFormat(open_json),
    ".tmx": PairsFormat(open_tmx),
    ".parquet": PairsFormat(open_parquet, may_be_compressed=False),
    ".zip": PairsFormat(open_zip, may_be_compressed=False),
}
"""The formats of files with both sides, by the ending of the name."""


def open_parallel_corpus(
    folder: Path,
    source: str | None,
    target: str | None,
    pairs: str | None,
    columns: tuple[str, str] | None,
    languages: tuple[str, str] = ("", ""),
    setting: str = "data.columns",
    *,
    has_direction: bool = False,
) -> ParallelCorpus:
    """Open the corpus in `source` and `target`, or in `pairs`; names are relative to `folder`.

    Args:
        folder: the folder of the files.
        source: text, one sentence per line; plain, .gz, .xz or .zst.
        target: the same for the other side, line for line.
        pairs: instead of both: a file in one of `PAIRS_FORMATS`, or a folder that Hugging Face's `save_to_disk` wrote.
        columns: what `pairs` calls source and target, as the function that opens its format says.
        languages: codes of source and target, which tell them apart where there are no `columns`.
        setting: the setting of `columns`, for messages.
        has_direction: whether the text is for a trained model: see `SideSelection`.

    Raises:
        CorpusError: a file is missing, is another folder, or has an unknown extension.
        ConfigError: neither both sides nor pairs are given.
    """
    if pairs is not None:
        return _open_pairs(folder / pairs, SideSelection(columns, languages, setting, has_direction))
    if source is None or target is None:
        raise ConfigError("no parallel text: give source and target, or pairs")
    for path in (folder / source, folder / target):
        check_file(path)
    return open_two_files(folder / source, folder / target)


def _open_pairs(path: Path, selection: SideSelection) -> ParallelCorpus:
    if is_saved_dataset(path):
        return open_saved_dataset(path, selection)
    if path.is_dir():
        raise CorpusError(
            f"{path} is a folder, and Hugging Face's save_to_disk did not write it (it has no state.json): give the "
            "folder of such a data set, or a file; list several files as data.corpora"
        )
    check_file(path)
    _, ending, compression = split_name(path)
    found = PAIRS_FORMATS.get(ending.lower())
    if found is None or (compression and not found.may_be_compressed):
        raise CorpusError(
            f"{path}: a file of pairs must end in {_list_endings(may_be_compressed=True)}, and then in .gz, .xz or "
            f".zst if it is compressed, or in {_list_endings(may_be_compressed=False)}: rename it, or give source and "
            f"target"
        )
    return found.open(path, selection)


def _list_endings(*, may_be_compressed: bool) -> str:
    *first, last = [ending for ending, one in PAIRS_FORMATS.items() if one.may_be_compressed == may_be_compressed]
    return f"{', '.join(first)} or {last}"
