import gzip
import json
import lzma
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyarrow import parquet, table

from transduce.bulk import BulkTask, ProcessPool, translate_files
from transduce.bulk.output_folder import WORKING_FOLDER
from transduce.errors import BundleError, BusyError, ConfigError, CorpusError, OutputError, UserError, WriteError

STRANGE = (
    "\ufeffsun moon\r\n\n   \nfish\tdoor\r\n\u3000\nשלום 🐕\u2028x\n".encode()
    + b"sun " * 60
    + b"\n\nroad lamp"  # the last line has no end
)


SOURCE = Path(__file__).parents[2] / "src"


def list_files(folder: Path) -> list[str]:
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path.as_posix() for path in paths if path.parts[0] != WORKING_FOLDER]


def test_files_are_what_one_process_writes(
    tmp_path: Path, write_text: Any, make_task: Any, run: Any, translate_alone: Any
) -> None:
    content = write_text("in/plain.txt", 35)
    (tmp_path / "in/strange").write_bytes(STRANGE)
    (tmp_path / "in/empty.txt").write_bytes(b"")
    (tmp_path / "in/a.gz").write_bytes(gzip.compress(content))
    (tmp_path / "in/b.xz").write_bytes(lzma.compress(content))
    (tmp_path / "in/c.zst").write_bytes(zstandard.compress(content[:100]) + zstandard.compress(content[100:]))
    (tmp_path / "in/none.gz").write_bytes(gzip.compress(b""))
    messages: list[str] = []
    last = run(make_task(), messages=messages)[-1]
    out, expected = tmp_path / "out", translate_alone(content)
    assert list_files(out) == ["a.gz", "b.xz", "c.zst", "empty.txt", "none.gz", "plain.txt", "strange"]
    assert (out / "plain.txt").read_bytes() == expected
    assert (out / "strange").read_bytes() == translate_alone(STRANGE)
    assert (out / "empty.txt").read_bytes() == b""
    assert gzip.decompress((out / "none.gz").read_bytes()) == b""
    assert gzip.decompress((out / "a.gz").read_bytes()) == expected
    assert lzma.decompress((out / "b.xz").read_bytes()) == expected
    with (out / "c.zst").open("rb") as file:
        assert zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read() == expected
    assert (last.num_lines, last.share) == (4 * 35 + 9, 1.0)
    assert [one for one in messages if "strange: line 7 is longer than the model reads at once" in one]


@pytest.mark.parametrize(
    ("flags", "options", "settings"),
    [
        (["--num-best", "2"], {"num_best": 2}, {}),
        (["--json"], {}, {"json": True}),
        (["--samples", "2", "--mbr"], {"num_samples": 2, "minimum_bayes_risk": True}, {}),
        (["--guard"], {"guard": True}, {}),
        (["--max-pieces", "8"], {}, {"max_pieces": 8}),
    ],
)
@pytest.mark.exhaustive
def test_options_do_the_same(  # numbers of lines go on from block to block
    flags: list[str],
    options: dict[str, Any],
    settings: dict[str, Any],
    *,
    tmp_path: Path,
    write_text: Any,
    make_task: Any,
    run: Any,
    bundle: Path,
    start: Any,
) -> None:
    content = write_text("in/text", 25)
    last = run(make_task(options=options, settings=settings))[-1]
    with start("translate", bundle, *flags) as running:
        output, _ = running.communicate(content)
    assert (tmp_path / "out/text").read_bytes() == output
    assert (last.guard_report is not None) == ("guard" in options)


def test_equal_names_in_different_folders(
    tmp_path: Path, write_text: Any, make_task: Any, run: Any, translate_alone: Any
) -> None:
    contents = {
        name: write_text(f"in/{name}", 12, seed) for seed, name in enumerate(("a/x.txt", "b/x.txt", "b/c/x.txt"))
    }
    run(make_task("in/**/x.txt"))
    assert list_files(tmp_path / "out") == sorted(contents)
    for name, content in contents.items():
        assert (tmp_path / "out" / name).read_bytes() == translate_alone(content)
    run(make_task("in/a/x.txt", "in/b/x.txt", output=tmp_path / "two"))
    assert list_files(tmp_path / "two") == ["a/x.txt", "b/x.txt"]


