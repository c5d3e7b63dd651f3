"""In which language a text is taken to be, and what follows from it."""

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from transduce.documents import FormattedDocument, read_formatted_document
from transduce.documents.markup import MarkupRules
from transduce.errors import (
    ConfigError,
    DeadlineExceededError,
    DrainingError,
    QueueFullError,
    TooLongError,
    UnknownPairError,
    UserError,
)
from transduce.inspection import InspectionRequest, inspect_text
from transduce.serving import service as service_module
from transduce.serving.models import ModelSettings
from transduce.serving.scheduling import Limits, tasks
from transduce.serving.scheduling.tasks import PreparedTexts, TranslatedText, TranslationTask, prepare_texts
from transduce.serving.service import PREPARING_THREADS, Service, TranslationRequest
from transduce.translation import ForcedDecoder, TranslationOptions, Translator, score_pairs

EN_DE = ("en", "de")
UNSPLIT = TranslationOptions(split_sentences=False)
Sentences = Callable[..., list[str]]


@pytest.fixture(scope="module")
def small_queue(make_running: Callable[..., Any], bundle: Path) -> Any:
    return make_running(bundle, limits=Limits(max_queue_tokens=100))


async def translate(
    service: Service,
    pair: tuple[str, str],
    texts: Sequence[str],
    options: TranslationOptions = TranslationOptions(),  # noqa: B008 - frozen
    deadline_seconds: float | None = None,
) -> list[TranslatedText]:
    """Admits a request, as a dialect does, and gives its translations."""
    with service.admit():
        request = TranslationRequest(texts, *pair, options, deadline_seconds=deadline_seconds)
        return (await service.translate(request)).translations


def served(
    test: Callable[[Service], Awaitable[None]], *models: Path, limits: Limits | None = None, **options: Any
) -> list[str]:
    """Runs the test with a service that has started, and gives what it said."""
    said: list[str] = []

    async def run() -> None:
        service = Service(models, ModelSettings(**{"device": "cpu"} | options), limits=limits, report=said.append)
        assert not service.is_ready
        torch.set_num_threads(2)  # two batches at a time, on any machine
        await service.start()
        torch.set_num_threads(1)
        assert service.is_ready
        try:
            await test(service)
        finally:
            await service.drain()
        assert not service.is_ready

    asyncio.run(run())
    return said


@pytest.mark.exhaustive
def test_whatever_is_asked_together_each_gets_what_it_would_get_alone(
    bundle: Path, offline: Translator, make_sentences: Sentences
) -> None:
    texts = [make_sentences(count, seed=count) for count in (1, 12, 2, 1, 20)]
    assert len({text for some in texts for text in offline.translate(some)}) > 20

    async def check(service: Service) -> None:
        found = await asyncio.gather(*(translate(service, EN_DE, some, UNSPLIT) for some in texts))
        for some, answers in zip(texts, found, strict=True):
            expected = offline.find_translations(some)
            assert [answer.text for answer in answers] == [one.text for one in expected]
            assert [answer.score for answer in answers] == pytest.approx(
                [one.alternatives[0].score for one in expected], abs=1e-4
            )
        for some, answers in zip(texts, found, strict=True):
            (alone,) = await translate(service, EN_DE, some[:1], UNSPLIT)
            assert alone.text == answers[0].text

    served(check, bundle)


def test_a_text_keeps_what_stands_between_its_sentences(bundle: Path, offline: Translator) -> None:
    text = "Sun moon.  River stone!\n\n - Bird tree. \n"

    async def check(service: Service) -> None:
        sun, river, bird = offline.translate(["Sun moon.", "River stone!", "Bird tree."])
        (answer,) = await translate(service, EN_DE, [text])
        assert answer.text == f"{sun}  {river}\n\n - {bird} \n"
        assert [sentence.source for sentence in answer.sentences] == ["Sun moon.", "River stone!", "Bird tree."]
        assert sum(len(sentence.tokens) for sentence in answer.sentences) > 3
        assert [one.text for one in await translate(service, EN_DE, ["", " \n", "?! …", "🙂"])] == [
            "",
            " \n",
            "?! …",
            "🙂",
        ]
        assert await translate(service, EN_DE, []) == []

    served(check, bundle)


