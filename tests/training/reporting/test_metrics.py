import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce import __version__
from transduce.training import MetricsLog
from transduce.training.reporting import NUM_BINS, count_lengths, describe_environment


@pytest.fixture
def log(tmp_path: Path) -> MetricsLog:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("data", 0, {"num_pairs": 7})
    for update in (10, 20):
        log.append("training", update, {"loss": 1 / update})
        log.append("validation", update, {"samples": [{"source": "où\u2028là"}]})
    log.append("average", 20, {"loss": 0.1})
    return log


def kinds(log: MetricsLog) -> list[tuple[str, int]]:
    return [(line["kind"], line["update"]) for line in log.read()]


ALL_LINES = [("data", 0), ("training", 10), ("validation", 10), ("training", 20), ("validation", 20), ("average", 20)]


def test_reads_what_was_appended(log: MetricsLog) -> None:
    assert kinds(log) == ALL_LINES
    assert log.read()[1] == {"kind": "training", "update": 10, "loss": 0.1}
    assert log.read()[2]["samples"] == [{"source": "où\u2028là"}]
    assert len(log.path.read_bytes().split(b"\n")) == len(ALL_LINES) + 1


def test_there_may_be_none(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.read() == []
    log.truncate_after(0, is_finished=False)
    assert log.read() == []


@pytest.mark.parametrize(
    ("update", "average", "num_kept"), [(25, True, 6), (20, True, 6), (20, False, 5), (19, True, 3), (0, False, 1)]
)
def test_forgets_what_comes_after(log: MetricsLog, update: int, average: bool, num_kept: int) -> None:
    kept = log.path.read_bytes().split(b"\n")[:num_kept]
    log.truncate_after(update, is_finished=average)
    assert kinds(log) == ALL_LINES[:num_kept]
    assert log.path.read_bytes() == b"\n".join([*kept, b""])
    assert [path.name for path in log.path.parent.iterdir()] == ["metrics.jsonl"]


def test_an_average_before_the_update_stays(log: MetricsLog) -> None:
    log.append("training", 30, {})
    log.truncate_after(30, is_finished=False)
    assert kinds(log) == [*ALL_LINES, ("training", 30)]


def test_an_unfinished_last_line_is_passed_over(log: MetricsLog) -> None:
    whole = log.path.read_bytes()
    for num_bytes in range(whole.index(b"validation") - 10, len(whole)):
        log.path.write_bytes(whole[:num_bytes])
        num_lines = len(whole[:num_bytes].split(b"\n")) - 1
        # A line is whole without its line end, too.
        assert kinds(log) in (ALL_LINES[:num_lines], ALL_LINES[: num_lines + 1])
    log.path.write_bytes(whole[:-3])
    log.truncate_after(20, is_finished=True)
    log.append("training", 30, {})
    assert kinds(log) == [*ALL_LINES[:-1], ("training", 30)]


@pytest.mark.parametrize("damage", [b'{"kind": "training", "updaue": 10}', b"[1, 2]", b'{"update": 3}', b"\xff", b""])
def test_damaged_lines_are_left_out_and_counted(log: MetricsLog, damage: bytes) -> None:
    lines = log.path.read_bytes().split(b"\n")
    log.path.write_bytes(b"\n".join([*lines[:2], damage, *lines[2:]]))
    assert kinds(log) == ALL_LINES
    assert log.find_damaged_lines() == [3]
    log.truncate_after(20, is_finished=True)
    assert (kinds(log), log.find_damaged_lines()) == (ALL_LINES, [])


def test_an_unfinished_last_line_is_no_damage(log: MetricsLog) -> None:
    log.path.write_bytes(log.path.read_bytes()[:-3])
    assert log.find_damaged_lines() == []


def test_says_what_limits_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MKL_ENABLE_INSTRUCTIONS", raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    found = describe_environment(torch.device("cpu"), "float32")["instructions"]
    assert found == f"{torch.backends.cpu.get_cpu_capability()}, ONEDNN_MAX_CPU_ISA=AVX2"


def test_says_what_a_run_is_computed_by() -> None:
    found = describe_environment(torch.device("cpu"), "bfloat16")
    assert found["device"] == "cpu"
    assert found["precision"] == "bfloat16"
    assert found["threads"] == str(torch.get_num_threads())
    assert (found["transduce"], found["torch"], found["Python"]) == (
        __version__,
        torch.__version__,
        platform.python_version(),
    )
    assert all(found.values())


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1))
def test_every_sentence_is_counted_in_its_bin(lengths: list[tuple[int, int]]) -> None:
    found = count_lengths(np.array(lengths))
    for side, name in enumerate(("source", "target")):
        mine = [pair[side] for pair in lengths]
        bins = [min(length // found["width"], NUM_BINS - 1) for length in mine]
        assert found[name] == [bins.count(number) for number in range(NUM_BINS)]
        assert found["longest"][name] == max(mine)
        assert sum(length <= found["median"][name] for length in mine) >= len(mine) / 2
        assert sum(length >= found["median"][name] for length in mine) >= len(mine) / 2


@pytest.mark.parametrize("longest", [29, 30, 1000])
def test_a_few_long_ones_do_not_widen_the_bins(longest: int) -> None:
    lengths = np.array([[10, 12]] * 999 + [[longest, 12]])
    assert count_lengths(lengths)["width"] == 1


HALF = '{"kind": "training", "update": 1, "half": "\ud800"}'.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("line", [b"[" * 100_000, HALF, HALF.replace(b"\xed\xa0\x80", b"\\ud800")], ids=len)
def test_a_line_that_cannot_be_written_again_is_damaged(tmp_path: Path, line: bytes) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.path.write_bytes(line + b"\n")
    log.append("training", 2, {})
    assert log.find_damaged_lines() == [1]
    log.truncate_after(2, is_finished=False)
    assert [one["update"] for one in log.read()] == [2]
