"""What `/v1/translate`, `/v1/score` and `/v1/models` answer, and what goes wrong."""

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, from_attributes=True)


class TokenAnswer(_Answer):
    """A piece of a translation."""

    piece: str = Field(examples=["▁Mann"])
    """As the tokenizer spells it; `</s>` at the end."""

    log_probability: float
    """After the pieces before it, in nats."""


class WordAnswer(_Answer):
    """A word of a translation."""

    word: str
    """As it stands there."""

    confidence: float
    """The probability, from 0 to 1, that it is right."""


class ScoredTextAnswer(_Answer):
    """One of several translations."""

    text: str
    """The translation."""

    score: float | None
    """Sum of its sentences' log-probabilities, each by its length penalty; null where it was put together otherwise."""

    utility: float | None
    """Of a sentence, mean chrF against the other samples, from 0 to 100; null unless chosen by minimum Bayes risk."""


class SentenceAnswer(_Answer):
    """A sentence of a text."""

    source: str
    """The sentence."""

    translations: list[ScoredTextAnswer]
    """Best first."""

    tokens: list[TokenAnswer]
    """Of the best one; none where it was put together otherwise."""

    num_parts: int
    """Above 1 where the sentence was too long for the model to be read as a whole."""

    how: str | None
    """How spans and terms were kept: "free", "constrained", "in parts" or "copied"; null if nothing was to be kept."""

    confidence: float | None
    """The chrF to expect, from 0 to 100; null unless the model is calibrated."""

    words: list[WordAnswer]
    """Of the best one; none unless the model is calibrated."""

    alignment: str | None
    """Words of both sides that translate each other, as in "0-0 2-1"; null unless asked for."""


class TranslationAnswer(_Answer):
    """The translation of one text."""

    text: str = Field(examples=["Ein Mann fährt Fahrrad. Es ist spät."])
    """The best translation, with all that stood between the sentences."""

    score: float | None
    """See alternatives."""

    alternatives: list[ScoredTextAnswer]
    """Others, best first."""

    sentences: list[SentenceAnswer]
    """What was translated; none for markup, and for what has no letter or digit, which is given back."""

    source: str = Field(examples=["en"])
    """The text's language."""

    source_probability: float = Field(examples=[1.0])
    """From 0 to 1, if the language was detected; else 1."""


class TranslateAnswer(_Answer):
    """The translations of all texts."""

    target: str = Field(examples=["de"])
    """Their language."""

    translations: list[TranslationAnswer]
    """One for each text, in order."""


class ScoreAnswer(_Answer):
    """How probable a translation is."""

    score: float
    """Log-probability by length penalty, as a translation's score is; 0 for a pair of blanks."""

    log_probability: float
    """Of all tokens, in nats."""

    tokens: list[TokenAnswer]
    """Of the translation."""

    is_long: bool
    """Whether the text has more pieces than the model reads at a time, so that it would be translated in parts."""


class ScoresAnswer(_Answer):
    """The scores of all pairs."""

    scores: list[ScoreAnswer]
    """One for each pair, in order."""


class ModelAnswer(_Answer):
    """A loaded model."""

    source: str = Field(examples=["en"])
    """Language code of what it translates."""

    target: str = Field(examples=["de"])
    """Language code of its translations."""

    model: str = Field(examples=["best"])
    """Its name."""

    engine: str = Field(examples=["native"])
    """What computes it."""

    precision: str = Field(examples=["float32"])
    """Of the arithmetic."""

    digest: str | None
    """SHA-256 of its weights; null where another engine has them."""

    num_parameters: int | None
    """Of the network; null likewise."""

    max_pieces: int
    """That it reads at a time."""

    beam: int
    """Hypotheses for a sentence, unless asked otherwise."""


class ModelsAnswer(_Answer):
    """All loaded models."""

    models: list[ModelAnswer]
    """One for each pair of languages."""


class FieldProblem(_Answer):
    """A value that is not as it should be."""

    location: list[str] = Field(examples=[["body", "beam"]])
    """Where it stands."""

    message: str = Field(examples=["Input should be greater than or equal to 1"])
    """The rule."""


class Problem(_Answer):
    """What is wrong with a request, or with its moment (RFC 9457)."""

    title: str = Field(examples=["Unprocessable Entity"])
    """Of the status."""

    status: int = Field(examples=[422])
    """As in the answer's first line."""

    detail: str = Field(examples=["body.beam: Input should be greater than or equal to 1"])
    """What was found, the rule, and what to do."""

    errors: list[FieldProblem] | None = None
    """All values that are not as they should be, if it is about values."""
