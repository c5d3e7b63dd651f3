"""The HTTP application: dialects, middleware, health checks, pages, and the OpenAPI document."""

from collections.abc import Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse

from transduce import __version__
from transduce.documents import FORMATS
from transduce.errors import TemporaryRefusalError, UserError
from transduce.serving.dialects import deepl, glossaries, libretranslate, native
from transduce.serving.error_responses import make_error_response
from transduce.serving.files import FileStore
from transduce.serving.glossaries import GlossaryStore
from transduce.serving.middleware import (
    LIVENESS_PROBES,
    READINESS_PROBES,
    Authorization,
    BodyLimit,
    CancelOnDisconnect,
    RateLimit,
    RequestLog,
    RequestRate,
    SecurityHeaders,
    get_service,
)
from transduce.serving.models import LanguagePair, SupportedLanguages
from transduce.serving.page import (
    REFERENCE_POLICY,
    Folder,
    PageSettings,
    get_page_file,
    make_page_policy,
    render_inspection_page,
    render_reference_page,
    render_translation_page,
)
from transduce.serving.service import Service
from transduce.serving.suggestions import SuggestionStore
from transduce.serving.tracing import RequestTrace

DESCRIPTION = """Translation by the Transformer of "Attention Is All You Need", for clients of LibreTranslate and DeepL,
and with all functions of the engine under `/v1`."""


