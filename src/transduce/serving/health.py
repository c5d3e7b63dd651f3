"""Whether the service lives and is ready, what it counts, and the page; none of it needs a key but the counts."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

from transduce.serving.pages import content_security_policy, page, page_file
from transduce.serving.reception import reception_of

_OK = {"status": "ok"}
_STATUS = {
    "application/json": {
        "schema": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
        "example": _OK,
    }
}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

PROBES = frozenset({"/livez", "/health", "/v2/health/live", "/readyz", "/v2/health/ready"})
"""What is asked with HEAD, too; the server leaves the body out of such an answer by itself."""

router = APIRouter(tags=["Operation"])


@router.head("/livez", include_in_schema=False)
@router.head("/health", include_in_schema=False)
@router.head("/v2/health/live", include_in_schema=False)
@router.get("/livez", summary="Live?", responses={200: {"description": "It answers.", "content": _STATUS}})
@router.get("/health", summary="Live?", responses={200: {"description": "It answers.", "content": _STATUS}})
@router.get("/v2/health/live", summary="Live?", responses={200: {"description": "It answers.", "content": _STATUS}})
async def live() -> JSONResponse:
    """Always, as long as it answers at all."""
    return JSONResponse(_OK)


_READY: dict[int | str, dict[str, Any]] = {
    200: {"description": "Requests are taken.", "content": _STATUS},
    503: {"description": "Models are loading, or the service is about to end.", "content": _STATUS},
}


@router.head("/readyz", include_in_schema=False)
@router.head("/v2/health/ready", include_in_schema=False)
@router.get("/readyz", summary="Ready?", responses=_READY)
@router.get("/v2/health/ready", summary="Ready?", responses=_READY)
async def ready(request: Request) -> JSONResponse:
    """All models are loaded and have translated something, and the service has not been told to end."""
    if reception_of(request).is_ready:
        return JSONResponse(_OK)
    headers = {"Retry-After": "5", "Connection": "close"}
    return JSONResponse({"status": "not ready"}, HTTPStatus.SERVICE_UNAVAILABLE, headers)


@router.get(
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


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def index() -> HTMLResponse:
    """The page that looks inside."""
    return HTMLResponse(page(), headers={"Content-Security-Policy": content_security_policy()})


@router.get("/page/{name}", include_in_schema=False)
async def file(name: str) -> Response:
    """A file of the page."""
    found = page_file(name)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "Not Found")
    return Response(found.content, media_type=found.media_type)
