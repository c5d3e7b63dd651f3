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


def test_whatever_is_wrong_with_a_request_it_counts(make_running: Callable[..., Any], bundle: Path) -> None:
    """No answer says whether a key is right once there were too many requests, and each of them counts."""
    key = "correct-horse-battery"
    keys = (key, "some-other-key-of-mine", "")
    server = make_running(bundle, rate=4, keys=(key,))
    with httpx.Client(base_url=server.url) as client:

        def ask(path: str, content: str, key: str) -> int:
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
            method = "GET" if path == "/metrics" else "POST"
            return client.request(method, path, content=content, headers=headers).status_code

        paths = ("/translate", "/v2/translate", "/v1/translate", "/detect")
        assert 429 not in [ask(path, "{", key) for path in paths]
        for path in (*paths, "/metrics"):
            for content in ("{", "{" * 3_000_000, '{"api_key": "x"}'):
                assert [ask(path, content, given) for given in keys] == [429] * 3
        for path in ("/livez", "/readyz", "/health", "/languages", "/frontend/settings", "/", "/page/main.js", "/docs"):
            assert client.get(path).status_code == 200


def test_the_counts_are_counted(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, rate=3, keys=("correct-horse-battery",))
    statuses = [
        httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer wrong-key-number-{number}"}).status_code
        for number in range(5)
    ]
    assert statuses == [401, 401, 401, 429, 429]


def test_a_network_of_ipv6_is_one_client() -> None:
    """Whoever has one address of it has all 2^64."""
    rate = RequestRate(1, lambda: 0.0)
    for first, same, other in (
        ("2001:db8::1", "2001:db8:0:0:ffff::2", "2001:db8:0:1::1"),
        ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe81::1"),
        ("", "", "unknown"),
    ):
        rate.count(first)
        with pytest.raises(RateExceeded):
            rate.count(same)
        rate.count(other)