NOT_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_names_need_not_be_utf_8(
    tmp_path: Path, write_text: Any, make_task: Any, run: Any, translate_alone: Any
) -> None:
    content = write_text("in/plain.txt", 12)
    folder, output = tmp_path / f"in/{NOT_UTF_8}", tmp_path / f"out-{NOT_UTF_8}"
    folder.mkdir()
    (folder / f"{NOT_UTF_8}.txt").write_bytes(content)
    (folder / f"{NOT_UTF_8}.gz").write_bytes(gzip.compress(content))
    run(task := make_task("in/**/*.*", output=output))
    expected = translate_alone(content)
    assert (output / "plain.txt").read_bytes() == expected
    assert (output / NOT_UTF_8 / f"{NOT_UTF_8}.txt").read_bytes() == expected
    assert gzip.decompress((output / NOT_UTF_8 / f"{NOT_UTF_8}.gz").read_bytes()) == expected
    assert run(task)[-1].num_lines == 0
    (output / NOT_UTF_8 / f"{NOT_UTF_8}.txt").unlink()
    assert run(task)[-1].num_lines == 12


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_names_in_a_store_must_be_utf_8(write_text: Any, make_task: Any, run: Any) -> None:
    write_text(f"in/{NOT_UTF_8}", 1)
    with pytest.raises(CorpusError, match=r"its name is not UTF-8, as names in a store must be: rename the file"):
        run(make_task(output="memory://out"))


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_names_of_files_with_columns_need_not_be_utf_8(tmp_path: Path, make_task: Any, run: Any) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / f"{NOT_UTF_8}.jsonl").write_text('{"s": "sun"}\n', encoding="utf-8")
    (folder / f"{NOT_UTF_8}.tsv").write_text("s\nsun\n", encoding="utf-8")
    with (folder / f"{NOT_UTF_8}.parquet").open("wb") as file:
        parquet.write_table(table({"s": ["sun"]}), file)
    run(make_task(column="s", translation_column="t", output=tmp_path / NOT_UTF_8))
    record = json.loads((tmp_path / NOT_UTF_8 / f"{NOT_UTF_8}.jsonl").read_bytes())
    row = (tmp_path / NOT_UTF_8 / f"{NOT_UTF_8}.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")
    with (tmp_path / NOT_UTF_8 / f"{NOT_UTF_8}.parquet").open("rb") as file:
        assert parquet.read_table(file).to_pylist() == [record] == [{"s": row[0], "t": row[1]}]


def test_formats_with_columns(tmp_path: Path, write_text: Any, make_task: Any, run: Any, translate_alone: Any) -> None:
    content = write_text("text", 25)
    source = content.decode().splitlines()
    translations = translate_alone(content).decode().splitlines()
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"id": i, "s": s}) + "\n" for i, s in enumerate(source)))
    (folder / "b.tsv").write_text("id\ts\n" + "".join(f"{i}\t{s}\n" for i, s in enumerate(source)))
    parquet.write_table(table({"id": range(25), "s": source}), folder / "c.parquet", row_group_size=7)
    run(make_task(column="s", translation_column="t"))
    records = [json.loads(line) for line in (tmp_path / "out/a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert records == [{"id": i, "s": s, "t": t} for i, (s, t) in enumerate(zip(source, translations, strict=True))]
    rows = (tmp_path / "out/b.tsv").read_text(encoding="utf-8").splitlines()
    assert rows == [
        "id\ts\tt",
        *(f"{i}\t{s}\t{t}" for i, (s, t) in enumerate(zip(source, translations, strict=True))),
    ]
    assert parquet.read_table(tmp_path / "out/c.parquet").to_pylist() == records


def test_a_killed_worker_is_replaced(
    tmp_path: Path, write_text: Any, make_task: Callable[..., BulkTask], translate_alone: Any
) -> None:
    content = write_text("in/text", 100)
    pools: list[ProcessPool] = []
    messages: list[str] = []

    def make_pool(*given: Any) -> ProcessPool:
        pools.append(ProcessPool(*given, 2))
        return pools[0]

    states = translate_files(make_task(), make_pool, messages.append)
    next(states)
    # Both workers have a block: the next one is given before the first is written.
    killed = pools[0].find_process_ids()[0]
    os.kill(killed, signal.SIGKILL)
    last = list(states)[-1]
    assert messages == ["a worker was lost (killed by SIGKILL): another one takes its place"]
    assert last.num_lines == 100
    assert (tmp_path / "out/text").read_bytes() == translate_alone(content)


def find_children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def is_running(process: int) -> bool:
    path = Path(f"/proc/{process}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_a_killed_driver_goes_on_where_it_was(
    tmp_path: Path,
    bundle: Path,
    write_text: Any,
    make_task: Callable[..., BulkTask],
    run: Any,
    start: Any,
    wait_until: Any,
    translate_alone: Any,
) -> None:
    content = write_text("in/text", 3000)
    blocks, task = tmp_path / "out" / WORKING_FOLDER / "000000", make_task(block_lines=20)
    command = ["translate", bundle, "--input", *task.inputs, "--output", task.output, "--block-lines", 20]
    with start(*command, "--workers", 2) as running:
        wait_until((blocks / "000000002").exists)
        workers = find_children(running.pid)
        running.kill()
    assert running.returncode == -signal.SIGKILL
    wait_until(lambda: not any(map(is_running, workers)))  # they notice, and leave nothing behind
    before = {path.name: path.stat().st_mtime_ns for path in blocks.glob("0*")}
    assert "000000002" in before  # others may come later: the workers do not wait for each other
    assert len(before) < 150
    assert not (tmp_path / "out/text").exists()
    last = run(task)[-1]
    assert last.num_lines == 3000 - 20 * len(before)
    assert (tmp_path / "out/text").read_bytes() == translate_alone(content)
    assert [path.name for path in blocks.iterdir()] == ["finished.json"]
    assert run(task)[-1].num_lines == 0  # and again there is nothing to do


def test_ctrl_c_ends_workers_without_a_word_of_theirs(
    tmp_path: Path, bundle: Path, start: Any, wait_until: Any, write_text: Any
) -> None:
    write_text("in/text", 3000)
    command = ["translate", bundle, "--input", tmp_path / "in/*", "--output", tmp_path / "out", "--block-lines", 20]
    with start(*command, "--workers", 2, start_new_session=True) as running:
        wait_until((tmp_path / "out" / WORKING_FOLDER / "000000" / "000000000").exists)
        os.killpg(running.pid, signal.SIGINT)
        _, messages = running.communicate()
    assert (running.returncode, messages) == (130, b"transduce: interrupted\n")


def test_a_full_disk_is_named_and_nothing_is_lost(
    tmp_path: Path, write_text: Any, make_task: Any, run: Any, translate_alone: Any
) -> None:
    content = write_text("in/text", 60)
    size = len(expected := translate_alone(content))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, hard))  # blocks are written, but not all of them in one file
    try:
        with pytest.raises(WriteError, match=r"out/text: could not be written; nothing was changed: File too large"):
            run(make_task())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "out/text").exists()
    assert run(make_task())[-1].num_lines == 0
    assert (tmp_path / "out/text").read_bytes() == expected


