"""How much device memory an instance needs, learnt from what was measured, and the headroom that must stay free.

Just under the limit is where a server degrades days later, when nobody watches: a count that would leave less
than the headroom is never tried, and a trial that lands there is rejected whatever its latency.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotuner.domain.measurement import ServerUse

DEFAULT_HEADROOM = 0.10
"""Share of the device's memory that must stay free."""

NO_LIMIT_KNOWN = "the server reports no memory: instance counts are limited by the plan alone"

_MAX_COUNT = 1_000
"""The most instances a configuration can have."""


@dataclass(frozen=True)
class MemoryModel:
    """Memory in use as a line in the instance count; an upper estimate, so that errors cost speed and not safety.

    base_bytes: what is in use without any instance; bytes_per_instance: what each adds; total_bytes: the device.
    measured: the most seen in use at each instance count, by count.
    """

    base_bytes: float
    bytes_per_instance: float
    total_bytes: float
    measured: tuple[tuple[int, float], ...]

    def predict(self, count: int) -> float:
        """Return the bytes in use with `count` instances: never less than was measured with as many or fewer.

        A count below everything measured is taken to need what the next larger measured one needs, unless the
        line says less and rests on two counts or more.
        """
        seen = max((used for measured, used in self.measured if measured <= count), default=0.0)
        line = self.base_bytes + self.bytes_per_instance * count
        if len(self.measured) == 1 and count < self.measured[0][0]:
            return self.measured[0][1]
        return max(line, seen)

    def largest_count(self, headroom: float = DEFAULT_HEADROOM) -> int:
        """Return the largest instance count that leaves the share `headroom` of the memory free; 0 when none does."""
        allowed_bytes = self.total_bytes * (1.0 - headroom)
        return max(
            (count for count in range(1, _MAX_COUNT + 1) if self.predict(count) <= allowed_bytes), default=0
        )

    def refusal(self, count: int, headroom: float = DEFAULT_HEADROOM) -> str | None:
        """Return why `count` instances must not be tried, None when they may be."""
        needed = self.predict(count)
        if needed <= self.total_bytes * (1.0 - headroom):
            return None
        return (
            f"{_instances(count)} would use about {_gigabytes(needed)} of {_gigabytes(self.total_bytes)}: "
            f"less than the headroom of {headroom:.0%} would stay free"
        )

    def reload_fits(self, old_count: int, new_count: int) -> str | None:
        """Return why a change from `old_count` to `new_count` instances does not fit, None when it does.

        The server keeps the old version until the new one is ready, so for a moment both are in memory. The
        headroom may be used for that moment, the whole memory may not be exceeded.
        """
        needed = self.predict(old_count + new_count)
        if needed <= self.total_bytes:
            return None
        return (
            f"while {_instances(new_count)} load beside the {old_count} that serve, about {_gigabytes(needed)} "
            f"are needed and the device has {_gigabytes(self.total_bytes)}"
        )


def learn(measured: Iterable[tuple[int, ServerUse]]) -> MemoryModel | None:
    """Return the memory model that measured steps support; None when no step reports used and total memory.

    measured: instance count and server use of each step. With one count only, all that is in use is put down to
    the instances (an upper bound for larger counts); with more, the least-squares line through the highest
    reading at each count, raised until no reading lies above it.
    """
    peaks: dict[int, float] = {}
    total_bytes: float | None = None
    for count, use in measured:
        if use.memory_used_bytes is None or use.memory_total_bytes is None or use.memory_total_bytes <= 0:
            continue
        peaks[count] = max(peaks.get(count, 0.0), use.memory_used_bytes)
        total_bytes = min(total_bytes or use.memory_total_bytes, use.memory_total_bytes)
    if total_bytes is None:
        return None
    points = tuple(sorted(peaks.items()))
    base, slope = _line(points)
    return MemoryModel(base, slope, total_bytes, points)


def lands_in_headroom(use: ServerUse, headroom: float = DEFAULT_HEADROOM) -> str | None:
    """Return why a measured trial leaves too little memory free, None when it does not or memory is not reported."""
    if use.memory_used_bytes is None or use.memory_total_bytes is None or use.memory_total_bytes <= 0:
        return None
    free = 1.0 - use.memory_used_bytes / use.memory_total_bytes
    if free >= headroom - 1e-12:
        return None
    return (
        f"{_gigabytes(use.memory_used_bytes)} of {_gigabytes(use.memory_total_bytes)} are in use: "
        f"{max(0.0, free):.1%} free, less than the headroom of {headroom:.0%}"
    )


def _line(points: tuple[tuple[int, float], ...]) -> tuple[float, float]:
    """Base and slope in bytes; slope never negative, no point above the line."""
    if len(points) == 1:
        count, used = points[0]
        return 0.0, used / count
    mean_count = sum(count for count, _ in points) / len(points)
    mean_used = sum(used for _, used in points) / len(points)
    spread = sum((count - mean_count) ** 2 for count, _ in points)
    slope = max(0.0, sum((count - mean_count) * (used - mean_used) for count, used in points) / spread)
    return max(used - slope * count for count, used in points), slope


def _gigabytes(amount_bytes: float) -> str:
    return f"{amount_bytes / 1e9:.2f} GB"


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"
