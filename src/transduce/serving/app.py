"""The HTTP application."""

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse

from transduce import __version__
from transduce.errors import Refusal, UserError
from transduce.serving import page as reference_page
from transduce.serving.dialects import deepl, libretranslate, native
from transduce.serving.dialects.deepl import language_codes
from transduce.serving.dialects.libretranslate import AUTO
from transduce.serving.dialects.native import Problem
from transduce.serving.errors import error_answer
from transduce.serving.middleware import PROBES, BodyLimit, Disconnection, RateLimit, RequestLog, SecurityHeaders
from transduce.serving.page import content_security_policy, page, page_file
from transduce.serving.service import Reception, reception_of

DESCRIPTION = """Translation by the Transformer of "Attention Is All You Need", for clients of LibreTranslate and DeepL,
and with everything that the engine can do under `/v1`."""


def make_app(reception: Reception, *, cors: Sequence[str] = ()) -> FastAPI:
    """The app, whose service is started and ended by whoever runs it.

    Args:
        reception: lets requests in.
        cors: origins whose pages may use the service from a browser, as in "https://example.org", or "*" for all.
    """
    app = FastAPI(
        title="Transduce",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        # Traces would have addresses, in which some clients put texts and keys.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.reception = reception
    for router in (operations, libretranslate.router, deepl.router, native.router, reference_page.router):
        app.include_router(router)
    for kind in (HTTPException, RequestValidationError, UserError, Refusal):
        app.add_exception_handler(kind, _answer)
    app.openapi = partial(openapi_document, app, reception)  # type: ignore[method-assign]
    # The last one is the outermost.
    app.add_middleware(Disconnection)
    limits, metrics = reception.service.limits, reception.service.metrics
    app.add_middleware(
        BodyLimit, max_bytes=limits.max_body_bytes, authorization=reception.authorization, metrics=metrics
    )
    app.add_middleware(RateLimit, rate=reception.rate, metrics=metrics)
    app.add_middleware(RequestLog, metrics=metrics)
    if cors:
        headers = ["Authorization", "Content-Type", "X-Request-ID"]
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=headers,
            expose_headers=["Retry-After", "X-Request-ID"],
        )
    app.add_middleware(SecurityHeaders)
    return app


async def _answer(request: Request, error: Exception) -> JSONResponse:
    answer = error_answer(error, request.url.path, reception_of(request).service.metrics)
    if answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names the methods of the first route of a path only.
        methods = request.app.openapi()["paths"].get(request.url.path)
        if methods:
            also = ["HEAD"] if request.url.path in PROBES else []
            answer.headers["Allow"] = ", ".join(sorted([*map(str.upper, methods), *also]))
    return answer


_OK = {"status": "ok"}
_STATUS = {
    "application/json": {
        "schema": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
        "example": _OK,
    }
}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

operations = APIRouter(tags=["Operation"])


@operations.head("/livez", include_in_schema=False)
@operations.head("/health", include_in_schema=False)
@operations.head("/v2/health/live", include_in_schema=False)
@operations.get("/livez", summary="Live?", responses={200: {"description": "It answers.", "content": _STATUS}})
@operations.get("/health", summary="Live?", responses={200: {"description": "It answers.", "content": _STATUS}})
@operations.get("/v2/health/live", summary="Live?", responses={200: {"description": "It answers.", "content": _STATUS}})
async def live() -> JSONResponse:
    """Always, as long as it answers at all."""
    return JSONResponse(_OK)


_READY: dict[int | str, dict[str, Any]] = {
    200: {"description": "Requests are taken.", "content": _STATUS},
    503: {"description": "Models are loading, or the service is about to end.", "content": _STATUS},
}


@operations.head("/readyz", include_in_schema=False)
@operations.head("/v2/health/ready", include_in_schema=False)
@operations.get("/readyz", summary="Ready?", responses=_READY)
@operations.get("/v2/health/ready", summary="Ready?", responses=_READY)
async def ready(request: Request) -> JSONResponse:
    """All models are loaded and have translated something, and the service has not been told to end."""
    if reception_of(request).is_ready:
        return JSONResponse(_OK)
    headers = {"Retry-After": "5", "Connection": "close"}
    return JSONResponse({"status": "not ready"}, HTTPStatus.SERVICE_UNAVAILABLE, headers)