@pytest.fixture
def half_done(tmp_path: Path, write_text: Any, make_task: Callable[..., BulkTask]) -> BulkTask:
    """A task of two files that was stopped after its first block."""
    write_text("in/a", 30)
    write_text("in/b", 30, seed=1)
    states = translate_files(make_task(), lambda *given: ProcessPool(*given, 1))
    next(states)
    states.close()
    assert (tmp_path / "out" / WORKING_FOLDER / "000000" / "000000000").exists()
    return make_task()


def test_another_command_is_refused(half_done: BulkTask, make_task: Any, run: Any, tmp_path: Path) -> None:
    def refuse(task: BulkTask, what: str) -> None:
        with pytest.raises(OutputError, match=rf"out: has the translation of another command: .*{what}.*remove .*bulk"):
            run(task)

    refuse(make_task(options={"beam": 3}), "beam was null and is 3")
    refuse(make_task(block_lines=11), "block_lines was 10 and is 11")
    refuse(make_task(settings={"max_pieces": 9}), "max_pieces was null and is 9")
    refuse(make_task("in/a"), "b is no longer among the input")
    other = tmp_path / "other"
    shutil.copytree(half_done.settings.model, other)
    description = json.loads((other / "bundle.json").read_bytes())
    description["search"]["beam"] = 4
    (other / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    refuse(replace(half_done, settings=replace(half_done.settings, model=other)), "the model is another")
    (tmp_path / "in/c").write_text("sun\n", encoding="utf-8")
    refuse(half_done, "c is new among the input")
    (tmp_path / "in/c").unlink()
    kept = (tmp_path / "in/a").read_bytes(), (tmp_path / "in/a").stat().st_mtime_ns
    (tmp_path / "in/a").write_bytes(kept[0] + b"sun\n")
    with pytest.raises(
        OutputError, match=r"translation of a, .* a has changed since: to translate it again, remove .*bulk/000000 and"
    ):
        run(half_done)
    (tmp_path / "in/a").write_bytes(kept[0])
    os.utime(tmp_path / "in/a", ns=(kept[1], kept[1]))
    assert run(half_done)[-1].num_lines == 50


def test_a_mistake_in_the_input_is_corrected_and_the_rest_is_kept(
    make_task: Any, run: Any, tmp_path: Path, translate_alone: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "in").mkdir()
    records = [json.dumps({"s": "sun moon"}) + "\n"] * 25
    (tmp_path / "in/a.jsonl").write_text("".join(records), encoding="utf-8")
    (tmp_path / "in/b.jsonl").write_text("".join([*records[:5], "[1]\n"]), encoding="utf-8")
    task = make_task(column="s")
    with pytest.raises(CorpusError, match=r"b\.jsonl, line 6: must be a JSON object"):
        run(task)
    assert (tmp_path / "out/a.jsonl").is_file()
    (tmp_path / "in/b.jsonl").write_text("".join(records[:6]), encoding="utf-8")
    assert run(task)[-1].num_lines == 6
    translation = translate_alone(b"sun moon").decode().strip()
    expected = json.dumps({"s": "sun moon", "translation": translation}, ensure_ascii=False)
    assert (tmp_path / "out/b.jsonl").read_text(encoding="utf-8").splitlines() == [expected] * 6

    (tmp_path / "in/b.jsonl").write_text("".join(records[:7]), encoding="utf-8")
    with pytest.raises(
        OutputError, match=r"b\.jsonl has changed since: to translate it again, remove (\S*/000001) and"
    ):
        run(task)
    shutil.rmtree(tmp_path / "out" / WORKING_FOLDER / "000001")
    (tmp_path / "out/b.jsonl").unlink()
    assert run(task)[-1].num_lines == 7


def test_files_of_others_are_not_replaced(half_done: BulkTask, run: Any, tmp_path: Path) -> None:
    place = tmp_path / "out/b"
    place.write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="out/b: is there already, and is not replaced: move it"):
        run(half_done)
    place.unlink()
    states = translate_files(half_done, lambda *given: ProcessPool(*given, 1))
    next(states)
    place.write_text("mine", encoding="utf-8")  # meanwhile
    with pytest.raises(OutputError, match="out/b: is there already"):
        list(states)
    assert place.read_text(encoding="utf-8") == "mine"
    place.unlink()
    assert run(half_done)[-1].num_lines == 0  # all was translated
    place.write_text("edited", encoding="utf-8")
    with pytest.raises(OutputError, match="out/b: was changed after it was translated"):
        run(half_done)
    place.unlink()
    assert run(half_done)[-1].num_lines == 30  # what was removed is made again


