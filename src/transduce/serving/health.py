"""Whether the service lives and is ready, what it counts, and the page; none of it needs a key but the counts."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

from transduce.serving.pages import content_security_policy, page, page_file
from transduce.serving.reception import Reception

_OK = {"status": "ok"}
_STATUS = {
    "application/json": {
        "schema": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
        "example": _OK,
    }
}

router = APIRouter(tags=["Operation"])


def _reception(request: Request) -> Reception:
    found: Reception = request.app.state.reception
    return found


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


@router.get("/readyz", summary="Ready?", responses=_READY)
@router.get("/v2/health/ready", summary="Ready?", responses=_READY)
async def ready(request: Request) -> JSONResponse:
    """All models are loaded and have translated something, and the service has not been told to end."""
    if _reception(request).is_ready:
        return JSONResponse(_OK)
    return JSONResponse({"status": "not ready"}, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "5"})


@router.get(
    "/metrics",
    summary="Count",
    responses={200: {"description": "In the format of Prometheus.", "content": {"text/plain": {}}}},
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Requests, latency, queue, batches, padding, models and reloads; nothing about clients or texts."""
    reception = _reception(request)
    reception.authorization.check(request)
    content, media_type = reception.service.metrics.exposition()
    return Response(content, headers={"Content-Type": media_type})


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
