"""Lines of text files, plain or compressed, and of streams; only UTF-8 is accepted."""

import gzip
import io
import lzma
import os
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from types import ModuleType
from typing import Any, BinaryIO

from transduce.errors import CorpusError, MissingExtraError

_BLOCK = 1 << 14
_READ = 1 << 16
_START = 6
_COMPRESSED_BLOCK = 1 << 10  # which zstandard decompresses at once: 4 bytes may become 128 KiB

_DAMAGES = (OSError, EOFError, zlib.error, lzma.LZMAError)

_IS_UTF_16 = "the file looks like UTF-16: convert it, as in: iconv -f {} -t utf-8"

# First bytes of files that are not text.
_SIGNATURES = {
    b"\xff\xfe": _IS_UTF_16.format("utf-16"),
    b"\xfe\xff": _IS_UTF_16.format("utf-16"),
    b"\x1f\x8b": "the file looks like gzip: rename it to end in .gz, or decompress it first",
    b"\xfd7zXZ": "the file looks like xz: rename it to end in .xz, or decompress it first",
    b"\x28\xb5\x2f\xfd": "the file looks like Zstandard: rename it to end in .zst, or decompress it first",
    b"\x89PNG": "the file looks like a picture (PNG), not like text: give a file of text",
    b"\xff\xd8\xff": "the file looks like a picture (JPEG), not like text: give a file of text",
}

# First bytes of files that are not text, either, though their first line may be UTF-8.
_DOCUMENT_SIGNATURES = {
    b"PK\x03\x04": "the file looks like a Word document or another zip archive: use `transduce translate-file` for a "
    "document (.docx), and unpack an archive",
    b"%PDF-": "the file looks like PDF: convert it to text, as in: pdftotext -enc UTF-8",
}
_SIGNATURES |= _DOCUMENT_SIGNATURES

# How files begin that are what their names say. That of xz has an older form, and Zstandard may skip a frame first.
_STARTS = {
    ".gz": ("gzip", (b"\x1f\x8b",)),
    ".xz": ("xz", (b"\xfd7zXZ\0", b"\x5d\0\0")),
    ".zst": ("Zstandard", (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + kind]) + b"\x2a\x4d\x18" for kind in range(16)))),
}

COMPRESSIONS = (".gz", ".xz", ".zst")
"""Endings of the names of compressed files."""


def split_name(path: PurePath) -> tuple[str, str, str]:
    """The name of a file in three parts: its stem, its ending, and that of its compression, or "" for each."""
    compression = path.suffix if path.suffix.lower() in COMPRESSIONS else ""
    plain = PurePosixPath(path.name.removesuffix(compression))
    return plain.stem, plain.suffix, compression


def read_lines(path: Path, *, keep_ends: bool = False) -> Iterator[str]:
    """The lines of a file, decompressed as its ending says (.gz, .xz, .zst); see `read_stream`.

    Raises:
        CorpusError: the file is missing, damaged or not UTF-8; names the last line read.
        MissingExtraError: the file ends in .zst and zstandard is not installed.
    """
    with _open(path) as stream:
        yield from read_stream(stream, str(path), keep_ends=keep_ends)


