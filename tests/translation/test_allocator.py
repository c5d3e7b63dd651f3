import os
import subprocess
import sys

import pytest

PRODUCTS = """
import sys
from pathlib import Path

import torch

from transduce.translation.allocator import keep_few_kernels

if sys.argv[1] == "few":
    keep_few_kernels()
torch.set_num_threads(1)
weight = torch.randn(64, 64, dtype=torch.bfloat16)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])


inputs = [torch.randn(rows, 64, dtype=torch.bfloat16) for rows in range(1, 500)]
inputs[0] @ weight
before = resident()
for matrix in inputs:
    matrix @ weight
print(resident() - before)
"""


def pages_grown(kernels: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    command = [sys.executable, "-c", PRODUCTS, kernels]
    return int(subprocess.run(command, env=environment, capture_output=True, check=True, encoding="utf-8").stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_new_shapes_do_not_add_up_in_memory() -> None:
    many = pages_grown("many")
    if many < 20_000:
        pytest.skip("this processor's kernels for bfloat16 are small")
    assert pages_grown("few") < many / 2
