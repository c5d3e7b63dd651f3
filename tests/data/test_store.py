import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data import TokenStore, create_store
from transduce.data.store import KnownDigests, complete_folder, compute_file_digest, scratch_folder
from transduce.errors import RunError

Pairs = list[tuple[list[int], list[int]]]
sentences = st.lists(st.integers(0, 65_535), min_size=1, max_size=9)
PAIRS: Pairs = [([5, 6, 1], [7, 1]), ([1], [8, 9, 10, 1])]


def write(folder: Path, pairs: Pairs, vocabulary: int) -> TokenStore:
    with create_store(folder, vocabulary) as writer:
        for source_ids, target_ids in pairs:
            writer.add(source_ids, target_ids)
    return TokenStore.open(folder)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8), st.sampled_from([65_536, 65_537]))
def test_round_trip(pairs: Pairs, vocabulary: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = write(Path(folder) / "store", pairs, vocabulary)
        found = [tuple(side.tolist() for side in store.pair(index)) for index in range(len(store))]
        assert found == pairs
        assert store.lengths.tolist() == [[len(source), len(target)] for source, target in pairs]


def test_lengths_of_many_and_of_long_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.data.store._PAIRS_AT_A_TIME", 2)
    lengths = [[1, 2], [3, 1], [2, 2], [1, 1], [4, 2]]
    store = write(tmp_path / "short", [([0] * source, [0] * target) for source, target in lengths], 100)
    assert store.lengths.tolist() == lengths
    assert store.lengths.dtype.itemsize == 2
    lengths[3] = [2**15, 7]
    store = write(tmp_path / "long", [([0] * source, [0] * target) for source, target in lengths], 100)
    assert store.lengths.tolist() == lengths


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin"])
def test_a_file_that_is_cut_while_it_is_read_is_noticed(tmp_path: Path, name: str) -> None:
    store = write(tmp_path / "store", PAIRS, 100)
    os.truncate(tmp_path / "store" / name, 3)
    with pytest.raises(RunError, match=rf"{name} was truncated while it was read"):
        store.pair(1)


def test_an_open_store_outlives_its_folder(tmp_path: Path) -> None:
    store = write(tmp_path / "store", PAIRS, 100)
    shutil.rmtree(tmp_path / "store")
    assert [tuple(side.tolist() for side in store.pair(index)) for index in range(2)] == PAIRS
    assert store.lengths.tolist() == [[3, 2], [1, 4]]


@pytest.mark.parametrize(("vocabulary", "num_bytes"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_while_they_fit(tmp_path: Path, vocabulary: int, num_bytes: int) -> None:
    store = write(tmp_path / "store", [([vocabulary - 1, 1], [1])], vocabulary)
    assert store.pair(0)[0].tolist() == [vocabulary - 1, 1]
    assert (tmp_path / "store" / "ids.bin").stat().st_size == 3 * num_bytes


def test_ids_are_read_only(tmp_path: Path) -> None:
    store = write(tmp_path / "store", PAIRS, 100)
    with pytest.raises(ValueError, match="read-only"):
        store.pair(0)[0][0] = 3


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "store.json"])
def test_truncated_missing_and_altered_files_are_noticed(tmp_path: Path, name: str) -> None:
    write(tmp_path / "store", PAIRS, 100)
    path = tmp_path / "store" / name
    content = path.read_bytes()
    for damaged in (content[:-2], bytes([content[0] ^ 1]) + content[1:]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=name):
            TokenStore.open(tmp_path / "store")
    path.unlink()
    with pytest.raises(RunError, match=name):
        TokenStore.open(tmp_path / "store")


def test_files_of_another_store_are_noticed(tmp_path: Path) -> None:
    write(tmp_path / "store", PAIRS, 100)
    write(tmp_path / "other", [(target, source) for source, target in PAIRS], 100)
    (tmp_path / "other" / "ids.bin").rename(tmp_path / "store" / "ids.bin")
    with pytest.raises(RunError, match="was changed"):
        TokenStore.open(tmp_path / "store")


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write(tmp_path / "store", [*PAIRS, ([70_000, 1], [1])], 100)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, largest_file: Callable[[int], Any]) -> None:
    ids = np.arange(1000).tolist()
    with pytest.raises(OSError, match="too large"), largest_file(4096):
        write(tmp_path / "store", [(ids, ids)] * 10, 1000)
    assert list(tmp_path.iterdir()) == []


