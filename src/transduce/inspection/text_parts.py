"""The parts of an inspection that are about texts: the two sides, and other translations."""

from transduce.config import Settings


class Choice(Settings):
    """A token and how probable it is."""

    token: int
    """Its id."""

    piece: str
    """How it is spelled."""

    probability: float
    """From 0 to 1."""


class Step(Settings):
    """What the model thought of a position before the token was there."""

    chosen_rank: int
    """1 if the token that is there was the most probable one, 2 if the second, and so on."""

    entropy: float
    """Of all probabilities, in nats: 0 if only one token was possible."""

    alternatives: list[Choice]
    """The five most probable tokens, best first."""


class Side(Settings):
    """A text and its tokens."""

    text: str
    """As people read it."""

    pieces: list[str]
    """The spelling of each token, `</s>` included."""

    ids: list[int]
    """The tokens."""

    words: list[int]
    """For each token the number of its word; `</s>` has one of its own."""

    log_probabilities: list[float] | None
    """Of each token after those before it; null for a source."""

    steps: list[Step] | None
    """For each token, what else could have stood there; null for a source."""


class Alternative(Settings):
    """A hypothesis that the search has finished."""

    text: str
    score: float
    """`log_probability` divided by the length penalty."""

    log_probability: float
    pieces: list[str]
    log_probabilities: list[float]


class WordConfidence(Settings):
    """A word and the probability, from 0 to 1, that it is right."""

    word: str
    confidence: float


class TextConfidence(Settings):
    """How far the translation can be trusted, as the bundle's calibration says."""

    sentence: float
    """The chrF to expect, from 0 to 100."""

    words: list[WordConfidence]
    """Those of the target, in order."""


class Continuation(Settings):
    """Another token taken at a position, and the translation that follows from it, word by word the most probable."""

    position: int
    token: int
    piece: str
    probability: float
    text: str
    pieces: list[str]
    log_probabilities: list[float]
