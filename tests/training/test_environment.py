import platform

import pytest
import torch

from transduce import __version__
from transduce.training.environment import environment


@pytest.mark.parametrize(
    ("precision", "arithmetic"), [("float32", "float32"), ("auto", "float32"), ("bfloat16", "bfloat16")]
)
def test_says_what_a_run_is_computed_by(precision: str, arithmetic: str) -> None:
    found = environment(torch.device("cpu"), precision)
    assert found["device"] == "cpu"
    assert found["precision"] == arithmetic
    assert found["threads"] == str(torch.get_num_threads())
    assert (found["transduce"], found["torch"], found["Python"]) == (
        __version__,
        torch.__version__,
        platform.python_version(),
    )
    assert all(found.values())
