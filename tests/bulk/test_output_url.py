"""Output in a bucket of S3, which a server on this machine offers."""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet, table

from transduce.bulk import BulkProgress, BulkTask, ProcessPool, translate_files
from transduce.bulk.output_folder import WORKING_FOLDER
from transduce.errors import OutputError, TransduceError, UserError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

WORK = f"bucket/out/{WORKING_FOLDER}"


def begin(task: BulkTask) -> BulkProgress:
    """Translate one block, and stop."""
    states = translate_files(task, lambda *given: ProcessPool(*given, 1))
    first = next(states)
    states.close()
    return first


@pytest.fixture
def task(bucket: Any, make_task: Callable[..., BulkTask]) -> BulkTask:
    return make_task(output="s3://bucket/out")


def test_files_are_what_one_process_writes(
    bucket: Any, task: BulkTask, tmp_path: Path, write_text: Any, run: Any, translate_alone: Any
) -> None:
    content = write_text("in/plain.txt", 35)
    (tmp_path / "in/empty").write_bytes(b"")
    (tmp_path / "in/a.gz").write_bytes(gzip.compress(content))
    lines = content.decode().splitlines()
    begin(task)
    assert len(bucket.find(f"{WORK}/000000")) == 1
    assert run(task)[-1].num_lines == 60  # and of the first file the rest alone
    found = {path.removeprefix("bucket/out/") for path in bucket.find("bucket/out")} - {f"{WORKING_FOLDER}/plan.json"}
    work = {f"{WORKING_FOLDER}/{number:06}/finished.json" for number in range(3)}
    assert found == {"plain.txt", "empty", "a.gz", *work}
    expected = translate_alone(content)
    assert bucket.cat_file("bucket/out/plain.txt") == expected
    assert bucket.cat_file("bucket/out/empty") == b""
    assert gzip.decompress(bucket.cat_file("bucket/out/a.gz")) == expected
    assert run(task)[-1].num_lines == 0
    (tmp_path / "c.parquet").parent.mkdir(exist_ok=True)
    parquet.write_table(table({"s": lines}), tmp_path / "c.parquet")
    run(replace(task, inputs=(str(tmp_path / "c.parquet"),), output="s3://bucket/more/", column="s"))
    assert bucket.find("bucket/more")[-1] == "bucket/more/c.parquet"
    with bucket.open("bucket/more/c.parquet") as file:
        assert parquet.read_table(file)["translation"].to_pylist() == expected.decode().splitlines()


def test_what_was_not_written_whole_is_done_again(
    bucket: Any, task: BulkTask, write_text: Any, run: Any, translate_alone: Any
) -> None:
    content = write_text("in/text", 30)
    begin(task)
    (path,) = bucket.find(f"{WORK}/000000")
    bucket.pipe_file(path, bucket.cat_file(path)[:-1])
    assert run(task)[-1].num_lines == 30
    assert bucket.cat_file("bucket/out/text") == translate_alone(content)


def test_a_crash_while_a_file_is_put_in_its_place(
    bucket: Any, task: BulkTask, write_text: Any, run: Any, translate_alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    store = fsspec.filesystem("s3")  # the same object as in the translation
    expected = translate_alone(write_text("in/text", 30))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(store, "rm", fail)
        with pytest.raises(TransduceError, match=r"out/text: the store does not answer .*connection is lost"):
            run(task)
    assert run(task)[-1].num_lines == 0  # all that was missing is that blocks are removed
    assert [path for path in bucket.find(WORK) if "/0000" in path] == [f"{WORK}/000000/finished.json"]
    bucket.rm("bucket/out", recursive=True)
    with monkeypatch.context() as patched:
        patched.setattr(store, "put_file", fail)
        with pytest.raises(TransduceError, match="connection is lost"):
            run(task)
    bucket.pipe_file("bucket/out/text", expected)  # the crash came right after it
    assert run(task)[-1].num_lines == 0
    assert run(task)[-1].num_lines == 0
    assert bucket.cat_file("bucket/out/text") == expected


@pytest.fixture
def folder_task(tmp_path: Path, make_task: Callable[..., BulkTask]) -> BulkTask:
    """A task whose store has real folders; that of the output is not there yet."""
    pytest.importorskip("fsspec", reason="needs pip install fsspec")
    return make_task("in/**", output=f"file://{tmp_path}/new/out")


def test_what_is_damaged_is_named_and_copies_are_ignored(
    folder_task: BulkTask, tmp_path: Path, write_text: Any, run: Any
) -> None:
    write_text("in/text", 30)
    begin(folder_task)
    work = tmp_path / "new/out" / WORKING_FOLDER
    (block,) = (work / "000000").iterdir()
    shutil.copytree(work / "000000", work / "000000 (copy)")
    shutil.copyfile(block, work / "000000" / f"a copy-{block.stat().st_size}")
    assert run(folder_task)[-1].num_lines == 20
    (work / "000000/finished.json").write_bytes(b"")
    with pytest.raises(
        OutputError, match=rf"^file://\S*/out/{WORKING_FOLDER}/000000/finished\.json: is damaged: remove it and"
    ):
        run(folder_task)
    (work / "000000/finished.json").unlink()
    (tmp_path / "new/out/text").unlink()
    assert run(folder_task)[-1].num_lines == 30


def test_folders_are_made_in_a_store_that_has_them(
    folder_task: BulkTask, tmp_path: Path, write_text: Any, run: Any, translate_alone: Any
) -> None:
    content = write_text("in/more/text", 15)
    assert run(folder_task)[-1].num_lines == 15
    assert (tmp_path / "new/out/more/text").read_bytes() == translate_alone(content)
    assert run(folder_task)[-1].num_lines == 0


def test_files_of_others_are_not_replaced(bucket: Any, task: BulkTask, write_text: Any, run: Any) -> None:
    write_text("in/text", 30)
    bucket.pipe_file("bucket/out/text", b"mine")
    with pytest.raises(OutputError, match="s3://bucket/out/text: is there already"):
        run(task)
    bucket.rm("bucket/out/text")
    states = translate_files(task, lambda *given: ProcessPool(*given, 1))
    next(states)
    bucket.pipe_file("bucket/out/text", b"mine")  # meanwhile
    with pytest.raises(OutputError, match="s3://bucket/out/text: is there already"):
        list(states)
    assert bucket.cat_file("bucket/out/text") == b"mine"
    bucket.rm("bucket/out/text")
    assert run(task)[-1].num_lines == 0
    bucket.pipe_file("bucket/out/text", b"edited")
    with pytest.raises(OutputError, match="changed since"):
        run(task)
    bucket.rm("bucket/out/text")
    assert run(task)[-1].num_lines == 30  # what was removed is made again


def test_another_command_is_refused(bucket: Any, task: BulkTask, write_text: Any, run: Any) -> None:
    write_text("in/text", 30)
    begin(task)
    with pytest.raises(OutputError, match="s3://bucket/out: has the translation of another command: block_lines was"):
        run(replace(task, block_lines=11))
    bucket.rm("bucket/out", recursive=True)
    assert run(replace(task, block_lines=11))[-1].num_lines == 30
    with pytest.raises(UserError, match="s3://nowhere"):
        run(replace(task, output="s3://nowhere/out"))
