"""The native dialect, `/v1/*`: all functions of the engine."""

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
from transduce.documents.markup import MarkupRules
from transduce.errors import ConfigError, ParameterError, UnknownPairError
from transduce.inspection import InspectionDocument, InspectionRequest
from transduce.serving.error_responses import describe_errors
from transduce.serving.middleware import admit_request, set_logged_pair
from transduce.serving.models import LanguagePair, ModelInfo, SupportedLanguages, find_language
from transduce.serving.scheduling import Limits
from transduce.serving.service import Service, TranslationRequest, TranslationResponse
from transduce.text.json_objects import RepeatedKeyError, make_object
from transduce.translation import DescribedFields, PairScore, TranslationOptions

_MARKUP = {"text": None, "html": MarkupRules(), "xml": MarkupRules(is_xml=True)}

_MAX_NAMES = 1_000
"""Maximum number of names in one JSON object of a body: pydantic collects an error for each unknown name, which is
slow. For a glossary `Limits.max_terms` applies instead."""

_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""A list whose validation stops at the first invalid item, instead of collecting an error for each."""


class _Texts(Settings):
    """Texts and their languages; only the texts are required."""

    text: str | _List[str] = Field(examples=["A man is riding a bike. It is late."])
    """A text or a list of texts, of any length."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null or "auto": detected for each text, unless only one source language is
    available."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; may be null if the source has only one target language."""

    format: Literal["text", "html", "xml"] = "text"
    """In html and xml only the text is translated; tags stay with the words that they mark. With `num_samples`, what
    lies between two tags is translated by itself."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """Deadline of the whole request, after which it fails; null: the maximum of this service."""


class TranslateRequest(TranslationOptions, _Texts):
    """Texts, their languages, and options; only the texts are required."""

    # A service has lower limits than the command line, as each token of every hypothesis takes a step of the search.
    min_length: int | None = Field(
        default=None, ge=1, le=50, description=TranslationOptions.model_fields["min_length"].description
    )
    max_length: int | None = Field(
        default=None, ge=2, le=10_000, description=TranslationOptions.model_fields["max_length"].description
    )

    def make_options(self) -> TranslationOptions:
        """The options of the translation, without the texts."""
        return TranslationOptions.model_construct(
            **{name: getattr(self, name) for name in TranslationOptions.model_fields}
        )


class Pair(Settings):
    """A text and a translation to be scored."""

    text: str = Field(examples=["A man is riding a bike."])
    """The source."""

    translation: str = Field(examples=["Ein Mann fährt Fahrrad."])
    """The target."""


class ScoreRequest(Settings):
    """Pairs to be scored."""

    pairs: _List[Pair]
    """Pairs of source and target; each is scored independently."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; may be null if there is only one."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; may be null if there is only one."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """Deadline of the whole request; null: the maximum of this service."""


@dataclass(frozen=True)
class ScoreResponse(DescribedFields):
    """The scores of all pairs."""

    scores: list[PairScore]
    """A score for each pair, in order."""


@dataclass(frozen=True)
class ModelsResponse(DescribedFields):
    """The loaded models."""

    models: tuple[ModelInfo, ...]
    """One model per language pair."""


class FieldProblem(BaseModel):
    """A field with an invalid value."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    location: list[str] = Field(examples=[["body", "beam"]])
    """Path of the field."""

    message: str = Field(examples=["Input should be greater than or equal to 1"])
    """The violated rule."""


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: str = Field(examples=["Unprocessable Entity"])
    """Standard phrase of the HTTP status."""

    status: int = Field(examples=[422])
    """HTTP status."""

    detail: str = Field(examples=["body.beam: Input should be greater than or equal to 1"])
    """The invalid value, the violated rule, and how to fix it."""

    errors: list[FieldProblem] | None = None
    """Fields with invalid values, if there are any."""


PROBLEM_CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
"""Body of every error; the OpenAPI document gets the schema from `Problem`."""

router = APIRouter(
    prefix="/v1",
    tags=["Transduce"],
    responses=describe_errors(
        {
            400: "The body cannot be parsed.",
            401: "The API key is missing or unknown.",
            404: "No model translates between these languages.",
            413: "The body is too large, or there are too many texts, characters, phrases or terms.",
            422: "A value is invalid, values contradict each other, or no translation satisfies the constraints.",
        },
        PROBLEM_CONTENT,
    ),
)


async def admit(request: Request) -> AsyncIterator[Service]:
    """Admit a request before its body is validated."""
    with admit_request(request) as service:
        check_body(await request.body(), service.limits)
        yield service


