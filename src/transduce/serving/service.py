"""The service: loaded models, and requests of many at a time, whoever carries them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from pydantic import ValidationError

from transduce.config import first_problem
from transduce.errors import ConfigError
from transduce.inspection import InspectionRequest
from transduce.interop import NATIVE
from transduce.serving.answers import LanguagePair, TranslatedText
from transduce.serving.batching import Batcher
from transduce.serving.limits import Limits
from transduce.serving.metrics import Metrics
from transduce.serving.models import LoadedModel, Models, ModelSettings
from transduce.serving.preparation import prepared_pairs, prepared_texts
from transduce.serving.refusals import DeadlineExceeded, Draining, TooLong, UnknownPair
from transduce.serving.wishes import check_options, count_characters
from transduce.serving.work import Inspecting, Scoring, Translating
from transduce.translation import PairScore, TranslationOptions

CHARACTERS_OF_A_TOKEN = 4
"""About; fewer for what is rare. What waits for its tokens to be counted is measured so."""

PREPARING = 4
"""Requests that are divided into sentences at a time: a one-liner need not wait for a book."""

_ResultT = TypeVar("_ResultT")

_DEFAULTS = TranslationOptions()


class Service:
    """Translates, scores and inspects for many at a time, with one model for each pair of languages.

    All methods are called in one event loop. A caller that is cancelled costs nothing more. Requests raise, besides
    what each says:

    - `Draining`: the service does not take requests (any more).
    - `UnknownPair`: no model translates between these languages.
    - `TooLong`: the texts have too many characters, or there are too many.
    - `QueueFull`: too much is waiting.
    - `DeadlineExceeded`: time was over before all was done.

    Args:
        models: bundles, folders of runs, or for another engine what was exported to it.
        engine: see `interop.load_translator`.
        device: likewise.
        precision: likewise; float32 gives a text the same translation whatever it is translated with.
        languages: codes of source and target of models that do not say theirs.
        limits: what requests may cost.
        metrics: are told what happens.
        say: is told in one line what somebody should know who looks after the service.
    """

    def __init__(
        self,
        models: Sequence[Path],
        *,
        engine: str = NATIVE,
        device: str = "auto",
        precision: str = "float32",
        languages: tuple[str, str] = ("", ""),
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.limits = limits or Limits()
        self.metrics = metrics or Metrics()
        self._models = Models(models, ModelSettings(engine, device, precision, *languages), self.metrics, say)
        self._batcher = Batcher(self.limits, self.metrics)
        # One inspection takes as long as hundreds of sentences, which would wait for it.
        self._inspector = Batcher(self.limits, self.metrics)
        self._preparing = ThreadPoolExecutor(PREPARING, "preparing")
        self._num_characters = self._num_requests = 0  # in flight
        self._is_idle = asyncio.Event()
        self._takes_requests = False
        self._watcher: asyncio.Task[None] | None = None

    @property
    def languages(self) -> tuple[LanguagePair, ...]:
        """The pairs that are loaded, in the order of the models."""
        return self._models.languages

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and have translated something, and requests are taken."""
        return self._takes_requests

    async def start(self) -> None:
        """Load the models and have each translate something; then take requests.

        Raises:
            BundleError: a model is missing or damaged.
            ConfigError: a model does not say its languages, two have the same pair, or the engine, device or precision
                is not there.
            MissingExtraError: the engine is not installed.
        """
        await asyncio.to_thread(self._models.load)
        self._batcher.start(self._models.num_lanes)
        self._inspector.start(1)
        self._watcher = asyncio.create_task(self._models.watch(self.limits.reload_seconds))
        self._is_idle.set()
        self._takes_requests = True

    async def drain(self, seconds: float | None = None) -> None:
        """Take nothing more, finish what was accepted within `seconds`, `Limits.drain_seconds` unless given, and end.

        What is not done by then is cancelled, and raises `Draining` for whoever waits for it.
        """
        self._takes_requests = False
        if self._watcher is not None:
            self._watcher.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.drain_seconds if seconds is None else seconds):
                await self._is_idle.wait()
        await self._batcher.stop()
        await self._inspector.stop()
        self._preparing.shutdown(wait=False, cancel_futures=True)

    async def translate(
        self,
        pair: tuple[str, str],
        texts: Sequence[str],
        wish: TranslationOptions = _DEFAULTS,
        *,
        deadline_seconds: float | None = None,
    ) -> list[TranslatedText]:
        """The translation of each text from `pair[0]` to `pair[1]`.

        Args:
            pair: language codes of a model, as in ("en", "de").
            texts: anything: sentences, documents, nothing.
            wish: how.
            deadline_seconds: for the whole; not more than `Limits.deadline_seconds`, which it is unless given.

        Raises:
            ConfigError: the wish contradicts itself, or asks for more than the model, its engine or the service has.
            Unsatisfiable: a text has no translation with what was asked for.
        """
        model = self._model(pair)
        check_options(wish, self.limits, model.translator.search)
        self._check_size(len(texts), texts, count_characters(wish))
        async with self._accepted(texts, deadline_seconds) as deadline:
            is_over = Event()
            try:
                prepared = await self._prepare(prepared_texts, model, texts, wish, is_over)
            finally:
                is_over.set()  # its time may be over, or its client have left
            found = await self._batcher.submit(Translating(model, wish), prepared.sentences, deadline)
            return prepared.answers(found)

    async def score(
        self, pair: tuple[str, str], pairs: Sequence[tuple[str, str]], *, deadline_seconds: float | None = None
    ) -> list[PairScore]:
        """How probable each target is as the translation of its source; see `transduce.translation.score_pairs`.

        Raises:
            ConfigError: the engine is not the native one.
            UserError: a side is longer than the learned positions of the model.
        """
        model = self._model(pair)
        sides = [side for sides in pairs for side in sides]
        self._check_size(len(pairs), sides)
        model.decoder("scores")
        async with self._accepted(sides, deadline_seconds) as deadline:
            return await self._batcher.submit(
                Scoring(model), await self._prepare(prepared_pairs, model, pairs), deadline
            )

    async def inspect(self, pair: tuple[str, str], request: dict[str, Any]) -> dict[str, Any]:
        """What happens within the model as it translates; `request` and answer: see `transduce.inspection`.

        One at a time is computed, beside translations.

        Raises:
            ConfigError: the engine is not the native one, or the request is not as it must be.
            UserError: the text is longer than an inspection shows.
        """
        model = self._model(pair)
        model.decoder("inspections")
        asked = _inspection(request)
        self._check_size(1, [asked.text, asked.reference or ""])
        work = Inspecting(model)
        async with self._accepted([asked.text]) as deadline:
            try:
                # As long as a batch may be: it is one by itself.
                documents = await self._inspector.submit(work, [(asked, self.limits.batch_tokens)], deadline)
            finally:
                work.is_over.set()  # its time may be over, or its client have left, while it is computed
            return dict(documents[0])

    def _model(self, pair: tuple[str, str]) -> LoadedModel:
        if not self._takes_requests:
            raise Draining("this service takes no requests now: it is starting, or about to end")
        model = self._models.of(pair)
        if model is None:
            known = ", ".join(f"{one.source}-{one.target}" for one in self.languages)
            raise UnknownPair(f"no model translates from {pair[0]!r} to {pair[1]!r}; there are {known}")
        return model

    def _check_size(self, num_texts: int, texts: Sequence[str], more: int = 0) -> None:
        limits = self.limits
        num_characters = sum(map(len, texts)) + more
        for count, what, most in (
            (num_texts, "texts", limits.max_texts),
            (num_characters, "characters", limits.max_characters),
        ):
            if count > most:
                raise TooLong(f"{count:,} {what}: this service takes up to {most:,} in a request; divide it")

    @asynccontextmanager
    async def _accepted(self, texts: Sequence[str], deadline_seconds: float | None = None) -> AsyncIterator[float]:
        """Within, the request is in flight and its time runs; gives the loop's time at which it is over."""
        most = self.limits.deadline_seconds
        seconds = most if deadline_seconds is None else deadline_seconds
        if not 0 < seconds <= most:
            raise ConfigError(f"deadline_seconds = {seconds}: must be above 0 and at most {most:g}")
        num_characters = sum(map(len, texts))
        if self._num_characters + num_characters > CHARACTERS_OF_A_TOKEN * self.limits.max_queue_tokens:
            raise self._batcher.full()
        self._num_characters += num_characters
        self._num_requests += 1
        self._is_idle.clear()
        try:
            async with asyncio.timeout(seconds) as timer:
                yield timer.when() or 0.0
        except TimeoutError:
            raise DeadlineExceeded(f"not done within {seconds:g} s: ask for less, or when less is waiting") from None
        finally:
            self._num_characters -= num_characters
            self._num_requests -= 1
            if not self._num_requests:
                self._is_idle.set()

    async def _prepare(self, function: Callable[..., _ResultT], *arguments: Any) -> _ResultT:  # noqa: ANN401
        """Beside the loop: a book takes seconds to be divided into sentences."""
        return await asyncio.get_running_loop().run_in_executor(self._preparing, function, *arguments)


def _inspection(request: dict[str, Any]) -> InspectionRequest:
    try:
        return InspectionRequest.model_validate(request)
    except ValidationError as error:
        raise ConfigError(first_problem(error)) from None
