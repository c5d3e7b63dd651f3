"""The native dialect."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from transduce.errors import ConfigError
from transduce.inspection import InspectionDocument, InspectionRequest
from transduce.serving.errors import ParameterError, UnknownPair
from transduce.serving.markup import Rules
from transduce.serving.models import find_language
from transduce.serving.native_requests import ScoreRequest, TranslateRequest
from transduce.serving.service import Delivery, Order, Pair, Reception, reception_of
from transduce.translation import PairScore


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


PROBLEM = "#/components/schemas/Problem"
"""Where the OpenAPI document describes what goes wrong; see `openapi`."""

_RULES = {"text": None, "html": Rules(), "xml": Rules(is_xml=True)}
_PROBLEMS = {
    400: "The body cannot be read.",
    401: "A key is needed, or this one is not known.",
    404: "No model translates between these languages.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or there are too many texts or characters.",
    422: "A value is not as it should be, values contradict each other, or no translation has what was asked for.",
    429: "This client asks too often: see Retry-After.",
    503: "Too much is waiting, or the service starts or ends: see Retry-After.",
    504: "It could not be done in time.",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/problem+json": {"schema": {"$ref": PROBLEM}}}}
    for status, text in _PROBLEMS.items()
}


_MOST_NAMES = 1_000
"""Of an object in a body: each that is wrong would be an error of its own, and they take long to be collected."""


_MANY_CHARACTERS = 20_000
"""Of texts whose answer takes some hundredths of a second to be put together."""


async def admitted(request: Request) -> AsyncIterator[Reception]:
    """Lets a request in before its body is held against what may be asked; see `Reception.admitted`.

    Raises:
        ParameterError: a text in the body has half of a character, or an object too many names.
    """
    found = reception_of(request)
    with found.admitted(request):
        check_body(await request.body())
        yield found


def check_body(body: bytes) -> None:
    """That validating a body takes no longer than reading it; what is no JSON is refused by others.

    Raises:
        ParameterError: a text has half of a character, which JSON can write and nothing else can, or an object has more
            names than anything that may be asked.
    """
    try:
        value = json.loads(body, object_pairs_hook=_object)
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError("the body has half of a character (a lone surrogate): send the whole one") from None
    except ParameterError:
        raise
    except (ValueError, RecursionError):
        return


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_NAMES:
        raise ParameterError(f"an object in the body has more than {_MOST_NAMES:,} names")
    return dict(pairs)


router = APIRouter(prefix="/v1", tags=["Transduce"], responses=_RESPONSES)

_Admitted = Annotated[Reception, Depends(admitted)]


@router.post("/translate", response_model=TranslateAnswer, summary="Translate texts")
async def translate(request: Request, reception: _Admitted, asked: Annotated[TranslateRequest, Body()]) -> Response:
    """Texts are divided into sentences, which are translated and put back with all that stood between them."""
    source, target = _languages(reception, asked.source, asked.target, may_detect=True)
    texts = [asked.text] if isinstance(asked.text, str) else asked.text
    rules = _RULES[asked.format]
    order = Order(texts, source, target, asked.wish(), rules, asked.deadline_seconds)
    deliveries = await reception.translate(request, order)
    return _json(await _made(sum(map(len, texts)), _translations, target, deliveries))


@router.post("/score", response_model=ScoresAnswer, summary="Score given translations")
async def score(request: Request, reception: _Admitted, asked: Annotated[ScoreRequest, Body()]) -> Response:
    """How probable the model finds translations; a score is what the same pieces would have as a translation."""
    pair = _pair(reception, request, asked.source, asked.target)
    pairs = [(one.text, one.translation) for one in asked.pairs]
    found = await reception.service.score(pair, pairs, deadline_seconds=asked.deadline_seconds)
    return _json(await _made(sum(len(translation) for _, translation in pairs), _scores, found))


@router.post("/inspect", response_model=InspectionDocument, summary="Look inside a translation")
async def inspect(request: Request, reception: _Admitted, asked: Annotated[InspectionRequest, Body()]) -> Response:
    """Attention, arithmetic, search and layers of the translation of one sentence, as the page draws them."""
    pair = _pair(reception, request, asked.source, asked.target)
    document = await reception.service.inspect(pair, asked.model_dump())
    # Some megabytes: others are answered meanwhile.
    content = await asyncio.to_thread(json.dumps, document, allow_nan=False, separators=(",", ":"))
    return Response(content, media_type="application/json")


@router.get("/models", response_model=ModelsAnswer, summary="Say which models are loaded")
async def models(reception: _Admitted) -> Response:
    """One for each pair of languages."""
    return _json(ModelsAnswer(models=[ModelAnswer.model_validate(one) for one in reception.service.languages]))


def _translations(target: str, deliveries: Sequence[Delivery]) -> TranslateAnswer:
    return TranslateAnswer(target=target, translations=[_translation(one) for one in deliveries])


def _translation(delivery: Delivery) -> TranslationAnswer:
    translated = delivery.translated
    return TranslationAnswer.model_validate(
        {
            "source": delivery.source,
            "source_probability": delivery.probability,
            **{name: getattr(translated, name) for name in ("text", "score", "alternatives")},
            # One by one: within a call of pydantic, no other thread has its turn.
            "sentences": [SentenceAnswer.model_validate(one) for one in translated.sentences],
        }
    )


def _scores(found: Sequence[PairScore]) -> ScoresAnswer:
    return ScoresAnswer(
        scores=[
            ScoreAnswer(
                score=one.score,
                log_probability=one.log_probability,
                tokens=[
                    TokenAnswer(piece=piece, log_probability=log_probability)
                    for piece, log_probability in zip(one.pieces, one.log_probabilities, strict=True)
                ],
                is_long=one.is_long,
            )
            for one in found
        ]
    )


async def _made(
    num_characters: int,
    make: Callable[..., BaseModel],
    *arguments: Any,  # noqa: ANN401 - of any answer
) -> BaseModel:
    """An answer; one about many characters in a thread, so that others are answered meanwhile."""
    return await asyncio.to_thread(make, *arguments) if num_characters > _MANY_CHARACTERS else make(*arguments)


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")


def _pair(reception: Reception, request: Request, source: str | None, target: str | None) -> Pair:
    """The pair of languages that is meant, none of which is detected."""
    found_source, found_target = _languages(reception, source, target, may_detect=False)
    pair = found_source or "", found_target
    request.state.pair = "-".join(pair)
    return pair


def _languages(
    reception: Reception, source: str | None, target: str | None, *, may_detect: bool
) -> tuple[str | None, str]:
    """Codes of the loaded models that are meant; no source where each text's is to be detected."""
    languages = reception.languages
    found_source = None
    if source is not None and not (may_detect and source == "auto"):
        found_source = find_language(source, languages.sources)
        if found_source is None:
            raise UnknownPair(f"no model translates from {source[:50]!r}; there are {', '.join(languages.sources)}")
    targets = languages.targets if found_source is None else languages.targets_of(found_source)
    found_target = _only(targets, "target") if target is None else find_language(target, targets)
    if found_target is None:
        raise UnknownPair(f"no model translates into {str(target)[:50]!r}; there are {', '.join(targets)}")
    if found_source is None:
        sources = languages.sources_of(found_target)
        if len(sources) == 1 and source is None:
            found_source = sources[0]
        elif not may_detect:
            found_source = _only(sources, "source")
    return found_source, found_target


def _only(codes: tuple[str, ...], side: str) -> str:
    if len(codes) != 1:
        raise ConfigError(f"{side} = null: there is more than one, {', '.join(codes)}; say which")
    return codes[0]