def make_app(
    service: Service,
    authorization: Authorization,
    rate: RequestRate,
    *,
    cors: Sequence[str] = (),
    has_traces: bool = False,
    glossary_folder: Path | None = None,
    suggestion_folder: Path | None = None,
) -> FastAPI:
    """Make the application of a service, which is started and drained by the caller.

    Args:
        service: answers requests.
        authorization: API keys.
        rate: the rate limit.
        cors: origins whose pages may use the service from a browser, as in "https://example.org", or "*" for all.
        has_traces: whether spans of requests are recorded; see `start_tracing`.
        glossary_folder: where glossaries are kept; None: in memory.
        suggestion_folder: where suggested translations are kept; None: they are refused.

    Raises:
        ConfigError: a folder cannot be used, or has a damaged glossary.
    """
    app = FastAPI(
        title="Transduce",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        # FastAPI's traces contain addresses, and these may contain texts and API keys.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.service, app.state.authorization = service, authorization
    app.state.files = FileStore(service.limits.max_files_bytes, service.limits.file_seconds)
    limits = service.limits
    app.state.glossaries = GlossaryStore(glossary_folder, limits.max_glossaries, limits.max_glossary_bytes)
    app.state.suggestions = (
        None if suggestion_folder is None else SuggestionStore(suggestion_folder, limits.max_suggestion_bytes)
    )
    for router in (operations, libretranslate.router, deepl.router, glossaries.router, native.router, pages):
        app.include_router(router)
    for kind in (HTTPException, RequestValidationError, UserError, TemporaryRefusalError):
        app.add_exception_handler(kind, _handle_error)
    make_document = lru_cache(maxsize=1)(partial(_build_document, app))  # needs the loaded models
    app.openapi = lambda: make_document(tuple(one.pair for one in service.models))  # type: ignore[method-assign]
    # The middleware added last is the outermost.
    metrics = service.metrics
    app.add_middleware(CancelOnDisconnect)
    app.add_middleware(BodyLimit, max_bytes=service.limits.max_body_bytes, authorization=authorization, metrics=metrics)
    app.add_middleware(RateLimit, rate=rate, metrics=metrics)
    app.add_middleware(RequestLog, metrics=metrics)
    if has_traces:
        app.add_middleware(RequestTrace)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["DELETE", "GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["Retry-After", "X-Request-ID"],
        )
    app.add_middleware(SecurityHeaders)
    return app


async def _handle_error(request: Request, error: Exception) -> JSONResponse:
    response = make_error_response(error, request.scope["path"], get_service(request).metrics)
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette lists only the methods of the path's first route.
        path = getattr(request.scope.get("route"), "path", request.scope["path"])
        methods = request.app.openapi()["paths"].get(path)
        if methods:
            also = ["HEAD"] if request.scope["path"] in (*LIVENESS_PROBES, *READINESS_PROBES) else []
            response.headers["Allow"] = ", ".join(sorted([*map(str.upper, methods), *also]))
    return response


operations = APIRouter(tags=["Operation"])

_OK = {"status": "ok"}
_STATUS = {
    "application/json": {
        "schema": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
        "example": _OK,
    }
}
_LIVE: dict[int | str, dict[str, Any]] = {200: {"description": "It answers.", "content": _STATUS}}
_READY: dict[int | str, dict[str, Any]] = {
    200: {"description": "The service accepts requests.", "content": _STATUS},
    503: {"description": "Models are loading, or the service is stopping.", "content": _STATUS},
}


async def live() -> JSONResponse:
    """Succeeds while the process answers requests."""
    return JSONResponse(_OK)


async def ready(request: Request) -> JSONResponse:
    """Succeeds from when all models have completed a test translation until the service begins to stop."""
    if get_service(request).is_ready:
        return JSONResponse(_OK)
    headers = {"Retry-After": "5", "Connection": "close"}
    return JSONResponse({"status": "not ready"}, HTTPStatus.SERVICE_UNAVAILABLE, headers)


for _path in LIVENESS_PROBES:
    operations.get(_path, summary="Liveness probe", responses=_LIVE)(live)
    operations.head(_path, include_in_schema=False)(live)
for _path in READINESS_PROBES:
    operations.get(_path, summary="Readiness probe", responses=_READY)(ready)
    operations.head(_path, include_in_schema=False)(ready)


@operations.get(
    "/metrics",
    summary="Metrics",
    responses={
        200: {"description": "Metrics in the Prometheus text format.", "content": {"text/plain": {}}},
        401: {"description": "An API key is required.", "content": native.PROBLEM_CONTENT},
        429: {"description": "Rate limit exceeded: see Retry-After.", "content": native.PROBLEM_CONTENT},
    },
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Requests, latency, queue, batches, padding, models and reloads; nothing about clients or texts."""
    request.app.state.authorization.check(request)
    content, media_type = get_service(request).metrics.export()
    return Response(content, headers={"Content-Type": media_type})


pages = APIRouter(include_in_schema=False)


@pages.head("/")
@pages.get("/")
async def translation_page(request: Request) -> HTMLResponse:
    """Serve the page that translates."""
    limits = get_service(request).limits
    settings = PageSettings(
        limits.max_alternatives_within_beam,
        limits.max_characters,
        limits.max_texts,
        limits.max_body_bytes,
        limits.file_seconds,
        tuple(FORMATS),
        request.app.state.authorization.is_required,
    )
    return _make_page_response(render_translation_page(settings))


@pages.get("/inspect")
async def inspection_page() -> HTMLResponse:
    """Serve the page that shows the model at work."""
    return _make_page_response(render_inspection_page())


@pages.get("/docs")
async def reference(request: Request) -> HTMLResponse:
    """Serve the API reference."""
    headers = {"Content-Security-Policy": REFERENCE_POLICY}
    return HTMLResponse(render_reference_page(request.app.openapi()), headers=headers)


@pages.get("/page/{name}")
async def page_file(name: str) -> Response:
    """Serve a style or a module of the page that shows the model at work; the other page shares some."""
    return _make_file_response(name, "files")


@pages.get("/page/translate/{name}")
async def translation_page_file(name: str) -> Response:
    """Serve a style or a module of the page that translates."""
    return _make_file_response(name, "translate")


@pages.get("/docs/{name}")
async def reference_file(name: str) -> Response:
    """Serve the style or the script of the API reference."""
    return _make_file_response(name, "reference")


def _make_page_response(html: str) -> HTMLResponse:
    # With "no-store", browsers forget what was typed into a page that one comes back to.
    return HTMLResponse(html, headers={"Content-Security-Policy": make_page_policy(), "Cache-Control": "no-cache"})


def _make_file_response(name: str, folder: Folder) -> Response:
    file = get_page_file(name, folder)
    if file is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "Not Found")
    content, media_type = file
    return Response(content, media_type=media_type)


_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "deepl_header": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": '"DeepL-Auth-Key KEY", as sent by DeepL clients.',
    },
    "api_key": {
        "type": "apiKey",
        "in": "query",
        "name": "api_key",
        "description": "As sent by LibreTranslate clients; may also be in the body, under the same name.",
    },
    "auth_key": {
        "type": "apiKey",
        "in": "query",
        "name": "auth_key",
        "description": "As sent by old DeepL clients; may also be in the body, under the same name.",
    },
}
_Security = list[dict[str, list[str]]]
_HEADER: _Security = [{"bearer": []}, {"deepl_header": []}]
_SECURITY: dict[str, _Security] = {
    "Transduce": _HEADER,
    "DeepL": [*_HEADER, {"auth_key": []}],
    "LibreTranslate": [*_HEADER, {"api_key": []}],
}
"""Ways to send an API key in each dialect; an empty entry stands for a key in the body, which OpenAPI cannot
express."""

_WITHOUT_KEY = frozenset({"/languages", "/frontend/settings", "/download_file/{name}"})


def _build_document(app: FastAPI, pairs: tuple[LanguagePair, ...]) -> dict[str, Any]:
    """The OpenAPI document with the languages and limits of the service."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, openapi_version="3.1.0"
    )
    languages, limits = SupportedLanguages(pairs), app.state.service.limits
    sources, targets = list(languages.sources), list(languages.targets)
    with_auto = [libretranslate.AUTO, *sources]
    schemas = document["components"]["schemas"]
    problem = native.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {"Problem": problem, **problem.pop("$defs")}
    bounds = {
        "TranslateRequest.num_best": limits.max_alternatives_within_beam + 1,
        "TranslateRequest.beam": limits.max_beam,
        "TranslateRequest.num_samples": limits.max_beam,
        "TranslateRequest.deadline_seconds": limits.deadline_seconds,
        "ScoreRequest.deadline_seconds": limits.deadline_seconds,
    }
    for place, maximum in bounds.items():
        _get_property(schemas, place)["maximum"] = maximum
    for name in ("TranslateRequest", "ScoreRequest", "InspectionRequest"):
        _get_property(schemas, f"{name}.source")["enum"] = with_auto if name == "TranslateRequest" else sources
        _get_property(schemas, f"{name}.target")["enum"] = targets
    values: dict[str, Any] = {
        "sources-or-auto": with_auto,
        "targets": targets,
        "deepl-sources": [*deepl.list_language_codes(sources, "sources"), ""],
        "deepl-targets": deepl.list_language_codes(targets, "targets"),
        "max_alternatives": limits.max_alternatives_within_beam,
    }
    document = dict(_fill(document, values))
    if app.state.authorization.is_required:
        _describe_security(document)
    return document


def _describe_security(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = _SCHEMES
    for path, methods in document["paths"].items():
        for operation in methods.values():
            tag = operation["tags"][0]
            if tag in _SECURITY and path not in _WITHOUT_KEY:
                in_body: _Security = [{}] if "requestBody" in operation and tag != "Transduce" else []
                operation["security"] = [*_SECURITY[tag], *in_body]
    document["paths"]["/metrics"]["get"]["security"] = _HEADER


def _get_property(schemas: dict[str, Any], place: str) -> dict[str, Any]:
    schema, _, name = place.partition(".")
    found: dict[str, Any] = schemas[schema]["properties"][name]
    return found["anyOf"][0] if "anyOf" in found else found


def _fill(node: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Insert languages and limits where dialects refer to them by `x-languages` and `x-limit`."""
    if isinstance(node, list):
        return [_fill(one, values) for one in node]
    if not isinstance(node, dict):
        return node
    filled = {name: _fill(value, values) for name, value in node.items() if not name.startswith("x-")}
    if "x-languages" in node:
        filled["enum"] = [*values[node["x-languages"]], *([None] if "null" in node["type"] else [])]
    if "x-limit" in node:
        limit = int(values[node["x-limit"]])
        if node["type"] == "string":
            filled["enum"] = [str(number) for number in range(limit + 1)]
        else:
            filled["maximum"] = limit
    return filled
