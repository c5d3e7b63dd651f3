import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import load_checkpoint, save_checkpoint
from transduce.config import RunConfig
from transduce.errors import ConfigError, UserError
from transduce.training import RunFolder, train, verify_resume
from transduce.training.verification import find_differences, read_last_update

MakeConfig = Callable[..., RunConfig]


@pytest.fixture
def pair(make_config: MakeConfig) -> tuple[RunFolder, RunFolder]:
    """Two runs with the same settings."""
    one, other = (train(make_config(name, training__updates=2)).folder for name in ("one", "other"))
    return RunFolder(one), RunFolder(other)


@pytest.mark.exhaustive
def test_equal_runs_differ_in_nothing_but_time(pair: tuple[RunFolder, RunFolder]) -> None:
    assert find_differences(*pair) == []
    lines = [run.metrics.path.read_bytes() for run in pair]
    assert lines[0] != lines[1]


def shorten(run: RunFolder) -> None:
    run.metrics.truncate_after(1, is_finished=True)


def change_a_digest(run: RunFolder) -> None:
    lines = run.metrics.path.read_text(encoding="utf-8").splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"weights_digest": "0"})
    run.metrics.path.write_text("\n".join(lines), encoding="utf-8")


def change_a_weight(run: RunFolder) -> None:
    tensors, state = load_checkpoint(run.checkpoints, 2)
    tensors["weights"]["source_embedding.weight"].view(-1)[7] += 1e-6
    save_checkpoint(run.checkpoints, 2, tensors, state)


def change_the_state(run: RunFolder) -> None:
    tensors, state = load_checkpoint(run.checkpoints, 2)
    save_checkpoint(run.checkpoints, 2, tensors, state | {"without_gain": 9})


def remove_best(run: RunFolder) -> None:
    (run.best / "weights.safetensors").unlink()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (shorten, ["metrics.jsonl has 4 lines, and 2"]),
        (change_a_digest, ["metrics.jsonl, line 3, update 2: weights_digest"]),
        (change_a_weight, ["checkpoints/000000002/weights.safetensors"]),
        (change_the_state, ["the state in the last checkpoint"]),
        (remove_best, ["best/weights.safetensors"]),
    ],
)
def test_every_difference_is_found(
    pair: tuple[RunFolder, RunFolder], change: Callable[[RunFolder], None], expected: list[str]
) -> None:
    change(pair[1])
    assert find_differences(*pair) == expected
    assert len(find_differences(pair[1], pair[0])) == 1


def test_the_last_whole_line_counts(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert read_last_update(run) == 0
    run.metrics.path.write_text('{"update": 7}\n{"upd', encoding="utf-8")
    assert read_last_update(run) == 7


def test_standard_input_is_read_only_once(make_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a file"):
        verify_resume(make_config(data__pairs="-"), pytest.fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
def test_training_that_fails_says_why_and_leaves_nothing(make_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"exit code 2: .*missing\.tsv"):
        verify_resume(make_config(data__pairs="missing.tsv"), lambda _: None)
    assert list(tmp_path.iterdir()) == []
