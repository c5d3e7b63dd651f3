"""Traces for OpenTelemetry: a span of each request, and within it spans of its preparation and its computation.

Spans have routes, languages, sizes and times, and neither texts nor API keys nor addresses. Before `start_tracing`
nothing is recorded.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from threading import Thread

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce import __version__
from transduce.errors import MissingExtraError

FLUSH_SECONDS = 3.0
"""Maximum time that the last spans may take to be sent when the server ends."""

CLIENT_LEFT = 499
"""Status that is logged and traced if the client disconnects before the response, as in nginx."""

_TRACER = trace.get_tracer("transduce", __version__)


def start_tracing(collector: str) -> Callable[[], None]:
    """Record spans from now on, and send them to a collector by OTLP over HTTP.

    The variables of OpenTelemetry are respected: those of the exporter, as OTEL_EXPORTER_OTLP_HEADERS, those of the
    sampler, as OTEL_TRACES_SAMPLER, and OTEL_SERVICE_NAME.

    Args:
        collector: its address, as in http://localhost:4318, with or without /v1/traces.

    Returns:
        A function that sends the last spans, to be called before the process ends.

    Raises:
        MissingExtraError: the package that sends spans is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("opentelemetry-exporter-otlp-proto-http", "traces", "--traces") from None
    name = os.environ.get("OTEL_SERVICE_NAME", "transduce")
    resource = Resource.create({"service.name": name, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # which could wait for half a minute
    endpoint = f"{collector.rstrip('/').removesuffix('/v1/traces')}/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)

    def send_last_spans() -> None:
        # A thread, as `force_flush` ignores its timeout in OpenTelemetry 1.45.
        sending = Thread(target=provider.force_flush, daemon=True)
        sending.start()
        sending.join(FLUSH_SECONDS)

    return send_last_spans


@contextmanager
def record_span(name: str, **attributes: int) -> Iterator[Span]:
    """Record the time of the block as a part of the current span.

    Errors are left out: they may contain texts of users.

    Args:
        name: of the span.
        attributes: sizes, each by its name without "transduce.".
    """
    named = {f"transduce.{key}": value for key, value in attributes.items()}
    with _TRACER.start_as_current_span(
        name, attributes=named, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


class RequestTrace:
    """Middleware that records a span of each request, in the trace that its header `traceparent` names, if it has one.

    The span is named by the route, as a path may contain texts and API keys.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        status = CLIENT_LEFT

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Without `tracestate`, in which a client may write anything.
        header = Headers(scope=scope).get("traceparent", "")
        parent = TraceContextTextMapPropagator().extract({"traceparent": header})
        with _TRACER.start_as_current_span(
            "request", parent, kind=SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                await self._app(scope, receive, send_and_note_status)
            finally:
                route = getattr(scope.get("route"), "path", "")
                span.update_name(f"{scope['method']} {route}" if route else "request")
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                span.set_attribute("transduce.pair", scope.get("state", {}).get("pair", ""))
                if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    span.set_status(StatusCode.ERROR)
