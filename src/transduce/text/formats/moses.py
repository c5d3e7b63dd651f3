"""Pairs in the form that Moses made common, two texts line for line: as two files, or as two members of a zip."""

import io
import zipfile
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import cast

from transduce.errors import CorpusError
from transduce.pages import format_count
from transduce.text.corpus import Pair, ParallelCorpus
from transduce.text.formats.columns import SideSelection, list_names
from transduce.text.languages import find_codes
from transduce.text.lines import MAX_RATIO, MIN_SIZE_LIMIT, read_lines, read_stream


def open_two_files(source: Path, target: Path) -> ParallelCorpus:
    """The corpus in two files, of which line n of one is the translation of line n of the other.

    Raises (while it is read):
        CorpusError: the files do not have the same number of lines; see also `read_lines`.
    """
    files, names = (source, target), (str(source), str(target))

    def read(missing: str | None = None) -> Iterator[Pair]:
        return _pair_lines(names, read_lines(source), read_lines(target), missing)

    return ParallelCorpus(" and ".join(names), files, read, read_to_end=read)


def _pair_lines(
    names: tuple[str, str], sources: Iterator[str], targets: Iterator[str], missing: str | None = None
) -> Iterator[Pair]:
    """Pair the lines of two texts; `missing` stands for each line that the shorter one lacks. None: raise an error."""
    if missing is not None:
        yield from zip_longest(sources, targets, fillvalue=missing)
        return
    for index, (source_line, target_line) in enumerate(zip_longest(sources, targets)):
        if source_line is None or target_line is None:
            # What is missing on one side is counted on the other, with the line at hand.
            rest = 1 + sum(1 for _ in sources) + sum(1 for _ in targets)
            num_sources = index if source_line is None else index + rest
            num_targets = index if target_line is None else index + rest
            raise CorpusError(
                f"{names[0]} has {format_count(num_sources, 'line')} and {names[1]} has {num_targets:,}: "
                f"they must be translations of each other, line for line"
            )
        yield source_line, target_line


def open_zip(path: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in two members of a zip file, as OPUS offers them: "Books.de-en.de" and "Books.de-en.en".

    They are the only two whose names end in the languages (`find_codes`), or in the given columns; or members that
    these name in full. Other members, such as README and LICENSE, are not read, and nothing is extracted.

    Raises (while it is read):
        CorpusError: the file is damaged or not zip; source and target are unknown, or not exactly one member fits each;
            one is encrypted, or has more than 200 times its compressed size; or their numbers of lines differ.
    """
    read = partial(_read_zip, path, selection)
    return ParallelCorpus(str(path), (path,), read, is_by_language=True, read_to_end=read)


def _read_zip(path: Path, selection: SideSelection, missing: str | None = None) -> Iterator[Pair]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: damaged, or not a zip file ({error}): download or create it again") from None
    with archive:
        source, target = _find_members(archive, path, selection)
        names = f"{path}: {source.filename}", f"{path}: {target.filename}"
        with _open_member(archive, source, names[0]) as sources, _open_member(archive, target, names[1]) as targets:
            lines = _read_member(sources, names[0]), _read_member(targets, names[1])
            yield from _pair_lines(names, *lines, missing)


def _find_members(
    archive: zipfile.ZipFile, path: Path, selection: SideSelection
) -> tuple[zipfile.ZipInfo, zipfile.ZipInfo]:
    # What macOS adds about a file has the same ending; `is_dir` fails for a member without a name.
    members = [one for one in archive.infolist() if not one.filename.startswith("__MACOSX/")]
    members = [one for one in members if not one.filename.endswith("/")]
    names = [one.filename for one in members]
    if selection.columns is None and not selection.has_languages:
        raise CorpusError(
            f"{path}: has the members {list_names(names)}, and source and target are unknown: {selection.remedy}"
        )
    source, target = (_find_member(name, members, path, selection) for name in selection.columns or selection.languages)
    if source is target:
        raise CorpusError(
            f"{path}: source and target are both {source.filename!r}: name two members by {selection.setting}"
        )
    return source, target


def _find_member(name: str, members: list[zipfile.ZipInfo], path: Path, selection: SideSelection) -> zipfile.ZipInfo:
    """The only member that ends in the language `name`, or is called so."""
    found = [member for member in members if member.filename == name]
    if not found:
        endings = [member.filename.rpartition(".")[2] for member in members]
        codes = set(find_codes(name, endings))
        found = [member for member, ending in zip(members, endings, strict=True) if ending in codes]
    if len(found) != 1:
        fitting = (
            f"{len(found)} members, {list_names([one.filename for one in found])}, end" if found else "no member ends"
        )
        others = "" if found else f"; it has {list_names([member.filename for member in members])}"
        raise CorpusError(
            f"{path}: {fitting} in .{name}{others}: name the members of source and target by {selection.setting}, or "
            "unpack them and give two files"
        )
    return found[0]


def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> io.BufferedReader:
    if member.flag_bits & 1:
        raise CorpusError(f"{name}: is encrypted: unpack it with its password, and give two files")
    if member.file_size > max(MIN_SIZE_LIMIT, MAX_RATIO * member.compress_size):
        raise CorpusError(
            f"{name}: {member.file_size:,} bytes are compressed to {member.compress_size:,}, as no text can be: "
            "download the file from a source that you trust, or unpack it and give two files"
        )
    try:
        # A buffer around that of zipfile: one written in C yields lines several times as fast.
        return io.BufferedReader(cast("io.RawIOBase", archive.open(member)))
    except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeDecodeError) as error:
        raise CorpusError(f"{name}: cannot be read ({error}): download or create the file again") from None


def _read_member(stream: io.BufferedReader, name: str) -> Iterator[str]:
    return read_stream(_convert_zip_errors(stream), name)


def _convert_zip_errors(stream: io.BufferedReader) -> Iterator[bytes]:
    """The lines of a member; where zipfile finds damage, it has an error of its own."""
    try:
        yield from stream
    except zipfile.BadZipFile as error:
        raise EOFError(str(error)) from None
