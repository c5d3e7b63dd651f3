"""DeepL's dialect, version 2, as used by its clients: https://developers.deepl.com."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from transduce.documents import find_document_ending
from transduce.documents.markup import MarkupRules
from transduce.errors import FileNotReadyError, ParameterError, TransduceError
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
    read_authorized_parameters,
)
from transduce.serving.error_responses import INTERNAL_ERROR, describe_errors
from transduce.serving.files import FileStore, StoredFile
from transduce.serving.glossaries import GlossaryStore
from transduce.serving.middleware import get_client, get_owner, set_logged_pair
from transduce.serving.models import SupportedLanguages, find_language
from transduce.serving.service import Service, TranslatedDocument, TranslationRequest
from transduce.text import Glossary
from transduce.text.languages import get_base_code, get_language_name
from transduce.translation import TranslationOptions

UNLIMITED = 1_000_000_000_000
"""The limit that DeepL reports to customers without a limit."""

STATUS_SECONDS = 2.0
"""Time for which the status of a document waits for its translation, as clients ask again after five seconds only."""

_VARIANTS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}
"""DeepL's clients reject these targets without a region, so they are listed with regions, whichever variety a model
writes."""

_UNSUPPORTED = (
    "glossary_ids",
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)
"""Parameters that would change a translation and are not supported."""

_FLAGS = {"0": False, "1": True, "false": False, "true": True}
# Line ends with all space around them; tried only where a run of space begins, so that matching takes linear time.
_LINES = re.compile(r"(?<!\s)[^\S\n]*+\n\s*+")
ERRORS = describe_errors(
    {
        400: "A parameter is missing or not supported.",
        403: "The API key is missing or unknown.",
        413: "The body is too large, or there are too many texts or characters.",
        415: "The body is neither JSON nor a form.",
    },
    describe_error("message", "Parameter 'text' not specified"),
)


def _check_flag(value: object, info: Any) -> bool:  # noqa: ANN401 - a ValidationInfo, which beartype cannot check
    found = _FLAGS.get(value if isinstance(value, str) else json.dumps(value))
    if found is None:
        raise ParameterError(f"Invalid request: {info.field_name} must be true or false")
    return found


_LIST = {"type": "array", "items": {"type": "string"}}
_TagNames = Annotated[Texts, WithJsonSchema({"anyOf": [_LIST, {"type": "string"}]})]
_Unused = Annotated[Any, Field(description="Has no effect.")]


class DeepLParameters(Parameters):
    """Base of the request models of this dialect."""

    missing_message: ClassVar[str] = "Parameter '{}' not specified"

    auth_key: Text | None = None
    """API key, if this service requires one; a header is preferred."""

    @model_validator(mode="before")
    @classmethod
    def refuse_unsupported(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Refuse parameters that would change a translation and are not supported."""
        for name in _UNSUPPORTED:
            if values.get(name, "") not in ("", None):
                raise ParameterError(f"{name} is not supported by this service: leave it out")
        return values


class DeepLRequest(DeepLParameters):
    """Texts to be translated."""

    keeps_empty: ClassVar[frozenset[str]] = frozenset({"text"})

    text: Annotated[
        Texts, Field(min_length=1), WithJsonSchema({"anyOf": [{**_LIST, "minItems": 1}, {"type": "string"}]})
    ]
    """A list of texts, or one text."""

    target_lang: Annotated[Text, Field(json_schema_extra={"x-languages": "deepl-targets"})]
    """Language code."""

    source_lang: Annotated[Text | None, Field(json_schema_extra={"x-languages": "deepl-sources"})] = None
    """Language code; detected for each text unless given."""

    split_sentences: Literal["0", "1", "nonewlines"] = "1"
    """Whether texts are split into sentences; nonewlines: split, and treat line ends as spaces."""

    tag_handling: Literal["xml", "html"] | None = None
    """Markup of the texts."""

    splitting_tags: _TagNames = Field(default=[])
    """Elements that split sentences."""

    non_splitting_tags: _TagNames = Field(default=[])
    """Elements that do not split sentences."""

    ignore_tags: _TagNames = Field(default=[])
    """Elements whose text is not translated."""

    outline_detection: Annotated[
        bool,
        BeforeValidator(_check_flag),
        WithJsonSchema(
            {"type": ["boolean", "integer", "string"], "enum": [True, False, 1, 0, "1", "0", "true", "false"]}
        ),
    ] = True
    """0: only splitting_tags split sentences; 1: block elements are detected as well."""

    glossary_id: Text | None = None
    """Id of a stored glossary of these languages, whose terms are used; `source_lang` is then required."""

    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    """Has no effect."""

    context: _Unused = None
    enable_beta_languages: _Unused = None
    model_type: _Unused = None
    preserve_formatting: Annotated[Any, Field(description="Has no effect: nothing is corrected.")] = None
    show_billed_characters: Annotated[Any, Field(description="Has no effect: it is always shown.")] = None
    tag_handling_version: _Unused = None

    @property
    def markup(self) -> MarkupRules | None:
        """Rules for the markup of the texts; None for plain text."""
        if self.tag_handling is None:
            return None
        is_xml = self.tag_handling == "xml"

        def split_names(texts: list[str]) -> frozenset[str]:
            names = [name.strip() for text in texts for name in text.split(",")]
            return frozenset(names if is_xml else map(str.lower, names))

        splitting, non_splitting = split_names(self.splitting_tags), split_names(self.non_splitting_tags)
        return MarkupRules(is_xml, splitting, non_splitting, split_names(self.ignore_tags), self.outline_detection)


