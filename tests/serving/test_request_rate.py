from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving.request_errors import RateExceeded
from transduce.serving.request_rate import RequestRate


def test_a_bucket_fills_up_steadily() -> None:
    now = 100.0
    rate = RequestRate(60, lambda: now)
    for _ in range(60):
        rate.count("a")
    with pytest.raises(RateExceeded, match="60 requests a minute") as raised:
        rate.count("a")
    assert raised.value.retry_after == 1
    rate.count("b")
    now += 2
    rate.count("a")
    rate.count("a")
    with pytest.raises(RateExceeded):
        rate.count("a")
    now += 3600  # not more than it holds
    for _ in range(60):
        rate.count("a")
    with pytest.raises(RateExceeded):
        rate.count("a")


def test_0_is_any_number() -> None:
    rate = RequestRate(0)
    for _ in range(1_000):
        rate.count("a")


def test_clients_are_forgotten_before_they_fill_memory() -> None:
    rate = RequestRate(1, lambda: 0.0)
    for number in range(20_000):
        rate.count(str(number))
    assert len(rate._buckets) == 10_000


def test_each_dialect_says_when_to_ask_again(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, rate=1)
    assert httpx.get(f"{server.url}/v1/models").status_code == 200
    for path, name in (("/v1/models", "detail"), ("/v2/usage", "message")):
        answer = httpx.get(server.url + path)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["Retry-After"]) <= 60
        assert "1 requests a minute" in answer.json()[name]
    assert httpx.get(f"{server.url}/readyz").status_code == 200