def test_alternatives_are_those_of_the_search(bundle: Path, offline: Translator) -> None:
    async def check(service: Service) -> None:
        options = TranslationOptions(num_best=4, split_sentences=False)
        (answer,) = await translate(service, EN_DE, ["Sun moon."], options)
        (expected,) = offline.with_search({"beam": 4}).find_translations(["Sun moon."], num_best=4)
        assert [answer.text, *(one.text for one in answer.alternatives)] == [one.text for one in expected.alternatives]
        both = (await translate(service, EN_DE, ["Sun moon. River stone!"], TranslationOptions(num_best=2)))[0]
        (second,) = both.alternatives
        assert second.text == " ".join(sentence.translations[1].text for sentence in both.sentences)

    served(check, bundle)


def test_what_is_asked_for_is_there(bundle: Path) -> None:
    async def check(service: Service) -> None:
        (required,) = await translate(
            service, EN_DE, ["Sun moon. River."], TranslationOptions(require=("lamp",), beam=8)
        )
        assert required.text.split().count("lamp") + required.text.split().count("lamp.") == 1
        assert len(required.sentences) == 1
        (prefixed,) = await translate(service, EN_DE, ["Sun moon."], TranslationOptions(prefix="Door"))
        assert prefixed.text.startswith("Door")
        url = "See https://example.org/x for sun."
        (kept,) = await translate(service, EN_DE, [url], TranslationOptions(protect=("url",)))
        assert kept.text.count("https://example.org/x") == 1
        assert kept.sentences[0].how is not None
        (term,) = await translate(service, EN_DE, ["The sun."], TranslationOptions(glossary={"sun": "Sonne"}))
        assert "Sonne" in term.text
        (aligned,) = await translate(service, EN_DE, ["Sun moon."], TranslationOptions(align=True))
        assert re.fullmatch(r"\d+-\d+( \d+-\d+)*", aligned.sentences[0].alignment or "")
        drawn = [await translate(service, EN_DE, ["Sun."], TranslationOptions(num_samples=3, seed=4)) for _ in range(2)]
        assert drawn[0] == drawn[1]

    served(check, bundle)


def test_what_cannot_be_granted_is_said(bundle: Path) -> None:
    async def check(service: Service) -> None:
        with pytest.raises(UserError, match=r"sun moon.*meets the constraints"):
            await translate(service, EN_DE, ["sun moon " * 30], TranslationOptions(require=("lamp",)))
        with pytest.raises(ConfigError, match="max_length = 1 leaves room for `</s>` only"):
            await translate(service, EN_DE, ["Sun."], TranslationOptions(max_length=1))
        with pytest.raises(ConfigError, match="num_best = 3: must be from 1 to the beam, 2"):
            await translate(service, EN_DE, ["Sun."], TranslationOptions(num_best=3, beam=2))
        with pytest.raises(ConfigError, match="beam = 17: this service allows at most 16"):
            await translate(service, EN_DE, ["Sun."], TranslationOptions(beam=17))
        with pytest.raises(ConfigError, match="cannot be combined"):
            await translate(service, EN_DE, ["Sun."], TranslationOptions(protect=("url",), forbid=("x",)))
        with pytest.raises(UnknownPairError, match="no model translates from 'de' to 'en'; there are en-de"):
            await translate(service, ("de", "en"), ["Sun."])
        with pytest.raises(ConfigError, match="deadline_seconds = 61"):
            await translate(service, EN_DE, ["Sun."], deadline_seconds=61.0)

    served(check, bundle)


def test_size_is_checked_before_anything_is_done(bundle: Path) -> None:
    async def check(service: Service) -> None:
        with pytest.raises(TooLongError, match="4 texts: this service accepts at most 3"):
            await translate(service, EN_DE, ["a"] * 4)
        options = TranslationOptions(prefix="ab", require=["c"], forbid=["de"], glossary={"f": "gh"})
        with pytest.raises(TooLongError, match="21 characters: this service accepts at most 20"):
            await translate(service, EN_DE, ["a" * 13], options)
        with pytest.raises(TooLongError, match="24 characters"):
            await service.score(EN_DE, [("a" * 12, "b" * 12)])
        with pytest.raises(TooLongError, match="4 texts"):
            await service.score(EN_DE, [("a", "b")] * 4)
        assert len(await service.score(EN_DE, [("a", "b")] * 3)) == 3
        await translate(service, EN_DE, ["a " * 10])

    served(check, bundle, limits=Limits(max_texts=3, max_characters=20))