def read_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, decompressed as its ending says (.gz, .xz, .zst), 64 KiB at a time.

    Raises:
        CorpusError: the file is missing or damaged.
        MissingExtraError: the file ends in .zst and zstandard is not installed.
    """
    num_bytes = 0
    with _open(path) as stream:
        try:
            while block := stream.read(_READ):
                num_bytes += len(block)
                yield block
        except _DAMAGES as error:
            raise CorpusError(
                f"{path}: damaged or truncated after {num_bytes:,} bytes ({error}): download or create the file again"
            ) from None


def read_stream(stream: Iterable[bytes], name: str, *, keep_ends: bool = False) -> Iterator[str]:
    """The lines of an open binary stream without their line feed, or carriage return and line feed.

    A byte order mark at the start is dropped. Other characters that Unicode counts as line ends stay in the text. With
    `keep_ends`, all lines keep their ends. Errors call the stream `name`.

    Raises:
        CorpusError: a line is not UTF-8, or the stream breaks off.
    """
    number = 0
    try:
        for number, line in enumerate(stream, start=1):
            text = _decode_utf8(line, name, number)
            if not keep_ends:
                text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
            yield text.removeprefix("\ufeff") if number == 1 else text
    except _DAMAGES as error:
        raise CorpusError(
            f"{name}: damaged or truncated after line {number} ({error}): download or create the file again"
        ) from None


def read_document(stream: BinaryIO, name: str) -> str:
    """The whole text of a stream, with its line ends; a byte order mark at the start is dropped. See `read_stream`."""
    lines = stream.read().split(b"\n")
    text = "\n".join(_decode_utf8(line, name, number) for number, line in enumerate(lines, start=1))
    return text.removeprefix("\ufeff")


def check_file(path: Path) -> None:
    """Check that `path` is a regular file, not a folder, pipe or device."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError) as error:  # the latter: a NUL character
        if isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
            raise CorpusError(
                f"{path}: there is no such file: check the path and the folder it is relative to"
            ) from None
        raise CorpusError(f"{path}: cannot be opened ({error.strerror}): check the path and its permissions") from None
    if stat.S_ISDIR(kind):
        raise CorpusError(f"{path} is a folder: give the path of a text file")
    if not stat.S_ISREG(kind):
        raise CorpusError(f"{path} is not a regular file, but the text is read several times: write it to a file first")


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    check_file(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be opened ({error.strerror}): check its permissions") from None
    with file, decompress(file, str(path)) as stream:
        yield stream


def decompress(file: BinaryIO, name: str) -> io.BufferedReader | BinaryIO:
    """The content of an open file, decompressed as the ending of its name says (.gz, .xz, .zst); otherwise the file
    itself.

    Raises:
        CorpusError: the file is not what the ending says; or, while it is read, a line has more than 16 MiB and 200
            times the bytes of the compressed file, as no text can have, and would fill the memory.
        MissingExtraError: the name ends in .zst and zstandard is not installed.
    """
    stream: gzip.GzipFile | lzma.LZMAFile | _ZstandardFile
    match Path(name).suffix.lower():
        case ".gz":
            stream = gzip.GzipFile(fileobj=file)
        case ".xz":
            stream = lzma.LZMAFile(file)  # noqa: SIM115 - which opens nothing
        case ".zst":
            stream = _ZstandardFile(file, _import_zstandard(f"reading {name}"))
        case _:
            return file
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        start = file.read(_START)
        file.seek(0)
    except (OSError, ValueError):  # a stream, as over HTTP without ranges
        size, start = 0, b""
    _check_start(start, name)
    # A buffer around those of gzip and lzma: one written in C yields lines several times as fast.
    return io.BufferedReader(_LimitedLines(stream, name, max(MIN_SIZE_LIMIT, MAX_RATIO * size)), _BLOCK)


def _find_signature(start: bytes, signatures: Mapping[bytes, str]) -> str | None:
    """What is to be done about a file that begins with one of the signatures."""
    return next((remedy for first, remedy in signatures.items() if start.startswith(first)), None)


def _check_start(start: bytes, name: str) -> None:
    """Check that a file begins as its name says, as far as there are bytes."""
    ending = Path(name).suffix.lower()
    compression, starts = _STARTS[ending]
    if any(start[: len(one)] == one[: len(start)] for one in starts):
        return
    remedy = (
        _find_signature(start, _SIGNATURES)
        or f"if it is plain text, rename it to end without {ending}; otherwise download or create it again"
    )
    raise CorpusError(f"{name}: ends in {ending}, but is not {compression}: {remedy}")


MAX_RATIO = 200
MIN_SIZE_LIMIT = 1 << 24
"""A line of compressed text may have at most `MAX_RATIO` times the bytes of the compressed file, which is more than any
text has, or else `MIN_SIZE_LIMIT` bytes, which do no harm."""


class _LimitedLines(io.RawIOBase):
    """A stream whose lines are at most `limit` bytes long."""

    def __init__(self, stream: "gzip.GzipFile | lzma.LZMAFile | _ZstandardFile", name: str, limit: int) -> None:
        self._stream, self._name, self._limit = stream, name, limit
        self._length = 0  # of the line so far

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        size = self._stream.readinto(buffer)
        end = bytes(buffer[:size]).rfind(b"\n")
        self._length = self._length + size if end < 0 else size - end - 1
        if self._length > self._limit:
            raise CorpusError(
                f"{self._name}: has a line of more than {self._limit:,} bytes, which no text of its compressed size "
                "can have: download the file from a source that you trust"
            )
        return size


def compress(content: bytes, name: str) -> bytes:
    """Content compressed as the ending of a name says; pieces that were compressed one by one can be concatenated.

    Raises:
        MissingExtraError: the name ends in .zst and zstandard is not installed.
    """
    match Path(name).suffix.lower():
        case ".gz":
            return gzip.compress(content, mtime=0)
        case ".xz":
            return lzma.compress(content)
        case ".zst":
            return bytes(_import_zstandard(f"writing {name}").ZstdCompressor().compress(content))
        case _:
            return content


def _import_zstandard(purpose: str) -> ModuleType:
    try:
        import zstandard  # noqa: PLC0415 - an optional package
    except ImportError:
        raise MissingExtraError("zstandard", "data", purpose) from None
    return zstandard


class _ZstandardFile(io.RawIOBase):
    """A decompressed file of any number of frames; zstandard's own reader does not notice a truncated file."""

    def __init__(self, file: BinaryIO, zstandard: ModuleType) -> None:
        self._file = file
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._in_frame = False
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        while not self._left and (block := self._file.read(_COMPRESSED_BLOCK)):
            self._left = memoryview(self._decompress(block))
        if not self._left and self._in_frame:
            raise EOFError("the last Zstandard frame is incomplete")
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def _decompress(self, block: bytes) -> bytes:
        parts = []
        try:
            while block:
                parts.append(self._frame.decompress(block))
                self._in_frame = not self._frame.eof
                block = self._frame.unused_data
                if not self._in_frame:
                    self._frame = self._new_frame()
        except self._error as error:
            raise EOFError(str(error)) from None
        return b"".join(parts)


def _decode_utf8(line: bytes, name: str, number: int) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"{name}, line {number}, byte {error.start + 1} of the line"
        found = f"the byte 0x{line[error.start]:02x} is not UTF-8"
        remedy = "convert it, as in: iconv -f latin1 -t utf-8"
        if b"\0" in line:
            remedy = _IS_UTF_16.format("utf-16le" if line[1::2].count(0) >= line[::2].count(0) else "utf-16be")
        if number == 1:
            remedy = _find_signature(line, _SIGNATURES) or remedy
        raise CorpusError(f"{place}: {found}; {remedy}") from None
    if number == 1 and (known := _find_signature(line, _DOCUMENT_SIGNATURES)):
        raise CorpusError(f"{name}, line 1: {known}")
    if number == 1 and b"\0" in line and (encoding := _find_utf_16_of_ascii(line)):
        raise CorpusError(f"{name}, line 1: every second byte is 0; {_IS_UTF_16.format(encoding)}")
    return text


def _find_utf_16_of_ascii(line: bytes) -> str | None:
    """Find out whether a line is ASCII text in UTF-16; returns its byte order, as utf-16le or utf-16be, or else None.

    In such a line every second byte is 0. Nothing else gives it away, as its bytes are valid UTF-8, too.
    """
    content = line.rstrip(b"\r\n")
    first, second = content[::2], content[1::2]
    if len(content) < 4:
        return None
    if all(first) and not any(second):
        return "utf-16le"
    return "utf-16be" if all(second) and not any(first) else None


_MAX_WAIT = 0.05
"""Seconds to wait for more from a pipe or terminal."""


class _Descriptor:
    """The lines of an open file descriptor, and whether the next line can be read without waiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._buffer = bytearray()
        self._searched = 0  # bytes of it without a line end
        self._is_at_end = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            end = self._line_end()
            if not end and not self._is_at_end:
                self._read()
                continue
            line = bytes(self._buffer[: end or len(self._buffer)])
            del self._buffer[: len(line)]
            self._searched = 0
            if not line:
                return
            yield line

    def has_more(self) -> bool:
        """Whether a whole line, or the end, is available or arrives within 50 ms."""
        until = time.monotonic() + _MAX_WAIT
        while not self._line_end() and not self._is_at_end and not self._is_file:
            rest = max(0.0, until - time.monotonic())
            if not select.select([self._descriptor], [], [], rest)[0]:
                return False
            self._read()
        return True

    def _line_end(self) -> int:
        """Bytes of the first line with its end; 0 if its end has not arrived."""
        end = self._buffer.find(b"\n", self._searched) + 1
        self._searched = end - 1 if end else len(self._buffer)
        return end

    def _read(self) -> None:
        found = os.read(self._descriptor, _READ)
        self._buffer += found
        self._is_at_end = not found


def read_available_blocks(
    stream: Iterable[bytes] | None, name: str, get_max_lines: Callable[[], int]
) -> Iterator[list[str]]:
    """The lines of a binary stream in blocks; see `read_stream` for what a line is.

    `get_max_lines` returns, before each block, its maximum number of lines; blocks of a file have that size. Lines from
    a pipe or terminal are yielded as soon as no more arrive for 50 ms. Before an error is raised, the lines before it
    are yielded.

    Raises:
        CorpusError: a line is not UTF-8, or the stream breaks off.
    """
    if stream is None:
        return
    try:
        source = _Descriptor(stream.fileno()) if os.name == "posix" and isinstance(stream, io.IOBase) else None
    except (OSError, io.UnsupportedOperation):  # held in memory
        source = None
    given: Iterable[bytes] = stream if source is None else source
    block: list[str] = []
    room = get_max_lines()
    try:
        for line in read_stream(given, name):
            block.append(line)
            if len(block) >= room or (source is not None and not source.has_more()):
                yield block
                block, room = [], get_max_lines()
    except CorpusError:
        if block:
            yield block
        raise
    if block:
        yield block
