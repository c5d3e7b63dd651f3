"""Transfer: a network starts from the weights of a model that differs from it in vocabulary or number of layers.

Another vocabulary is that of another pair of languages (Zoph et al. 2016); tokens that both vocabularies have keep
their vectors, as in Nguyen & Chiang 2017. Fewer layers make a student that begins with some of its teacher's
(Shleifer & Rush 2020, "Pre-trained summarization distillation").
"""

import re

import torch
from torch import nn

from transduce.bundle import Bundle, collect_model_tensors, load_tensors
from transduce.errors import ConfigError
from transduce.model import EncoderDecoder, OutputProjection, TokenEmbedding
from transduce.text import Tokenizer


@torch.no_grad()
def transfer_weights(model: EncoderDecoder, start: Bundle, tokenizer: Tokenizer) -> int:
    """Copy the weights of a bundle into a network of the same kind with another vocabulary.

    Rows of embeddings and of the output projection are copied for the pieces that both vocabularies have, special
    tokens included; the others keep their initial values. All other weights are copied.

    Args:
        model: the network, with its initial values.
        start: the bundle.
        tokenizer: that of `model`.

    Returns:
        The number of tokens whose vectors were copied.

    Raises:
        ConfigError: the bundle's network has other layers than `model`.
    """
    parent = start.load_model()
    own, given = collect_model_tensors(model), collect_model_tensors(parent)
    by_token = _find_token_tensors(model)
    for name, tensor in own.items():
        if (
            name not in given
            or given[name].shape[1:] != tensor.shape[1:]
            or (name not in by_token and given[name].shape != tensor.shape)
        ):
            raise ConfigError(f"training.start_from: {start.folder} has other layers than this run, as {name} shows")
    parent_tokenizer = start.load_tokenizer()
    ids = {piece: index for index, piece in enumerate(parent_tokenizer.pieces(range(parent_tokenizer.vocabulary)))}
    pieces = tokenizer.pieces(range(tokenizer.vocabulary))
    shared = [(index, ids[piece]) for index, piece in enumerate(pieces) if piece in ids]
    rows, parent_rows = (torch.tensor(side) for side in zip(*shared, strict=True))
    for name, tensor in own.items():
        if name in by_token:
            tensor[rows.to(tensor.device)] = given[name][parent_rows].to(tensor.device)
        else:
            tensor.copy_(given[name])
    return len(shared)


@torch.no_grad()
def copy_spread_layers(model: EncoderDecoder, start: Bundle) -> None:
    """Copy the weights of a bundle's network into one that has at most as many layers and is otherwise the same.

    The layers that are copied are spread evenly from the first to the last; a single layer is a copy of the first.

    Args:
        model: the network.
        start: the bundle.
    """
    numbers = {}
    for stack in ("encoder", "decoder"):
        count, most = (getattr(one, f"num_{stack}_layers") for one in (model.config, start.model_config))
        numbers[stack] = [round(index * (most - 1) / max(1, count - 1)) for index in range(count)]

    def find_name(name: str) -> str:
        match = re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name)
        return name if match is None else f"{match[1]}.layers.{numbers[match[1]][int(match[2])]}.{name[match.end() :]}"

    given = collect_model_tensors(start.load_model())
    load_tensors(model, {name: given[find_name(name)] for name in collect_model_tensors(model)}, str(start.folder))


def _find_token_tensors(model: nn.Module) -> set[str]:
    """The names of the tensors with a row for each token."""
    return {
        f"{name}.{parameter}"
        for name, part in model.named_modules()
        if isinstance(part, TokenEmbedding | OutputProjection)
        for parameter, _ in part.named_parameters(recurse=False)
    }
