import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from transduce.serving.answers import LanguagePair
from transduce.serving.limits import Limits
from transduce.serving.metrics import Metrics

MODEL = LanguagePair("en", "de", "small", "native", "float32", "abc", 100, 40, 4)


def text_of(metrics: Metrics) -> str:
    content, media_type = metrics.exposition()
    assert media_type.startswith("text/plain")
    return content.decode()


def test_everything_that_happens_is_counted() -> None:
    metrics = Metrics()
    metrics.models_loaded((MODEL,))
    metrics.answered("/translate", 200, "en-de", 0.3)
    metrics.answered("/translate", 200, "en-de", 0.1)
    metrics.in_flight(1)
    metrics.refused("draining")
    metrics.watch_queue(lambda: 60, lambda: 3)
    metrics.watch_queue(lambda: 10, lambda: 2)
    metrics.batch_taken([0.1, 0.2, 0.3], [5, 6, 7], 3)
    metrics.batch_computed(0.5, 2)
    metrics.reloaded("refused")
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
    metrics.models_loaded((MODEL,))
    for number in range(100):
        metrics.answered("/translate", 404, f"x{number}-de", 0.1)
    metrics.answered("/translate", 200, "*-de", 0.1)
    assert set(re.findall(r'transduce_requests_total\{pair="([^"]*)"', text_of(metrics))) == {"", "*-de"}


def test_a_model_that_was_replaced_is_no_longer_listed() -> None:
    metrics = Metrics()
    metrics.models_loaded((MODEL,))
    metrics.models_loaded((LanguagePair("en", "de", "small", "native", "float32", "def", 100, 40, 4),))
    assert re.findall(r'transduce_model_info\{digest="(\w+)"', text_of(metrics)) == ["def"]


def test_services_do_not_share_figures() -> None:
    one, other = Metrics(), Metrics()
    one.refused("draining")
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
    assert ask("/v1/translate", text | {"format": "html"}) == 503
    assert ask("/v1/translate", text, headers={}) == 401
    assert ask("/translate", {"api_key": "wrong"}, headers={}) == 403
    statuses = [ask("/translate", {"q": "Sun.", "source": "en", "target": "de"}) for _ in range(6)]
    assert statuses[-1] == 429
    counted = text_of(running.reception.service.metrics)
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
    registry = running.reception.service.metrics.registry
    assert registry.get_sample_value("transduce_refusals_total", {"reason": "deadline"}) == 1
