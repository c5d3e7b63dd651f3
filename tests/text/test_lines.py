import gzip
import io
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import CorpusError, MissingExtraError
from transduce.text import read_lines, read_stream

Lines = Callable[[str, bytes | str], list[str]]
TEXT = "".join(f"Zeile {number} mit Ä und 😀\n" for number in range(20_000))
COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"))), st.booleans())
def test_lines_come_back_as_they_were_written(lines: list[str], windows: bool) -> None:
    end = "\r\n" if windows else "\n"
    stream = io.BytesIO("".join(line + end for line in lines).encode())
    assert list(read_stream(stream, "here")) == lines


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


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_compressed_file_that_is_cut_off_is_an_error(lines_of: Lines, ending: str, share: float) -> None:
    content = COMPRESS[ending](TEXT.encode())
    with pytest.raises(CorpusError, match=rf"a\{ending}: damaged or cut off after line \d+"):
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
    with pytest.raises(CorpusError, match="damaged or cut off after line 0"):
        lines_of(f"a{ending}", b"plain text\n")


def test_a_missing_package_is_named(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"a\.zst needs .*pip install 'transduce\[data\]'"):
        list(read_lines(write("a.zst", zstandard.compress(b"a"))))


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
        (gzip.compress(b"text", mtime=0), r"looks like gzip: let its name end in \.gz"),
        (lzma.compress(b"text"), r"\.xz"),
        (zstandard.compress(b"text"), r"\.zst"),
    ],
    # Names from the bytes would differ with the clock and the libraries' versions, and the workers must agree on them.
    ids=["utf-16", "utf-16-be", "gzip", "xz", "zstandard"],
)
def test_what_is_not_text_is_recognised(lines_of: Lines, content: bytes, hint: str) -> None:
    with pytest.raises(CorpusError, match=rf"line 1, .*{hint}"):
        lines_of("a.txt", content)


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
