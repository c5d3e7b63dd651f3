import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import BinaryIO

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import CorpusError, MissingExtraError
from transduce.text import (
    compress,
    decompress,
    read_available_blocks,
    read_document,
    read_lines,
    read_stream,
    split_name,
)
from transduce.text.lines import MIN_SIZE_LIMIT

Lines = Callable[[str, bytes | str], list[str]]
TEXT = "".join(f"Zeile {number} mit Ä und 😀\n" for number in range(20_000))
COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"))), st.booleans())
def test_lines_come_back_as_they_were_written(lines: list[str], windows: bool) -> None:
    end = "\r\n" if windows else "\n"
    stream = io.BytesIO("".join(line + end for line in lines).encode())
    assert list(read_stream(stream, "here")) == lines


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("in/a.b.TSV.Gz", ("a.b", ".TSV", ".Gz")),
        ("a.txt", ("a", ".txt", "")),
        ("a.xz", ("a", "", ".xz")),
        ("tsv", ("tsv", "", "")),
        (".gz", (".gz", "", "")),
    ],
)
def test_a_name_has_three_parts(name: str, parts: tuple[str, str, str]) -> None:
    assert split_name(PurePath(name)) == parts


def test_only_line_feeds_end_lines(lines_of: Lines) -> None:
    assert lines_of("a", "a\u2028b\x0bc\x85d\re\x1cf\r\ng\n") == ["a\u2028b\x0bc\x85d\re\x1cf", "g"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r", ["a\r"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\x00\x07\n", ["\x00\x07"]),
    ],
)
def test_ends_of_lines_and_of_files(lines_of: Lines, content: bytes, expected: list[str]) -> None:
    assert lines_of("a", content) == expected


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files_read_like_plain_ones(lines_of: Lines, ending: str) -> None:
    assert lines_of(f"a{ending}", COMPRESS[ending](TEXT.encode())) == TEXT.split("\n")[:-1]
    assert lines_of(f"A{ending.upper()}", COMPRESS[ending](b"")) == []


@pytest.mark.parametrize("ending", COMPRESS)
def test_files_joined_after_compression_are_read_to_the_end(lines_of: Lines, ending: str) -> None:
    parts = [b"a\nb", b"c\n", TEXT.encode(), b"", b"d"]
    content = b"".join(map(COMPRESS[ending], parts))
    assert lines_of(f"a{ending}", content) == b"".join(parts).decode().split("\n")


@pytest.mark.exhaustive
@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_compressed_file_that_is_cut_off_is_an_error(lines_of: Lines, ending: str, share: float) -> None:
    content = COMPRESS[ending](TEXT.encode())
    with pytest.raises(CorpusError, match=rf"a\{ending}: damaged or truncated after line \d+"):
        lines_of(f"a{ending}", content[: int(len(content) * share)])


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_damaged_compressed_file_is_an_error(lines_of: Lines, ending: str) -> None:
    # Without checksums, as in many .zst files, some damage cannot be found.
    compress = COMPRESS | {".zst": zstandard.ZstdCompressor(write_checksum=True).compress}
    content = bytearray(compress[ending](TEXT.encode()))
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(byte ^ 0x5A for byte in content[middle : middle + 40])
    with pytest.raises(CorpusError, match=rf"a\{ending}(: damaged|, line \d+, byte)"):
        lines_of(f"a{ending}", bytes(content))


@pytest.mark.parametrize(("ending", "compression"), [(".gz", "gzip"), (".xz", "xz"), (".zst", "Zstandard")])
def test_a_file_that_is_not_compressed_as_its_name_says_is_called_so(
    lines_of: Lines, ending: str, compression: str
) -> None:
    for name in (f"a{ending}", f"b{ending.upper()}"):
        rule = rf"ends in \{ending}, but is not {compression}: if it is plain text, rename it to end without \{ending}"
        with pytest.raises(CorpusError, match=rule):
            lines_of(name, b"plain text\n")
    for other, compress_text in COMPRESS.items():
        if other != ending:
            with pytest.raises(
                CorpusError, match=rf"is not {compression}: the file looks .* rename it to end in \{other}"
            ):
                lines_of(f"a{ending}", compress_text(b"text"))


def test_other_starts_of_compressed_files_are_known(lines_of: Lines) -> None:
    assert lines_of("a.xz", lzma.compress(b"a\n", format=lzma.FORMAT_ALONE)) == ["a"]
    assert lines_of("a.zst", b"\x51\x2a\x4d\x18\x02\0\0\0ab" + zstandard.compress(b"a\n")) == ["a"]


def test_a_missing_package_is_named(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"a\.zst needs .*pip install 'transduce\[data\]'"):
        list(read_lines(write("a.zst", zstandard.compress(b"a"))))