def test_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with complete_folder(path) as folder:
        (folder / "file").write_bytes(b"content")
        assert not path.exists()
    assert (path / "file").read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failure_leaves_nothing_not_even_parents(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with complete_folder(tmp_path / "a" / "b" / "folder") as folder:
            (folder / "file").write_bytes(b"content")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_parents_in_use_stay(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "a" / "b", "scratch"):
        (tmp_path / "a" / "other").touch()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "other"]


def test_parents_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with scratch_folder(tmp_path / "cache", "scratch"):
        pass
    assert (tmp_path / "cache").is_dir()


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with complete_folder(path) as slow:
        (slow / "file").write_bytes(b"slow")
        with complete_folder(path) as fast:
            (fast / "file").write_bytes(b"fast")
    assert (path / "file").read_bytes() == b"fast"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, sys
from pathlib import Path
from transduce.data.store import complete_folder
with complete_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.exhaustive
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    left = set(tmp_path.iterdir())
    assert len(left) == 2
    (tmp_path / "mine.partial").mkdir()
    with scratch_folder(tmp_path, "first") as first, scratch_folder(tmp_path, "second") as second:
        assert first.is_dir()
        assert second.is_dir()
        assert not left & set(tmp_path.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.partial"]


def test_files_that_only_have_the_name_of_a_lock_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.0123456789ab.partial.lock").write_text("mine", encoding="utf-8")
    (tmp_path / "list.0123456789ab.partial.lock").touch()
    (tmp_path / "list.0123456789ab.partial").write_text("mine", encoding="utf-8")
    (tmp_path / "link.0123456789ab.partial.lock").symlink_to("list.0123456789ab.partial.lock")
    before = set(tmp_path.iterdir())
    with scratch_folder(tmp_path, "scratch"):
        pass
    assert set(tmp_path.iterdir()) == before


def test_a_failure_to_write_says_where(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="No space left") as full, complete_folder(path) as folder:
        raise OSError(28, "No space left on device")
    assert full.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as missing, complete_folder(path) as folder:
        (folder / "missing").read_bytes()
    assert missing.value.filename.endswith("missing")


NONSENSE = "0" * 64


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that may be remembered although it was written just now."""
    monkeypatch.setattr("transduce.data.store._CLOCK_TICK", 0)
    path = tmp_path / "text"
    path.write_bytes(b"as it was")
    return path


@pytest.fixture
def memory(text: Path) -> Path:
    """What is remembered of it, with a digest that cannot be its own: whoever gives it has not read the file."""
    path = text.with_name("digests.json")
    known = KnownDigests(path)
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    path.write_text(path.read_text(encoding="utf-8").replace(compute_file_digest(text), NONSENSE), encoding="utf-8")
    return path


def test_what_did_not_change_is_not_read_again(text: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KnownDigests(memory).digest(text) == NONSENSE
    monkeypatch.chdir(text.parent)
    assert KnownDigests(memory).digest(Path("text")) == NONSENSE


def test_what_changed_is_read_again_even_if_size_and_time_are_put_back(text: Path, memory: Path) -> None:
    before = text.stat()
    text.write_bytes(b"as it is!")
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (text.stat().st_size, text.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert KnownDigests(memory).digest(text) == compute_file_digest(text)


def test_another_file_in_its_place_is_read(text: Path, memory: Path) -> None:
    other = text.with_name("other")
    other.write_bytes(text.read_bytes())
    other.replace(text)
    assert KnownDigests(memory).digest(text) == compute_file_digest(text)


def test_what_was_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"more may follow")
    known = KnownDigests(tmp_path / "digests.json")
    known.digest(tmp_path / "text")
    known.save()
    assert not (tmp_path / "digests.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"files": {"a": 3}}', b'{"my": "file"}', b"\xff"])
def test_what_is_no_memory_stays_as_it_is(text: Path, memory: Path, content: bytes) -> None:
    memory.write_bytes(content)
    known = KnownDigests(memory)
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    assert memory.read_bytes() == content


def test_an_empty_file_becomes_a_memory(text: Path, memory: Path) -> None:
    memory.write_bytes(b"")
    known = KnownDigests(memory)
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    assert compute_file_digest(text) in memory.read_text(encoding="utf-8")


def test_files_that_are_gone_are_forgotten(text: Path, memory: Path) -> None:
    text.rename(text.with_name("elsewhere"))
    known = KnownDigests(memory)
    known.digest(text.with_name("elsewhere"))
    known.save()
    assert list(json.loads(memory.read_text(encoding="utf-8"))["files"]) == [str(text.with_name("elsewhere"))]


def test_nobody_minds_where_nothing_can_be_written(text: Path) -> None:
    known = KnownDigests(text / "digests.json")
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    assert text.read_bytes() == b"as it was"
