"""How often somebody may ask: a token bucket, drawn from by as many processes as there are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Rate:
    """Requests that come back each second, and how many a full bucket holds."""

    per_second: float
    holds: float


@dataclass(frozen=True)
class Bucket:
    """Requests that were left at an instant. There is no bucket before the first draw: it is full."""

    left: float
    at: datetime


@dataclass(frozen=True)
class Drawn:
    """Requests that were granted, and seconds until the bucket holds another; 0 where it does already."""

    granted: int
    next_seconds: float


def draw(bucket: Bucket | None, wanted: int, rate: Rate, now: datetime) -> tuple[Bucket, Drawn]:
    """Take at most `wanted` requests out of a bucket. A clock that goes back adds nothing and takes nothing."""
    if bucket is None:
        left, at = rate.holds, now
    else:
        passed = max(0.0, (now - bucket.at).total_seconds())
        left, at = min(rate.holds, bucket.left + passed * rate.per_second), max(bucket.at, now)
    granted = min(wanted, math.floor(left))
    left -= granted
    return Bucket(left, at), Drawn(granted, next_seconds(left, rate))


def next_seconds(left: float, rate: Rate) -> float:
    """Return the seconds until a bucket with `left` requests holds one."""
    return max(0.0, (1.0 - left) / rate.per_second)