def test_a_missing_package_leaves_nothing_that_fails_when_it_is_closed(write: Callable[..., Path]) -> None:
    """Python 3.13 reports such a failure always, earlier ones in development mode."""
    program = (
        "import sys; from pathlib import Path; from transduce.text import read_lines\n"
        "sys.modules['zstandard'] = None\n"
        "list(read_lines(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-X", "dev", "-c", program, str(write("a.zst", b""))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_wrong_byte_is_named_by_file_line_and_place(lines_of: Lines) -> None:
    with pytest.raises(CorpusError, match=r"a\.de, line 3, byte 4 of the line: the byte 0xe9 .*iconv -f latin1"):
        lines_of("a.de", b"eins\nzwei\nCaf\xe9 au lait\n")
    with pytest.raises(CorpusError, match=r"standard input, line 1, byte 3 of the line: the byte 0xed "):
        list(read_stream(io.BytesIO("ü".encode() + b"\xed\xa0\x80"), "standard input"))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("Wörter\n".encode("utf-16"), "UTF-16.*iconv -f utf-16"),
        (b"\xfe\xff" + "Wörter\n".encode("utf-16-be"), "UTF-16"),
        (gzip.compress(b"text", mtime=0), r"looks like gzip: rename it to end in \.gz"),
        (lzma.compress(b"text"), r"\.xz"),
        (zstandard.compress(b"text"), r"\.zst"),
    ],
    # Names from the bytes would differ with the clock and the libraries' versions, and the workers must agree on them.
    ids=["utf-16", "utf-16-be", "gzip", "xz", "zstandard"],
)
def test_what_is_not_text_is_recognised(lines_of: Lines, content: bytes, hint: str) -> None:
    with pytest.raises(CorpusError, match=rf"line 1, .*{hint}"):
        lines_of("a.txt", content)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"PK\x03\x04\x14\0\0\0\x08\0\xa7", "looks like a Word document .* use `transduce translate-file`"),
        (b"PK\x03\x04\x14\0\0\0\n\xa7", "looks like a Word document .* unpack an archive"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "looks like PDF: convert it to text, as in: pdftotext"),
        (b"\x89PNG\r\n\x1a\n", r"looks like a picture \(PNG\)"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", r"looks like a picture \(JPEG\)"),
    ],
)
def test_documents_and_pictures_are_called_so(lines_of: Lines, tmp_path: Path, content: bytes, hint: str) -> None:
    with pytest.raises(CorpusError, match=rf"line 1.*the file {hint}"):
        lines_of("a.txt", content)
    with (tmp_path / "a.txt").open("rb") as stream, pytest.raises(CorpusError, match=rf"line 1.*the file {hint}"):
        read_document(stream, "standard input")
    lines_of("a.txt", b"The sun.\n%PDF-1.7 is a format.\n")


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="is a folder"):
        list(read_lines(tmp_path))
    with pytest.raises(CorpusError, match=r"none: there is no such file"):
        list(read_lines(tmp_path / "none"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="not a regular file"):
        list(read_lines(tmp_path / "pipe"))


def test_a_file_without_permission_is_refused(unreadable_file: Path) -> None:
    with pytest.raises(CorpusError, match="check its permissions"):
        list(read_lines(unreadable_file))


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        yield reader, writer


def test_a_file_comes_in_blocks_as_large_as_they_may_be(tmp_path: Path) -> None:
    path = tmp_path / "text"
    lines = [f"line {number}" * (number % 50) for number in range(5000)]
    path.write_bytes("\n".join(lines).encode())
    for most in (1, 7, 2048, 10_000):
        with path.open("rb") as stream:
            blocks = list(read_available_blocks(stream, "text", lambda most=most: most))
        assert [line for block in blocks for line in block] == lines
        assert {len(block) for block in blocks[:-1]} <= {most}
        assert 0 < len(blocks[-1]) <= most


def test_what_is_held_in_memory_is_read_like_a_file() -> None:
    assert list(read_available_blocks(io.BytesIO(b"a\nb\r\nc"), "text", lambda: 2)) == [["a", "b"], ["c"]]
    assert list(read_available_blocks(io.BytesIO(b""), "text", lambda: 2)) == []
    assert list(read_available_blocks(None, "text", lambda: 2)) == []


def test_a_line_does_not_wait_for_the_next(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    blocks = read_available_blocks(reader, "standard input", lambda: 100)
    for number in range(3):
        writer.write(f"line {number}\n".encode())
        assert next(blocks) == [f"line {number}"]  # nobody writes meanwhile, and nobody closes the pipe
    writer.write(b"two\nat once\nand a beg")
    threading.Timer(0.2, lambda: (writer.write(b"inning\n"), writer.close())).start()
    assert [line for block in blocks for line in block] == ["two", "at once", "and a beginning"]


def test_what_comes_quickly_comes_together(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe

    def write() -> None:
        for number in range(30):
            writer.write(f"{number}\n".encode())
            time.sleep(0.001)
        writer.close()

    threading.Thread(target=write).start()
    blocks = list(read_available_blocks(reader, "standard input", lambda: 100))
    assert [line for block in blocks for line in block] == [str(number) for number in range(30)]
    assert len(blocks) < 15


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_stands_before_an_error_is_handed_on(tmp_path: Path, *, in_memory: bool) -> None:
    data = b"one\ntwo\n\xff\nfour\n"
    (tmp_path / "text").write_bytes(data)
    with io.BytesIO(data) if in_memory else (tmp_path / "text").open("rb") as stream:
        blocks = read_available_blocks(stream, "text", lambda: 100)
        assert next(blocks) == ["one", "two"]
        with pytest.raises(CorpusError, match="text, line 3"):
            next(blocks)


def test_half_a_line_does_not_hold_back_a_whole_one(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    blocks = read_available_blocks(reader, "standard input", lambda: 100)
    writer.write(b"first\nhalf of the sec")
    assert next(blocks) == ["first"]  # the rest is not written before this is there
    writer.write(b"ond\n")
    assert next(blocks) == ["half of the second"]


def test_a_long_line_takes_time_in_proportion(tmp_path: Path, time_growth: Callable[..., float]) -> None:
    paths = []
    for megabytes in (2, 16):  # blocks of 32 MB and more are new pages for malloc every time, which cost twice as much
        paths.append(tmp_path / f"{megabytes}")
        paths[-1].write_bytes(b"a" * megabytes * 2**20)

    def read(path: Path) -> None:
        with path.open("rb") as stream:
            assert [list(map(len, block)) for block in read_available_blocks(stream, "text", lambda: 1)] == [
                [path.stat().st_size]
            ]

    assert time_growth(read, *paths) < 24  # eight times as much; it was the square


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_pieces_compressed_one_by_one_are_read_as_one(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{ending}"
    pieces = [b"a\nb\n", b"", b"c\n"]
    path.write_bytes(b"".join(compress(piece, path.name) for piece in pieces))
    assert list(read_lines(path)) == ["a", "b", "c"]
    with path.open("rb") as file, decompress(file, path.name) as stream:
        assert stream.read() == b"a\nb\nc\n"
    assert compress(pieces[0], path.name) == compress(pieces[0], path.name)


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_line_that_would_fill_the_memory_is_an_error(lines_of: Lines, ending: str) -> None:
    content = b"a\n" + bytes(MIN_SIZE_LIMIT // 2)
    assert [len(line) for line in lines_of(f"a{ending}", COMPRESS[ending](content))] == [1, MIN_SIZE_LIMIT // 2]
    for much in (bytes(2 * MIN_SIZE_LIMIT), b"a\n" + bytes(2 * MIN_SIZE_LIMIT) + b"\n"):
        with pytest.raises(CorpusError, match=rf"a\{ending}: has a line of more than 16,777,216 bytes"):
            lines_of(f"a{ending}", COMPRESS[ending](much))


def test_a_name_that_no_file_can_have_is_an_error() -> None:
    for name, words in (
        ("a" * 300, "cannot be opened"),
        ("a\0b", "there is no such file"),
        ("missing", "no such file"),
    ):
        with pytest.raises(CorpusError, match=words):
            list(read_lines(Path(name)))


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ascii_in_utf_16_without_a_byte_order_mark_is_called_so(encoding: str, end: str) -> None:
    lines = f"two words{end}and more{end}".encode(encoding).splitlines(keepends=True)
    with pytest.raises(CorpusError, match=rf"stream, line 1: .* looks like UTF-16: .* iconv -f {encoding} "):
        list(read_stream(lines, "stream"))


def test_single_zeros_are_no_utf_16() -> None:
    for line in ("a\0b\n", "\0\n", "\0\0\0\0\n", "a\0b\0c\0\0\0\n"):
        assert list(read_stream([line.encode()], "stream")) == [line.rstrip("\n")]


def test_utf_16_without_a_byte_order_mark_is_called_so() -> None:
    lines = "é\n".encode("utf-16-le").splitlines(keepends=True)
    with pytest.raises(CorpusError, match=r"looks like UTF-16: convert it, as in: iconv -f utf-16le"):
        list(read_stream(lines, "stream"))
    lines = "éa\n".encode("utf-16-be").splitlines(keepends=True)
    with pytest.raises(CorpusError, match=r"looks like UTF-16: convert it, as in: iconv -f utf-16be"):
        list(read_stream(lines, "stream"))
