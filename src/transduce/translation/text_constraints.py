"""What is asked of a translation, in words."""

from dataclasses import dataclass
from functools import lru_cache

from transduce.search import Constraints
from transduce.text import Tokenizer, count_whole


@dataclass(frozen=True)
class TextConstraints:
    """What the translation of one text must and must not contain.

    A word is what the tokenizer makes of it behind a space. What is required is not part of a longer word; a forbidden
    word also rules out longer ones that begin with the same pieces.

    Args:
        prefix: how the translation begins.
        required: phrases that it contains exactly once, or as often as they are given.
        in_order: whether they come in the order in which they are given.
        forbidden: phrases that it does not contain.
    """

    prefix: str = ""
    required: tuple[str, ...] = ()
    in_order: bool = False
    forbidden: tuple[str, ...] = ()

    def are_met_by(self, text: str) -> bool:
        """Whether the required phrases are there in whole words: one text can be spelled by several rows of pieces."""
        required = [phrase.strip() for phrase in self.required if phrase.strip()]
        return all(count_whole(text, phrase) == required.count(phrase) for phrase in required)

    def as_ids(self, tokenizer: Tokenizer, *, nowhere_else: bool = False) -> Constraints:
        """The same for a search.

        With `nowhere_else`, a required phrase is forbidden as it is spelled behind a hyphen: other pieces, so that the
        search does not know that it is there already.
        """
        required, forbidden = (
            tuple(tuple(ids) for ids in tokenizer.encode_targets(phrases) if ids)
            for phrases in (self.required, self.forbidden)
        )
        if nowhere_else:
            forbidden += tuple(filter(None, (_behind_hyphen(tokenizer, phrase.strip()) for phrase in self.required)))
        (prefix,) = tokenizer.encode_targets([self.prefix])
        return Constraints(tuple(prefix), required, self.in_order, forbidden, continuing_ids(tokenizer))


def _behind_hyphen(tokenizer: Tokenizer, phrase: str) -> tuple[int, ...]:
    """The ids of `phrase` behind a hyphen; none if a piece has both."""
    hyphen, ids = tokenizer.encode_targets(["-", f"-{phrase}"])
    return tuple(ids[len(hyphen) :]) if ids[: len(hyphen)] == hyphen else ()


@lru_cache(maxsize=8)
def continuing_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Pieces that go on with a word: they begin with a letter or digit, or are a byte of a character."""
    pieces = tokenizer.pieces(range(tokenizer.vocabulary))
    return frozenset(index for index, piece in enumerate(pieces) if piece[0].isalnum() or piece.startswith("<0x"))