def check_body(body: bytes, limits: Limits) -> None:
    """Reject a body that would lose a value or take long to validate; invalid JSON is left to FastAPI.

    Raises:
        ParameterError: a text contains an unpaired surrogate, or an object has a key twice, or more than `_MAX_NAMES`
            of them.
        TooLongError: the glossary has more than `_MAX_NAMES` terms, and more than the limits allow.
    """
    wide: list[dict[str, Any]] = []

    def make_counted_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = make_object(pairs)
        if len(made) > _MAX_NAMES:
            wide.append(made)
        return made

    try:
        value = json.loads(body, object_pairs_hook=make_counted_object)
        # An escape, the first byte of a surrogate in UTF-8, which `json` accepts, or a body in UTF-16 or UTF-32.
        if any(sign in body for sign in (b"\\u", b"\xed", b"\0")):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError(
            "the body contains an unpaired surrogate (half of a character): send complete characters"
        ) from None
    except RepeatedKeyError as error:
        raise ParameterError(f"an object in the body {error}") from None
    except (ValueError, RecursionError):
        return
    glossary = value.get("glossary") if isinstance(value, dict) else None
    for one in wide:
        if one is not glossary:
            raise ParameterError(f"an object in the body has more than {_MAX_NAMES:,} names: split the request")
        limits.check_num_terms(len(one))


_Admitted = Annotated[Service, Depends(admit)]


@router.post("/translate", response_model=TranslationResponse, summary="Translate texts")
async def translate(request: Request, service: _Admitted, body: Annotated[TranslateRequest, Body()]) -> Response:
    """Translate texts. Each is split into sentences; what is between them stays unchanged."""
    source, target = _find_languages(service.languages, body.source, body.target, may_detect=True)
    texts = [body.text] if isinstance(body.text, str) else body.text
    found = await service.translate(
        TranslationRequest(texts, source, target, body.make_options(), _MARKUP[body.format], body.deadline_seconds),
        partial(set_logged_pair, request),
    )
    return _encode(found)


@router.post("/score", response_model=ScoreResponse, summary="Score given translations")
async def score(request: Request, service: _Admitted, body: Annotated[ScoreRequest, Body()]) -> Response:
    """Score given translations: how probable the model finds them, computed as for its own translations."""
    pair = _find_pair(service, request, body.source, body.target)
    pairs = [(one.text, one.translation) for one in body.pairs]
    found = await service.score(pair, pairs, deadline_seconds=body.deadline_seconds)
    return _encode(ScoreResponse(found))


@router.post("/inspect", response_model=InspectionDocument, summary="Inspect a translation")
async def inspect(request: Request, service: _Admitted, body: Annotated[InspectionRequest, Body()]) -> Response:
    """Inspect the translation of one sentence: attention, arithmetic, search and layers, as the page shows them."""
    pair = _find_pair(service, request, body.source, body.target)
    document = await service.inspect(pair, body)
    # The document has several megabytes: encode it in a thread, so that other requests are answered meanwhile.
    content = await asyncio.to_thread(json.dumps, document, allow_nan=False, separators=(",", ":"))
    return Response(content, media_type="application/json")


@router.get("/models", response_model=ModelsResponse, summary="List loaded models")
async def models(service: _Admitted) -> Response:
    """List the loaded models, one for each pair of languages."""
    return _encode(ModelsResponse(service.models))


def _encode(response: object) -> Response:
    """Encode a response without the validation of FastAPI."""
    return Response(to_json(response), media_type="application/json")


def _find_pair(service: Service, request: Request, source: str | None, target: str | None) -> LanguagePair:
    """Find the languages of a request without language detection."""
    found_source, found_target = _find_languages(service.languages, source, target, may_detect=False)
    pair = found_source or "", found_target
    set_logged_pair(request, "-".join(pair))
    return pair


def _find_languages(
    languages: SupportedLanguages, source: str | None, target: str | None, *, may_detect: bool
) -> tuple[str | None, str]:
    """Find the language codes of the models; None for a source that is to be detected."""
    found_source = None
    if source is not None and not (may_detect and source == "auto"):
        found_source = find_language(source, languages.sources)
        if found_source is None:
            raise UnknownPairError(
                f"no model translates from {source[:50]!r}; there are {', '.join(languages.sources)}"
            )
    targets = languages.targets if found_source is None else languages.get_targets(found_source)
    found_target = _get_only(targets, "target") if target is None else find_language(target, targets)
    if found_target is None:
        raise UnknownPairError(f"no model translates into {str(target)[:50]!r}; there are {', '.join(targets)}")
    if found_source is None:
        sources = languages.get_sources(found_target)
        if len(sources) == 1 and source is None:
            found_source = sources[0]
        elif not may_detect:
            found_source = _get_only(sources, "source")
    return found_source, found_target


def _get_only(codes: tuple[str, ...], side: str) -> str:
    if len(codes) != 1:
        raise ConfigError(f"{side} is missing, and there are several: {', '.join(codes)}; choose one")
    return codes[0]