def test_marks_for_tags_do_not_count_as_text(bundle: Path) -> None:
    async def check(service: Service) -> None:
        text = "<p>" + "<i>a</i> " * 20 + "</p>"
        request = TranslationRequest([text], "en", "de", markup=MarkupRules())
        assert (await service.translate(request)).translations[0].text

    served(check, bundle, limits=Limits(max_characters=200))


@pytest.mark.parametrize("num_samples", [0, 1])
def test_passages_of_markup_have_the_language_tag_of_the_text(tagged_bundle: Path, num_samples: int) -> None:
    """In parts as well as with tags that follow their words, which samples exclude."""
    page = "<p>&gt;&gt;{}&lt;&lt; sun moon</p><p>river <b>stone</b> bird</p><p>&gt;&gt;fr&lt;&lt; tree <i>road</i></p>"

    async def check(service: Service) -> None:
        options = TranslationOptions(num_samples=num_samples)
        pages = [page.format("de"), page.format("fr")]
        request = TranslationRequest(pages, "en", "de", markup=MarkupRules(), options=options)
        sources: list[str] = []
        submit = service._batcher.submit

        async def watch(task: TranslationTask, sentences: Any) -> Any:
            sources.extend(one.text for one, _ in sentences)
            return await submit(task, sentences)

        service._batcher.submit = watch  # type: ignore[method-assign]
        await service.translate(request)
        words = {(word, one.split()[0]) for one in sources for word in re.findall(r"[a-z]{3,}", one)}
        both = {(word, tag) for word in ("sun", "moon", "river", "stone", "bird") for tag in (">>de<<", ">>fr<<")}
        assert words == both | {("tree", ">>fr<<"), ("road", ">>fr<<")}

    served(check, tagged_bundle)


def test_a_deadline_ends_a_request_and_what_it_waits_for(bundle: Path, make_sentences: Sentences) -> None:
    async def check(service: Service) -> None:
        with pytest.raises(DeadlineExceededError, match=r"not finished within 0\.001 s"):
            await translate(service, EN_DE, make_sentences(200), UNSPLIT, deadline_seconds=0.001)
        assert (await translate(service, EN_DE, ["Sun."]))[0].text
        assert service.metrics.registry.get_sample_value("transduce_queue_sentences") == 0

    served(check, bundle)


def test_more_than_may_wait_is_refused(bundle: Path, make_sentences: Sentences) -> None:
    async def check(service: Service) -> None:
        requests = [translate(service, EN_DE, make_sentences(10, seed), UNSPLIT) for seed in range(12)]
        found = await asyncio.gather(*requests, return_exceptions=True)
        refused = [one for one in found if isinstance(one, QueueFullError)]
        assert refused
        assert all(one.retry_after >= 1 for one in refused)
        done = [one for one in found if not isinstance(one, QueueFullError)]
        assert done
        assert all(isinstance(one, list) and len(one) == 10 for one in done)

    served(check, bundle, limits=Limits(max_queue_tokens=300))


@pytest.mark.parametrize(
    ("path", "status", "asked"),
    [
        ("/v1/translate", 413, {"text": ["Sun and moon. "] * 29}),
        ("/v1/translate", 413, {"text": "<p>Sun and moon. </p>" * 29, "format": "html"}),
        ("/v1/translate", 413, {"text": "Sun and moon. " * 14}),
        ("/v1/score", 413, {"pairs": [{"text": "Sun and moon. ", "translation": "Sonne und Mond."}] * 29}),
        ("/translate", 400, {"q": "Sun and moon. " * 29, "source": "en", "target": "de"}),
        ("/v2/translate", 413, {"text": ["Sun and moon. " * 29], "target_lang": "DE"}),
    ],
)
def test_more_than_ever_fits_into_the_queue_is_not_to_be_sent_again(
    small_queue: Any, path: str, status: int, asked: dict[str, Any]
) -> None:
    """Whether that is known by its characters, 200 at most, or only by its tokens, 50 at most."""
    answer = httpx.post(small_queue.url + path, json=asked)
    assert (answer.status_code, "Retry-After" in answer.headers) == (status, False)
    message = next(iter(reversed(answer.json().values())))
    assert re.search("(characters|tokens): this service accepts at most (200|50) per request; split it", message)


