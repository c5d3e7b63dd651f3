"""LibreTranslate's dialect, as its clients speak it: https://docs.libretranslate.com."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from transduce.serving.dialects import Parameters, read_parameters
from transduce.serving.dialects import libretranslate_schemas as schemas
from transduce.serving.errors import ParameterError
from transduce.serving.markup import Rules
from transduce.serving.models import find_language, name_of
from transduce.serving.service import Delivery, Order, Reception, reception_of
from transduce.serving.wishes import TranslationWish

AUTO = "auto"

router = APIRouter(tags=["LibreTranslate"])


@router.post("/translate", summary="Translate", openapi_extra=schemas.TRANSLATE, responses=schemas.TRANSLATED)
async def translate(request: Request) -> JSONResponse:
    """A text, or a list of them. Parameters may be JSON, a form or the query, or some of each: JSON counts first."""
    reception = reception_of(request)
    asked = await read_parameters(request)
    with reception.admitted(request, asked.text("api_key")):
        limits = reception.service.limits
        source, target = _pair(reception, asked)
        is_html = asked.choice("format", ("text", "html"), "text") == "html"
        num_alternatives = asked.integer("alternatives", limits.most_alternatives)
        wish = TranslationWish(num_best=1 if is_html else 1 + num_alternatives)
        is_list = isinstance(asked.raw("q"), list)
        order = Order(_needed(asked, "q"), source, target, wish, Rules() if is_html else None)
        deliveries = await reception.translate(request, order)
        answer: dict[str, Any] = {"translatedText": [one.translated.text for one in deliveries]}
        if source is None:
            answer["detectedLanguage"] = [_detected(one) for one in deliveries]
        if num_alternatives:
            answer["alternatives"] = [[other.text for other in one.translated.alternatives] for one in deliveries]
        return JSONResponse(answer if is_list else {name: values[0] for name, values in answer.items()})


@router.post("/detect", summary="Detect the language", openapi_extra=schemas.DETECT, responses=schemas.DETECTED)
async def detect(request: Request) -> JSONResponse:
    """Which of the languages of the loaded models a text is in; best first."""
    reception = reception_of(request)
    asked = await read_parameters(request)
    with reception.admitted(request, asked.text("api_key")):
        text = " ".join(_needed(asked, "q"))
        ranked = reception.detector.rank(text, reception.languages.all)
        likely = [one for place, one in enumerate(ranked) if place == 0 or one.probability >= 0.01]
        return JSONResponse([{"confidence": _percent(one.probability), "language": one.language} for one in likely])


# Some clients ask with GET and a body, some with POST and none.
@router.get("/languages", summary="List languages", responses=schemas.LANGUAGES)
@router.post("/languages", summary="List languages", responses=schemas.LANGUAGES)
async def languages(request: Request) -> JSONResponse:
    """What can be translated, and into what."""
    found = reception_of(request).languages
    return JSONResponse(
        [{"code": code, "name": name_of(code), "targets": list(found.targets_of(code))} for code in found.all]
    )


@router.get("/frontend/settings", summary="Say what a front end needs to know", responses=schemas.SETTINGS)
async def settings(request: Request) -> JSONResponse:
    """Limits, and what is offered; suggestions and files are not."""
    reception = reception_of(request)
    found = reception.languages
    limits = reception.service.limits
    source, target = (found.sources or ("",))[0], (found.targets or ("",))[0]
    is_required = reception.authorization.is_required
    return JSONResponse(
        {
            "apiKeys": is_required,
            "charLimit": limits.max_characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": is_required,
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": [],
        }
    )


def _pair(reception: Reception, asked: Parameters) -> tuple[str | None, str]:
    """Codes of the loaded models; no source where it is to be detected."""
    _needed(asked, "q")
    languages = reception.languages
    written = _needed_text(asked, "source")
    source = None if written == AUTO else find_language(written, languages.all)
    if source is None and written != AUTO:
        raise ParameterError(f"{written[:50]} is not supported")
    written = _needed_text(asked, "target")
    targets = languages.targets if source is None else languages.targets_of(source)
    target = find_language(written, targets)
    if target is not None:
        return source, target
    known = find_language(written, languages.all)
    if known is None or source is None:
        raise ParameterError(f"{written[:50]} is not supported")
    raise ParameterError(
        f"{name_of(known)} ({known}) is not available as a target language from {name_of(source)} ({source})"
    )


def _needed(asked: Parameters, name: str) -> list[str]:
    texts = asked.texts(name) if name in asked else []
    if not texts:
        raise ParameterError(f"Invalid request: missing {name} parameter")
    return texts


def _needed_text(asked: Parameters, name: str) -> str:
    text = asked.text(name)
    if text is None:
        raise ParameterError(f"Invalid request: missing {name} parameter")
    return text


def _detected(delivery: Delivery) -> dict[str, object]:
    return {"confidence": _percent(delivery.probability), "language": delivery.source}


def _percent(probability: float) -> float:
    return round(100 * probability, 1)
