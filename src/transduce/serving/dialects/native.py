"""The native dialect, `/v1/*`: everything that the engine can do."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from transduce.config import Settings
from transduce.errors import ConfigError, ParameterError, UnknownPair
from transduce.inspection import InspectionDocument, InspectionRequest
from transduce.serving.error_responses import describe_errors
from transduce.serving.markup import MarkupRules
from transduce.serving.middleware import admit_request, set_logged_pair
from transduce.serving.models import LanguagePair, Languages, ModelInfo, find_language
from transduce.serving.service import Service, TranslationRequest, TranslationResponse
from transduce.translation import DescribedFields, PairScore, TranslationOptions

_MARKUP = {"text": None, "html": MarkupRules(), "xml": MarkupRules(is_xml=True)}

_MAX_NAMES = 1_000
"""Names in an object of a body: each wrong one would be an error of its own, and these take long to be collected."""

_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""A list of which the first wrong item is an error, and not each of a million."""


class _Texts(Settings):
    """Texts, and their languages; all but the texts may be left out."""

    text: str | _List[str] = Field(examples=["A man is riding a bike. It is late."])
    """A text, or a list of them: sentences, documents, anything."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null or "auto": each text's is detected, unless only one can be translated."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; null: the only one that there is for the source."""

    format: Literal["text", "html", "xml"] = "text"
    """In html and xml, only the text is translated, and tags stay at the words that they mark."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """For the whole request: what is not done by then is given up; null: as long as this service allows."""


class TranslateRequest(TranslationOptions, _Texts):
    """Texts, their languages, and how they are to be translated; all but the texts may be left out."""

    # A service allows less than the command line: each token of every hypothesis takes a step of the search.
    min_length: int | None = Field(
        default=None, ge=1, le=50, description=TranslationOptions.model_fields["min_length"].description
    )
    max_length: int | None = Field(
        default=None, ge=2, le=10_000, description=TranslationOptions.model_fields["max_length"].description
    )

    def options(self) -> TranslationOptions:
        """How the texts are to be translated, without the texts."""
        return TranslationOptions.model_construct(
            **{name: getattr(self, name) for name in TranslationOptions.model_fields}
        )


class Pair(Settings):
    """A text, and what may be its translation."""

    text: str = Field(examples=["A man is riding a bike."])
    """The source."""

    translation: str = Field(examples=["Ein Mann fährt Fahrrad."])
    """The target."""


class ScoreRequest(Settings):
    """Pairs to be scored."""

    pairs: _List[Pair]
    """Each is scored by itself."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null: the only one that there is."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; null: the only one that there is."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """For the whole request; null: as long as this service allows."""


@dataclass(frozen=True)
class ScoreResponse(DescribedFields):
    """The scores of all pairs."""

    scores: list[PairScore]
    """A score for each pair, in order."""


@dataclass(frozen=True)
class ModelsResponse(DescribedFields):
    """The loaded models."""

    models: tuple[ModelInfo, ...]
    """A model for each pair of languages."""


class FieldProblem(BaseModel):
    """A field with an invalid value."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    location: list[str] = Field(examples=[["body", "beam"]])
    """Path of the field."""

    message: str = Field(examples=["Input should be greater than or equal to 1"])
    """Rule that the value breaks."""


