"""Glossaries in DeepL's dialect: stored once, and named by later requests for translations."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from transduce.errors import ParameterError
from transduce.interop import NATIVE
from transduce.serving.dialects import (
    Text,
    admit_with_parameters,
    describe_body,
    describe_error,
    describe_success,
    parse_parameters,
)
from transduce.serving.dialects.deepl import ERRORS, DeepLParameters, find_pair, get_glossary_store
from transduce.serving.glossaries import EntriesFormat, StoredGlossary
from transduce.serving.middleware import get_owner, set_logged_pair
from transduce.serving.models import LanguagePair
from transduce.serving.service import Service
from transduce.text.languages import get_base_code

router = APIRouter(prefix="/v2", tags=["DeepL"], responses=ERRORS)

_EXAMPLE = {
    "glossary_id": "def3a26b-3e84-45b3-84ae-0c0aaf3525f7",
    "ready": True,
    "name": "Vehicles",
    "source_lang": "en",
    "target_lang": "de",
    "creation_time": "2026-11-26T12:00:00.000000Z",
    "entry_count": 1,
}
_UNKNOWN: dict[int | str, dict[str, Any]] = {
    404: {
        "description": "The glossary was deleted, or never existed.",
        "content": describe_error("message", "there is no such glossary"),
    }
}
_GlossaryId = Annotated[str, Path(description="From its creation.")]


class GlossaryRequest(DeepLParameters):
    """A glossary to be stored."""

    name: Annotated[Text, Field(min_length=1)]
    """For people; need not differ from others."""

    source_lang: Annotated[Text, Field(json_schema_extra={"x-languages": "deepl-sources"})]
    """Language code of the source terms."""

    target_lang: Annotated[Text, Field(json_schema_extra={"x-languages": "deepl-targets"})]
    """Language code of the target terms."""

    entries: Annotated[Text, Field(examples=["bike\tRad"])]
    """A term per line: the source term, a tab (or in CSV a comma), and the target term."""

    entries_format: EntriesFormat
    """How the terms are written."""

    @field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        """Check that the name is not blank."""
        if not name.strip():
            raise ParameterError("Parameter 'name' is blank")
        return name


class GlossaryDescription(BaseModel):
    """A glossary without its terms."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    glossary_id: str
    """For requests that use it."""

    ready: bool
    """Always true."""

    name: str
    """As given."""

    source_lang: str
    """Language code without a region."""

    target_lang: str
    """Language code without a region."""

    creation_time: str
    """Time in UTC, by ISO 8601."""

    entry_count: int
    """Number of terms."""


class GlossaryList(BaseModel):
    """The glossaries of an API key."""

    glossaries: list[GlossaryDescription]


class GlossaryPair(BaseModel):
    """Languages between which there may be glossaries."""

    source_lang: str
    target_lang: str


class GlossaryPairs(BaseModel):
    """All pairs of languages between which there may be glossaries."""

    supported_languages: list[GlossaryPair]


@router.get(
    "/glossary-language-pairs",
    summary="List pairs with glossaries",
    responses=describe_success(
        "Pairs of languages.", {"supported_languages": [{"source_lang": "en", "target_lang": "de"}]}
    ),
)
async def language_pairs(request: Request) -> GlossaryPairs:
    """List pairs of languages whose models can use a glossary: Transformers of the native engine."""
    async with admit_with_parameters(request, "auth_key") as (service, _):
        pairs = dict.fromkeys(tuple(map(_format_language, pair)) for pair in _find_pairs(service))
        return GlossaryPairs(
            supported_languages=[GlossaryPair(source_lang=source, target_lang=target) for source, target in pairs]
        )


