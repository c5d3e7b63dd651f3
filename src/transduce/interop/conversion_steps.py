"""Steps that several formats share: order of channels, rows of tokens, tables of positions, tokenizers, settings.

The paper's positions (3.5) interleave sines and cosines: the sine of a frequency is at an even channel, its cosine at
the next one. Marian and its descendants split the channels: all sines come before all cosines. Nothing else in the
network depends on the order of the d_model channels between the layers. If the rows or columns of all matrices that
write or read these channels are reordered accordingly, both are the same model with the same numbers.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from pydantic import ValidationError
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from transduce.bundle.weights import make_empty_tensors
from transduce.config import SearchConfig, TransformerConfig, describe_file_error
from transduce.errors import BundleError, UserError
from transduce.model import EXCLUDED_TOKEN_BIAS, sinusoids
from transduce.text import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, Tokenizer

# By the ends of the names of a bundle's tensors: those whose columns are these channels, those whose rows are, and all
# others.
_COLUMNS = ("embedding.weight", "positions.table", "projection.weight", "inner.weight", "gate.weight")
_ROWS = (
    *("output.weight", "output.bias", "outer.weight", "outer.bias"),
    *("gain", "normalization.bias", "final.bias", "running_mean", "running_variance"),
)
_NEITHER = (
    *("projection.bias", "inner.bias", "gate.bias", "query_weight", "key_weight", "hidden_weight"),
    *("relative_keys", "relative_values"),
)


def split_channels(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a bundle with split channels: all even channels, then all odd ones.

    Raises:
        ValueError: a name is not that of a bundle's tensor.
    """
    return {name: _reorder_channels(name, tensor, back=False) for name, tensor in tensors.items()}


