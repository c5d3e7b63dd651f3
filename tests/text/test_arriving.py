import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from transduce.errors import CorpusError
from transduce.text import arriving_blocks


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
            blocks = list(arriving_blocks(stream, "text", lambda most=most: most))
        assert [line for block in blocks for line in block] == lines
        assert {len(block) for block in blocks[:-1]} <= {most}
        assert 0 < len(blocks[-1]) <= most


def test_what_is_held_in_memory_is_read_like_a_file() -> None:
    assert list(arriving_blocks(io.BytesIO(b"a\nb\r\nc"), "text", lambda: 2)) == [["a", "b"], ["c"]]
    assert list(arriving_blocks(io.BytesIO(b""), "text", lambda: 2)) == []
    assert list(arriving_blocks(None, "text", lambda: 2)) == []


def test_a_line_does_not_wait_for_the_next(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    blocks = arriving_blocks(reader, "standard input", lambda: 100)
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
    blocks = list(arriving_blocks(reader, "standard input", lambda: 100))
    assert [line for block in blocks for line in block] == [str(number) for number in range(30)]
    assert len(blocks) < 15


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_stands_before_an_error_is_handed_on(tmp_path: Path, *, in_memory: bool) -> None:
    data = b"one\ntwo\n\xff\nfour\n"
    (tmp_path / "text").write_bytes(data)
    with io.BytesIO(data) if in_memory else (tmp_path / "text").open("rb") as stream:
        blocks = arriving_blocks(stream, "text", lambda: 100)
        assert next(blocks) == ["one", "two"]
        with pytest.raises(CorpusError, match="text, line 3"):
            next(blocks)


def test_half_a_line_does_not_hold_back_a_whole_one(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    blocks = arriving_blocks(reader, "standard input", lambda: 100)
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
            assert [list(map(len, block)) for block in arriving_blocks(stream, "text", lambda: 1)] == [
                [path.stat().st_size]
            ]

    assert time_growth(read, *paths) < 24  # eight times as much; it was the square
