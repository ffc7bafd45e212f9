"""How often somebody may ask: a bucket for each token that fills up with time, in the memory of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Buckets that are kept. When there are more, full ones are dropped, which changes nothing: a new bucket is full.
_MOST_BUCKETS = 10_000


class Rates:
    """So many requests a minute for each name; half of a minute's requests may come at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._size = max(1.0, per_minute / 2)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def wait(self, name: str) -> float:
        """Take one request from a bucket and return 0.0; if it is empty, the seconds until it is not."""
        with self._lock:
            now = self._clock()
            left, since = self._buckets.get(name, (self._size, now))
            left = min(self._size, left + (now - since) * self._rate)
            if left < 1:
                return (1 - left) / self._rate
            if len(self._buckets) >= _MOST_BUCKETS:
                self._drop_full(now)
            self._buckets[name] = left - 1, now
            return 0.0

    def _drop_full(self, now: float) -> None:
        for name, (left, since) in list(self._buckets.items()):
            if left + (now - since) * self._rate >= self._size:
                del self._buckets[name]
        if len(self._buckets) >= _MOST_BUCKETS:
            self._buckets.clear()
