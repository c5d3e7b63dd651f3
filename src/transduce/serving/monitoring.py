"""Metrics for Prometheus, and the log: neither contains an address, an API key or a text of a user.

Names and units of metrics follow Prometheus: seconds, and `_total` for counters.
"""

import json
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LogFormat = Literal["text", "json"]

_LOGGER = logging.getLogger("transduce.serving")

_LOG_LEVELS = {
    "transduce.serving": logging.INFO,
    "uvicorn": logging.WARNING,
    "asyncio": logging.ERROR,
    "opentelemetry": logging.ERROR,
    "python_multipart": logging.ERROR,  # its warnings contain bytes of forms that it cannot parse
}

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = tuple(2.0**power for power in range(9))
_TOKENS = tuple(2.0**power for power in range(4, 13))
_MODEL_LABELS = ("model", "source", "target", "engine", "precision", "digest")


class Metrics:
    """Counters, gauges and histograms of one service, in a separate registry; metrics without labels are attributes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="transduce", registry=self.registry)
        gauge = partial(Gauge, namespace="transduce", registry=self.registry)
        histogram = partial(Histogram, namespace="transduce", registry=self.registry)
        request_labels = ("route", "status", "pair")
        self._requests = counter("requests", "Answered requests.", request_labels)
        self._seconds = histogram(
            "request_seconds", "Time from a request to its response.", request_labels, buckets=_SECONDS
        )
        self.requests_in_flight = gauge("requests_in_flight", "Requests in progress.")
        self.refusals = counter("refusals", "Rejected requests.", ("reason",))
        self._wait = histogram(
            "queue_wait_seconds", "Time from a sentence's arrival to the start of its batch.", buckets=_SECONDS
        )
        self._batch_sentences = histogram("batch_sentences", "Sentences per batch.", buckets=_SENTENCES)
        self._batch_tokens = histogram("batch_tokens", "Source tokens per batch, padding excluded.", buckets=_TOKENS)
        self._batch_seconds = histogram("batch_seconds", "Time to compute a batch.", buckets=_SECONDS)
        self._padding = counter("padding_tokens", "Padding tokens computed along with source tokens.")
        self._failures = counter("failed_sentences", "Sentences whose computation raised an error.")
        self._queues: list[tuple[Callable[[], float], Callable[[], float]]] = []
        gauge("queue_tokens", "Source tokens in the queue.").set_function(
            lambda: sum(count_tokens() for count_tokens, _ in self._queues)
        )
        gauge("queue_sentences", "Sentences in the queue.").set_function(
            lambda: sum(count_sentences() for _, count_sentences in self._queues)
        )
        self._pairs: set[str] = set()
        self._models = gauge("model_info", "1 for each loaded model.", _MODEL_LABELS)
        self.reloads = counter("reloads", "Reloads of models that changed on disk.", ("outcome",))

    def export(self) -> tuple[bytes, str]:
        """Return all metrics in the Prometheus text format, and its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def count_request(self, route: str, status: int, pair: str, seconds: float) -> None:
        """Count an answered request.

        Args:
            route: path of the route, as in "/v1/translate"; "" if no route matched.
            status: HTTP status.
            pair: languages, as in "en-de", or "*-de" for several sources; counted as "" unless a model translates them.
            seconds: from the request's arrival to the end of its response.
        """
        labels = (route, str(status), pair if pair in self._pairs else "")  # clients cannot create labels
        self._requests.labels(*labels).inc()
        self._seconds.labels(*labels).observe(seconds)

    def watch_queue(self, count_tokens: Callable[[], float], count_sentences: Callable[[], float]) -> None:
        """Add a queue whose length is exported; the lengths of several queues are summed."""
        self._queues.append((count_tokens, count_sentences))

    def record_batch_start(self, waited: Sequence[float], lengths: Sequence[int], num_padding: int) -> None:
        """Record a batch that leaves the queue: how long each sentence waited, and the tokens of each."""
        for seconds in waited:
            self._wait.observe(seconds)
        self._batch_sentences.observe(len(lengths))
        self._batch_tokens.observe(sum(lengths))
        self._padding.inc(num_padding)

    def record_batch_end(self, seconds: float, num_failed: int) -> None:
        """Record a batch that was computed."""
        self._batch_seconds.observe(seconds)
        self._failures.inc(num_failed)

    def set_models(self, models: Iterable[Mapping[str, object]]) -> None:
        """Replace the list of loaded models, each given as the fields of its `ModelInfo`."""
        self._models.clear()
        for model in models:
            self._pairs |= {f"{source}-{model['target']}" for source in (model["source"], "*")}
            self._models.labels(*(str(model[name] or "") for name in _MODEL_LABELS)).set(1)


class _LogFormatter(logging.Formatter):
    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().partition("\n")[0]  # asyncio appends the text of errors
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = dict(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[1] is not None:
            facts |= describe_failure(record.exc_info[1])
        if self._is_json:
            line = {"time": moment, "level": record.levelname.lower(), "message": message, **facts}
            return json.dumps(line, ensure_ascii=True)
        shown = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
        return f"{moment} {record.levelname.lower()} {message} {shown}".rstrip()


def start_logging(log_format: LogFormat) -> None:
    """Write the logs of the service and of its libraries to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LogFormatter(log_format))
    for name, level in _LOG_LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def log(message: str, level: int = logging.INFO, **facts: object) -> None:
    """Log one line of the service."""
    _LOGGER.log(level, message, extra={"facts": facts})


def describe_failure(error: BaseException) -> dict[str, object]:
    """Describe an unexpected error by its type and the lines that raised it, without its text."""
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return {"error": type(error).__name__, "places": places[-8:]}
