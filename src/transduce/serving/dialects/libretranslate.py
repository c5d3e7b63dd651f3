"""LibreTranslate's dialect, as used by its clients: https://docs.libretranslate.com."""

import asyncio
import re
from functools import partial
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from starlette.exceptions import HTTPException

from transduce.documents import FORMATS, find_document_ending
from transduce.documents.markup import MarkupRules
from transduce.errors import ParameterError, TooLongError, UnknownFileError
from transduce.serving.dialects import (
    Parameters,
    Text,
    Texts,
    admit_with_file,
    admit_with_parameters,
    describe_body,
    describe_error,
    describe_success,
    describe_upload,
    make_file_response,
    parse_parameters,
)
from transduce.serving.error_responses import describe_errors
from transduce.serving.middleware import get_client, get_service, set_logged_pair
from transduce.serving.models import SupportedLanguages, find_language, rank_languages
from transduce.serving.service import TranslationRequest
from transduce.text.languages import get_language_name
from transduce.translation import TranslationOptions

AUTO = "auto"

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_ERRORS = describe_errors(
    {
        400: "A parameter is missing, not supported or too long, or an API key is required.",
        403: "The API key is unknown, or suggestions are not accepted.",
        413: "The body is too large.",
        415: "The body is neither JSON nor a form.",
    },
    describe_error("error", "Invalid request: missing q parameter"),
)


def _check_alternatives(value: object, info: Any) -> int:  # noqa: ANN401 - a ValidationInfo, which beartype cannot check
    limit = (info.context or {})["max_alternatives"]
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ParameterError(f"Invalid request: {info.field_name} must be a whole number from 0 to {limit}")
    return value


_TEXT_SCHEMA = {"type": "string", "minLength": 1, "examples": ["A man is riding a bike."]}
_TEXTS_SCHEMA = {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


class LibreTranslateParameters(Parameters):
    """Base of the request models of this dialect."""

    api_key: Text | None = None
    """API key, if this service requires one."""


class LibreTranslateRequest(LibreTranslateParameters):
    """A text, or a list of texts, to be translated."""

    q: Annotated[Texts, Field(min_length=1), WithJsonSchema(_TEXTS_SCHEMA)]
    """A text, or a list of texts."""

    source: Annotated[Text, Field(json_schema_extra={"x-languages": "sources-or-auto"})]
    """Language code, or auto to detect it."""

    target: Annotated[Text, Field(json_schema_extra={"x-languages": "targets"})]
    """Language code."""

    format: Literal["text", "html"] = "text"
    """Format of the text; HTML tags are kept."""

    alternatives: Annotated[
        int,
        BeforeValidator(_check_alternatives),
        WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 1, "default": 0, "x-limit": "max_alternatives"}),
    ] = 0
    """Maximum number of alternative translations; none for html."""


class FileRequest(LibreTranslateParameters):
    """A document to be translated, without its file."""

    source: Annotated[Text, Field(json_schema_extra={"x-languages": "sources-or-auto"})]
    """Language code, or auto to detect it."""

    target: Annotated[Text, Field(json_schema_extra={"x-languages": "targets"})]
    """Language code."""

    api_key: Text | None = None
    """API key, if this service requires one; a document of some size needs it in a header."""


class DetectRequest(LibreTranslateParameters):
    """A text whose language is to be detected."""

    q: Annotated[Texts, Field(min_length=1), WithJsonSchema(_TEXT_SCHEMA)]
    """A text."""


class SuggestionRequest(LibreTranslateParameters):
    """A translation that somebody thinks better."""

    q: Annotated[Text, WithJsonSchema(_TEXT_SCHEMA)]
    """The text that was translated."""

    s: Annotated[Text, WithJsonSchema({"type": "string", "minLength": 1, "examples": ["Ein Mann fährt Rad."]})]
    """The suggested translation, with as many lines."""

    source: Annotated[Text, Field(json_schema_extra={"x-languages": "sources-or-auto"})]
    """Language code, or auto to detect it."""

    target: Annotated[Text, Field(json_schema_extra={"x-languages": "targets"})]
    """Language code."""


class _Response(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, use_attribute_docstrings=True)


