from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from transduce.baselines import ARCHITECTURES, make_encoder_decoder
from transduce.config import TransformerConfig
from transduce.model import Dropout, EncoderDecoder

SMALL: dict[str, Any] = {
    "vocabulary": 23,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "d_model": 16,
    "num_heads": 4,
    "dropout": 0.0,
    "max_positions": 40,
}
SHAPES: list[dict[str, Any]] = [
    {},
    {"tied_embeddings": "none", "output_bias": True},
    {"tied_embeddings": "two_way", "num_encoder_layers": 1, "num_decoder_layers": 3},
]
OF_CONVOLUTIONS: list[dict[str, Any]] = [{"kernel_width": 1}, {"kernel_width": 5}]
VARIANTS = [
    {"architecture": architecture, **shape}
    for architecture in ARCHITECTURES
    if architecture != "transformer"
    for shape in (SHAPES if architecture == "recurrent" else SHAPES + OF_CONVOLUTIONS)
]


class Example(NamedTuple):
    """What a network reads, in the order of its arguments."""

    source_ids: Tensor
    source_mask: Tensor
    target_ids: Tensor
    target_mask: Tensor


@pytest.fixture(params=VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())))
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What differs from the small network; all networks but the Transformer occur, with each setting that they read."""
    changes: dict[str, Any] = request.param
    return changes


@pytest.fixture
def make_model() -> Callable[..., EncoderDecoder]:
    """A small network, in evaluation, none of whose parameters is zero or one by default."""

    @torch.no_grad()
    def make(**changes: Any) -> EncoderDecoder:
        torch.manual_seed(0)
        model = make_encoder_decoder(TransformerConfig(**(SMALL | changes)))
        for name, parameter in model.named_parameters():
            real = parameter[:-1] if "embedding" in name or name == "projection.weight" else parameter
            real += 0.2 * torch.randn_like(real)
        return model.eval()

    return make


@pytest.fixture
def make_example() -> Callable[..., Example]:
    """Random sentences of the given lengths, padded to the longest or to `length`, with `pad` in the padding."""

    def make(sources: Sequence[int], targets: Sequence[int], *, length: int = 0, pad: int = 22) -> Example:
        def side(lengths: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
            ids = torch.full((len(lengths), max(length, *lengths, 1)), pad)
            mask = torch.arange(ids.size(1)) < torch.tensor(lengths)[:, None]
            for row, count in enumerate(lengths):
                generator = torch.Generator().manual_seed(100 * seed + row)
                ids[row, :count] = torch.randint(0, 22, (count,), generator=generator)
            return ids, mask

        return Example(*side(sources, seed=1), *side(targets, seed=2))

    return make


@pytest.fixture(params=[1.0, 0.7], ids="kept={}".format)
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """What dropout multiplies each number by, so that a formula can say where it applies; 1: as it is in evaluation."""
    factor: float = request.param
    if factor != 1:
        monkeypatch.setattr(Dropout, "forward", lambda _, inputs: factor * inputs)
    return factor


@pytest.fixture
def measure_depth() -> Callable[[Tensor], int]:
    """How many operations follow each other on the longest way to a result: those that cannot be parallel."""

    def measure(result: Tensor) -> int:
        depths: dict[Any, int] = {}
        stack = [result.grad_fn]
        while stack:
            function = stack[-1]
            below = [following for following, _ in function.next_functions if following is not None]  # type: ignore[union-attr]
            missing = [following for following in below if following not in depths]
            if missing:
                stack += missing
            else:
                depths[stack.pop()] = 1 + max((depths[following] for following in below), default=0)
        return depths[result.grad_fn]

    return measure
