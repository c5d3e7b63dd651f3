from collections.abc import Callable

import pytest
import torch

from transduce.kernels.precision import Arithmetic, settled_precision

CPU = torch.device("cpu")


@pytest.fixture
def make_capabilities(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bool]], None]:
    """A processor that says it can do this."""
    monkeypatch.setattr("transduce.kernels.device.packs_bfloat16", lambda: True)
    return lambda found: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)


def test_auto_is_what_is_fastest(make_capabilities: Callable[[dict[str, bool]], None]) -> None:
    make_capabilities({"amx_bf16": True})
    assert settled_precision("auto", CPU, 128, few=False) == Arithmetic(torch.bfloat16)
    assert settled_precision("auto", CPU, 128, few=True) == Arithmetic(torch.float32, large_in_bfloat16=True)
    assert settled_precision("auto", CPU, 64, few=False) == Arithmetic(torch.float32)
    make_capabilities({})
    for few in (True, False):
        assert settled_precision("auto", CPU, 512, few=few) == Arithmetic(torch.float32)


@pytest.mark.parametrize("few", [True, False])
def test_what_is_asked_for_is_taken(*, few: bool) -> None:
    assert settled_precision("float32", CPU, 512, few=few) == Arithmetic(torch.float32, alike_in_every_batch=True)
    assert settled_precision("bfloat16", CPU, 64, few=few) == Arithmetic(torch.bfloat16)