class DocumentRequest(DeepLParameters):
    """A document to be translated, without its file."""

    target_lang: Annotated[Text, Field(json_schema_extra={"x-languages": "deepl-targets"})]
    """Language code."""

    source_lang: Annotated[Text | None, Field(json_schema_extra={"x-languages": "deepl-sources"})] = None
    """Language code; detected unless given."""

    filename: Text | None = None
    """Name of the document; that of the file unless given."""

    output_format: Text | None = None
    """The format of the document: no other can be written."""

    glossary_id: Text | None = None
    """Id of a stored glossary of these languages, whose terms are used; `source_lang` is then required."""

    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    """Has no effect."""

    auth_key: Text | None = None
    """API key, if this service requires one; a document of some size needs it in a header."""


class DocumentKey(DeepLParameters):
    """The key of a document, which requests need besides its id."""

    document_key: Text
    """From the upload."""


class DocumentHandle(BaseModel):
    """Id and key of a document."""

    document_id: str
    document_key: str


class DocumentStatus(BaseModel):
    """The state of the translation of a document."""

    document_id: str
    status: Literal["translating", "done", "error"]
    billed_characters: Annotated[int | SkipJsonSchema[None], Field(description="Once it is done.")] = None
    error_message: Annotated[str | SkipJsonSchema[None], Field(description="What was wrong.")] = None


class LanguagesRequest(Parameters):
    """Query for source or target languages."""

    type: Literal["source", "target"] = "source"


class DeepLTranslation(BaseModel):
    """The translation of a text."""

    detected_source_language: str
    text: str
    billed_characters: int


class DeepLResponse(BaseModel):
    """The translations of all texts."""

    translations: Annotated[list[DeepLTranslation], Field(description="A translation of each text, in order.")]


class DeepLLanguage(BaseModel):
    """A source or a target language."""

    language: str
    name: str
    supports_formality: Annotated[bool | SkipJsonSchema[None], Field(description="Of targets.")] = None


router = APIRouter(prefix="/v2", tags=["DeepL"], responses=ERRORS)


_NO_GLOSSARY: dict[int | str, dict[str, Any]] = {
    404: {
        "description": "There is no such glossary.",
        "content": describe_error("message", "there is no such glossary"),
    }
}


@router.post(
    "/translate",
    summary="Translate",
    openapi_extra=describe_body(
        DeepLRequest, {"text": ["A man is riding a bike."], "target_lang": "DE"}, "application/x-www-form-urlencoded"
    ),
    responses=_NO_GLOSSARY
    | describe_success(
        "A translation of each text, in order.",
        {
            "translations": [
                {"detected_source_language": "EN", "text": "Ein Mann fährt Fahrrad.", "billed_characters": 23}
            ]
        },
    ),
)
async def translate(request: Request) -> DeepLResponse:
    """Translate texts, given as JSON or as a form in which `text` is repeated."""
    async with admit_with_parameters(request, "auth_key") as (service, parameters):
        body = parse_parameters(DeepLRequest, parameters)
        source, target = find_pair(service.languages, body.source_lang, body.target_lang)
        glossary = await _find_glossary(request, body.glossary_id, source, target)
        markup, texts = body.markup, body.text
        service.check_size(len(texts), texts)
        if body.split_sentences == "nonewlines" and markup is None:
            texts = [_LINES.sub(" ", text) for text in texts]
        options = TranslationOptions(split_sentences=body.split_sentences != "0")
        found = await service.translate(
            TranslationRequest(texts, source, target, options, markup, glossary=glossary),
            partial(set_logged_pair, request),
        )
    return DeepLResponse(
        translations=[
            DeepLTranslation(
                detected_source_language=_format_source(one.source), text=one.text, billed_characters=len(text)
            )
            for text, one in zip(body.text, found.translations, strict=True)
        ]
    )


