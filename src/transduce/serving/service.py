"""The service: admission of requests, their deadlines, and the processing of a text: language, markup, sentences,
batch.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Any, TypeVar

from pydantic import Field

from transduce.documents import read_formatted_document
from transduce.documents.markup import MarkupRules, Passage, split_markup
from transduce.errors import ConfigError, DeadlineExceededError, DrainingError, TooLongError, UnknownPairError
from transduce.inspection import InspectionRequest
from transduce.serving.models import (
    DetectedLanguage,
    LanguagePair,
    LoadedModel,
    ModelInfo,
    Models,
    ModelSettings,
    SupportedLanguages,
    is_detectable,
    rank_languages,
)
from transduce.serving.monitoring import Metrics
from transduce.serving.scheduling import Limits
from transduce.serving.scheduling.batching import Batcher
from transduce.serving.scheduling.tasks import (
    InspectionTask,
    ScoringTask,
    TranslatedText,
    TranslationTask,
    prepare_pairs,
    prepare_texts,
    raise_if_over,
)
from transduce.serving.tracing import record_span
from transduce.text import Glossary
from transduce.text.languages import load_language_identifier
from transduce.translation import DescribedFields, PairScore, TranslationOptions
from transduce.translation.documents import find_passage_tags, write_translation

CHARACTERS_PER_TOKEN = 4
"""Approximate number of characters per token, to estimate the size of texts whose tokens are not counted yet."""

PREPARING_THREADS = 4
"""Number of requests split into sentences concurrently, so that a single sentence need not wait for a book."""

CERTAIN_PROBABILITY = 0.9
"""Probability above which a text is considered to be in the target language, and is not translated. One or two words
common to both languages, such as "Hotel", get less; a sentence gets more."""

_ResultT = TypeVar("_ResultT")

_TaggedPassage = tuple[Passage, str]
"""A passage, and the language tag that the model needs for it; usually an empty one."""


@dataclass(frozen=True)
class TranslationRequest:
    """Texts to be translated.

    Args:
        texts: may be sentences, documents or empty strings.
        source: language code of a model; None: detected for each text.
        target: language code of a model.
        options: the options of the translation.
        markup: rules for the markup of the texts; None for plain text.
        deadline_seconds: for the whole request; at most `Limits.deadline_seconds`, the default.
        glossary: terms besides those of the options, of any number, as only those that occur in the texts are searched
            for.
    """

    texts: Sequence[str]
    source: str | None
    target: str
    options: TranslationOptions = TranslationOptions()  # noqa: RUF009 - frozen
    markup: MarkupRules | None = None
    deadline_seconds: float | None = None
    glossary: Glossary | None = None


@dataclass(frozen=True)
class TranslationResponse(DescribedFields):
    """The translations of all texts."""

    target: Annotated[str, Field(examples=["de"])]
    """Language code of the translations."""

    translations: list[TranslatedText]
    """A translation for each text, in order."""


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document.

    Args:
        content: the file.
        source: language code, given or detected.
        num_characters: characters of its text, with the tags that stand for its formatting.
    """

    content: bytes
    source: str
    num_characters: int


@dataclass(frozen=True)
class _InputText:
    """A text of a request, its language, and the parts of its markup (none for plain text)."""

    text: str
    parts: Sequence[str | Passage]
    language: DetectedLanguage

    def make_translation(self, translation: str) -> TranslatedText:
        """Make the result for a text that was not translated as plain text."""
        return TranslatedText(translation, None, (), (), *self.language)