class Detection(_Response):
    """A possible language of a text."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    language: str


class LibreTranslateResponse(_Response):
    """The translation of a text, or lists for a list of texts."""

    translated_text: str | list[str]
    """The best translation."""

    detected_language: Detection | list[Detection] | SkipJsonSchema[None] = None
    """The language of the text, if it was detected."""

    alternatives: list[str] | list[list[str]] | SkipJsonSchema[None] = None
    """Alternative translations, best first, if requested."""


class TranslatedFile(_Response):
    """A translated document."""

    translated_file_url: str
    """Where to download it."""


class SuggestionResponse(_Response):
    """What became of a suggestion."""

    success: bool
    """Whether it was stored; otherwise there is an error instead."""


class LanguageTargets(_Response):
    """A source language and its target languages."""

    code: str
    name: str
    targets: list[str]


class FrontendSettings(_Response):
    """Settings for a front end."""

    api_keys: bool
    char_limit: int
    files_translation: bool = True
    frontend_timeout: Annotated[int, Field(description="Milliseconds between the last keystroke and the request.")] = (
        500
    )
    key_required: bool
    language: dict[str, dict[str, str]]
    suggestions: bool
    supported_files_format: list[str] = list(FORMATS)


router = APIRouter(tags=["LibreTranslate"], responses=_ERRORS)


@router.post(
    "/translate",
    summary="Translate",
    response_model_exclude_none=True,
    openapi_extra=describe_body(
        LibreTranslateRequest,
        {"q": "A man is riding a bike.", "source": "en", "target": "de", "alternatives": 1},
        *_FORMS,
    ),
    responses=describe_success(
        "The translation; for a list of texts, every field is a list.",
        {"translatedText": "Ein Mann fährt Fahrrad.", "alternatives": ["Ein Mann fährt auf einem Fahrrad."]},
    ),
)
async def translate(request: Request) -> LibreTranslateResponse:
    """Translate a text, or a list of texts. Parameters may be JSON, a form or the query; JSON takes precedence."""
    async with admit_with_parameters(request, "api_key") as (service, parameters):
        body = parse_parameters(
            LibreTranslateRequest, parameters, max_alternatives=service.limits.max_alternatives_within_beam
        )
        source, target = _find_pair(service.languages, body)
        is_html = body.format == "html"
        options = TranslationOptions(num_best=1 if is_html else 1 + body.alternatives)
        found = await service.translate(
            TranslationRequest(body.q, source, target, options, MarkupRules() if is_html else None),
            partial(set_logged_pair, request),
        )
    translations = found.translations
    values: dict[str, list[Any]] = {"translated_text": [one.text for one in translations]}
    if source is None:
        values["detected_language"] = [_make_detection(one.source_probability, one.source) for one in translations]
    if body.alternatives:
        values["alternatives"] = [[other.text for other in one.alternatives] for one in translations]
    is_list = isinstance(parameters["q"], list)
    return LibreTranslateResponse.model_validate(
        values if is_list else {name: value[0] for name, value in values.items()}
    )


@router.post(
    "/translate_file",
    summary="Translate a document",
    openapi_extra=describe_upload(FileRequest),
    responses=describe_success(
        "Where to download the translation.",
        {"translatedFileUrl": "http://127.0.0.1:5000/download_file/0qg2cPUS2v4hnDm7XnxtCq0F5yzBqWtjmYc7LbGqkSA.docx"},
    ),
)
async def translate_file(request: Request) -> TranslatedFile:
    """Translate a document and keep its formatting. The translation can be downloaded for a limited time."""
    async with admit_with_file(request, "api_key") as (service, parameters, upload):
        if upload is None:
            raise ParameterError("Invalid request: missing file parameter")
        body = parse_parameters(FileRequest, parameters)
        source, target = _find_pair(service.languages, body)
        ending = find_document_ending(upload.name)
        translating = service.translate_document(
            upload.content, ending, source, target, partial(set_logged_pair, request)
        )
        name = f"{PurePosixPath(upload.name).stem}_{target}{ending}"
        store = request.app.state.files
        file = store.add(translating, name, ending, len(upload.content), get_client(request))
        try:
            await file.task
        except BaseException:  # also if the client has left
            store.remove(file)
            raise
    return TranslatedFile(translated_file_url=str(request.url_for("download_file", name=file.identifier)))


@router.get(
    "/download_file/{name}",
    summary="Download a translation",
    response_class=Response,
    responses={
        200: {"description": "The document.", "content": {"application/octet-stream": {}}},
        404: {
            "description": "The document was removed, or never existed.",
            "content": describe_error("error", "there is no such document"),
        },
    },
)
async def download_file(
    request: Request, name: Annotated[str, Path(description="From the URL of the translation.")]
) -> Response:
    """Download a translated document. That needs no API key, as its name cannot be guessed."""
    file = request.app.state.files.get(name)
    if not file.task.done():
        raise UnknownFileError("the document is still being translated")
    return make_file_response(file)


@router.post(
    "/suggest",
    summary="Suggest a translation",
    openapi_extra=describe_body(
        SuggestionRequest,
        {"q": "A man is riding a bike.", "s": "Ein Mann fährt Rad.", "source": "en", "target": "de"},
        *_FORMS,
    ),
    responses=describe_success("It was stored.", {"success": True}),
)
async def suggest(request: Request) -> SuggestionResponse:
    """Store a suggested translation for a later training. The loaded model does not change."""
    async with admit_with_parameters(request, "api_key") as (service, parameters):
        store = request.app.state.suggestions
        if store is None:
            raise HTTPException(
                HTTPStatus.FORBIDDEN, "suggestions are not stored here: the service has no --suggestion-folder"
            )
        body = parse_parameters(SuggestionRequest, parameters)
        num_characters = len(body.q) + len(body.s)
        if num_characters > service.limits.max_characters:
            raise TooLongError(
                f"q and s: {num_characters:,} characters; this service accepts at most "
                f"{service.limits.max_characters:,} per request"
            )
        source, target = _find_pair(service.languages, body)
        if source is None:
            source = rank_languages(body.q, service.languages.get_sources(target))[0].language
        set_logged_pair(request, f"{source}-{target}")
        await asyncio.to_thread(store.add, (source, target), body.q, body.s)
    return SuggestionResponse(success=True)


@router.post(
    "/detect",
    summary="Detect the language",
    openapi_extra=describe_body(DetectRequest, {"q": "Ein Mann fährt Fahrrad."}, *_FORMS),
    responses=describe_success("Probable languages, best first.", [{"confidence": 99.7, "language": "de"}]),
)
async def detect(request: Request) -> list[Detection]:
    """Detect the language of a text among those of the loaded models; the most probable comes first."""
    async with admit_with_parameters(request, "api_key") as (service, parameters):
        text = " ".join(parse_parameters(DetectRequest, parameters).q)
        ranked = rank_languages(text, service.languages.all)
        likely = [one for rank, one in enumerate(ranked) if rank == 0 or one.probability >= 0.01]
        return [_make_detection(one.probability, one.language) for one in likely]


_LANGUAGES = describe_success(
    "All languages; one that is only a target has no targets.",
    [{"code": "en", "name": "English", "targets": ["de"]}],
)


# Some clients use GET with a body, some POST without one.
@router.get("/languages", summary="List languages", responses=_LANGUAGES)
@router.post("/languages", summary="List languages", responses=_LANGUAGES)
async def languages(request: Request) -> list[LanguageTargets]:
    """List the source languages of the loaded models, each with its target languages."""
    found = get_service(request).languages
    return [
        LanguageTargets(code=code, name=get_language_name(code), targets=list(found.get_targets(code)))
        for code in found.all
    ]


@router.get(
    "/frontend/settings",
    summary="Settings for a front end",
    responses=describe_success(
        "Settings for a front end.",
        {
            "apiKeys": False,
            "charLimit": 500_000,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": False,
            "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "de", "name": "German"}},
            "suggestions": False,
            "supportedFilesFormat": list(FORMATS),
        },
    ),
)
async def settings(request: Request) -> FrontendSettings:
    """List limits and supported functions of this server."""
    service = get_service(request)
    found = service.languages
    first = {"source": (*found.sources, "")[0], "target": (*found.targets, "")[0]}
    is_required = request.app.state.authorization.is_required
    return FrontendSettings(
        api_keys=is_required,
        char_limit=service.limits.max_characters,
        key_required=is_required,
        suggestions=request.app.state.suggestions is not None,
        language={side: {"code": code, "name": get_language_name(code)} for side, code in first.items()},
    )


def _find_pair(
    languages: SupportedLanguages, body: LibreTranslateRequest | FileRequest | SuggestionRequest
) -> tuple[str | None, str]:
    source = None if body.source == AUTO else find_language(body.source, languages.all)
    if source is None and body.source != AUTO:
        raise ParameterError(f"{body.source[:50]} is not supported")
    target = find_language(body.target, languages.targets if source is None else languages.get_targets(source))
    if target is not None:
        return source, target
    known = find_language(body.target, languages.all)
    if known is None or source is None:
        raise ParameterError(f"{body.target[:50]} is not supported")
    raise ParameterError(
        f"{get_language_name(known)} ({known}) is not available as a target language from "
        f"{get_language_name(source)} ({source})"
    )


def _make_detection(probability: float, language: str) -> Detection:
    return Detection(confidence=round(100 * probability, 1), language=language)
