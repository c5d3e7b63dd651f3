import pytest
import torch
from torch import nn

from transduce.kernels.layer_normalization import layer_normalization


@pytest.mark.parametrize("d_model", [128, 512])
def test_gradients_in_bfloat16_lose_nothing_over_many_positions(d_model: int) -> None:
    """Compared with float64: torch's own, on a CPU, are a fifth of gain's gradient short here."""
    torch.manual_seed(0)
    inputs = torch.randn(16, 256, d_model) + 0.5
    outer = (0.01 * torch.randn_like(inputs) + 0.003 * inputs).bfloat16()
    gain, bias = nn.Parameter(torch.empty(d_model).normal_(1, 0.2)), nn.Parameter(torch.empty(d_model).normal_(0, 0.2))
    theirs = nn.LayerNorm(d_model, dtype=torch.float64)
    theirs.load_state_dict({"weight": gain, "bias": bias})
    ours_in, theirs_in = (inputs.bfloat16().to(dtype).requires_grad_() for dtype in (torch.bfloat16, torch.float64))
    ours_out = layer_normalization(ours_in, gain, bias, 1e-5)
    theirs_out = theirs(theirs_in)
    torch.testing.assert_close(ours_out.double(), theirs_out, atol=0.01, rtol=0.01)
    ours_out.backward(outer)
    theirs_out.backward(outer.double())
    pairs = [
        (gain, theirs.weight),
        (bias, theirs.bias),
        (ours_in, theirs_in),
    ]
    for ours, wanted in pairs:
        assert ours.grad is not None
        assert wanted.grad is not None
        assert ours.grad.dtype == ours.dtype
        assert (ours.grad.double() - wanted.grad).norm() < 0.005 * wanted.grad.norm()
