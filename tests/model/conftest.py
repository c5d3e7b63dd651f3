from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.model import BatchNormalization, Transformer

SMALL: dict[str, Any] = {
    "vocabulary": 23,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "d_model": 16,
    "d_ff": 24,
    "num_heads": 4,
    "dropout": 0.0,
    "max_positions": 12,
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"attention_score": "dot"},
    {"attention_score": "additive"},
    {"norm_order": "pre"},
    {"normalization": "batch"},
    {"normalization": "batch", "norm_order": "pre"},
    {"normalization": "rms"},
    {"normalization": "rms", "norm_order": "pre"},
    {"positions": "learned"},
    {"positions": "rotary"},
    {"positions": "relative", "max_relative_distance": 2},
    {"positions": "none"},
    {"tied_embeddings": "two_way"},
    {"tied_embeddings": "none"},
    {"output_bias": True},
    {"output_bias": True, "tied_embeddings": "none"},
    {"activation": "gelu"},
    {"activation": "swish"},
    {"feed_forward": "gated"},
    {"d_k": 3, "d_v": 5},
    {"num_encoder_layers": 1, "num_decoder_layers": 3},
    {
        "normalization": "rms",
        "norm_order": "pre",
        "feed_forward": "gated",
        "activation": "swish",
        "positions": "rotary",
    },
]


class Example(NamedTuple):
    """What the network reads, in the order of its arguments."""

    source_ids: Tensor
    source_mask: Tensor
    target_ids: Tensor
    target_mask: Tensor


@pytest.fixture
def small_config() -> Callable[..., TransformerConfig]:
    return lambda **changes: TransformerConfig(**(SMALL | changes))


@pytest.fixture(params=VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())) or "base")
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What differs from the small model; every choice of the configuration occurs."""
    changes: dict[str, Any] = request.param
    return changes


@pytest.fixture
def make_model() -> Callable[..., Transformer]:
    """A small network, in evaluation, none of whose parameters or statistics is zero or one by default."""

    @torch.no_grad()
    def make(**changes: Any) -> Transformer:
        torch.manual_seed(0)
        model = Transformer(TransformerConfig(**(SMALL | changes)))
        for name, parameter in model.named_parameters():
            real = parameter[:-1] if "embedding" in name or name == "projection.weight" else parameter
            real += 0.2 * torch.randn_like(real)
        for part in model.modules():
            if isinstance(part, BatchNormalization):
                part.running_mean.normal_(std=0.2)
                part.running_variance.uniform_(0.5, 2.0)
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
