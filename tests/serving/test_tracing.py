import gzip
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from transduce.errors import MissingExtraError
from transduce.serving.tracing import start_tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

Serve = Callable[..., tuple[subprocess.Popen[bytes], str]]


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a collector, and the bodies that it has received."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
        server.shutdown()
        thread.join()


def read_spans(bodies: list[bytes]) -> list[Span]:
    return [
        span
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def read_attributes(found: Any) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in found.attributes}


def test_the_parts_of_a_request_are_sent_without_what_it_says(serve: Serve, collector: tuple[str, list[bytes]]) -> None:
    address, bodies = collector
    process, url = serve("--traces", address)
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    asked = {"text": ["Sun and moon.", "Riverstone."]}
    httpx.post(f"{url}/v1/translate?secret=hush", json=asked, headers=headers).raise_for_status()
    assert httpx.post(f"{url}/v1/translate", json={"text": "Sun.", "target": "xx"}).status_code == 404
    assert httpx.get(f"{url}/hush").status_code == 404
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    spans = read_spans(bodies)
    (request,) = [span for span in spans if span.trace_id.hex() == TRACE and span.kind == Span.SPAN_KIND_SERVER]
    assert request.name == "POST /v1/translate"
    assert request.parent_span_id.hex() == PARENT
    assert read_attributes(request) == {
        "http.route": "/v1/translate",
        "http.response.status_code": 200,
        "transduce.pair": "en-de",
    }
    parts = {span.name: span for span in spans if span.parent_span_id == request.span_id}
    assert set(parts) == {"find languages", "prepare", "compute"}
    assert read_attributes(parts["find languages"]) == {"transduce.texts": 2, "transduce.characters": 24}
    assert read_attributes(parts["compute"])["transduce.sentences"] == 2
    (event,) = parts["compute"].events
    assert event.name == "batch starts"
    assert read_attributes(event)["transduce.batch_sentences"] == 2
    for span in parts.values():
        assert request.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano
    others = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER and span is not request]
    assert sorted((span.name, read_attributes(span)["http.response.status_code"]) for span in others) == [
        ("POST /v1/translate", 404),
        ("request", 404),
    ]
    assert all(span.status.code == Status.STATUS_CODE_UNSET for span in spans)
    everything = b"".join(bodies)
    for secret in (b"hush", b"Sun", b"127.0.0.1"):
        assert secret not in everything


def test_a_collector_that_is_away_harms_nobody(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process, url = serve("--traces", f"http://127.0.0.1:{port}", "--log-format=json")
    httpx.post(f"{url}/v1/translate", json={"text": "Sun."}).raise_for_status()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"Traceback" not in said


def test_a_collector_that_never_answers_does_not_hold_up_the_end(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process, url = serve("--traces", f"http://127.0.0.1:{silent.getsockname()[1]}")
        httpx.post(f"{url}/v1/translate", json={"text": "Sun."}).raise_for_status()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert time.monotonic() - began < 9


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtraError, match=r"transduce\[traces\]"):
        start_tracing("http://localhost:4318")