@router.post(
    "/glossaries",
    summary="Store a glossary",
    status_code=HTTPStatus.CREATED,
    openapi_extra=describe_body(
        GlossaryRequest,
        {
            "name": "Vehicles",
            "source_lang": "EN",
            "target_lang": "DE",
            "entries": "bike\tRad",
            "entries_format": "tsv",
        },
        "application/x-www-form-urlencoded",
    ),
    responses={201: {"description": "It is stored.", "content": {"application/json": {"example": _EXAMPLE}}}},
)
async def create(request: Request) -> GlossaryDescription:
    """Store a glossary, which can be used at once. It cannot be changed: store another one, and delete this one."""
    async with admit_with_parameters(request, "auth_key") as (service, parameters):
        body = parse_parameters(GlossaryRequest, parameters)
        source, target = find_pair(service.languages, body.source_lang, body.target_lang)
        pair = source or "", target
        set_logged_pair(request, "-".join(pair))
        if pair not in _find_pairs(service):
            raise ParameterError(
                f"glossaries from {source or 'any language'} to {target} are not supported: the model of these "
                "languages, or its engine, cannot follow one"
            )
        stored = await asyncio.to_thread(
            get_glossary_store(request).add, get_owner(request), body.name, pair, body.entries, body.entries_format
        )
        return _describe(stored)


@router.get(
    "/glossaries",
    summary="List glossaries",
    responses=describe_success("Glossaries, oldest first.", {"glossaries": [_EXAMPLE]}),
)
async def list_all(request: Request) -> GlossaryList:
    """List the glossaries that were stored with the same API key; where none is required, all of them."""
    async with admit_with_parameters(request, "auth_key"):
        found = await asyncio.to_thread(get_glossary_store(request).list_all, get_owner(request))
        return GlossaryList(glossaries=[_describe(one) for one in found])


@router.get(
    "/glossaries/{glossary_id}",
    summary="Describe a glossary",
    responses={**describe_success("Without its terms.", _EXAMPLE), **_UNKNOWN},
)
async def describe(request: Request, glossary_id: _GlossaryId) -> GlossaryDescription:
    """Describe a glossary: its name, languages and number of terms."""
    async with admit_with_parameters(request, "auth_key"):
        return _describe(await _find(request, glossary_id))


@router.get(
    "/glossaries/{glossary_id}/entries",
    summary="Get the terms of a glossary",
    response_class=Response,
    responses={
        200: {
            "description": "A term per line.",
            "content": {"text/tab-separated-values": {"schema": {"type": "string"}, "example": "bike\tRad"}},
        },
        **_UNKNOWN,
    },
)
async def entries(request: Request, glossary_id: _GlossaryId) -> Response:
    """List the terms of a glossary: in each line a source term, a tab and its target term."""
    async with admit_with_parameters(request, "auth_key"):
        found = await _find(request, glossary_id)
        return Response(found.terms, media_type="text/tab-separated-values")


@router.delete(
    "/glossaries/{glossary_id}",
    summary="Delete a glossary",
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
    responses={204: {"description": "It is deleted."}, **_UNKNOWN},
)
async def delete(request: Request, glossary_id: _GlossaryId) -> Response:
    """Delete a glossary. Requests that are using it are finished with it."""
    async with admit_with_parameters(request, "auth_key"):
        await asyncio.to_thread(get_glossary_store(request).remove, get_owner(request), glossary_id)
        return Response(status_code=HTTPStatus.NO_CONTENT)


async def _find(request: Request, glossary_id: str) -> StoredGlossary:
    return await asyncio.to_thread(get_glossary_store(request).get, get_owner(request), glossary_id)


def _find_pairs(service: Service) -> list[LanguagePair]:
    return [one.pair for one in service.models if one.engine == NATIVE and one.architecture == "transformer"]


def _describe(glossary: StoredGlossary) -> GlossaryDescription:
    return GlossaryDescription(
        glossary_id=glossary.identifier,
        ready=True,
        name=glossary.name,
        source_lang=_format_language(glossary.source),
        target_lang=_format_language(glossary.target),
        creation_time=glossary.created,
        entry_count=glossary.num_terms,
    )


def _format_language(code: str) -> str:
    """Format a language as DeepL does for glossaries, which have no regions."""
    return get_base_code(code)
