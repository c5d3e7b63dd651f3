"""The app: dialects, and what stands around all of them."""

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from transduce import __version__
from transduce.errors import Refusal, UserError
from transduce.serving import deepl, health, libretranslate, native, reference_page
from transduce.serving.body_limit import BodyLimit
from transduce.serving.disconnection import Disconnection
from transduce.serving.error_answers import error_answer
from transduce.serving.logs import RequestLog
from transduce.serving.openapi import openapi_document
from transduce.serving.rate_limit import RateLimit
from transduce.serving.reception import Reception, reception_of
from transduce.serving.security_headers import SecurityHeaders

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
    for router in (health.router, libretranslate.router, deepl.router, native.router, reference_page.router):
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
            also = ["HEAD"] if request.url.path in health.PROBES else []
            answer.headers["Allow"] = ", ".join(sorted([*map(str.upper, methods), *also]))
    return answer
