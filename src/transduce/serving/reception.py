"""Where requests of all dialects come in: who asks, in which language, and in which form the text is."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from transduce.errors import ConfigError
from transduce.interop import NATIVE
from transduce.serving.answers import TranslatedText
from transduce.serving.authorization import Authorization
from transduce.serving.detection import Detected, Detector
from transduce.serving.languages import Languages
from transduce.serving.markup import Passage, Rules, divided
from transduce.serving.refusals import DeadlineExceeded, Draining, TooLong
from transduce.serving.request_rate import RequestRate
from transduce.serving.service import Service
from transduce.serving.wishes import check_options
from transduce.translation import TranslationOptions

Pair = tuple[str, str]
_ResultT = TypeVar("_ResultT")

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
    wish: TranslationOptions
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
        check_options(wish, limits)  # the service does, too, but for no texts nobody asks it
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
        kept = order.wish.model_copy(update={"protect": list(dict.fromkeys((*order.wish.protect, "tag")))})
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

    async def _texts(self, pair: Pair, texts: Sequence[str], wish: TranslationOptions, order: Order) -> list[str]:
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
