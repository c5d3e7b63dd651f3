"""Metrics and logs."""

import json
import logging
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from transduce.errors import MissingExtraError

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = tuple(2.0**power for power in range(9))
_TOKENS = tuple(2.0**power for power in range(4, 13))


class Metrics:
    """Counters, gauges and histograms of one service, in a registry of their own.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingExtraError("prometheus-client", "serve", "a service") from None
        self._prometheus = prometheus
        self.registry = registry = prometheus.CollectorRegistry()

        def histogram(name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
            return prometheus.Histogram(f"transduce_{name}", text, labels, buckets=buckets, registry=registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
            return prometheus.Counter(f"transduce_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
            return prometheus.Gauge(f"transduce_{name}", text, labels, registry=registry)

        of_request = ("route", "status", "pair")
        self._requests = counter("requests", "Requests that were answered.", of_request)
        self._seconds = histogram("request_seconds", "From a request to its answer.", _SECONDS, of_request)
        self._in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self._refusals = counter("refusals", "Requests that were not served.", ("reason",))
        self._queue_tokens = gauge("queue_tokens", "Source tokens that wait.")
        self._queue_sentences = gauge("queue_sentences", "Sentences that wait.")
        self._wait = histogram("queue_wait_seconds", "From a sentence's arrival to its batch.", _SECONDS)
        self._batch_sentences = histogram("batch_sentences", "Sentences of a batch.", _SENTENCES)
        self._batch_tokens = histogram("batch_tokens", "Source tokens of a batch, padding excluded.", _TOKENS)
        self._batch_seconds = histogram("batch_seconds", "Time to compute a batch.", _SECONDS)
        self._padding = counter("padding_tokens", "Padding that was computed with source tokens.")
        self._failures = counter("failed_sentences", "Sentences whose computation raised an error.")
        self._queues: list[tuple[Callable[[], float], Callable[[], float]]] = []
        self._queue_tokens.set_function(lambda: sum(num_tokens() for num_tokens, _ in self._queues))
        self._queue_sentences.set_function(lambda: sum(num_sentences() for _, num_sentences in self._queues))
        self._pairs: set[str] = set()
        self._models = gauge("model_info", "1 for each loaded model.", tuple(_model_labels()))
        self._reloads = counter("reloads", "Models that were changed on disk.", ("outcome",))

    def exposition(self) -> tuple[bytes, str]:
        """All of it as Prometheus reads it, and the media type of that."""
        return self._prometheus.generate_latest(self.registry), self._prometheus.CONTENT_TYPE_LATEST

    def answered(self, route: str, status: int, pair: str, seconds: float) -> None:
        """A request was answered.

        Args:
            route: the path as the service has it, as in "/v1/translate"; "" if it has none such.
            status: of HTTP.
            pair: of languages, as in "en-de", or "*-de" for several sources; counted as "" unless it is loaded.
            seconds: from its arrival to the end of its answer.
        """
        labels = (route, str(status), pair if pair in self._pairs else "")  # whoever asks cannot make new ones
        self._requests.labels(*labels).inc()
        self._seconds.labels(*labels).observe(seconds)

    def in_flight(self, change: int) -> None:
        """A request has come (1) or gone (-1)."""
        self._in_flight.inc(change)

    def refused(self, reason: str) -> None:
        """A request was not served, because of what `error_answers` says."""
        self._refusals.labels(reason).inc()

    def watch_queue(self, num_tokens: Callable[[], float], num_sentences: Callable[[], float]) -> None:
        """Whom to ask how much is waiting, beside others that are asked, too."""
        self._queues.append((num_tokens, num_sentences))

    def batch_taken(self, waited: Sequence[float], lengths: Sequence[int], num_padding: int) -> None:
        """A batch left the queue.

        Args:
            waited: seconds, of each of its sentences.
            lengths: tokens of each.
            num_padding: tokens that are computed with them.
        """
        for seconds in waited:
            self._wait.observe(seconds)
        self._batch_sentences.observe(len(lengths))
        self._batch_tokens.observe(sum(lengths))
        self._padding.inc(num_padding)

    def batch_computed(self, seconds: float, num_failed: int) -> None:
        """A batch was computed; so many of its sentences raised an error."""
        self._batch_seconds.observe(seconds)
        self._failures.inc(num_failed)

    def models_loaded(self, models: tuple[Any, ...]) -> None:
        """These are the models now."""
        self._pairs |= {f"{source}-{model.target}" for model in models for source in (model.source, "*")}
        self._models.clear()
        for model in models:
            self._models.labels(*_model_labels(model).values()).set(1)

    def reloaded(self, outcome: str) -> None:
        """A model was changed on disk, and is "loaded" or "refused"."""
        self._reloads.labels(outcome).inc()


def _model_labels(model: object = None) -> dict[str, str]:
    names = ("model", "source", "target", "engine", "precision", "digest")
    return {name: str(getattr(model, name, None) or "") for name in names}


LogFormat = Literal["text", "json"]

_LOGGER = logging.getLogger("transduce.serving")


def failure(error: BaseException) -> dict[str, object]:
    """What may be told of an error that nobody expected: its kind and place, and not what it says."""
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return {"error": type(error).__name__, "places": places[-8:]}


class _Lines(logging.Formatter):
    """Each record as one line: time, level, what happened, facts."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        message = record.getMessage().partition("\n")[0]  # asyncio writes errors, with what they say, behind it
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = dict(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[1] is not None:
            facts |= failure(record.exc_info[1])
        if self._is_json:
            line = {"time": moment, "level": record.levelname.lower(), "message": message, **facts}
            return json.dumps(line, ensure_ascii=True)
        told = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
        return f"{moment} {record.levelname.lower()} {message} {told}".rstrip()


def start_logging(log_format: LogFormat) -> None:
    """Send the log of the service, and of the server that carries it, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(log_format))
    for name, level in (("transduce.serving", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def log(text: str) -> None:
    """One line about the service itself."""
    _LOGGER.info(text)
