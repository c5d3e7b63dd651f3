import platform

import torch

from transduce import __version__
from transduce.training.environment import environment


def test_says_what_a_run_is_computed_by() -> None:
    found = environment(torch.device("cpu"), "bfloat16")
    assert found["device"] == "cpu"
    assert found["precision"] == "bfloat16"
    assert found["threads"] == str(torch.get_num_threads())
    assert (found["transduce"], found["torch"], found["Python"]) == (
        __version__,
        torch.__version__,
        platform.python_version(),
    )
    assert all(found.values())
