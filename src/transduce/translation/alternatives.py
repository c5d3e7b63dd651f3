"""Translations of a text: what comes out of a search."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from transduce.translation.text_constraints import TextConstraints

_NOT_IN_A_LINE = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
"""Control characters, which a terminal would obey, and all that Unicode or Python take for the end of a line."""


@dataclass(frozen=True)
class Alternative:
    """One translation of a text, or of its parts.

    Args:
        text: a single line.
        score: log-probability in nats, `</s>` included, divided by the length penalty; of parts, the sum.
        pieces: of all parts, `</s>` included.
        token_scores: the log-probability of each, in nats.
        utility: mean chrF against the other samples, from 0 to 100, where it was chosen among them by that.
    """

    text: str
    score: float
    pieces: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    utility: float | None = None


@dataclass(frozen=True)
class Translation:
    """The best `alternatives` for one line, best first; a blank line has one, blank.

    `num_parts` is above 1 where the line was too long for the model and was translated in parts.
    """

    alternatives: tuple[Alternative, ...]
    num_parts: int = 1

    @property
    def text(self) -> str:
        """The best alternative's text."""
        return self.alternatives[0].text


def as_line(text: str) -> str:
    """What a model says as one line: pieces spell single bytes, too, line ends and control characters among them."""
    return text.translate(_NOT_IN_A_LINE)


def distinct(alternatives: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """Of those with the same text, the first."""
    of_text: dict[str, Alternative] = {}
    for alternative in alternatives:
        of_text.setdefault(alternative.text, alternative)
    return tuple(of_text.values())


def verified(translation: Translation, constraints: TextConstraints, num_best: int) -> Translation:
    """Those alternatives whose text has what is required; if there are none, the best, with the score -inf.

    A blank text stays blank, whatever is required.
    """
    if not translation.alternatives[0].pieces:
        return translation
    met = distinct(one for one in translation.alternatives if constraints.are_met_by(one.text))
    failed = replace(translation.alternatives[0], score=-math.inf)
    return replace(translation, alternatives=met[:num_best] or (failed,))