_KEY_BODY = describe_body(
    DocumentKey, {"document_key": "PSbmFRz0m1jkOGfdmLO6chnuTwR2Ykpj3uUXN1tvAK4"}, "application/x-www-form-urlencoded"
)
_UNKNOWN: dict[int | str, dict[str, Any]] = {
    404: {
        "description": "The document was removed, or never existed.",
        "content": describe_error("message", "there is no such document"),
    }
}
_DocumentId = Annotated[str, Path(description="From the upload.")]


@router.post(
    "/document",
    summary="Translate a document",
    openapi_extra=describe_upload(DocumentRequest),
    responses=_NO_GLOSSARY
    | describe_success(
        "The translation has begun.",
        {
            "document_id": "0qg2cPUS2v4hnDm7XnxtCq0F5yzBqWtjmYc7LbGqkSA.docx",
            "document_key": "PSbmFRz0m1jkOGfdmLO6chnuTwR2Ykpj3uUXN1tvAK4",
        },
    ),
)
async def translate_document(request: Request) -> DocumentHandle:
    """Begin to translate a document, whose formatting is kept; ask for its status until it is done."""
    async with admit_with_file(request, "auth_key") as (service, parameters, upload):
        if upload is None:
            raise ParameterError("Parameter 'file' not specified")
        body = parse_parameters(DocumentRequest, parameters)
        source, target = find_pair(service.languages, body.source_lang, body.target_lang)
        glossary = await _find_glossary(request, body.glossary_id, source, target)
        name = body.filename or upload.name
        ending = find_document_ending(name)
        if body.output_format and "." + body.output_format.lower() != ending:
            raise ParameterError(f"output_format = {body.output_format[:50]!r}: a document keeps its format, {ending}")
        set_logged_pair(request, f"{source or '*'}-{target}")
        translate = partial(service.translate_document, upload.content, ending, source, target, glossary=glossary)
        translating = _translate_admitted(service, translate)
        name = f"{PurePosixPath(name).stem} {body.target_lang}{ending}"
        store: FileStore = request.app.state.files
        file = store.add(translating, name, ending, len(upload.content), get_client(request), needs_key=True)
        await asyncio.sleep(0)  # it is admitted before this request ends, so that a service that stops waits for it
    return DocumentHandle(document_id=file.identifier, document_key=file.key)


async def _translate_admitted(
    service: Service, translate: Callable[[], Awaitable[TranslatedDocument]]
) -> TranslatedDocument:
    with service.admit():
        return await translate()


@router.post(
    "/document/{document_id}",
    summary="Status of a document",
    openapi_extra=_KEY_BODY,
    response_model_exclude_none=True,
    responses={
        **describe_success(
            "How far it is.",
            {
                "document_id": "0qg2cPUS2v4hnDm7XnxtCq0F5yzBqWtjmYc7LbGqkSA.docx",
                "status": "done",
                "billed_characters": 5120,
            },
        ),
        **_UNKNOWN,
    },
)
async def document_status(request: Request, document_id: _DocumentId) -> DocumentStatus:
    """Report whether a document has been translated, after waiting for that for up to two seconds."""
    file = await _find_file(request, document_id)
    await asyncio.wait([file.task], timeout=STATUS_SECONDS)
    if not file.task.done():
        return DocumentStatus(document_id=document_id, status="translating")
    error = file.task.exception()
    if error is None:
        return DocumentStatus(
            document_id=document_id, status="done", billed_characters=file.task.result().num_characters
        )
    message = str(error) if isinstance(error, TransduceError) else INTERNAL_ERROR
    return DocumentStatus(document_id=document_id, status="error", error_message=message)


