import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from transduce.serving.logs import LogFormat, failure, start_logging

SECRET = "Xyzzyplugh"


@pytest.fixture
def log() -> Iterator[Callable[..., list[str]]]:
    """Start to log in a format, and get the next so many lines."""
    loggers = [logging.getLogger(name) for name in ("transduce.serving", "uvicorn", "asyncio")]
    before = [(one.handlers, one.level, one.propagate) for one in loggers]
    stream = io.StringIO()

    def start(log_format: LogFormat) -> None:
        start_logging(log_format)
        (handler,) = loggers[0].handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(stream)

    def take(count: int, log_format: LogFormat | None = None) -> list[str]:
        # A line is written behind its answer.
        for _ in range(500):
            if stream.getvalue().count("\n") >= count:
                break
            time.sleep(0.01)
        found = stream.getvalue().splitlines()
        stream.truncate(stream.seek(0))
        if log_format is not None:
            start(log_format)
        assert len(found) == count
        return found

    start("json")
    yield take
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.fixture
def lines(log: Callable[..., list[str]]) -> Callable[[int], list[dict[str, Any]]]:
    """The next so many lines of JSON."""
    return lambda count: [json.loads(line) for line in log(count)]


def test_a_line_for_each_request(client: httpx.Client, lines: Any) -> None:
    client.post("/v1/translate", json={"text": "Sun."}, headers={"X-Request-ID": "mine-1"})
    (line,) = lines(1)
    assert line.keys() == {"time", "level", "message", "request_id", "method", "route", "pair", "status", "seconds"}
    told = ("level", "message", "request_id", "method", "route", "pair", "status")
    assert [line[name] for name in told] == ["info", "request", "mine-1", "POST", "/v1/translate", "en-de", 200]


def test_nothing_that_anybody_wrote_is_logged_or_counted(client: httpx.Client, lines: Any) -> None:
    """Not in texts, addresses, names of parameters, headers or methods, and not where it goes wrong."""
    client.post("/translate", params={"q": SECRET, "source": "en", "target": "de", "api_key": SECRET})
    client.post("/translate", json={"q": SECRET, "source": SECRET, "target": SECRET, SECRET: SECRET})
    client.post("/v1/translate", json={"text": SECRET, "beam": SECRET, SECRET: 1})
    client.post("/v1/translate", json={"text": SECRET, "require": [SECRET] * 3})
    client.post("/v1/translate", json={"text": SECRET, "source": SECRET})
    client.post("/v1/inspect", json={"text": SECRET * 400})
    client.get(f"/{SECRET}")
    client.get(f"/page/{SECRET}")
    client.request(SECRET.upper(), "/translate")
    client.get("/health", headers={"X-Request-ID": f"{SECRET} {SECRET}", "Authorization": f"Bearer {SECRET}"})
    found = lines(10)
    assert SECRET.lower() not in json.dumps(found).lower()
    assert SECRET.lower() not in client.get("/metrics").text.lower()


def test_a_request_has_a_name(client: httpx.Client) -> None:
    assert client.get("/health", headers={"X-Request-ID": "a.b_c-1"}).headers["X-Request-ID"] == "a.b_c-1"
    made = [
        client.get("/health", headers={"X-Request-ID": given}).headers["X-Request-ID"]
        for given in ("", "a b", "x" * 65)
    ]
    assert all(len(one) == 32 for one in made)
    assert len(set(made)) == 3


def test_an_error_that_nobody_expected(server: Any, lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets its name, and the log its place; neither what it says."""

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(server.reception.service, "translate", fail)
    for path, asked, name in (
        ("/translate", {"q": "Sun.", "source": "en", "target": "de"}, "error"),
        ("/v2/translate", {"text": ["Sun."], "source_lang": "en", "target_lang": "de"}, "message"),
        ("/v1/translate", {"text": "Sun."}, "detail"),
    ):
        answer = httpx.post(server.url + path, json=asked)
        assert answer.status_code == 500
        assert answer.json()[name] == "the service has failed at this request; its log says at which place"
        error, request = lines(2)
        assert (error["level"], error["error"], request["level"]) == ("error", "ZeroDivisionError", "warning")
        assert error["places"][-1].endswith(" fail")
        assert error["request_id"] == request["request_id"] == answer.headers["X-Request-ID"]
        assert SECRET not in json.dumps([error, request, answer.text])


def test_lines_for_people(client: httpx.Client, log: Any) -> None:
    log(0, "text")
    client.get("/v1/models", headers={"X-Request-ID": "mine"})
    (line,) = log(1)
    assert " info request request_id=mine method=GET route=/v1/models status=200 seconds=" in line


def test_tracebacks_of_others_say_places_only(lines: Any) -> None:
    assert failure(ZeroDivisionError(SECRET)) == {"error": "ZeroDivisionError", "places": []}
    logging.getLogger("uvicorn.error").error("failed", exc_info=ZeroDivisionError(SECRET))
    (line,) = lines(1)
    assert (line["message"], line["error"]) == ("failed", "ZeroDivisionError")
    assert SECRET not in json.dumps(line)


def test_errors_that_nobody_has_asked_for_say_nothing(lines: Any) -> None:
    """A loop writes them behind its message."""
    logging.getLogger("asyncio").error("Future exception was never retrieved\nfuture: %r", ZeroDivisionError(SECRET))
    (line,) = lines(1)
    assert line["message"] == "Future exception was never retrieved"