def interleave_channels(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `split_channels`."""
    return {name: _reorder_channels(name, tensor, back=True) for name, tensor in tensors.items()}


def _reorder_channels(name: str, tensor: Tensor, *, back: bool) -> Tensor:
    axis = _channel_axis(name)
    if axis is None:
        return tensor
    interleaved = torch.arange(tensor.size(axis))
    split = torch.cat([interleaved[0::2], interleaved[1::2]])
    return tensor.index_select(axis, split.argsort() if back else split)


def _channel_axis(name: str) -> int | None:
    """The axis of the channels in the tensor of this name; None if it has no such axis."""
    if name.endswith(_COLUMNS):
        return 1
    if name.endswith(_ROWS):
        return 0
    if name.endswith(_NEITHER):
        return None
    raise ValueError(f"{name}: is not the name of a tensor in a bundle")


_MAX_DIFFERENCE = 1e-6
"""The largest difference between sinusoids that two programs have computed."""


def classify_positions(
    table: Float[Tensor, "positions d_model"], *, is_split: bool = True, rounding: float = 0.0
) -> str:
    """The kind of a table of positions as in `model.positions`: "sinusoidal", "none" if all is zero, or else "learned".

    Args:
        table: the numbers that are added to embeddings.
        is_split: whether all sines come before all cosines.
        rounding: the largest rounding error of a number.
    """
    if not table.any():
        return "none"
    if table.size(1) % 2:
        return "learned"
    ours = sinusoids(*table.shape)
    if is_split:
        ours = split_channels({"positions.table": ours})["positions.table"]
    return "sinusoidal" if torch.allclose(table, ours, rtol=0, atol=max(rounding, _MAX_DIFFERENCE)) else "learned"


def compute_tensor2tensor_sinusoids(length: int, d_model: int, start: int = 0) -> Float[Tensor, "{length} {d_model}"]:
    """The positions of Tensor2Tensor and Marian: float32, sines before cosines, frequencies from 1 to 1/10000 itself.

    The paper's last frequency is a little higher, as are those that Transformers and CTranslate2 take for Marian's.
    """
    half = d_model // 2
    steps = torch.arange(half, dtype=torch.float32) * -(math.log(10_000) / max(half - 1, 1))
    angles = torch.arange(start, start + length, dtype=torch.float32)[:, None] * steps.exp()
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def select_rows(
    numbers: Float[Tensor, "theirs *width"], rows: Sequence[int], missing: float = 0.0
) -> Float[Tensor, "ours *width"]:
    """The given rows of a matrix or vector; row -1 is filled with `missing`."""
    return torch.cat([numbers, torch.full_like(numbers[:1], missing)])[torch.tensor(rows)]


ROWS_ARE_TOKENS = ("source_embedding.weight", "target_embedding.weight", "projection.weight", "projection.bias")
"""The tensors of a bundle that have a row for each token."""


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


def split_name(name: str) -> tuple[str, int | None, str, str]:
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


SPECIAL = ("<unk>", "</s>")


MODELS = ((SOURCE_MODEL, TARGET_MODEL), ("source.spm", "target.spm"), (SOURCE_MODEL,), ("sentencepiece.model",))
"""File names of SentencePiece models that are looked for, in this order: two, of source and target, or one of both."""


@dataclass(frozen=True)
class ForeignVocabulary:
    """The tokens of another program's model, in the order of the rows of its matrices.

    `<pad>`, which is not listed, may have the last row.
    """

    sources: list[str]
    targets: list[str]
    has_pad: bool = False

    def without_pad(self) -> "ForeignVocabulary":
        """The same vocabulary with its last token, which is `<pad>`, no longer listed."""
        return ForeignVocabulary(self.sources[:-1], self.targets[:-1], has_pad=True)

    def rows(self, tokenizer: Tokenizer) -> TokenRows:
        """The rows of the ids of `tokenizer`; `<pad>` has none."""
        sides = ({token: row for row, token in enumerate(side)} for side in (self.sources, self.targets))
        pieces = tokenizer.pieces(range(tokenizer.pad_id))
        return TokenRows(*([*(side.get(piece, -1) for piece in pieces), -1] for side in sides))

    def make_tokenizer(self, models: tuple[bytes, bytes], origin: str, *, ends_sources: bool = True) -> Tokenizer:
        """A tokenizer with `<unk>`, `</s>`, the other tokens of both sides, those of one side alone, and `<pad>`.

        `models` are the SentencePiece models of source and target, which come from `origin`.
        """
        known = set(self.sources), set(self.targets)
        return Tokenizer.with_vocabulary(
            *models,
            [*SPECIAL, *(token for token in self.sources if token in known[1] and token not in SPECIAL)],
            origin,
            source_only=[token for token in self.sources if token not in known[1]],
            target_only=[token for token in self.targets if token not in known[0]],
            ends_sources=ends_sources,
        )


def make_tokenizer(
    tokens: ForeignVocabulary, folder: Path, given: Path | None, *, ends_sources: bool = True
) -> Tokenizer:
    """The tokenizer of a vocabulary, with the SentencePiece models in or beside the model's `folder`.

    `given` is a SentencePiece model, or a folder in which they are looked for instead.

    Raises:
        BundleError: the vocabulary beside the SentencePiece models is another one.
        UserError: there is no SentencePiece model, or it is damaged.
    """
    if given is not None and given.is_file():
        source = target = given
    else:
        places = [given] if given is not None else [folder, folder.absolute().parent]
        source, target = _find_models(places, folder, given)
    if target.name == TARGET_MODEL and (target.parent / VOCABULARY).exists():  # of a bundle that was exported
        tokenizer = Tokenizer.load(target.parent)
        if tokens.sources != tokens.targets or tokenizer.pieces(range(tokenizer.pad_id)) != tokens.sources:
            raise BundleError(f"{target.parent / VOCABULARY}: has other pieces than the vocabulary of {folder}")
        return tokenizer
    models = _read_bytes(source), _read_bytes(target)
    return tokens.make_tokenizer(models, str(folder), ends_sources=ends_sources)


def _find_models(places: Sequence[Path], folder: Path, given: Path | None) -> tuple[Path, Path]:
    for place in places:
        for names in MODELS:
            if all((place / name).is_file() for name in names):
                return place / names[0], place / names[-1]
    looked_for = " or ".join(" and ".join(names) for names in MODELS)
    where = "neither in it nor beside it" if given is None else f"not in {given}"
    raise UserError(f"{folder}: its SentencePiece model is {where} ({looked_for}): give it with --tokenizer")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a SentencePiece model") from None


# Not that of `Tokenizer`, which a proof compares with this: the programs of exports have a copy of their own, too.
_TAG = re.compile(r"\s*(>>[^<>\s]+<<)\s*")


class SentencePieceCodec:
    """Encodes and decodes as the README of an export says: by SentencePiece and, for tags, a few lines of code.

    Its results are ids of the bundle, which a proof compares with those of `Tokenizer`. SentencePiece alone would spell
    a tag like any word.

    Args:
        tokenizer: the tokenizer with the SentencePiece models that travel with the model of another program.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        models = tokenizer.model_bytes, tokenizer.target_model_bytes
        self._source, self._target = (SentencePieceProcessor(model_proto=model) for model in models)
        self._tokenizer, self._tags = tokenizer, set(tokenizer.tags)
        shared, source_only, _ = list_pieces(tokenizer)
        self._ids = {piece: index for index, piece in enumerate([*shared, *source_only])}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, `</s>` included."""
        divided = [self._split_tag(text) for text in texts]
        rows = self._source.encode([rest for _, rest in divided], out_type=str)
        unknown = self._tokenizer.unknown_id
        return [
            self._tokenizer.as_source([self._ids.get(piece, unknown) for piece in (*tag, *row)])
            for (tag, _), row in zip(divided, rows, strict=True)
        ]

    def _split_tag(self, text: str) -> tuple[list[str], str]:
        """The tag at the beginning of a text, or nothing, and the rest."""
        tag = _TAG.match(text)
        if tag is None or tag[1] not in self._tags:
            return [], text
        return [tag[1]], text[tag.end() :]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids."""
        texts = [self._target.decode_pieces(self._tokenizer.pieces(row)[:-1]) for row in ids]
        # A piece that only sources have stands for itself.
        return texts if self._tokenizer.is_joint else [text.replace("▁", " ").strip() for text in texts]


def list_pieces(tokenizer: Tokenizer) -> tuple[list[str], list[str], list[str]]:
    """All pieces but `<pad>`: those of both sides, of sources alone, and of targets alone."""
    if tokenizer.is_joint:
        return tokenizer.pieces(range(tokenizer.pad_id)), [], []
    lists = json.loads(tokenizer.files[VOCABULARY])
    return lists["shared"], lists["source"], lists["target"]


def number_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """The id of each piece, `<pad>` included."""
    return {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