@pytest.mark.parametrize("content", [b"", b"[1", b"{}", b"[1]", b"\xff"])
def test_a_damaged_record_of_a_finished_file_is_named(
    content: bytes, half_done: BulkTask, run: Any, tmp_path: Path
) -> None:
    record = tmp_path / "out" / WORKING_FOLDER / "000000" / "finished.json"
    record.write_bytes(content)
    with pytest.raises(OutputError, match=r"000000/finished\.json: is damaged: remove it and, if the file is complete"):
        run(half_done)
    record.unlink()
    assert run(half_done)[-1].num_lines == 50


def test_copies_that_a_desktop_makes_are_ignored(half_done: BulkTask, run: Any, tmp_path: Path) -> None:
    work = tmp_path / "out" / WORKING_FOLDER
    shutil.copytree(work / "000000", work / "000000 (copy)")
    (work / "000000" / "000000001 (copy)").write_bytes(b"sun\n")
    assert run(half_done)[-1].num_lines == 50
    shutil.rmtree(tmp_path / "out")
    work.mkdir(parents=True)
    (work / "plan.json").write_bytes(b'{"input": {}}')
    (work / "000000 (copy)").mkdir()
    (work / "000000 (copy)" / "000000000").write_bytes(b"sun\n")
    assert run(half_done)[-1].num_lines == 60, "nothing was translated by the other plan"


def test_one_process_at_a_time_writes(half_done: BulkTask, run: Any) -> None:
    states = translate_files(half_done, lambda *given: ProcessPool(*given, 1))
    next(states)
    with pytest.raises(BusyError, match=r"out: is in use by process \d+"):
        run(half_done)
    states.close()


