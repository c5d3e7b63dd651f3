"""Requests are counted before anything else is done with them."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from transduce.serving.error_answers import error_answer
from transduce.serving.health import PROBES
from transduce.serving.metrics import Metrics
from transduce.serving.request_errors import RateExceeded
from transduce.serving.request_rate import RequestRate

_UNCOUNTED = PROBES | {"/", "/docs", "/openapi.json", "/languages", "/frontend/settings"}
_UNCOUNTED_BELOW = ("/page/", "/docs/")


class RateLimit:
    """Refuses whoever asks too often, before a key is looked at or a body read.

    So keys cannot be tried out one after the other, whatever else is wrong with a request. What needs no key and
    computes nothing is not counted.

    Args:
        app: what answers everybody else.
        rate: knows how often clients may ask.
        metrics: are told of refusals.
    """

    def __init__(self, app: ASGIApp, rate: RequestRate, metrics: Metrics) -> None:
        self._app = app
        self._rate = rate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and _is_counted(scope["path"]):
            client = Request(scope).client
            try:
                self._rate.count(client.host if client else "")
            except RateExceeded as error:
                await error_answer(error, scope["path"], self._metrics)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_counted(path: str) -> bool:
    return path not in _UNCOUNTED and not path.startswith(_UNCOUNTED_BELOW)