@router.post(
    "/document/{document_id}/result",
    summary="Download a document",
    openapi_extra=_KEY_BODY,
    response_class=Response,
    responses={
        200: {"description": "The document.", "content": {"application/octet-stream": {}}},
        **_UNKNOWN,
    },
)
async def download_document(request: Request, document_id: _DocumentId) -> Response:
    """Download a translated document. It can be downloaded once, and is then removed."""
    file = await _find_file(request, document_id)
    if not file.task.done():
        raise FileNotReadyError("the document is still being translated: ask for its status")
    response = make_file_response(file)
    request.app.state.files.remove(file)
    return response


async def _find_file(request: Request, document_id: str) -> StoredFile:
    parameters = await read_authorized_parameters(request, "auth_key")
    file: StoredFile = request.app.state.files.get(document_id, parse_parameters(DocumentKey, parameters).document_key)
    return file


@router.get(
    "/languages",
    summary="List languages",
    response_model_exclude_none=True,
    openapi_extra={
        "parameters": [
            {
                "name": "type",
                "in": "query",
                "schema": {"type": "string", "enum": ["source", "target", ""], "default": "source"},
                "description": "May also be sent as a form in the body, as the official client does.",
            }
        ]
    },
    responses=describe_success("The languages.", [{"language": "DE", "name": "German", "supports_formality": False}]),
)
async def languages(request: Request) -> list[DeepLLanguage]:
    """List source languages, or with `type=target` target languages."""
    async with admit_with_parameters(request, "auth_key") as (service, parameters):
        found = service.languages
        if parse_parameters(LanguagesRequest, parameters).type == "source":
            return [
                DeepLLanguage(language=_format_source(code), name=get_language_name(code)) for code in found.sources
            ]
        return [
            DeepLLanguage(language=variant, name=get_language_name(code), supports_formality=False)
            for code in found.targets
            for variant in _format_targets(code)
        ]


@router.get(
    "/usage",
    summary="Usage",
    responses=describe_success(
        "Number of characters translated, and its limit.",
        {"character_count": 1234, "character_limit": 1_000_000_000_000},
    ),
)
async def usage(request: Request) -> dict[str, int]:
    """Report the number of characters translated since the service started, which is not limited."""
    async with admit_with_parameters(request, "auth_key") as (service, _):
        return {"character_count": service.num_characters, "character_limit": UNLIMITED}


def list_language_codes(codes: Sequence[str], side: Literal["sources", "targets"]) -> list[str]:
    """List the codes that clients may use."""
    plain = [code.upper() for code in codes]
    return plain if side == "sources" else [*plain, *(variant for code in codes for variant in _format_targets(code))]


def find_pair(languages: SupportedLanguages, source_lang: str | None, target_lang: str) -> tuple[str | None, str]:
    """Find the language codes of the models; None for a source that is to be detected.

    Raises:
        ParameterError: no model has the languages.
    """
    source = None if source_lang is None else find_language(source_lang, languages.sources)
    if source_lang is not None and source is None:
        raise ParameterError(f"Value for 'source_lang' not supported: there are {_join_codes(languages.sources)}")
    targets = languages.targets if source is None else languages.get_targets(source)
    target = find_language(target_lang, targets)
    if target is None:
        raise ParameterError(f"Value for 'target_lang' not supported: there are {_join_codes(targets)}")
    return source, target


def get_glossary_store(request: Request) -> GlossaryStore:
    """Return the glossaries of the application that received the request."""
    store: GlossaryStore = request.app.state.glossaries
    return store


async def _find_glossary(request: Request, glossary_id: str | None, source: str | None, target: str) -> Glossary | None:
    """Find the glossary of a request; None if it names none.

    Raises:
        UnknownGlossaryError: the client has no such glossary.
        ParameterError: the glossary is of other languages, or the source is to be detected.
    """
    if glossary_id is None:
        return None
    found = await asyncio.to_thread(get_glossary_store(request).get, get_owner(request), glossary_id)
    if source is None:
        raise ParameterError("Parameter 'source_lang' not specified: a glossary needs it")
    if found.pair != (source, target):
        raise ParameterError(
            f"glossary_id: this glossary is from {found.source} to {found.target}, not {source} to {target}"
        )
    return await asyncio.to_thread(found.parse)


def _format_source(code: str) -> str:
    """Format a source language as DeepL does."""
    return get_base_code(code).upper()


def _format_targets(code: str) -> Sequence[str]:
    """Format a target language in all forms that DeepL's clients recognise."""
    return _VARIANTS.get(code.upper(), (code.upper(),))


def _join_codes(codes: Sequence[str]) -> str:
    return ", ".join(code.upper() for code in codes)