def test_mistakes_are_named_before_anything_is_written(
    make_task: Any, run: Any, write_text: Any, tmp_path: Path
) -> None:
    write_text("in/text", 3)
    (tmp_path / "in/a.jsonl").write_text('{"s": "sun"}\n', encoding="utf-8")
    (tmp_path / "in/a.tsv").write_text("s\nsun\n", encoding="utf-8")
    (tmp_path / "file").write_text("", encoding="utf-8")
    for task, error, message in (
        (make_task("in"), CorpusError, r"in: is a folder: give its files, as in .*in/\*"),
        (make_task("no/*"), CorpusError, "no file matches"),
        (make_task("in/a.jsonl"), ConfigError, "say by --column"),
        (make_task("in/text", column="s"), ConfigError, "is text without columns"),
        (make_task("in/a.jsonl", column="s", settings={"json": True}), ConfigError, "leave out --json and --num-best"),
        (make_task("in/text", block_lines=0), ConfigError, "--block-lines 0: must be 1 or more"),
        (make_task("in/a.jsonl", column="x\udce9"), ConfigError, "--column x.*: is not UTF-8"),
        (make_task("in/text", translation_column="x\udce9"), ConfigError, "--translation-column x.*: is not UTF-8"),
        *(
            (make_task("in/a.tsv", column="s", translation_column=f"a{end}b"), ConfigError, "has a tab or a line end")
            for end in "\t\n\r"
        ),
        (make_task("in/text", options={"temperature": 2}), ConfigError, "apply to sampling"),
    ):
        with pytest.raises(error, match=message):
            run(task)
    assert not (tmp_path / "out").exists()
    with pytest.raises(OutputError, match="file: is not a folder"):
        run(make_task("in/text", output=tmp_path / "file"))


def test_an_error_of_a_worker_is_raised_once(make_task: Any, run: Any, write_text: Any, tmp_path: Path) -> None:
    write_text("in/text", 30)
    with pytest.raises(UserError, match=r"^num_best = 5: must be from 1 to the beam, 2; for more, raise `beam`$"):
        run(make_task(options={"num_best": 5}))
    # Nothing was translated, so that the corrected command is not refused.
    assert run(make_task(options={"num_best": 2}))[-1].num_lines == 30
    (tmp_path / "more").write_text('{"text": "sun"}\n{"text": 5}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"more, line 2: text: .* string"):
        run(make_task("more", settings={"json_input": True}, output=tmp_path / "other"))


def test_a_model_that_changes_is_noticed(bundle: Path, make_task: Any, write_text: Any, tmp_path: Path) -> None:
    write_text("in/text", 100)
    model = tmp_path / "model"
    shutil.copytree(bundle, model)
    task = make_task()
    task = replace(task, settings=replace(task.settings, model=model))
    pools: list[ProcessPool] = []

    def make_pool(*given: Any) -> ProcessPool:
        pools.append(ProcessPool(*given, 1))
        return pools[0]

    states = translate_files(task, make_pool)
    next(states)
    description = json.loads((model / "bundle.json").read_bytes())
    (model / "bundle.json").write_text(json.dumps({**description, "training": {"update": 7}}), encoding="utf-8")
    os.kill(pools[0].find_process_ids()[0], signal.SIGKILL)
    with pytest.raises(UserError, match="is not the model that this translation began with"):
        list(states)


def test_input_that_changes_meanwhile_is_noticed(make_task: Any, write_text: Any, tmp_path: Path) -> None:
    write_text("in/text", 100)
    states = translate_files(make_task(), lambda *given: ProcessPool(*given, 1))
    next(states)
    with (tmp_path / "in/text").open("a", encoding="utf-8") as file:
        file.write("sun\n")
    with pytest.raises(CorpusError, match="in/text: was changed while it was being translated"):
        list(states)
    assert not (tmp_path / "out/text").exists()


def test_without_a_model_nothing_begins(make_task: Any, run: Any, write_text: Any, tmp_path: Path) -> None:
    write_text("in/text", 3)
    task = make_task()
    with pytest.raises(BundleError):
        run(replace(task, settings=replace(task.settings, model=tmp_path / "nothing")))
    assert not (tmp_path / "out").exists()


def test_a_script_need_not_guard_its_calls(bundle: Path, write_text: Any, tmp_path: Path, translate_alone: Any) -> None:
    content = write_text("in/text", 30)
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from transduce.bulk import BulkTask, ProcessPool, BlockTranslatorSettings, translate_files\n"
        "from transduce.translation import TranslationOptions\n"
        "print('once', flush=True)\n"
        f"settings = BlockTranslatorSettings(model=Path({str(bundle)!r}), options=TranslationOptions())\n"
        f"task = BulkTask(settings=settings, inputs=({str(tmp_path / 'in/text')!r},), output=Path('out'))\n"
        "list(translate_files(task, lambda *given: ProcessPool(*given, 1)))\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert result.stdout == b"once\n"
    assert (tmp_path / "out/text").read_bytes() == translate_alone(content)
