"""How often the same client may ask."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
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
            client: what tells it from others, as its address does.

        Raises:
            RateExceeded: it has asked too often.
        """
        if not self.per_minute:
            return
        now = self._clock()
        requests, at = self._buckets.pop(client, _Bucket(self.per_minute, now))
        requests = min(self.per_minute, requests + (now - at) * self.per_minute / 60)
        is_too_often = requests < 1
        self._buckets[client] = _Bucket(requests if is_too_often else requests - 1, now)
        if len(self._buckets) > _NUM_CLIENTS:
            self._buckets.popitem(last=False)
        if is_too_often:
            seconds = math.ceil((1 - requests) * 60 / self.per_minute)
            raise RateExceeded(f"more than {self.per_minute} requests a minute: ask again in {seconds} s", seconds)
