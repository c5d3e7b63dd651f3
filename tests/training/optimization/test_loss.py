import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.model import EXCLUDED_TOKEN_BIAS
from transduce.training import label_smoothed_cross_entropy
from transduce.training.optimization import loss as loss_module


def example(num_tokens: int, d_model: int, vocabulary: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(num_tokens, d_model, generator=generator)
    weight = torch.randn(vocabulary, d_model, generator=generator) / math.sqrt(d_model)
    targets = torch.randint(vocabulary - 1, (num_tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def by_the_formula(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor, int]:
    """Loss, cross-entropy and number of right tokens, written down as they are defined."""
    log_probabilities = (hidden @ weight[:-1].T).log_softmax(dim=-1)
    num_real = weight.size(0) - 1
    smoothed = (1 - smoothing) * F.one_hot(targets, num_real) + smoothing / num_real
    cross_entropy = -log_probabilities[torch.arange(len(targets)), targets].sum()
    num_correct = int((log_probabilities.argmax(dim=-1) == targets).sum())
    return -(smoothed * log_probabilities).sum(), cross_entropy, num_correct


@pytest.mark.parametrize("chunk_logits", [1, 300, 2**18])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("num_tokens", "d_model", "vocabulary"), [(1, 4, 5), (7, 8, 30), (19, 8, 30), (40, 16, 300)])
def test_equals_the_formula_and_its_gradient(
    num_tokens: int,
    d_model: int,
    vocabulary: int,
    smoothing: float,
    chunk_logits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    hidden, weight, targets = example(num_tokens, d_model, vocabulary)
    found = label_smoothed_cross_entropy(hidden, weight, targets, smoothing)
    found.loss.backward()

    exact_hidden, exact_weight = (tensor.detach().double().requires_grad_() for tensor in (hidden, weight))
    loss, cross_entropy, num_correct = by_the_formula(exact_hidden, exact_weight, targets, smoothing)
    loss.backward()

    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert found.cross_entropy.item() == pytest.approx(cross_entropy.item(), rel=1e-5)
    assert found.num_correct.item() == num_correct
    torch.testing.assert_close(hidden.grad, exact_hidden.grad.float(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weight.grad, exact_weight.grad.float(), rtol=1e-4, atol=1e-6)


def test_without_smoothing_is_cross_entropy() -> None:
    hidden, weight, targets = example(20, 8, 50)
    found = label_smoothed_cross_entropy(hidden, weight, targets, 0.0)
    expected = F.cross_entropy(hidden @ weight[:-1].T, targets, reduction="sum")
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(found.cross_entropy, expected.detach())


def test_smoothing_is_that_of_pytorch_over_the_real_tokens() -> None:
    hidden, weight, targets = example(20, 8, 50)
    found = label_smoothed_cross_entropy(hidden, weight, targets, 0.1)
    expected = F.cross_entropy(hidden @ weight[:-1].T, targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(found.loss, expected)


def test_padding_has_no_gradient_at_all() -> None:
    hidden, weight, targets = example(20, 8, 50)
    label_smoothed_cross_entropy(hidden, weight, targets, 0.1).loss.backward()
    assert weight.grad[-1].count_nonzero() == 0
    assert (weight.grad[:-1] != 0).all()


def test_padding_is_never_the_right_guess() -> None:
    hidden, weight, targets = example(20, 8, 50)
    with torch.no_grad():
        weight[-1] = 100 * hidden[0]
    before = label_smoothed_cross_entropy(hidden, weight, targets, 0.1)
    with torch.no_grad():
        weight[-1] = 0
    after = label_smoothed_cross_entropy(hidden, weight, targets, 0.1)
    assert (before.loss, before.num_correct) == (after.loss, after.num_correct)


def test_gradients_scale_with_what_is_made_of_the_loss() -> None:
    hidden, weight, targets = example(9, 8, 50)
    gradients = [
        torch.autograd.grad(factor * label_smoothed_cross_entropy(hidden, weight, targets, 0.1).loss, [hidden, weight])
        for factor in (1.0, -2.5)
    ]
    for once, scaled in zip(*gradients, strict=True):
        torch.testing.assert_close(scaled, -2.5 * once)


def test_huge_logits_stay_finite() -> None:
    hidden, weight, targets = example(9, 8, 50)
    found = label_smoothed_cross_entropy(1e4 * hidden, weight, targets, 0.1)
    assert found.loss.isfinite()
    assert found.loss > 1e4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_is_close(dtype: torch.dtype) -> None:
    hidden, weight, targets = example(60, 16, 300)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = label_smoothed_cross_entropy(hidden.to(dtype), weight, targets, 0.1)
    found.loss.backward()
    exact = by_the_formula(hidden.detach().double(), weight.detach().double(), targets, 0.1)[0]
    gradients = hidden.grad, weight.grad
    assert found.loss.dtype == torch.float32
    assert found.loss.item() == pytest.approx(exact.item(), rel=2e-2)
    hidden.grad = weight.grad = None
    label_smoothed_cross_entropy(hidden, weight, targets, 0.1).loss.backward()
    for rough, fine in zip(gradients, (hidden.grad, weight.grad), strict=True):
        assert (rough - fine).norm() < 0.02 * fine.norm()
    assert gradients[1][-1].count_nonzero() == 0


@pytest.mark.parametrize("num_tokens", [1, 8, 9, 19, 24])
@pytest.mark.parametrize("with_bias", [False, True])
def test_chunks_make_no_difference_in_bfloat16(
    num_tokens: int, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight, targets = example(num_tokens, 8, 50)
    bias = torch.randn(50, generator=torch.Generator().manual_seed(1)).requires_grad_() if with_bias else None
    inputs = [one for one in (hidden, weight, bias) if one is not None]
    found = []
    for chunk_logits in (2**18, 1):
        monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
        losses = label_smoothed_cross_entropy(hidden.bfloat16(), weight, targets, 0.1, bias)
        found.append((losses, torch.autograd.grad(losses.loss, inputs)))
    (whole, gradients), (chunked, same_gradients) = found
    # A processor may round products of other shapes otherwise.
    assert chunked.loss.item() == pytest.approx(whole.loss.item(), rel=1e-3)
    assert chunked.cross_entropy.item() == pytest.approx(whole.cross_entropy.item(), rel=1e-3)
    assert abs(chunked.num_correct - whole.num_correct) <= 1
    for one, other in zip(gradients, same_gradients, strict=True):
        assert (one - other).norm() <= 0.01 * one.norm()


def test_products_in_bfloat16_have_few_shapes() -> None:
    with torch.profiler.profile(record_shapes=True) as profile:
        for num_tokens in range(1100, 1500, 10):
            hidden, weight, targets = example(num_tokens, 8, 50)
            label_smoothed_cross_entropy(hidden.bfloat16(), weight, targets, 0.1)
    # Three chunks of 384 to 512 rows, a multiple of 32.
    assert len({str(event.input_shapes) for event in profile.events() if event.name == "aten::mm"}) == 3 * 5


@pytest.mark.parametrize("chunk_logits", [1, 2**18])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ruled_out", [[], [2, 7, 28]])
def test_with_a_bias_is_cross_entropy_over_what_can_be_predicted(
    ruled_out: list[int], smoothing: float, chunk_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    hidden, weight, targets = example(19, 8, 30)
    targets[torch.isin(targets, torch.tensor(ruled_out))] = 5
    bias = torch.randn(30, generator=torch.Generator().manual_seed(1))
    bias[ruled_out] = EXCLUDED_TOKEN_BIAS
    bias.requires_grad_()
    found = label_smoothed_cross_entropy(hidden, weight, targets, smoothing, bias)
    (2 * found.loss).backward()

    real = torch.tensor([index for index in range(29) if index not in ruled_out])
    exact = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight, bias)]
    logits = exact[0] @ exact[1][real].T + exact[2][real]
    right = torch.searchsorted(real, targets)
    loss = F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing)
    (2 * loss).backward()

    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert found.cross_entropy.item() == pytest.approx(F.cross_entropy(logits, right, reduction="sum").item(), rel=1e-5)
    assert found.num_correct.item() == int((logits.argmax(dim=-1) == right).sum())
    for tensor, other in zip((hidden, weight, bias), exact, strict=True):
        torch.testing.assert_close(tensor.grad, other.grad.float(), rtol=1e-4, atol=1e-5)
    assert not bias.grad[[*ruled_out, -1]].any()
    assert not weight.grad[[*ruled_out, -1]].any()


def test_a_bias_in_bfloat16_is_close() -> None:
    hidden, weight, targets = example(60, 16, 300)
    bias = torch.randn(300, generator=torch.Generator().manual_seed(1)).requires_grad_()
    exact = label_smoothed_cross_entropy(hidden, weight, targets, 0.1, bias)
    exact.loss.backward()
    gradient, bias.grad = bias.grad, None
    found = label_smoothed_cross_entropy(hidden.detach().bfloat16(), weight, targets, 0.1, bias)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(exact.loss.item(), rel=2e-2)
    assert (bias.grad - gradient).norm() < 0.02 * gradient.norm()


def test_works_in_inference_mode() -> None:
    hidden, weight, targets = example(9, 8, 50)
    expected = label_smoothed_cross_entropy(hidden, weight, targets, 0.1)
    with torch.inference_mode():
        found = label_smoothed_cross_entropy(hidden, weight, targets, 0.1)
    assert found.loss == expected.loss
    assert found.num_correct == expected.num_correct
    assert not found.loss.requires_grad


def test_only_the_loss_is_differentiable() -> None:
    found = label_smoothed_cross_entropy(*example(9, 8, 50), 0.1)
    assert found.loss.requires_grad
    assert not found.cross_entropy.requires_grad


def two_passes(num_tokens: int, d_model: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `example` gives, for two passes over each token, one row after the other."""
    hidden, weight, _ = example(2 * num_tokens, d_model, vocabulary)
    targets = torch.randint(vocabulary - 1, (num_tokens,), generator=torch.Generator().manual_seed(2))
    return hidden, weight, targets.repeat_interleave(2)


def divergence_by_pytorch(logits: Tensor) -> Tensor:
    first, second = logits.log_softmax(dim=-1).unflatten(0, (-1, 2)).unbind(dim=1)
    both = [F.kl_div(*pair, reduction="sum", log_target=True) for pair in ((first, second), (second, first))]
    return sum(both) / 2


@pytest.mark.parametrize("chunk_logits", [1, 1200, 2**20])
@pytest.mark.parametrize(("smoothing", "ruled_out"), [(0.0, None), (0.1, None), (0.1, []), (0.1, [2, 7, 28])])
@pytest.mark.parametrize(("num_tokens", "d_model", "vocabulary"), [(1, 4, 30), (19, 7, 30), (40, 16, 300)])
def test_the_divergence_of_two_passes_and_its_gradient_are_those_of_pytorch(
    num_tokens: int,
    d_model: int,
    vocabulary: int,
    smoothing: float,
    ruled_out: list[int] | None,
    chunk_logits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    hidden, weight, targets = two_passes(num_tokens, d_model, vocabulary)
    inputs, real = [hidden, weight], torch.arange(vocabulary - 1)
    if ruled_out is not None:
        targets[torch.isin(targets, torch.tensor(ruled_out))] = 5
        bias = torch.randn(vocabulary, generator=torch.Generator().manual_seed(1))
        bias[ruled_out] = EXCLUDED_TOKEN_BIAS
        inputs.append(bias.requires_grad_())
        real = torch.tensor([index for index in range(vocabulary - 1) if index not in ruled_out])
    found = label_smoothed_cross_entropy(hidden, weight, targets, smoothing, *inputs[2:], r_drop=5.0)
    gradients = torch.autograd.grad(found.loss, inputs)

    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    logits = exact[0] @ exact[1][real].T + (exact[2][real] if ruled_out is not None else 0)
    right = torch.searchsorted(real, targets)
    divergence = divergence_by_pytorch(logits)
    loss = F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing) + 5 * divergence
    expected = torch.autograd.grad(loss, exact)

    assert found.divergence.item() == pytest.approx(divergence.item(), rel=1e-6 * num_tokens, abs=1e-6)
    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert found.cross_entropy.item() == pytest.approx(F.cross_entropy(logits, right, reduction="sum").item(), rel=1e-5)
    assert found.num_correct.item() == int((logits.argmax(dim=-1) == right).sum())
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk_logits", [1, 2**20])
def test_equal_passes_do_not_diverge_at_all(
    dtype: torch.dtype, chunk_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    monkeypatch.setattr(loss_module, "R_DROP_CHUNK_DIVISOR", 1)
    hidden, weight, targets = two_passes(20, 8, 50)
    twice = hidden.detach()[::2].repeat_interleave(2, dim=0).to(dtype).requires_grad_()
    with_it, without = (label_smoothed_cross_entropy(twice, weight, targets, 0.1, r_drop=alpha) for alpha in (5.0, 0.0))
    assert with_it.divergence == 0
    assert with_it.loss == without.loss
    gradients, others = (torch.autograd.grad(one.loss, [twice, weight]) for one in (with_it, without))
    for gradient, other in zip(gradients, others, strict=True):
        assert torch.equal(gradient, other)


@pytest.mark.parametrize("num_tokens", [4, 5, 12])
@pytest.mark.parametrize("chunk_logits", [1, 2**20])
def test_the_divergence_in_bfloat16_is_that_of_its_logits_in_float32(
    num_tokens: int, chunk_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of passes that hardly differ, whose divergence would be lost in probabilities of eight bits."""
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    hidden, weight, targets = two_passes(num_tokens, 8, 50)
    with torch.no_grad():
        hidden[1::2] = hidden[::2] + 0.05 * hidden[1::2]
    rough = hidden.detach().bfloat16().requires_grad_()
    found = label_smoothed_cross_entropy(rough, weight, targets, 0.1, r_drop=5.0)
    (gradient,) = torch.autograd.grad(found.loss, rough)
    divergence = divergence_by_pytorch((rough @ weight[:-1].bfloat16().T).double())
    assert found.loss.dtype == found.divergence.dtype == torch.float32
    assert found.divergence.item() == pytest.approx(divergence.item(), rel=2e-2)

    exact = rough.detach().double().requires_grad_()
    logits = exact @ weight[:-1].double().T
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1) + 5 * divergence_by_pytorch(logits)
    (expected,) = torch.autograd.grad(loss, exact)
    assert (gradient.double() - expected).norm() < 0.02 * expected.norm()


def test_two_passes_over_nothing_have_no_loss() -> None:
    hidden, weight, targets = two_passes(0, 8, 50)
    found = label_smoothed_cross_entropy(hidden, weight, targets, 0.1, r_drop=5.0)
    found.loss.backward()
    assert (found.loss, found.divergence, weight.grad.count_nonzero()) == (0, 0, 0)


def test_huge_logits_diverge_finitely() -> None:
    hidden, weight, targets = two_passes(9, 8, 50)
    found = label_smoothed_cross_entropy(1e4 * hidden, weight, targets, 0.1, r_drop=5.0)
    assert 1e4 < found.divergence < found.loss < torch.inf
    assert torch.autograd.grad(found.loss, hidden)[0].isfinite().all()


def test_tokens_that_are_ruled_out_do_not_diverge_in_float16() -> None:
    """Their bias is -inf there."""
    hidden, weight, targets = two_passes(9, 8, 50)
    bias = torch.zeros(50)
    bias[[2, 7]] = EXCLUDED_TOKEN_BIAS
    targets[torch.isin(targets, torch.tensor([2, 7]))] = 5
    losses, gradients = [], []
    for dtype in (torch.float32, torch.float16):
        states = hidden.detach().to(dtype).requires_grad_()
        found = label_smoothed_cross_entropy(states, weight, targets, 0.1, bias, r_drop=5.0)
        losses.append(torch.stack([found.loss, found.divergence]))
        gradients.append(torch.cat([one.flatten() for one in torch.autograd.grad(found.loss, [states, weight])]))
    assert losses[0][1] > 0
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-2, atol=1e-2)
    assert (gradients[1] - gradients[0]).norm() < 0.01 * gradients[0].norm()