def test_long_texts_that_are_prepared_leave_room_for_short_ones(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def prepare(*arguments: Any) -> PreparedTexts:
        assert may_end.wait(30)
        return prepare_texts(*arguments)

    monkeypatch.setattr(service_module, "prepare_texts", prepare)

    async def check(service: Service) -> None:
        def has_waiting(num_characters: int) -> bool:
            return service._num_waiting_characters == num_characters

        requests = []
        for length, waiting in ((200, 200), (100, 300), (50, 350), (13, 363)):  # of 400, half of what is left
            requests.append(asyncio.create_task(translate(service, EN_DE, ["7" * length])))
            await until(partial(has_waiting, waiting))
        with pytest.raises(QueueFullError):
            await translate(service, EN_DE, ["7" * 19])
        may_end.set()
        assert len(await asyncio.gather(*requests)) == 4

    served(check, bundle, limits=Limits(max_queue_tokens=100))


def test_scores_are_those_of_scoring_and_a_poisoned_pair_fails_alone(
    make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_bundle(tmp_path / "learned", positions="learned", max_positions=48)
    good = [("sun moon", "stone"), ("", "bird"), ("", "")]
    poisoned = [*good, ("sun", "lamp " * 60)]

    async def check(service: Service) -> None:
        requests = [service.score(EN_DE, pairs) for pairs in (good, poisoned, good[::-1])]
        first, error, last = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(error, UserError)
        assert str(error).startswith("pair 4: the target has")
        assert "learned positions up to 48" in str(error)
        expected = score_pairs(ForcedDecoder.load(path, device="cpu"), good)
        for found in (first, last[::-1] if isinstance(last, list) else []):
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)

    served(check, path)


def test_an_inspection_is_the_document(bundle: Path) -> None:
    async def check(service: Service) -> None:
        document = await service.inspect(EN_DE, InspectionRequest(text="Sun moon.", include=["search"]))
        (answer,) = await translate(service, EN_DE, ["Sun moon."], UNSPLIT)
        assert document["target"]["text"] == answer.text
        assert document["model"]["name"] == "small"
        assert document["model"]["digest"] == service.models[0].digest
        with pytest.raises(UserError, match="is blank"):
            await service.inspect(EN_DE, InspectionRequest(text=" "))

    served(check, bundle)


@pytest.mark.exhaustive
def test_draining_finishes_what_was_accepted_and_takes_nothing_more(
    bundle: Path, offline: Translator, make_sentences: Sentences
) -> None:
    texts = make_sentences(30)

    async def run() -> None:
        service = Service([bundle], ModelSettings(device="cpu"))
        await service.start()
        accepted = [asyncio.create_task(translate(service, EN_DE, [text], UNSPLIT)) for text in texts]
        await asyncio.sleep(0)
        draining = asyncio.create_task(service.drain())
        await asyncio.sleep(0)
        assert not service.is_ready
        with pytest.raises(DrainingError):
            await translate(service, EN_DE, ["Sun."])
        found = await asyncio.gather(*accepted)
        await draining
        assert [answer.text for (answer,) in found] == offline.translate(texts)

    asyncio.run(run())


def test_what_does_not_end_in_time_is_told_so(bundle: Path, make_sentences: Sentences) -> None:
    async def run() -> None:
        service = Service([bundle], ModelSettings(device="cpu"), limits=Limits(drain_seconds=0.01))
        await service.start()
        accepted = asyncio.create_task(translate(service, EN_DE, make_sentences(200), UNSPLIT))
        await asyncio.sleep(0)
        await service.drain()
        with pytest.raises(DrainingError):
            await accepted

    asyncio.run(run())


def test_what_waits_for_a_thread_as_the_service_stops_is_told_so(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def read(content: bytes, ending: str) -> FormattedDocument:
        has_begun.set()
        assert may_end.wait(30)
        return read_formatted_document(content, ending)

    monkeypatch.setattr(service_module, "read_formatted_document", read)

    async def test(service: Service) -> None:
        async def translate_document() -> None:
            with service.admit():
                await service.translate_document(b"The sun.", ".txt", *EN_DE)

        requests = [asyncio.create_task(translate_document()) for _ in range(3)]
        await until(has_begun.is_set)
        requests[2].cancel()  # a client that leaves
        await service.drain()
        may_end.set()
        found = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(one) for one in found] == [DrainingError, DrainingError, asyncio.CancelledError]

    served(test, bundle, limits=Limits(drain_seconds=0.01))


async def until(has_happened: Callable[[], bool]) -> None:
    for _ in range(1500):
        if has_happened():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


@pytest.mark.exhaustive
def test_a_changed_model_takes_the_place_of_the_old_one_and_no_request_is_lost(
    make_bundle: Callable[..., Path], tmp_path: Path, make_sentences: Sentences
) -> None:
    path, texts = make_bundle(tmp_path / "model"), make_sentences(4)
    old = Translator.load(path, device="cpu", precision="float32").translate(texts)
    new_path = make_bundle(tmp_path / "new", seed=1)
    new = Translator.load(new_path, device="cpu", precision="float32").translate(texts)
    assert old != new

    async def check(service: Service) -> None:
        digest = service.models[0].digest
        answers: list[str] = []
        stopped = False

        async def client(number: int) -> None:
            while not stopped:
                (answer,) = await translate(service, EN_DE, [texts[number]], UNSPLIT)
                assert answer.text in {old[number], new[number]}
                answers.append(answer.text)

        clients = [asyncio.create_task(client(number)) for number in range(len(texts))]
        path.rename(tmp_path / "aside")
        new_path.rename(path)
        await until(lambda: service.models[0].digest != digest)
        stopped = True
        await asyncio.gather(*clients)
        assert len(answers) >= len(texts)
        assert [answer.text for answer in await translate(service, EN_DE, texts, UNSPLIT)] == new
        assert service.metrics.registry.get_sample_value("transduce_reloads_total", {"outcome": "loaded"}) == 1

    said = served(check, path, limits=Limits(reload_seconds=0.05))
    assert any("reloaded" in line for line in said)


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["damaged", "other languages"])
def test_a_new_model_that_does_not_do_is_refused_and_the_old_one_stays(
    damage: str, make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_bundle(tmp_path / "model")

    async def check(service: Service) -> None:
        before = await translate(service, EN_DE, ["Sun moon."], UNSPLIT)
        new = make_bundle(tmp_path / "new", seed=1, target="fr")
        if damage == "damaged":
            os.truncate(new / "weights.safetensors", 1000)
        path.rename(tmp_path / "aside")
        new.rename(path)
        refused = lambda: service.metrics.registry.get_sample_value(  # noqa: E731
            "transduce_reloads_total", {"outcome": "refused"}
        )
        await until(lambda: refused() == 1)
        assert await translate(service, EN_DE, ["Sun moon."], UNSPLIT) == before
        await asyncio.sleep(0.2)
        assert refused() == 1

    said = served(check, path, limits=Limits(reload_seconds=0.05))
    refusals = [line for line in said if "has changed and could not be loaded" in line]
    assert len(refusals) == 1
    assert "the old model is kept" in refusals[0]


@pytest.mark.exhaustive
def test_several_pairs_are_served_and_each_by_one_model(make_bundle: Callable[..., Path], tmp_path: Path) -> None:
    forth, back = make_bundle(tmp_path / "forth"), make_bundle(tmp_path / "back", seed=2, source="de", target="en")

    async def check(service: Service) -> None:
        assert [(one.source, one.target, one.model) for one in service.models] == [
            ("en", "de", "forth"),
            ("de", "en", "back"),
        ]
        for pair, path in ((EN_DE, forth), (("de", "en"), back)):
            (answer,) = await translate(service, pair, ["Sun moon."], UNSPLIT)
            assert [answer.text] == Translator.load(path, device="cpu", precision="float32").translate(["Sun moon."])

    served(check, forth, back)
    nothing = make_bundle(tmp_path / "nothing", source="")
    for models, message in (
        ((forth, forth.parent / "." / "back", forth.parent / "back"), "both translate de-en: give one of them"),
        ((nothing,), "has no recorded languages"),
        ((), "no model to serve: give a bundle"),
    ):
        with pytest.raises(ConfigError, match=message):
            asyncio.run(Service(models, ModelSettings(device="cpu")).start())


def test_another_engine_translates_and_does_not_look_inside(bundle: Path, offline: Translator, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")

    async def check(service: Service) -> None:
        (answer,) = await translate(service, EN_DE, ["Sun moon."], UNSPLIT)
        assert [answer.text] == offline.translate(["Sun moon."])
        assert service.models[0].engine == "ctranslate2"
        for request in (
            service.score(EN_DE, [("Sun.", "Moon.")]),
            service.inspect(EN_DE, InspectionRequest(text="Sun.")),
            translate(service, EN_DE, ["Sun."], TranslationOptions(protect=("url",))),
        ):
            with pytest.raises(ConfigError, match="native"):
                await request

    served(check, bundle, engine="ctranslate2")


def test_preparing_ends_with_the_request(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many texts that take long to be divided were given up, the next request does not wait for them."""
    finished: list[str] = []

    def watched(*arguments: Any) -> PreparedTexts:
        prepared = prepare_texts(*arguments)
        finished.append(arguments[1][0])
        return prepared

    monkeypatch.setattr(service_module, "prepare_texts", watched)

    async def check(service: Service) -> None:
        for _ in range(2 * PREPARING_THREADS):
            with pytest.raises(DeadlineExceededError):
                await translate(service, EN_DE, ["a " * 50_000] * 9, deadline_seconds=0.05)
        assert (await translate(service, EN_DE, ["Sun."]))[0].text
        service._preparing.shutdown()  # waits for its threads
        assert finished == ["Sun."]

    served(check, bundle, limits=Limits(max_characters=1_000_000, max_queue_tokens=1_000_000))


@pytest.mark.exhaustive
@pytest.mark.parametrize("leaves", [False, True])
def test_an_inspection_holds_no_core_for_nobody(make_bundle: Callable[..., Path], tmp_path: Path, leaves: bool) -> None:
    """Whether its time is over or its client has left, it is given up at the next step."""
    slow = make_bundle(tmp_path / "slow", num_encoder_layers=6, num_decoder_layers=6, num_heads=16)
    request = InspectionRequest(text="Sun and moon and river and stone.", include=["pruned_heads", "continuations"])

    async def check(service: Service) -> None:
        asking = asyncio.create_task(service.inspect(EN_DE, request))
        if leaves:
            while not service._inspector._num_busy:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
            asking.cancel()
        with pytest.raises(asyncio.CancelledError if leaves else DeadlineExceededError):
            await asking
        while service._inspector._num_busy:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        assert b"transduce_failed_sentences_total 1.0" in service.metrics.export()[0]

    served(check, slow, limits=Limits(deadline_seconds=60.0 if leaves else 0.3))


@pytest.mark.exhaustive
def test_nobody_waits_for_an_inspection_but_other_inspections(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are asked for, on however few cores: one at a time is computed, and sentences go by."""
    begun, opened = threading.Semaphore(0), threading.Event()

    def slow(*arguments: Any, **options: Any) -> dict[str, Any]:
        begun.release()
        assert opened.wait(30)
        return inspect_text(*arguments, **options)

    monkeypatch.setattr(tasks, "inspect_text", slow)

    async def check(service: Service) -> None:
        async def inspect() -> dict[str, Any]:
            with service.admit():
                return await service.inspect(EN_DE, InspectionRequest(text="Sun.", include=[]))

        asking = [asyncio.create_task(inspect()) for _ in range(5)]
        await asyncio.to_thread(begun.acquire)
        for number in range(5):
            assert (await translate(service, EN_DE, ["Moon " * number + "sun."], UNSPLIT))[0].text
        assert not begun.acquire(blocking=False)
        assert service.metrics.registry.get_sample_value("transduce_queue_sentences") == 4
        asking[4].cancel()
        draining = asyncio.create_task(service.drain())
        await asyncio.sleep(0)
        opened.set()
        assert all(one["target"]["text"] for one in await asyncio.gather(*asking[:4]))
        await draining

    served(check, bundle)


def test_an_inspection_fits_into_any_queue(bundle: Path) -> None:
    async def check(service: Service) -> None:
        assert (await service.inspect(EN_DE, InspectionRequest(text="Sun.", include=[])))["target"]["text"]

    served(check, bundle, limits=Limits(max_queue_tokens=100))


ENGLISH = "A man and a woman walk through the woods with their dog."
GERMAN = "Ein Mann und eine Frau gehen mit ihrem Hund durch den Wald."
FOREIGN = "<p title='der die das und nicht sich auf mit dem den ist im auch'></p>\n" * 60
"""Attributes in German: more than the detector reads."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("head", ["", FOREIGN, "<style>" + GERMAN * 40 + "</style>", f"<!-- {GERMAN * 40} -->"])
@pytest.mark.parametrize("markup", [("/translate", "q", "format"), ("/v2/translate", "text", "tag_handling")])
def test_the_language_of_markup_is_that_of_its_text(
    client: httpx.Client, head: str, markup: tuple[str, str, str]
) -> None:
    path, name, kind = markup
    for text, language in ((ENGLISH, "en"), (GERMAN, "de")):
        page = head + "".join(f"<p><b>{word}</b></p>" if "." in word else f"{word} " for word in text.split(" "))
        asked: dict[str, object] = {name: [page], kind: "html"}
        asked |= {"source": "auto", "target": "de"} if path == "/translate" else {"target_lang": "DE"}
        found = client.post(path, json=asked).json()
        if path == "/translate":
            source, translated = found["detectedLanguage"][0]["language"], found["translatedText"][0]
        else:
            one = found["translations"][0]
            source, translated = one["detected_source_language"].lower(), one["text"]
        assert source == language
        assert (translated == page) == (language == "de")
        assert translated.startswith(head)


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", ["Password", "Winter", "Stop", "OK", "Hotel"])
def test_a_word_that_may_be_of_the_target_language_is_translated(client: httpx.Client, text: str) -> None:
    found = client.post("/translate", json={"q": text, "source": "auto", "target": "de"}).json()
    assert found["detectedLanguage"]["language"] == "en"
    assert found["detectedLanguage"]["confidence"] <= 50
    direct = client.post("/translate", json={"q": text, "source": "en", "target": "de"}).json()
    assert found["translatedText"] == direct["translatedText"]


@pytest.mark.parametrize("text", ["7.", "Sun moon."])
def test_a_model_from_a_language_to_itself_translates_what_is_detected(
    make_bundle: Callable[..., Path], tmp_path: Path, text: str
) -> None:
    """A text without letters has no probability in any language."""
    path = make_bundle(tmp_path / "itself", target="en")

    async def check(service: Service) -> None:
        async with asyncio.timeout(20):
            (answer,) = (await service.translate(TranslationRequest([text], None, "en", UNSPLIT))).translations
        assert answer.source == "en"
        translator = Translator.load(path, device="cpu", precision="float32")
        assert [answer.text] == ([text] if text == "7." else translator.translate([text]))

    served(check, path)


def test_text_in_a_language_that_cannot_be_detected_is_translated(
    make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    """Wolof, which py3langid does not know, had been taken for the only other language: the target."""
    path = make_bundle(tmp_path / "wolof", source="wo", target="en")

    async def check(service: Service) -> None:
        async with asyncio.timeout(20):
            request = TranslationRequest(["Nanga def? Maa ngi fi rekk."], None, "en", UNSPLIT)
            (answer,) = (await service.translate(request)).translations
        assert answer.source == "wo"
        assert answer.text != request.texts[0]

    served(check, path)


def test_a_sentence_of_the_target_language_is_its_own_translation(client: httpx.Client) -> None:
    found = client.post("/translate", json={"q": GERMAN, "source": "auto", "target": "de"}).json()
    assert found["detectedLanguage"]["language"] == "de"
    assert found["translatedText"] == GERMAN
