"""How often the same client may ask."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from transduce.serving.request_errors import RateExceeded

_NUM_CLIENTS = 10_000
"""That are remembered; those that asked longest ago are forgotten first."""


class _Bucket(NamedTuple):
    requests: float
    at: float


class RequestRate:
    """A bucket of requests for each client, which fills up steadily (the token bucket).

    Args:
        per_minute: requests of a client; so many may come at once. 0: any number.
        clock: seconds, from any moment on.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def count(self, client: str) -> None:
        """One request of a client.

        Args:
            client: its address; of IPv6, the first 64 bits count, as those behind them are the client's own choice.

        Raises:
            RateExceeded: it has asked too often.
        """
        if not self.per_minute:
            return
        client, now = _network(client), self._clock()
        requests, at = self._buckets.pop(client, _Bucket(self.per_minute, now))
        requests = min(self.per_minute, requests + (now - at) * self.per_minute / 60)
        is_too_often = requests < 1
        self._buckets[client] = _Bucket(requests if is_too_often else requests - 1, now)
        if len(self._buckets) > _NUM_CLIENTS:
            self._buckets.popitem(last=False)
        if is_too_often:
            seconds = math.ceil((1 - requests) * 60 / self.per_minute)
            raise RateExceeded(f"more than {self.per_minute} requests a minute: ask again in {seconds} s", seconds)


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:  # a proxy may give names, and a socket of a file system has none
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or found.packed[:8].hex())
