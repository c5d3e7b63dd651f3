"""DeepL's dialect, version 2, as its clients speak it: https://developers.deepl.com."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from transduce.serving.dialects import Parameters, read_parameters
from transduce.serving.dialects import deepl_schemas as schemas
from transduce.serving.errors import ParameterError
from transduce.serving.markup import Rules
from transduce.serving.models import find_language, name_of
from transduce.serving.service import Order, Reception, reception_of
from transduce.serving.wishes import TranslationWish

UNLIMITED = 1_000_000_000_000
"""What DeepL gives as the limit of those who have none."""

_VARIANTS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}
"""As targets, DeepL's clients refuse these languages without a region; what a model writes is up to the model."""

_REFUSED = (
    "glossary_id",
    "glossary_ids",
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)
"""What would change a translation and is not offered."""

_LINES = re.compile(r"\s*\n\s*")

router = APIRouter(prefix="/v2", tags=["DeepL"])


@router.post("/translate", summary="Translate", openapi_extra=schemas.TRANSLATE, responses=schemas.TRANSLATED)
async def translate(request: Request) -> JSONResponse:
    """Texts, as JSON or as a form in which `text` is repeated."""
    reception = reception_of(request)
    asked = await read_parameters(request)
    with reception.admitted(request, asked.text("auth_key")):
        _check(asked)
        source, target = _pair(reception, asked)
        split = asked.choice("split_sentences", ("0", "1", "nonewlines"), "1")
        rules = _rules(asked)
        texts = given = _texts(asked)
        if split == "nonewlines" and rules is None:
            texts = [_LINES.sub(" ", text) for text in given]
        wish = TranslationWish(split_sentences=split != "0")
        found = await reception.translate(request, Order(texts, source, target, wish, rules))
        return JSONResponse(
            {
                "translations": [
                    {
                        "detected_source_language": _base(one.source),
                        "text": one.translated.text,
                        "billed_characters": len(text),
                    }
                    for text, one in zip(given, found, strict=True)
                ]
            }
        )


@router.get("/languages", summary="List languages", openapi_extra=schemas.LIST, responses=schemas.LANGUAGES)
async def languages(request: Request) -> JSONResponse:
    """What can be translated, or with `type=target` what it can be translated into."""
    reception = reception_of(request)
    asked = await read_parameters(request)
    with reception.admitted(request, asked.text("auth_key")):
        found = reception.languages
        if asked.choice("type", ("source", "target"), "source") == "source":
            return JSONResponse([{"language": _base(code), "name": name_of(code)} for code in found.sources])
        targets = [(variant, code) for code in found.targets for variant in _variants(code)]
        return JSONResponse(
            [{"language": code, "name": name_of(name), "supports_formality": False} for code, name in targets]
        )


@router.get("/usage", summary="Say how much was translated", responses=schemas.USAGE)
async def usage(request: Request) -> JSONResponse:
    """Characters since the service was started; there is no limit to them."""
    reception = reception_of(request)
    with reception.admitted(request, (await read_parameters(request)).text("auth_key")):
        return JSONResponse({"character_count": reception.num_characters, "character_limit": UNLIMITED})


@router.get("/glossary-language-pairs", summary="List pairs with glossaries", responses=schemas.GLOSSARY_PAIRS)
async def glossary_pairs(request: Request) -> JSONResponse:
    """None: glossaries are not kept here. `/v1/translate` takes one with each request."""
    with reception_of(request).admitted(request, (await read_parameters(request)).text("auth_key")):
        return JSONResponse({"supported_languages": []})


@router.get("/glossaries", summary="List glossaries", responses=schemas.GLOSSARIES)
async def glossaries(request: Request) -> JSONResponse:
    """None, likewise."""
    with reception_of(request).admitted(request, (await read_parameters(request)).text("auth_key")):
        return JSONResponse({"glossaries": []})


def _check(asked: Parameters) -> None:
    """That nothing is asked that is not offered and would make a difference."""
    for name in _REFUSED:
        if name in asked:
            raise ParameterError(f"{name} is not offered by this service: leave it out; /v1/translate has a glossary")
    asked.choice("formality", ("default", "prefer_more", "prefer_less"), "default")


def _texts(asked: Parameters) -> list[str]:
    texts = asked.texts("text")
    if not texts:
        raise ParameterError("Parameter 'text' not specified")
    return texts


def _pair(reception: Reception, asked: Parameters) -> tuple[str | None, str]:
    """Codes of the loaded models; no source where it is to be detected."""
    languages = reception.languages
    written = asked.text("source_lang")
    source = None if written is None else find_language(written, languages.sources)
    if written is not None and source is None:
        raise ParameterError(f"Value for 'source_lang' not supported: there are {_list(languages.sources)}")
    written = asked.text("target_lang")
    if written is None:
        raise ParameterError("Parameter 'target_lang' not specified")
    targets = languages.targets if source is None else languages.targets_of(source)
    target = find_language(written, targets)
    if target is None:
        raise ParameterError(f"Value for 'target_lang' not supported: there are {_list(targets)}")
    return source, target


def _rules(asked: Parameters) -> Rules | None:
    handling = asked.choice("tag_handling", ("xml", "html"), "")

    def names(parameter: str) -> frozenset[str]:
        found = [name.strip() for text in asked.texts(parameter) for name in text.split(",")]
        return frozenset(name if handling == "xml" else name.lower() for name in found)

    splitting, non_splitting, ignored = map(names, ("splitting_tags", "non_splitting_tags", "ignore_tags"))
    detects_outline = asked.flag("outline_detection", default=True)
    return Rules(handling == "xml", splitting, non_splitting, ignored, detects_outline) if handling else None


def _base(code: str) -> str:
    """As DeepL writes a source language."""
    return code.partition("-")[0].upper()


def _variants(code: str) -> Sequence[str]:
    """As DeepL's clients write a target language."""
    return _VARIANTS.get(code.upper(), (code.upper(),))


def _list(codes: Sequence[str]) -> str:
    return ", ".join(code.upper() for code in codes)


def language_codes(codes: Sequence[str], side: str) -> list[str]:
    """What clients may write, for the OpenAPI document; `side` is "sources" or "targets"."""
    plain: list[Any] = [code.upper() for code in codes]
    return plain if side == "sources" else [*plain, *(variant for code in codes for variant in _variants(code))]
