import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving.models import ModelInfo
from transduce.serving.monitoring import LogFormat, Metrics, describe_failure, start_logging
from transduce.serving.scheduling import Limits

MODEL = ModelInfo("en", "de", "small", "native", "float32", "abc", 100, "transformer", 40, 4)


def text_of(metrics: Metrics) -> str:
    content, media_type = metrics.export()
    assert media_type.startswith("text/plain")
    return content.decode()


def test_everything_that_happens_is_counted() -> None:
    metrics = Metrics()
    metrics.set_models([asdict(MODEL)])
    metrics.count_request("/translate", 200, "en-de", 0.3)
    metrics.count_request("/translate", 200, "en-de", 0.1)
    metrics.requests_in_flight.inc()
    metrics.refusals.labels("draining").inc()
    metrics.watch_queue(lambda: 60, lambda: 3)
    metrics.watch_queue(lambda: 10, lambda: 2)
    metrics.record_batch_start([0.1, 0.2, 0.3], [5, 6, 7], 3)
    metrics.record_batch_end(0.5, 2)
    metrics.reloads.labels("refused").inc()
    found = text_of(metrics)
    for line in (
        'transduce_requests_total{pair="en-de",route="/translate",status="200"} 2.0',
        'transduce_request_seconds_sum{pair="en-de",route="/translate",status="200"} 0.4',
        "transduce_requests_in_flight 1.0",
        'transduce_refusals_total{reason="draining"} 1.0',
        "transduce_queue_tokens 70.0",
        "transduce_queue_sentences 5.0",
        "transduce_queue_wait_seconds_count 3.0",
        "transduce_batch_sentences_sum 3.0",
        "transduce_batch_tokens_sum 18.0",
        "transduce_padding_tokens_total 3.0",
        "transduce_batch_seconds_sum 0.5",
        "transduce_failed_sentences_total 2.0",
        'transduce_reloads_total{outcome="refused"} 1.0',
        'transduce_model_info{digest="abc",engine="native",model="small",precision="float32",source="en",',
    ):
        assert line in found


def test_nobody_makes_labels_by_asking() -> None:
    metrics = Metrics()
    metrics.set_models([asdict(MODEL)])
    for number in range(100):
        metrics.count_request("/translate", 404, f"x{number}-de", 0.1)
    metrics.count_request("/translate", 200, "*-de", 0.1)
    assert set(re.findall(r'transduce_requests_total\{pair="([^"]*)"', text_of(metrics))) == {"", "*-de"}


def test_a_model_that_was_replaced_is_no_longer_listed() -> None:
    metrics = Metrics()
    metrics.set_models([asdict(MODEL)])
    metrics.set_models([asdict(ModelInfo("en", "de", "small", "native", "float32", "def", 100, "transformer", 40, 4))])
    assert re.findall(r'transduce_model_info\{digest="(\w+)"', text_of(metrics)) == ["def"]


def test_services_do_not_share_figures() -> None:
    one, other = Metrics(), Metrics()
    one.refusals.labels("draining").inc()
    assert 'reason="draining"' not in text_of(other)


def test_every_refusal_is_counted_once(make_running: Callable[..., Any], bundle: Path) -> None:
    key = "correct-horse-battery"
    limits = Limits(max_body_bytes=100_000, max_characters=20_000, max_texts=3, max_queue_tokens=10)
    running = make_running(bundle, limits=limits, keys=(key,), rate=10)
    known = {"Authorization": f"Bearer {key}"}

    def ask(path: str, asked: dict[str, Any], **options: Any) -> int:
        return httpx.post(running.url + path, json=asked, **{"headers": known} | options).status_code

    text = {"text": "Sun. " * 1000}
    assert ask("/v1/translate", {"text": ["Sun."] * 4}) == 413
    assert ask("/v1/translate", {"text": "Sun. " * 30_000}) == 413
    with running.service._reserve_room(["a" * 20]):
        assert ask("/v1/translate", {"text": "Sun and moon."}) == 503
    assert ask("/v1/translate", text, headers={}) == 401
    assert ask("/translate", {"api_key": "wrong"}, headers={}) == 403
    statuses = [ask("/translate", {"q": "Sun.", "source": "en", "target": "de"}) for _ in range(12)]
    assert statuses[-1] == 429
    counted = text_of(running.service.metrics)
    found = dict(re.findall(r'transduce_refusals_total\{reason="([^"]+)"\} (\S+)', counted))
    assert found == {
        "too long": "1.0",
        "body too large": "1.0",
        "queue full": "1.0",
        "not authorized": "2.0",
        "rate exceeded": f"{statuses.count(429)}.0",
    }