@operations.get(
    "/metrics",
    summary="Count",
    responses={
        200: {"description": "In the format of Prometheus.", "content": {"text/plain": {}}},
        401: {"description": "A key is needed.", "content": _PROBLEM},
        429: {"description": "This client asks too often: see Retry-After.", "content": _PROBLEM},
    },
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Requests, latency, queue, batches, padding, models and reloads; nothing about clients or texts."""
    reception = reception_of(request)
    reception.authorization.check(request)
    content, media_type = reception.service.metrics.exposition()
    return Response(content, headers={"Content-Type": media_type})


@operations.head("/", include_in_schema=False)
@operations.get("/", include_in_schema=False)
async def index() -> HTMLResponse:
    """The page that looks inside."""
    return HTMLResponse(page(), headers={"Content-Security-Policy": content_security_policy()})


@operations.get("/page/{name}", include_in_schema=False)
async def file(name: str) -> Response:
    """A file of the page."""
    found = page_file(name)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "Not Found")
    return Response(found.content, media_type=found.media_type)


_LIMITS = {
    "TranslateRequest.num_best": "max_best",
    "TranslateRequest.beam": "max_beam",
    "TranslateRequest.num_samples": "max_beam",
    "TranslateRequest.deadline_seconds": "deadline_seconds",
    "ScoreRequest.deadline_seconds": "deadline_seconds",
}
_LANGUAGES = {
    "TranslateRequest.source": "sources-or-auto",
    "TranslateRequest.target": "targets",
    "ScoreRequest.source": "sources",
    "ScoreRequest.target": "targets",
    "InspectionRequest.source": "sources",
    "InspectionRequest.target": "targets",
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "deepl_header": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": '"DeepL-Auth-Key KEY", as clients of DeepL have it.',
    },
    "api_key": {
        "type": "apiKey",
        "in": "query",
        "name": "api_key",
        "description": "As clients of LibreTranslate have it; or in the body, by the same name.",
    },
    "auth_key": {
        "type": "apiKey",
        "in": "query",
        "name": "auth_key",
        "description": "As old clients of DeepL have it; or in the body, by the same name.",
    },
}
_Ways = list[dict[str, list[str]]]
_HEADER: _Ways = [{"bearer": []}, {"deepl_header": []}]
_WITH_KEY: dict[str, _Ways] = {
    "Transduce": _HEADER,
    "DeepL": [*_HEADER, {"auth_key": []}],
    "LibreTranslate": [*_HEADER, {"api_key": []}],
}
"""Ways to give a key in each dialect; that it may be in the body, OpenAPI can only say in words and by an empty one."""

_WITHOUT_KEY = frozenset({"/languages", "/frontend/settings"})


def openapi_document(app: FastAPI, reception: Reception) -> dict[str, Any]:
    """The document; it is made once for the languages of the loaded models."""
    made: tuple[tuple[str, ...], dict[str, Any]] | None = getattr(app.state, "openapi", None)
    languages = reception.languages
    pairs = tuple(f"{source}-{target}" for source in languages.sources for target in languages.targets_of(source))
    if made is None or made[0] != pairs:
        made = pairs, _document(app, reception)
        app.state.openapi = made
    return made[1]


def _document(app: FastAPI, reception: Reception) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, openapi_version="3.1.0"
    )
    languages = reception.languages
    codes = {
        "sources": list(languages.sources),
        "sources-or-auto": [AUTO, *languages.sources],
        "targets": list(languages.targets),
        "deepl-sources": [*language_codes(languages.sources, "sources"), ""],
        "deepl-targets": language_codes(languages.targets, "targets"),
    }
    limits = reception.service.limits
    most: dict[str, int | float] = {
        "max_alternatives": limits.most_alternatives,
        "max_best": limits.most_alternatives + 1,
        "max_beam": limits.max_beam,
        "deadline_seconds": limits.deadline_seconds,
    }
    schemas = document["components"]["schemas"]
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {"Problem": problem, **problem.pop("$defs")}
    for place, name in _LIMITS.items():
        _plain(_property(schemas, place))["maximum"] = most[name]
    for place, name in _LANGUAGES.items():
        _plain(_property(schemas, place))["enum"] = codes[name]
    document = dict(_filled(document, codes, most))
    if reception.authorization.is_required:
        document["components"]["securitySchemes"] = _SCHEMES
        for path, methods in document["paths"].items():
            for operation in methods.values():
                tag = operation["tags"][0]
                if tag in _WITH_KEY and path not in _WITHOUT_KEY:
                    in_body: _Ways = [{}] if "requestBody" in operation and tag != "Transduce" else []
                    operation["security"] = [*_WITH_KEY[tag], *in_body]
        document["paths"]["/metrics"]["get"]["security"] = _HEADER
    return document


def _property(schemas: dict[str, Any], place: str) -> dict[str, Any]:
    schema, _, name = place.partition(".")
    found: dict[str, Any] = schemas[schema]["properties"][name]
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """What a value is that may be null as well."""
    found: dict[str, Any] = schema["anyOf"][0] if "anyOf" in schema else schema
    return found


def _filled(node: Any, codes: dict[str, list[str]], most: dict[str, int | float]) -> Any:  # noqa: ANN401 - any JSON
    """The same with codes and limits in place of their names."""
    if isinstance(node, list):
        return [_filled(one, codes, most) for one in node]
    if not isinstance(node, dict):
        return node
    filled = {name: _filled(value, codes, most) for name, value in node.items() if not name.startswith("x-")}
    if "x-languages" in node:
        filled["enum"] = [*codes[node["x-languages"]], *([None] if "null" in node["type"] else [])]
    if "x-limit" in node:
        limit = int(most[node["x-limit"]])
        if "pattern" in node:
            filled["enum"] = [str(number) for number in range(limit + 1)]
            del filled["pattern"]
        else:
            filled["maximum"] = limit
    return filled
