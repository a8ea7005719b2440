"""When requests arrive: seeded processes with the right mean rate, smooth or bursty.

Bursts decide p99 and how many requests meet in a batch, so the sandbox does not only know Poisson arrivals: a
recorded trace brings the burstiness of real users along, and a two-state process makes bursts to order.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotuner.errors import InvalidInput

Offsets = NDArray[np.float64]
"""Seconds since the start, ascending, shape (n,)."""

BLOCK = 1024
TRACE_SUFFIX = ".csv.gz"
KINDS = (
    "one of {poisson: true}, {trace: NAME, steady_seconds: S (optional)}, {bursty: {high, low, mean_seconds}}"
)


class Arrivals(Protocol):
    """A stationary arrival process of a known mean rate."""

    @property
    def requests_per_second(self) -> float:
        """Long-run mean rate."""

    def blocks(self, generator: np.random.Generator) -> Iterator[Offsets]:
        """Endless arrival times from 0 on, in ascending blocks of any size (possibly empty)."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: exponential gaps. Raises InvalidInput for a rate that is not positive."""

    requests_per_second: float

    def __post_init__(self) -> None:
        _positive("requests_per_second", self.requests_per_second)

    def blocks(self, generator: np.random.Generator) -> Iterator[Offsets]:
        """Endless arrival times in ascending blocks."""
        start = 0.0
        while True:
            times = start + np.cumsum(generator.exponential(1 / self.requests_per_second, BLOCK))
            start = float(times[-1])
            yield times


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded trace, time-scaled to a mean rate and repeated; each seed begins at another place in it.

    The end meets the beginning with one gap of the mean length, so a repetition adds neither a pause nor a
    burst, and every whole lap has exactly the mean rate. steady_seconds: changes of the rate that last longer
    (after scaling) are evened out and shorter bursts kept, so that windows of several seconds can be compared; 0
    keeps the trace as it was recorded. Raises InvalidInput for an unknown name or a negative duration.
    """

    name: str
    requests_per_second: float
    steady_seconds: float = 0.0

    def __post_init__(self) -> None:
        _positive("requests_per_second", self.requests_per_second)
        if self.steady_seconds != 0:
            _positive("arrivals.steady_seconds", self.steady_seconds)
        if self.name not in trace_names():
            raise InvalidInput("arrivals.trace", self.name, f"one of {', '.join(trace_names())}")

    def blocks(self, generator: np.random.Generator) -> Iterator[Offsets]:
        """Endless arrival times in ascending blocks."""
        gaps = np.diff(recorded_offsets(self.name))
        gaps = np.append(gaps, gaps.mean())
        gaps /= gaps.mean() * self.requests_per_second
        if self.steady_seconds > 0:
            gaps = _steadied(gaps, self.steady_seconds)
        gaps = np.roll(gaps, -int(generator.integers(len(gaps))))
        lap = np.cumsum(gaps)
        laps = 0
        while True:
            start = laps * len(gaps) / self.requests_per_second
            yield from (start + part for part in np.array_split(lap, max(1, len(lap) // BLOCK)))
            laps += 1


def _steadied(gaps: Offsets, steady_seconds: float) -> Offsets:
    """Gaps of one lap, seconds, with the rate's changes slower than `steady_seconds` evened out; the sum stays.

    Time runs at the smoothed rate: a moving average of the counts over a circle, whose integral is the new clock.
    """
    length = float(gaps.sum())
    bins = max(1, round(length / (steady_seconds / 20)))
    counts, edges = np.histogram(np.cumsum(gaps), bins=bins, range=(0.0, length))
    width = min(bins, 20)
    kernel = np.zeros(bins)
    kernel[:width] = 1.0 / width
    kernel = np.roll(kernel, -(width // 2))
    smooth = np.fft.irfft(np.fft.rfft(counts) * np.fft.rfft(kernel), bins).clip(min=0.0)
    clock = np.concatenate([[0.0], np.cumsum(smooth)])
    times = np.interp(np.concatenate([[0.0], np.cumsum(gaps)]), edges, clock / clock[-1] * length)
    return np.diff(times)


@dataclass(frozen=True, slots=True)
class Bursty:
    """Two-state Markov-modulated Poisson arrivals (Fischer, Meier-Hellstern 1993, Performance Evaluation 18).

    high, low: rate in each state as a multiple of the mean rate (high > 1 > low >= 0).
    mean_seconds: mean stay in a state, averaged over the two; how it is shared between them follows from the
    mean rate. Raises InvalidInput when no such shares exist.
    """

    requests_per_second: float
    high: float
    low: float
    mean_seconds: float

    def __post_init__(self) -> None:
        _positive("requests_per_second", self.requests_per_second)
        _positive("arrivals.bursty.mean_seconds", self.mean_seconds)
        _positive("arrivals.bursty.high", self.high, least=1.0, allowed="a multiple of the mean rate above 1")
        if not 0.0 <= self.low < 1.0:
            raise InvalidInput("arrivals.bursty.low", self.low, "a multiple of the mean rate in [0, 1)")

    @property
    def high_share(self) -> float:
        """Share of the time spent in the high state, 0 to 1."""
        return (1 - self.low) / (self.high - self.low)

    def blocks(self, generator: np.random.Generator) -> Iterator[Offsets]:
        """Endless arrival times; a block is one stay in a state."""
        stays = {True: self.high_share, False: 1 - self.high_share}
        start, is_high = 0.0, bool(generator.random() < self.high_share)
        while True:
            stay = generator.exponential(2 * self.mean_seconds * stays[is_high])
            rate = self.requests_per_second * (self.high if is_high else self.low)
            yield np.sort(start + stay * generator.random(generator.poisson(rate * stay)))
            start, is_high = start + stay, not is_high


def offsets(arrivals: Arrivals, *, seed: int) -> Iterator[float]:
    """Endless ascending arrival times in seconds; the same seed gives the same times."""
    blocks = arrivals.blocks(np.random.default_rng(seed))
    return chain.from_iterable(block.tolist() for block in blocks)


def describe(description: Mapping[str, Any], *, requests_per_second: float) -> Arrivals:
    """The process that a workload file's `arrivals` entry describes. Raises InvalidInput."""
    match dict(description):
        case {"poisson": True, **rest} if not rest:
            return Poisson(requests_per_second)
        case {"trace": str(name), **rest} if not rest:
            return Trace(name, requests_per_second)
        case {"trace": str(name), "steady_seconds": steady_seconds, **rest} if not rest:
            return Trace(name, requests_per_second, steady_seconds)
        case {"bursty": {"high": high, "low": low, "mean_seconds": mean_seconds, **unknown}, **rest} if not (
            rest or unknown
        ):
            return Bursty(requests_per_second, high=high, low=low, mean_seconds=mean_seconds)
        case other:
            raise InvalidInput("arrivals", other, KINDS)


@cache
def trace_names() -> tuple[str, ...]:
    """Names of the traces that come with the package."""
    names = [entry.name for entry in files("autotuner.sandbox").joinpath("traces").iterdir()]
    return tuple(sorted(name.removesuffix(TRACE_SUFFIX) for name in names if name.endswith(TRACE_SUFFIX)))


@cache
def recorded_offsets(name: str) -> Offsets:
    """Arrival times of a trace as recorded, in seconds since the first request; read-only."""
    compressed = files("autotuner.sandbox").joinpath("traces", name + TRACE_SUFFIX).read_bytes()
    header, *lines = gzip.decompress(compressed).decode().split()
    if header != "offset_seconds":
        raise InvalidInput("trace", header, "a file with the one column offset_seconds")
    times = np.array(lines, dtype=np.float64)
    times.setflags(write=False)
    return times


def _positive(field: str, value: object, *, least: float = 0.0, allowed: str = "a number above 0") -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < float("inf"):
        raise InvalidInput(field, value, allowed)
