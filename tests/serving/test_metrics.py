import re

from transduce.serving.answers import LanguagePair
from transduce.serving.metrics import Metrics

MODEL = LanguagePair("en", "de", "small", "native", "float32", "abc", 100, 40, 4)


def text(metrics: Metrics) -> str:
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
    metrics.watch_queue(lambda: 70, lambda: 5)
    metrics.batch_taken([0.1, 0.2, 0.3], [5, 6, 7], 3)
    metrics.batch_computed(0.5, 2)
    metrics.reloaded("refused")
    found = text(metrics)
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
    assert set(re.findall(r'transduce_requests_total\{pair="([^"]*)"', text(metrics))) == {"", "*-de"}


def test_a_model_that_was_replaced_is_no_longer_listed() -> None:
    metrics = Metrics()
    metrics.models_loaded((MODEL,))
    metrics.models_loaded((LanguagePair("en", "de", "small", "native", "float32", "def", 100, 40, 4),))
    assert re.findall(r'transduce_model_info\{digest="(\w+)"', text(metrics)) == ["def"]


def test_services_do_not_share_figures() -> None:
    one, other = Metrics(), Metrics()
    one.refused("draining")
    assert 'reason="draining"' not in text(other)
