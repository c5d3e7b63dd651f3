from collections.abc import Callable

import pytest
import torch

from transduce.kernels.precision import ComputePrecision, resolve_precision

CPU = torch.device("cpu")


@pytest.fixture
def make_capabilities(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bool]], None]:
    """A processor that says it can do this."""
    monkeypatch.setattr("transduce.kernels.device.has_packed_bfloat16", lambda: True)
    return lambda found: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)


def test_auto_is_what_is_fastest(make_capabilities: Callable[[dict[str, bool]], None]) -> None:
    make_capabilities({"amx_bf16": True})
    assert resolve_precision("auto", CPU, 128, is_few=False) == ComputePrecision(torch.bfloat16)
    assert resolve_precision("auto", CPU, 128, is_few=True) == ComputePrecision(torch.float32, is_mixed=True)
    assert resolve_precision("auto", CPU, 64, is_few=False) == ComputePrecision(torch.float32)
    make_capabilities({})
    for is_few in (True, False):
        assert resolve_precision("auto", CPU, 512, is_few=is_few) == ComputePrecision(torch.float32)


@pytest.mark.parametrize("is_few", [True, False])
def test_what_is_asked_for_is_taken(*, is_few: bool) -> None:
    assert resolve_precision("float32", CPU, 512, is_few=is_few) == ComputePrecision(
        torch.float32, is_batch_invariant=True
    )
    assert resolve_precision("bfloat16", CPU, 64, is_few=is_few) == ComputePrecision(torch.bfloat16)
