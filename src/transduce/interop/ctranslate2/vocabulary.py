"""The tokens of a CTranslate2 folder in the numbering of ours, and the SentencePiece models that make them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import BundleError, UserError
from transduce.text import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, Tokenizer

SPECIAL = ("<unk>", "</s>")
MODELS = ((SOURCE_MODEL, TARGET_MODEL), ("source.spm", "target.spm"), (SOURCE_MODEL,), ("sentencepiece.model",))
"""Names of the SentencePiece model, or of those of source and target, by which they are looked for."""


@dataclass(frozen=True)
class TheirTokens:
    """The tokens of a folder, in the order of the rows of its matrices, behind which `<pad>` may have one more."""

    sources: list[str]
    targets: list[str]
    has_pad: bool = False

    def without_pad(self) -> "TheirTokens":
        """The same, if `<pad>` is the last, with `<pad>` as no token."""
        return TheirTokens(self.sources[:-1], self.targets[:-1], has_pad=True)

    def rows(self, pieces: Sequence[str]) -> tuple[list[int], list[int]]:
        """Of each of `pieces`, the row that it has in sources, and that in targets; -1 where it has none."""
        sources, targets = ({token: row for row, token in enumerate(side)} for side in (self.sources, self.targets))
        return [sources.get(piece, -1) for piece in pieces], [targets.get(piece, -1) for piece in pieces]


def read_tokens(folder: Path) -> TheirTokens:
    """The vocabularies in `folder`.

    Raises:
        BundleError: there is none, or it is damaged, or lacks `<unk>` or `</s>`, or has a token twice.
    """
    shared = _find(folder, "shared_vocabulary")
    source, target = (shared or _find(folder, f"{side}_vocabulary") for side in ("source", "target"))
    if source is None or target is None:
        raise BundleError(f"{folder}: has no shared_vocabulary.json, and not both source_ and target_vocabulary.json")
    return TheirTokens(_read(source), _read(target))


def make_tokenizer(tokens: TheirTokens, folder: Path, given: Path | None, *, ends_sources: bool = True) -> Tokenizer:
    """Our tokenizer: `<unk>`, `</s>`, the other tokens of both sides, those of one side alone, and `<pad>`.

    Args:
        tokens: of the folder.
        folder: in which, or beside which, SentencePiece models are looked for.
        given: a SentencePiece model, or a folder in which they are looked for instead.
        ends_sources: whether `</s>` stands behind a source.

    Raises:
        BundleError: the vocabulary beside the models is another one.
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
    known = set(tokens.sources), set(tokens.targets)
    shared = [token for token in tokens.sources if token in known[1] and token not in SPECIAL]
    return Tokenizer.with_vocabulary(
        _bytes(source),
        _bytes(target),
        [*SPECIAL, *shared],
        str(folder),
        source_only=[token for token in tokens.sources if token not in known[1]],
        target_only=[token for token in tokens.targets if token not in known[0]],
        ends_sources=ends_sources,
    )


def _find(folder: Path, name: str) -> Path | None:
    return next((path for ending in (".json", ".txt") if (path := folder / f"{name}{ending}").is_file()), None)


def _read(path: Path) -> list[str]:
    """A JSON list, or a line for each token."""
    try:
        content = path.read_bytes()
        tokens: Any = content.decode("utf-8").removesuffix("\n").split("\n")
        if path.suffix == ".json":
            tokens = json.loads(content)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is no list of tokens: {error}; use an undamaged copy") from None
    if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
        raise BundleError(f"{path}: is no list of tokens; use an undamaged copy")
    if len(set(tokens)) < len(tokens):
        raise BundleError(f"{path}: has a token twice among its {len(tokens):,}: each must have one row")
    if missing := [name for name in SPECIAL if name not in tokens]:
        raise BundleError(f"{path}: has no token {missing[0]!r}: models without it cannot be imported")
    return tokens


def _find_models(places: Sequence[Path], folder: Path, given: Path | None) -> tuple[Path, Path]:
    for place in places:
        for names in MODELS:
            if all((place / name).is_file() for name in names):
                return place / names[0], place / names[-1]
    looked_for = " or ".join(" and ".join(names) for names in MODELS)
    where = "neither in it nor beside it" if given is None else f"not in {given}"
    raise UserError(f"{folder}: its SentencePiece model is {where} ({looked_for}): give it with --tokenizer")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a SentencePiece model") from None