class Service:
    """Translates, scores and inspects for many concurrent requests, with one model per language pair.

    All methods are called in one event loop, and requests within `admit`, so that `drain` waits for them. Cancelling a
    caller stops its work. Besides the errors listed for each method, requests raise `UnknownPairError` if no model has
    the languages, `TooLongError`, `QueueFullError`, `DeadlineExceededError`, and `DrainingError` if the service stops
    before they are done.

    Args:
        models: bundles, folders of runs, or for another engine folders exported to it.
        settings: settings for loading them.
        limits: limits on requests.
        report: is called with each one-line message to the operator.
        warn: is called instead with each message that requires action; default: `report`.
    """

    def __init__(
        self,
        models: Sequence[Path],
        settings: ModelSettings,
        *,
        limits: Limits | None = None,
        report: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.metrics = Metrics()
        load_language_identifier()  # imported now, so that the first request does not wait
        self.num_characters = 0
        """Number of characters translated since the start."""
        self._models = Models(models, settings, self.metrics, report, warn or report)
        self._batcher = Batcher(self.limits, self.metrics)
        # A separate worker, as one inspection takes as long as hundreds of sentences, which would wait for it.
        self._inspector = Batcher(self.limits, self.metrics)
        self._preparing = ThreadPoolExecutor(PREPARING_THREADS, "preparing")
        # One at a time, beside the preparation of texts, as a document of megabytes takes memory and seconds.
        self._documents = ThreadPoolExecutor(1, "documents")
        self._num_waiting_characters = self._num_requests = 0
        self._is_idle = asyncio.Event()
        self._is_open = False  # for admission
        self._is_running = False
        self._watcher: asyncio.Task[None] | None = None

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """The loaded models."""
        return self._models.infos

    @property
    def languages(self) -> SupportedLanguages:
        """Languages of the loaded models."""
        return SupportedLanguages(one.pair for one in self.models)

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and tested, and requests are admitted."""
        return self._is_open

    async def start(self) -> None:
        """Load the models, test each by a translation, and then admit requests.

        Raises:
            BundleError: a model is missing or damaged.
            ConfigError: a model has no recorded languages, two have the same pair, or the engine, device or precision
                is not available.
            MissingExtraError: the engine is not installed.
        """
        await asyncio.to_thread(self._models.load)
        self._batcher.start(self._models.num_workers)
        self._inspector.start(1)
        self._watcher = asyncio.create_task(self._models.watch(self.limits.reload_seconds))
        self._is_idle.set()
        self._is_open = self._is_running = True

    async def drain(self) -> None:
        """Admit no more requests and finish the accepted ones; those not finished within `Limits.drain_seconds` raise
        `DrainingError`.
        """
        self._is_open = False
        if self._watcher is not None:
            self._watcher.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.drain_seconds):
                await self._is_idle.wait()
        self._is_running = False
        await self._batcher.stop()
        await self._inspector.stop()
        for executor in (self._preparing, self._documents):
            executor.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Admit a request, which may call the service several times within the context."""
        if not self._is_open:
            raise _make_closed_error()
        self._num_requests += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._num_requests -= 1
            if not self._num_requests:
                self._is_idle.set()

    async def translate(
        self, request: TranslationRequest, report_pair: Callable[[str], None] = lambda _: None
    ) -> TranslationResponse:
        """Translate texts; a text that is almost certainly in the target language already is returned unchanged.

        Args:
            request: its size, options and deadline are checked.
            report_pair: is called with the languages once they are known, as in "en-de", or "*-de" for several sources.

        Raises:
            ConfigError: options contradict each other, or are not supported by the model, engine or service.
            UnsatisfiableError: a text has no translation that satisfies the options.
        """
        self._check_request(request)
        async with self._limit_time(request.deadline_seconds):
            with record_span("find languages", texts=len(request.texts), characters=sum(map(len, request.texts))):
                inputs = await asyncio.to_thread(self._read_texts, request)
            found = await self._translate_from_all(inputs, request, report_pair)
        self.num_characters += sum(map(len, request.texts))
        return TranslationResponse(request.target, found)

    async def _translate_from_all(
        self, inputs: Sequence[_InputText], request: TranslationRequest, report_pair: Callable[[str], None]
    ) -> list[TranslatedText]:
        """Translate texts whose languages are known, those of each language by its model, at the same time."""
        indices: defaultdict[str, list[int]] = defaultdict(list)
        for index, one in enumerate(inputs):
            indices[one.language.language].append(index)
        report_pair(f"{next(iter(indices)) if len(indices) == 1 else '*'}-{request.target}")
        translations: dict[int, TranslatedText] = {}

        async def translate_from(source: str) -> None:
            of_source = [inputs[index] for index in indices[source]]
            pair = source, request.target
            if request.source is None and source == request.target and self._models.find(pair) is None:
                found = [one.make_translation(one.text) for one in of_source]
            else:
                found = await self._translate_inputs(pair, of_source, request)
            translations.update(zip(indices[source], found, strict=True))

        await _gather_or_cancel([translate_from(source) for source in indices])
        return [translations[index] for index in range(len(inputs))]

    async def translate_document(
        self,
        content: bytes,
        ending: str,
        source: str | None,
        target: str,
        report_pair: Callable[[str], None] = lambda _: None,
        glossary: Glossary | None = None,
    ) -> TranslatedDocument:
        """Translate a document as one text with markup, within the limits of any request.

        Args:
            content: the file.
            ending: its format, one of `transduce.documents.FORMATS`.
            source: language code of a model; None: detected.
            target: language code of a model.
            report_pair: as for `translate`.
            glossary: terms with the translations that they must have.

        Raises:
            DocumentError: the document is damaged, too large when unpacked, or of another format.
        """
        run = partial(self._run, self._documents)
        async with self._limit_time(None):
            document = await run(read_formatted_document, content, ending)
            request = TranslationRequest([document.text], source, target, markup=document.rules, glossary=glossary)
            (found,) = (await self.translate(request, report_pair)).translations
            written = await run(write_translation, document, found.text, found.source, target)
        return TranslatedDocument(written, found.source, len(document.text))

    async def score(
        self, pair: LanguagePair, pairs: Sequence[tuple[str, str]], *, deadline_seconds: float | None = None
    ) -> list[PairScore]:
        """Score each target as the translation of its source; see `transduce.translation.score_pairs`.

        Raises:
            ConfigError: the engine is not the native one.
        """
        model = self._find_model(pair)
        sides = [side for sides in pairs for side in sides]
        self.check_size(len(pairs), sides)
        model.translator.make_forced_decoder("scores")
        async with self._limit_time(deadline_seconds):
            with self._reserve_room(sides):
                prepared = await self._prepare(prepare_pairs, model, pairs)
            return await self._batcher.submit(ScoringTask(model), prepared)

    async def inspect(self, pair: LanguagePair, request: InspectionRequest) -> dict[str, Any]:
        """Inspect a translation, and return the `InspectionDocument` as a JSON object.

        Inspections are computed one at a time, concurrently with translations.

        Raises:
            ConfigError: the engine is not the native one.
            UserError: the text is longer than the limit of an inspection.
        """
        model = self._find_model(pair)
        model.translator.make_forced_decoder("inspections")
        self.check_size(1, [request.text, request.reference or ""])
        task = InspectionTask(model)
        async with self._limit_time(None):
            with self._reserve_room([request.text]):
                try:
                    # An inspection is a batch by itself: it counts as a whole batch of tokens, within the limit of the
                    # queue.
                    num_tokens = min(self.limits.batch_tokens, self.limits.max_queue_tokens // 2)
                    documents = await self._inspector.submit(task, [(request, num_tokens)])
                finally:
                    task.is_over.set()  # the deadline may pass, or the client disconnect, during the computation
                return dict(documents[0])

    def check_size(self, num_texts: int, texts: Sequence[str]) -> None:
        """Check that texts are within the limits of a request.

        Args:
            num_texts: number of texts, or of pairs.
            texts: whose characters are counted.

        Raises:
            TooLongError: there are too many texts or characters.
        """
        limits = self.limits
        for count, unit, limit in (
            (num_texts, "texts", limits.max_texts),
            (sum(map(len, texts)), "characters", limits.max_characters),
        ):
            if count > limit:
                raise TooLongError(f"{count:,} {unit}: this service accepts at most {limit:,} per request; split it")

    def _check_request(self, request: TranslationRequest) -> None:
        options = request.options
        phrases = [options.prefix, *options.require, *options.forbid, *options.glossary, *options.glossary.values()]
        self.check_size(len(request.texts), [*request.texts, *phrases])
        self._check_num_characters(request.texts)  # of all languages together, each of which reserves room for itself
        self.limits.check_options(options)
        if request.markup and (
            options.num_best > 1 or options.prefix or options.require or options.forbid or options.align
        ):
            raise ConfigError(
                "alternatives, prefixes, phrases and alignments need plain text: leave them or the markup out"
            )
        if request.markup:
            options.check_for_document()

    @asynccontextmanager
    async def _limit_time(self, deadline_seconds: float | None) -> AsyncIterator[None]:
        """Cancel the context and all work submitted in it at the deadline."""
        limit = self.limits.deadline_seconds
        seconds = limit if deadline_seconds is None else deadline_seconds
        if not 0 < seconds <= limit:
            raise ConfigError(f"deadline_seconds = {seconds}: must be above 0 and at most {limit:g}")
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise DeadlineExceededError(f"not finished within {seconds:g} s: send less text, or retry later") from None

    @property
    def _max_waiting_characters(self) -> int:
        return CHARACTERS_PER_TOKEN * self.limits.max_queue_tokens

    def _check_num_characters(self, texts: Sequence[str]) -> int:
        """Count the characters of texts, of which a request may have half of those that may wait.

        Raises:
            TooLongError: there are more.
        """
        num_characters, maximum = sum(map(len, texts)), self._max_waiting_characters // 2
        if num_characters > maximum:
            raise TooLongError(
                f"{num_characters:,} characters: this service accepts at most {maximum:,} per request; split it"
            )
        return num_characters

    @contextmanager
    def _reserve_room(self, texts: Sequence[str]) -> Iterator[None]:
        """Limit the total characters of texts whose tokens are not counted yet. As in the queue, a request may use half
        of the free space, so that there is always room for a short one.

        Raises:
            QueueFullError: there are too many at present.
            TooLongError: there always will be.
        """
        num_characters = self._check_num_characters(texts)
        if num_characters > (self._max_waiting_characters - self._num_waiting_characters) // 2:
            raise self._batcher.make_queue_full_error()
        self._num_waiting_characters += num_characters
        try:
            yield
        finally:
            self._num_waiting_characters -= num_characters

    def _find_model(self, pair: LanguagePair) -> LoadedModel:
        if not self._is_running:
            raise _make_closed_error()
        model = self._models.find(pair)
        if model is None:
            known = ", ".join("-".join(one.pair) for one in self.models)
            raise UnknownPairError(f"no model translates from {pair[0]!r} to {pair[1]!r}; there are {known}")
        return model

    def _read_texts(self, request: TranslationRequest) -> list[_InputText]:
        inputs = []
        for text in request.texts:
            parts = split_markup(text, request.markup) if request.markup else []
            shown = text
            if request.markup:
                shown = "\n".join("".join(part.get_texts()) for part in parts if isinstance(part, Passage))
            inputs.append(_InputText(text, parts, self._detect_language(request, shown)))
        return inputs

    def _detect_language(self, request: TranslationRequest, text: str) -> DetectedLanguage:
        """Detect the language of a text; returns the target, for which no model exists, only if almost certain: the
        text is then not translated.

        Where a source language is unknown to the detector, its texts would look like the target's: all are translated.
        """
        if request.source is not None:
            return DetectedLanguage(request.source, 1.0)
        sources = self.languages.get_sources(request.target)
        if not sources:  # no model will be found, which raises the error
            return DetectedLanguage("auto", 0.0)
        ranked = rank_languages(text, tuple(dict.fromkeys((*sources, request.target))))
        least = CERTAIN_PROBABILITY if all(map(is_detectable, sources)) else math.inf
        return next(one for one in ranked if one.language in sources or one.probability > least)

    async def _translate_inputs(
        self, pair: LanguagePair, inputs: Sequence[_InputText], request: TranslationRequest
    ) -> list[TranslatedText]:
        if request.markup is None:
            texts = [one.text for one in inputs]
            translated = await self._translate_texts(pair, texts, request.options, request.glossary)
            return [
                replace(text, source_probability=one.language.probability)
                for text, one in zip(translated, inputs, strict=True)
            ]
        tags = await asyncio.to_thread(self._find_passage_tags, pair, inputs)
        passages = [passage for own in tags for passage in own.items()]
        markups = await self._translate_passages(pair, passages, request)
        return [
            one.make_translation(
                "".join(part if isinstance(part, str) else markups[part, own[part]] for part in one.parts)
            )
            for one, own in zip(inputs, tags, strict=True)
        ]

    def _find_passage_tags(self, pair: LanguagePair, inputs: Sequence[_InputText]) -> list[dict[Passage, str]]:
        """The passages of each text, with the language tag that the model needs for each; usually an empty one."""
        model = self._models.find(pair)
        passages = ([part for part in one.parts if isinstance(part, Passage)] for one in inputs)
        if model is None:  # which raises an error later
            return [dict.fromkeys(own, "") for own in passages]
        return [find_passage_tags(model.translator.tokenizer, own) for own in passages]

    async def _translate_passages(
        self, pair: LanguagePair, passages: Sequence[_TaggedPassage], request: TranslationRequest
    ) -> dict[_TaggedPassage, str]:
        """Translate passages of markup, each with its language tag.

        Tags of the markup follow the words that they mark if the engine can align words, but not in samples, which are
        drawn without the constraints that place tags.
        """
        model = self._models.find(pair)
        can_place_tags = model is not None and model.info.can_align and not request.options.num_samples
        marked = await asyncio.to_thread(_mark_tags, passages) if can_place_tags else {}
        options = request.options
        kept = options.model_copy(update={"protect": list(dict.fromkeys((*options.protect, "tag")))})
        marked_texts = [(text, tag) for (_, tag), text in marked.items()]
        translations = await self._translate_in_chunks(pair, marked_texts, kept, request.glossary)
        markups = await asyncio.to_thread(_restore_tags, dict(zip(marked, translations, strict=True)))
        in_parts = [passage for passage in passages if passage not in markups]
        texts = [(text, tag) for passage, tag in in_parts for text in passage.get_texts()]
        parts = iter(await self._translate_in_chunks(pair, texts, options, request.glossary))
        return markups | {(passage, tag): passage.replace_texts(parts) for passage, tag in in_parts}

    async def _translate_in_chunks(
        self,
        pair: LanguagePair,
        texts: Sequence[tuple[str, str]],
        options: TranslationOptions,
        glossary: Glossary | None,
    ) -> list[str]:
        """Translate passages, each with its language tag; a single text may have more of them than a request has
        texts.
        """
        size = self.limits.max_texts
        found: list[str] = []
        for start in range(0, len(texts), size):
            plain, tags = zip(*texts[start : start + size], strict=True)
            chunk = await self._translate_texts(pair, plain, options, glossary, tags)
            found += [one.text for one in chunk]
        return found

    async def _translate_texts(
        self,
        pair: LanguagePair,
        texts: Sequence[str],
        options: TranslationOptions,
        glossary: Glossary | None,
        tags: Sequence[str] = (),
    ) -> list[TranslatedText]:
        """Split plain texts into sentences, and translate them in batches with those of other requests."""
        model = self._find_model(pair)
        self.limits.check_options(options, model.translator.search)
        with self._reserve_room(texts):
            is_over = Event()
            try:
                if glossary is not None:
                    check_waiting = partial(raise_if_over, is_over, "these texts")
                    terms = await self._prepare(glossary.select_terms, texts, check_waiting)
                    options = options.model_copy(update={"glossary": {**terms, **options.glossary}})
                prepared = await self._prepare(prepare_texts, model, texts, options, is_over, tags)
            finally:
                is_over.set()  # the deadline may have passed, or the client disconnected
        sentences = await self._batcher.submit(TranslationTask(model, options), prepared.sentences)
        return prepared.join_translations(sentences, pair[0])

    async def _prepare(self, function: Callable[..., _ResultT], *arguments: Any) -> _ResultT:  # noqa: ANN401
        """Call a function in a thread, as splitting a book into sentences takes seconds."""
        with record_span("prepare"):
            return await self._run(self._preparing, function, *arguments)

    async def _run(self, executor: ThreadPoolExecutor, function: Callable[..., _ResultT], *arguments: Any) -> _ResultT:  # noqa: ANN401
        """Call a function in a thread; raises `DrainingError` if the service stops before it has begun."""
        if not self._is_running:
            raise _make_closed_error()
        call = executor.submit(function, *arguments)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_running or (task is not None and task.cancelling()):  # the caller was cancelled
                raise
            raise _make_closed_error() from None


def _mark_tags(passages: Sequence[_TaggedPassage]) -> dict[_TaggedPassage, str]:
    """The marked text of each passage with tags; called in a thread, as a long text takes some tenths of a second."""
    return {one: one[0].to_marked_text() for one in dict.fromkeys(passages) if one[0].get_marks()}


def _restore_tags(translations: Mapping[_TaggedPassage, str]) -> dict[_TaggedPassage, str]:
    """The markup of each passage whose translation has all tags; called in a thread, too."""
    restored = ((one, one[0].restore_tags(text)) for one, text in translations.items())
    return {one: markup for one, markup in restored if markup is not None}


async def _gather_or_cancel(awaitables: Sequence[Awaitable[None]]) -> None:
    """Wait for all; if one fails, cancel the others and raise the first error."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _make_closed_error() -> DrainingError:
    return DrainingError("the service is not accepting requests: it is starting or stopping; retry later")
