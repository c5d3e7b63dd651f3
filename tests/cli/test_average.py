import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file


def test_the_average_is_a_bundle(transduce: Any, run_folder: Path, workspace: Path) -> None:
    answer = transduce("average", run_folder, "--last", "2", "--output", "averaged")
    assert (answer.exit_code, answer.output) == (0, b"")
    assert answer.messages == "averaged: the average of the checkpoints of updates 80, 160\n"
    weights = [
        load_file(run_folder / "checkpoints" / name / "weights.safetensors") for name in ("000000080", "000000160")
    ]
    averaged = load_file(workspace / "averaged" / "weights.safetensors")
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, (weights[0][name] + weights[1][name]) / 2)
    described = json.loads(transduce("info", "averaged", "--json").output)["bundle"]
    assert (described["scores"], described["training"]["averaged_checkpoints"]) == ([], 2)
    assert transduce("translate", "averaged", standard_input=b"ba\n").exit_code == 0


@pytest.mark.parametrize(("last", "named"), [("3", "holds 2 checkpoints, 3 were asked for"), ("0", "--last 0")])
def test_there_must_be_as_many(
    transduce: Any, run_folder: Path, workspace: Path, contents: Any, last: str, named: str
) -> None:
    before = contents(workspace)
    answer = transduce("average", run_folder, "--last", last, "--output", "averaged")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages
    assert contents(workspace) == before