def test_a_deadline_counts_once_however_many_languages_a_request_has(
    make_running: Callable[..., Any], make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    models = [make_bundle(tmp_path / source, source=source, target="de") for source in ("en", "fr")]
    running = make_running(*models, limits=Limits(deadline_seconds=0.05))
    texts = ["A man and a woman walk through the woods. " * 500, "Un homme et une femme se promènent. " * 500]
    asked = {"q": texts, "source": "auto", "target": "de"}
    assert httpx.post(f"{running.url}/translate", json=asked).status_code == 504
    registry = running.service.metrics.registry
    assert registry.get_sample_value("transduce_refusals_total", {"reason": "deadline"}) == 1


SECRET = "Xyzzyplugh"


@pytest.fixture
def log() -> Iterator[Callable[..., list[str]]]:
    """Start to log in a format, and get the next so many lines."""
    loggers = [logging.getLogger(name) for name in ("transduce.serving", "uvicorn", "asyncio", "python_multipart")]
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
    time.sleep(0.1)
    while stream.getvalue():  # the last request of an earlier test is written late
        stream.truncate(stream.seek(0))
        time.sleep(0.1)
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


def test_nothing_that_anybody_wrote_is_logged_or_counted(
    client: httpx.Client, lines: Any, caplog: pytest.LogCaptureFixture
) -> None:
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
    client.post("/translate", content=SECRET, headers={"Content-Type": "multipart/form-data; boundary=a"})
    client.get("/health", headers={"X-Request-ID": f"{SECRET} {SECRET}", "Authorization": f"Bearer {SECRET}"})
    found = lines(11)
    assert SECRET.lower() not in json.dumps(found).lower()
    assert SECRET.lower() not in client.get("/metrics").text.lower()
    assert not [one for one in caplog.records if one.name.startswith("python_multipart")]  # it would show bytes


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

    monkeypatch.setattr(server.service, "translate", fail)
    for path, asked, name in (
        ("/translate", {"q": "Sun.", "source": "en", "target": "de"}, "error"),
        ("/v2/translate", {"text": ["Sun."], "source_lang": "en", "target_lang": "de"}, "message"),
        ("/v1/translate", {"text": "Sun."}, "detail"),
    ):
        answer = httpx.post(server.url + path, json=asked)
        assert answer.status_code == 500
        assert answer.json()[name] == "internal error; the log of the service shows where it occurred"
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
    assert describe_failure(ZeroDivisionError(SECRET)) == {"error": "ZeroDivisionError", "places": []}
    logging.getLogger("uvicorn.error").error("failed", exc_info=ZeroDivisionError(SECRET))
    (line,) = lines(1)
    assert (line["message"], line["error"]) == ("failed", "ZeroDivisionError")
    assert SECRET not in json.dumps(line)


def test_errors_that_nobody_has_asked_for_say_nothing(lines: Any) -> None:
    """A loop writes them behind its message."""
    logging.getLogger("asyncio").error("Future exception was never retrieved\nfuture: %r", ZeroDivisionError(SECRET))
    (line,) = lines(1)
    assert line["message"] == "Future exception was never retrieved"
