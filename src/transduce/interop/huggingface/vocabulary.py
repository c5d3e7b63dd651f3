"""Marian's tokenizer in Transformers: two SentencePiece models, and the id of each piece on either side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transduce.errors import BundleError
from transduce.interop.huggingface.package import Foreign
from transduce.model import NEVER
from transduce.text import Tokenizer


@dataclass(frozen=True)
class TheirIds:
    """Which token of a model of Transformers each of our ids is.

    Args:
        sources: the id that it has in a source, for each id of ours; None if in sources there is no such token.
        targets: the same in a target.
    """

    sources: Sequence[int | None]
    targets: Sequence[int | None]

    @cached_property
    def ours_in_sources(self) -> dict[int | None, int]:
        """Our id of each of theirs in a source."""
        return {theirs: ours for ours, theirs in enumerate(self.sources)}

    @cached_property
    def ours_in_targets(self) -> dict[int | None, int]:
        """Our id of each of theirs in a target."""
        return {theirs: ours for ours, theirs in enumerate(self.targets)}


def read_vocabulary(folder: Path, model: Foreign, tokenizer: Foreign) -> tuple[Tokenizer, TheirIds]:
    """Our tokenizer for a model of Transformers, and how its tokens are numbered there.

    Our ids are `<unk>`, `</s>`, the other pieces of both sides in the order that they have there, those of the source
    alone, those of the target alone, and `<pad>`.

    Args:
        folder: where they are from, for messages.
        model: as Transformers loaded it.
        tokenizer: likewise; what has no name there is given one.

    Raises:
        BundleError: it is not Marian's tokenizer, or does not belong to the model.
        UserError: SentencePiece cannot read its models.
    """
    if type(tokenizer).__name__ != "MarianTokenizer":
        raise BundleError(
            f"{folder}: its tokenizer is a {type(tokenizer).__name__}, must be a MarianTokenizer, with source.spm, "
            f"target.spm and vocab.json: only models with one can be imported"
        )
    special = _special(folder, model.config, tokenizer)
    bias = model.final_logits_bias[0].tolist()
    num_rows = model.get_encoder().embed_tokens.num_embeddings
    source = _numbered(folder / "vocab.json", tokenizer.encoder, special, num_rows)
    if tokenizer.separate_vocabs:
        target = _numbered(folder / "target_vocab.json", tokenizer.target_encoder, special, len(bias))
        target = _with_unnamed(target, special, bias)
    elif len(bias) == num_rows:
        source = target = _with_unnamed(source, special, bias)
    else:
        raise BundleError(f"{folder}: has {num_rows} embeddings for sources, {len(bias)} outputs and one vocabulary")
    # Else it could not decode those.
    tokenizer.decoder |= {index: piece for piece, index in target.items()}
    shared = ("<unk>", "</s>", *(piece for piece in source if piece in target))
    source_only, target_only = (
        tuple(piece for piece in one if piece not in other) for one, other in ((source, target), (target, source))
    )
    source_model, target_model = (Path(path).read_bytes() for path in tokenizer.spm_files)
    ours = Tokenizer.with_vocabulary(
        source_model, target_model, shared, str(folder), source_only=source_only, target_only=target_only
    )
    pieces = (*shared, *source_only, *target_only, "<pad>")
    sources, targets = ([(side | special).get(piece) for piece in pieces] for side in (source, target))
    return ours, TheirIds(sources, targets)


def _special(folder: Path, config: Foreign, tokenizer: Foreign) -> dict[str, int]:
    """The ids of the tokens that have no text, under the names that we have for them."""
    names = {"<unk>": tokenizer.unk_token, "</s>": tokenizer.eos_token, "<pad>": tokenizer.pad_token}
    sides = [tokenizer.encoder, tokenizer.target_encoder] if tokenizer.separate_vocabs else [tokenizer.encoder]
    expected = {"</s>": config.eos_token_id, "<pad>": config.pad_token_id}
    found: dict[str, int] = {}
    for ours, theirs in names.items():
        ids = {side.get(theirs) for side in sides} | ({expected[ours]} if ours in expected else set())
        (index, *others) = ids
        if others or index is None:
            raise BundleError(
                f"{folder}: the id of {theirs!r} is {' and '.join(map(str, ids))} in its files; config.json and each "
                f"vocabulary must have the same"
            )
        found[ours] = index
    return found


def _numbered(path: Path, vocabulary: Mapping[str, int], special: Mapping[str, int], num_rows: int) -> dict[str, int]:
    """The ids of all pieces with texts; the model has `num_rows`."""
    pieces = {index: piece for piece, index in vocabulary.items()}
    if len(pieces) < len(vocabulary):
        raise BundleError(f"{path}: gives {len(vocabulary):,} pieces {len(pieces):,} ids: each must have its own")
    if max(pieces) >= num_rows:
        raise BundleError(f"{path}: has the id {max(pieces)}; the model ends at {num_rows - 1}: it is another model's")
    return {pieces[index]: index for index in sorted(pieces.keys() - special.values())}


def _with_unnamed(target: Mapping[str, int], special: Mapping[str, int], bias: Sequence[float]) -> dict[str, int]:
    """With the ids that have no piece, but a probability: they are part of the softmax."""
    pieces = {index: piece for piece, index in target.items()}
    written = [index for index, added in enumerate(bias) if index in pieces or added > NEVER / 2]
    return {pieces.get(index, f"<id {index}>"): index for index in written if index not in special.values()}