class Problem(BaseModel):
    """A problem with a request, or with its time (RFC 9457)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: str = Field(examples=["Unprocessable Entity"])
    """Phrase of the status."""

    status: int = Field(examples=[422])
    """HTTP status."""

    detail: str = Field(examples=["body.beam: Input should be greater than or equal to 1"])
    """The value, the rule that it breaks, and the remedy."""

    errors: list[FieldProblem] | None = None
    """Fields with invalid values, if there are any."""


PROBLEM_CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
"""Body of every error; the OpenAPI document gets the schema from `Problem`."""

router = APIRouter(
    prefix="/v1",
    tags=["Transduce"],
    responses=describe_errors(
        {
            400: "The body cannot be read.",
            401: "A key is needed, or this one is not known.",
            404: "No model translates between these languages.",
            413: "The body is too large, or there are too many texts or characters.",
            422: "A value is not as it should be, values contradict each other, or no translation has what was asked "
            "for.",
        },
        PROBLEM_CONTENT,
    ),
)


async def admit(request: Request) -> AsyncIterator[Service]:
    """Admit a request before its body is validated."""
    with admit_request(request) as service:
        check_body(await request.body())
        yield service


def check_body(body: bytes) -> None:
    """Check that validating a body takes no longer than reading it; invalid JSON is refused by FastAPI.

    Raises:
        ParameterError: a text has half of a character, or an object has more names than any request may have.
    """
    try:
        value = json.loads(body, object_pairs_hook=_make_object)
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError("the body has half of a character (a lone surrogate): send the whole one") from None
    except ParameterError:
        raise
    except (ValueError, RecursionError):
        return


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MAX_NAMES:
        raise ParameterError(f"an object in the body has more than {_MAX_NAMES:,} names")
    return dict(pairs)


_Admitted = Annotated[Service, Depends(admit)]


@router.post("/translate", response_model=TranslationResponse, summary="Translate texts")
async def translate(request: Request, service: _Admitted, body: Annotated[TranslateRequest, Body()]) -> Response:
    """Texts are divided into sentences, which are translated and put back with all that stood between them."""
    source, target = _find_languages(service.languages, body.source, body.target, may_detect=True)
    texts = [body.text] if isinstance(body.text, str) else body.text
    found = await service.translate(
        TranslationRequest(texts, source, target, body.options(), _MARKUP[body.format], body.deadline_seconds),
        partial(set_logged_pair, request),
    )
    return _encode(found)


@router.post("/score", response_model=ScoreResponse, summary="Score given translations")
async def score(request: Request, service: _Admitted, body: Annotated[ScoreRequest, Body()]) -> Response:
    """Scores tell how probable the model finds translations, with the same pieces as if it had written them."""
    pair = _find_pair(service, request, body.source, body.target)
    pairs = [(one.text, one.translation) for one in body.pairs]
    found = await service.score(pair, pairs, deadline_seconds=body.deadline_seconds)
    return _encode(ScoreResponse(found))


@router.post("/inspect", response_model=InspectionDocument, summary="Look inside a translation")
async def inspect(request: Request, service: _Admitted, body: Annotated[InspectionRequest, Body()]) -> Response:
    """Attention, arithmetic, search and layers of the translation of one sentence, as the page draws them."""
    pair = _find_pair(service, request, body.source, body.target)
    document = await service.inspect(pair, body)
    # It has some megabytes: other requests are answered meanwhile.
    content = await asyncio.to_thread(json.dumps, document, allow_nan=False, separators=(",", ":"))
    return Response(content, media_type="application/json")


@router.get("/models", response_model=ModelsResponse, summary="Say which models are loaded")
async def models(service: _Admitted) -> Response:
    """A model for each pair of languages."""
    return _encode(ModelsResponse(service.models))


def _encode(response: object) -> Response:
    """Encode a response without the validation that FastAPI would do."""
    return Response(to_json(response), media_type="application/json")


def _find_pair(service: Service, request: Request, source: str | None, target: str | None) -> LanguagePair:
    """Find the languages of a request for which they are not detected."""
    found_source, found_target = _find_languages(service.languages, source, target, may_detect=False)
    pair = found_source or "", found_target
    set_logged_pair(request, "-".join(pair))
    return pair


def _find_languages(
    languages: Languages, source: str | None, target: str | None, *, may_detect: bool
) -> tuple[str | None, str]:
    """Find the language codes of the models; None for a source that is to be detected."""
    found_source = None
    if source is not None and not (may_detect and source == "auto"):
        found_source = find_language(source, languages.sources)
        if found_source is None:
            raise UnknownPair(f"no model translates from {source[:50]!r}; there are {', '.join(languages.sources)}")
    targets = languages.targets if found_source is None else languages.get_targets(found_source)
    found_target = _get_only(targets, "target") if target is None else find_language(target, targets)
    if found_target is None:
        raise UnknownPair(f"no model translates into {str(target)[:50]!r}; there are {', '.join(targets)}")
    if found_source is None:
        sources = languages.get_sources(found_target)
        if len(sources) == 1 and source is None:
            found_source = sources[0]
        elif not may_detect:
            found_source = _get_only(sources, "source")
    return found_source, found_target


def _get_only(codes: tuple[str, ...], side: str) -> str:
    if len(codes) != 1:
        raise ConfigError(f"{side} = null: there is more than one, {', '.join(codes)}; say which")
    return codes[0]
