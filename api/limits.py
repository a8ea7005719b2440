"""How often somebody may ask: a token bucket each, in the memory of one process.

Nothing is shared between processes, so n of them let n times as much through; that bounds what one caller costs, which
is the purpose, without a write per request.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from api.problems import TooManyRequests
from autotuner.ports import Clock

MOST_CALLERS = 10_000
"""Buckets that are kept; the one that was not used for longest is forgotten first, and is nearly always full."""

BURST_SHARE = 0.1
"""A bucket holds this share of what a minute allows, and at least one request."""


@dataclass
class _Bucket:
    left: float
    at: datetime


class Limiter:
    """Lets `per_minute` requests of each caller through. For one thread: the event loop's."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_second = per_minute / 60
        self._holds = max(1.0, per_minute * BURST_SHARE)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count one request of `caller`. Raises TooManyRequests."""
        bucket = self._filled(caller)
        if bucket.left < 1.0:
            raise TooManyRequests(max(1, math.ceil((1.0 - bucket.left) / self._per_second)))
        bucket.left -= 1.0

    def check(self, caller: str) -> None:
        """Raise TooManyRequests when the next request of `caller` would be one too many; counts nothing."""
        bucket = self._filled(caller)
        if bucket.left < 1.0:
            raise TooManyRequests(max(1, math.ceil((1.0 - bucket.left) / self._per_second)))

    def _filled(self, caller: str) -> _Bucket:
        now = self._clock.now()
        bucket = self._buckets.pop(caller, None) or _Bucket(self._holds, now)
        passed = max(0.0, (now - bucket.at).total_seconds())
        bucket.left, bucket.at = min(self._holds, bucket.left + passed * self._per_second), now
        self._buckets[caller] = bucket
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket
