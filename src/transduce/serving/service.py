"""The service."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from transduce.config import first_problem
from transduce.errors import ConfigError
from transduce.inspection import InspectionRequest
from transduce.interop import NATIVE
from transduce.serving.errors import DeadlineExceeded, Draining, TooLong, UnknownPair
from transduce.serving.limits import Limits
from transduce.serving.markup import Passage, Rules, divided
from transduce.serving.middleware import Authorization, RequestRate
from transduce.serving.models import Detected, Detector, LanguagePair, Languages, LoadedModel, Models, ModelSettings
from transduce.serving.monitoring import Metrics
from transduce.serving.scheduling.batching import Batcher
from transduce.serving.scheduling.work import (
    Inspecting,
    Scoring,
    TranslatedText,
    Translating,
    prepared_pairs,
    prepared_texts,
)
from transduce.serving.wishes import TranslationWish
from transduce.translation import PairScore

CHARACTERS_OF_A_TOKEN = 4
"""About; fewer for what is rare. What waits for its tokens to be counted is measured so."""


PREPARING = 4
"""Requests that are divided into sentences at a time: a one-liner need not wait for a book."""


_ResultT = TypeVar("_ResultT")


_DEFAULTS = TranslationWish()


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
        wish: TranslationWish = _DEFAULTS,
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
        wish.check(self.limits, model.translator.search)
        self._check_size(len(texts), texts, wish.num_characters)
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


Pair = tuple[str, str]

CERTAIN = 0.9
"""Probability above which a text is taken to be in the target language, and is not translated. A word or two that both
languages have, such as "Hotel", get less; a sentence gets more."""


@dataclass(frozen=True)
class Order:
    """Texts to be translated.

    Args:
        texts: anything.
        source: the language code of a model; None: each text's is detected.
        target: likewise.
        wish: how they are translated.
        rules: how markup is read; None for plain text.
        deadline_seconds: for the whole; None: what the service allows.
    """

    texts: Sequence[str]
    source: str | None
    target: str
    wish: TranslationWish
    rules: Rules | None = None
    deadline_seconds: float | None = None


@dataclass(frozen=True)
class Delivery:
    """The translation of one text of an order; `source` is its language, with a probability if it was detected."""

    source: str
    probability: float
    translated: TranslatedText


@dataclass(frozen=True)
class _Text:
    """A text of an order, and the parts of its markup; none of plain text."""

    text: str
    parts: Sequence[str | Passage]
    is_markup: bool

    @property
    def shown(self) -> str:
        """What a reader sees of it and is translated."""
        if not self.is_markup:
            return self.text
        return "\n".join("".join(part.texts()) for part in self.parts if isinstance(part, Passage))


class Reception:
    """Lets requests in, and brings texts into the form that the service takes, and back.

    Args:
        service: translates.
        authorization: knows the keys.
        rate: knows how often clients may ask.
        detector: knows languages.
    """

    def __init__(self, service: Service, authorization: Authorization, rate: RequestRate, detector: Detector) -> None:
        self.service = service
        self.authorization = authorization
        self.detector = detector
        self.num_characters = 0
        self.rate = rate
        self._is_open = True
        self._num_requests = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def languages(self) -> Languages:
        """Of the models that are loaded now."""
        return Languages(self.service.languages)

    @property
    def is_ready(self) -> bool:
        """Whether requests are let in, and the service takes them."""
        return self._is_open and self.service.is_ready

    @contextmanager
    def admitted(self, request: Request, key: str | None = None) -> Iterator[None]:
        """Within, a request is answered; it may ask the service for several things.

        Args:
            request: its header may have a key.
            key: as parameters have it.

        Raises:
            Draining: nobody is let in yet, or any more.
            NotAuthorized: it needs another key.
        """
        if not self.is_ready:
            raise Draining("this service takes no requests now: it is starting, or about to end")
        self.authorization.check(request, key)
        self._num_requests += 1
        self._is_empty.clear()
        try:
            yield
        finally:
            self._num_requests -= 1
            if not self._num_requests:
                self._is_empty.set()

    async def close(self) -> None:
        """Let nobody in, finish what was let in within `Limits.drain_seconds`, and end the service."""
        self._is_open = False
        until = asyncio.get_running_loop().time() + self.service.limits.drain_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._is_empty.wait()
        await self.service.drain(max(0.0, until - asyncio.get_running_loop().time()))

    async def translate(self, request: Request, order: Order) -> list[Delivery]:
        """The translation of each text; one that is in the target language already is its own.

        Raises:
            ConfigError: what is wished does not go with markup, or is more than a request may ask for.
            TransduceError: see `Service.translate`.
        """
        self._check(order)
        read, detected = await asyncio.to_thread(self._read, order)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, language in enumerate(detected):
            places[language.language].append(place)
        request.state.pair = f"{next(iter(places)) if len(places) == 1 else '*'}-{order.target}"
        found: dict[int, TranslatedText] = {}

        async def translate_from(source: str) -> None:
            chosen = [read[place] for place in places[source]]
            translated = (
                [TranslatedText(one.text, None, (), ()) for one in chosen]
                if source == order.target and order.source is None
                else await self._translated((source, order.target), chosen, order)
            )
            found.update(zip(places[source], translated, strict=True))

        await _together([translate_from(source) for source in places])
        self.num_characters += sum(map(len, order.texts))
        return [Delivery(*language, found[place]) for place, language in enumerate(detected)]

    def _check(self, order: Order) -> None:
        limits = self.service.limits
        for count, most, what in (
            (len(order.texts), limits.max_texts, "texts"),
            (sum(map(len, order.texts)), limits.max_characters, "characters"),
        ):
            if count > most:
                raise TooLong(f"{count:,} {what}: this service takes up to {most:,} in a request; divide it")
        wish = order.wish
        wish.check(limits)  # the service does, too, but for no texts nobody asks it
        if order.rules and (wish.num_best > 1 or wish.prefix or wish.require or wish.forbid or wish.align):
            raise ConfigError("alternatives, prefixes, phrases and alignments are of plain text: leave the markup out")

    def _read(self, order: Order) -> tuple[list["_Text"], list[Detected]]:
        """The texts, and the language of each."""
        rules = order.rules
        texts = [_Text(text, divided(text, rules) if rules else [], rules is not None) for text in order.texts]
        return texts, [self._detected(order, one.shown) for one in texts]

    def _detected(self, order: Order, text: str) -> Detected:
        """The language that a text is in; the target only if that is certain, as such a text is not translated."""
        if order.source is not None:
            return Detected(order.source, 1.0)
        sources = self.languages.sources_of(order.target)
        if not sources:  # the service says what there is
            return Detected("auto", 0.0)
        ranked = self.detector.rank(text, (*sources, order.target))
        return next(one for one in ranked if one.language != order.target or one.probability > CERTAIN)

    async def _translated(self, pair: Pair, texts: Sequence["_Text"], order: Order) -> list[TranslatedText]:
        if order.rules is None:
            whole = [one.text for one in texts]
            return await self.service.translate(pair, whole, order.wish, deadline_seconds=order.deadline_seconds)
        passages = [part for one in texts for part in one.parts if isinstance(part, Passage)]
        markups = iter(await self._in_time(self._translated_passages(pair, passages, order), order.deadline_seconds))
        joined = ["".join(part if isinstance(part, str) else next(markups) for part in one.parts) for one in texts]
        return [TranslatedText(text, None, (), ()) for text in joined]

    async def _in_time(self, work: Awaitable[_ResultT], deadline_seconds: float | None) -> _ResultT:
        """The result of work that asks the service several times, each of which it would give all of the time."""
        seconds = deadline_seconds or self.service.limits.deadline_seconds
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError:
            raise DeadlineExceeded(f"not done within {seconds:g} s: ask for less, or when less is waiting") from None

    async def _translated_passages(self, pair: Pair, passages: Sequence[Passage], order: Order) -> list[str]:
        """Markup of the translation of each: its tags where the words are that they marked, if the engine can tell."""
        engines = {(one.source, one.target): one.engine for one in self.service.languages}
        marks = [bool(passage.marks()) and engines.get(pair) == NATIVE for passage in passages]
        kept = replace(order.wish, protect=tuple(dict.fromkeys((*order.wish.protect, "tag"))))
        whole = [passage for passage, is_marked in zip(passages, marks, strict=True) if is_marked]
        translations = iter(await self._texts(pair, [passage.marked() for passage in whole], kept, order))
        markups = [
            passage.rebuilt(next(translations)) if is_marked else None
            for passage, is_marked in zip(passages, marks, strict=True)
        ]
        in_parts = [passage for passage, markup in zip(passages, markups, strict=True) if markup is None]
        texts = [text for passage in in_parts for text in passage.texts()]
        parts = iter(await self._texts(pair, texts, order.wish, order))
        return [
            passage.rebuilt_from_parts(next(parts) for _ in passage.texts()) if markup is None else markup
            for passage, markup in zip(passages, markups, strict=True)
        ]

    async def _texts(self, pair: Pair, texts: Sequence[str], wish: TranslationWish, order: Order) -> list[str]:
        """Translations of passages, of which a request may have more than the service takes texts at a time."""
        most = self.service.limits.max_texts
        found: list[str] = []
        for start in range(0, len(texts), most):
            chunk = texts[start : start + most]
            translated = await self.service.translate(pair, chunk, wish, deadline_seconds=order.deadline_seconds)
            found += [one.text for one in translated]
        return found


def reception_of(request: Request) -> Reception:
    """That of the app which the request is put to."""
    found: Reception = request.app.state.reception
    return found


async def _together(work: Sequence[Awaitable[None]]) -> None:
    """All of it at the same time; if some of it fails, the rest is given up, and the first error is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
