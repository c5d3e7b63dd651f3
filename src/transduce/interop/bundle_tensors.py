"""The tensors of a bundle by their names, and tensors and settings of a bundle from another program's matrices."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor

from transduce.bundle.weights import make_empty_tensors
from transduce.config import SearchConfig, TransformerConfig, describe_file_error
from transduce.errors import BundleError
from transduce.model import EXCLUDED_TOKEN_BIAS


def select_rows(
    numbers: Float[Tensor, "theirs *width"], rows: Sequence[int], missing: float = 0.0
) -> Float[Tensor, "ours *width"]:
    """The given rows of a matrix or vector; row -1 is filled with `missing`."""
    return torch.cat([numbers, torch.full_like(numbers[:1], missing)])[torch.tensor(rows)]


ROWS_ARE_TOKENS = ("source_embedding.weight", "target_embedding.weight", "projection.weight", "projection.bias")
"""Names of the tensors of a bundle that have a row for each token."""


class TokenRows(NamedTuple):
    """For each id of a bundle, the row in matrices of another program; -1 where it has none.

    Args:
        sources: rows of source embeddings.
        targets: rows of target embeddings and outputs.
    """

    sources: Sequence[int]
    targets: Sequence[int]


def arrange_token_matrices(
    source: Float[Tensor, "sources d_model"],
    target: Float[Tensor, "targets d_model"],
    output: Float[Tensor, "targets d_model"],
    bias: Float[Tensor, " targets"],
    rows: TokenRows,
) -> dict[str, Tensor]:
    """Embeddings, output projection and output bias of another program by their names in a bundle, a row for each id.

    Ids that targets do not have are never predicted, nor is `<pad>`, which needs no bias.
    """
    arranged = select_rows(bias, rows.targets, EXCLUDED_TOKEN_BIAS)
    arranged[-1] = 0
    return {
        "source_embedding.weight": select_rows(source, rows.sources),
        "target_embedding.weight": select_rows(target, rows.targets),
        "projection.weight": select_rows(output, rows.targets),
        "projection.bias": arranged,
    }


def make_config(
    settings: Mapping[str, Any], matrices: Mapping[str, Tensor], positions: tuple[str, int], origin: str
) -> TransformerConfig:
    """The settings of an imported network.

    Args:
        settings: those that do not follow from its matrices and positions. An output bias of zeros is kept only if
            these settings say that there is one.
        matrices: the matrices with a row for each token, from `arrange_token_matrices`.
        positions: the kind of its table of positions, and the number of rows.
        origin: what error messages call the model.

    Raises:
        BundleError: the settings are invalid.
    """
    kind, num_positions = positions
    source, target, output, bias = matrices.values()
    tied = "three_way" if torch.equal(source, target) else "two_way"
    decided: dict[str, Any] = {
        "vocabulary": len(source),
        "tied_embeddings": tied if torch.equal(target, output) else "none",
        "output_bias": settings["output_bias"] or bool(bias.any()),
        "positions": kind,
    }
    if kind == "learned":
        decided["max_positions"] = num_positions
    try:
        return TransformerConfig(**{**settings, **decided})
    except ValidationError as error:
        raise BundleError(f"{origin}: {describe_file_error(error)}") from None


def make_search_config(num_positions: int, beam: int | None = None) -> SearchConfig:
    """The default search, with a model's `beam` if it has one, and lengths within its positions."""
    default = SearchConfig()
    max_extra_length = min(default.max_extra_length, max(1, num_positions // 3))
    max_pieces = min(default.max_pieces, max(8, num_positions - max_extra_length - 1))
    return SearchConfig(beam=beam or default.beam, max_extra_length=max_extra_length, max_pieces=max_pieces)


_NAME = re.compile(r"(encoder|decoder)\.(?:layers\.(\d+)\.)?(.+)\.(weight|gain|bias)")


def parse_tensor_name(name: str) -> tuple[str, int | None, str, str]:
    """Stack, number of the layer, part and kind in the name of a tensor: "decoder", 0, "feed_forward.inner", "bias".

    Raises:
        KeyError: it is not the name of a tensor of a layer, or of the final normalisation.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise KeyError(name)
    stack, layer, part, kind = found.groups()
    return stack, None if layer is None else int(layer), part, kind


def gather_tensors(
    config: TransformerConfig, matrices: Mapping[str, Tensor], find_parts: Callable[[str], Sequence[Tensor]]
) -> dict[str, Tensor]:
    """The tensors of a bundle with this `config`: those in `matrices`, and the others by stacking their parts."""
    names = make_empty_tensors(config)
    return {name: matrices[name] if name in matrices else torch.cat(list(find_parts(name))) for name in names}
