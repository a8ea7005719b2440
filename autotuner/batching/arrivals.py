"""When requests arrive: the rate's changes are learnt from a recording, at every time scale, and drawn from again.

A recording is one draw of chance, and at another rate it does not exist at all. So what is kept of it is the rate over
time, cleaned of what a constant rate would show too: at each time scale, from the whole recording down to a few
requests, the split of a stretch's requests between its halves is shrunk towards one half by the part of its variance
that counting alone explains (multiscale analysis of Poisson data: Kolaczyk 1999, Statistica Sinica 9; Timmermann and
Nowak 1999, IEEE Trans. Inf. Theory 45). Poisson arrivals come out with a constant rate, bursts stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotuner.batching.trials import Floats

REQUESTS_PER_BIN = 2.0
"""Mean requests in a bin of the finest time scale."""

MAX_SCALES = 16
STRETCH_SECONDS = 10.0
STRETCHES = 16
"""Longest stretch that is drawn from a recording, and how many a window is put together of at least."""

LEAST_RECORDED = 2_000
"""Arrivals that a recording must have to be replayed itself."""

CHANCE = 0.1
"""Difference between the recording's rate and the one asked for, as a logarithm, that is put down to chance."""

REQUESTS_A_BIN = 20
OVERLOADED = 1.3
PLACES = 64
"""How stretches of a recording are compared: bins of so many requests on average, and so many stretches."""


@dataclass(frozen=True)
class Intensity:
    """The rate over time relative to its mean (shape (n,), mean 1), in bins of bin_seconds."""

    bin_seconds: float
    relative: Floats


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded arrivals (seconds, ascending), and what is worked out of them once."""

    arrivals: Floats

    @cached_property
    def overload(self) -> Floats:
        """What a server of OVERLOADED times the mean rate would have queued, squared, in equal bins of time."""
        bins = max(16, len(self.arrivals) // REQUESTS_A_BIN)
        span = (float(self.arrivals[0]), float(self.arrivals[-1]))
        per_bin, _ = np.histogram(self.arrivals, bins=bins, range=span)
        excess = np.cumsum(per_bin / per_bin.mean() - OVERLOADED)
        return np.asarray((excess - np.minimum.accumulate(np.minimum(excess, 0.0))) ** 2)


def learn(arrivals: Floats) -> Intensity:
    """Return the intensity of recorded arrivals (seconds, ascending). Fewer than 16 say nothing: a constant rate."""
    span = float(arrivals[-1] - arrivals[0]) if len(arrivals) > 1 else 0.0
    if len(arrivals) < 16 or span <= 0.0:
        return Intensity(1.0, np.ones(1))
    scales = int(np.clip(np.floor(np.log2(len(arrivals) / REQUESTS_PER_BIN)), 1, MAX_SCALES))
    counts, _ = np.histogram(arrivals, bins=2**scales, range=(float(arrivals[0]), float(arrivals[-1])))
    return learn_counts(counts.astype(np.float64), span / 2**scales)


def learn_counts(counts: Floats, bin_seconds: float) -> Intensity:
    """Return the intensity of requests counted in equal bins; at most the last 2**k bins are used."""
    scales = int(np.log2(len(counts))) if len(counts) else 0
    levels = [counts[len(counts) - 2**scales :]]
    for _ in range(scales):
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    rate = np.ones(1)
    for coarse, fine in zip(reversed(levels[1:]), reversed(levels[:-1]), strict=True):
        split = _shrunk_split(coarse, fine[::2])
        rate = np.column_stack([2.0 * rate * split, 2.0 * rate * (1.0 - split)]).ravel()
    return Intensity(bin_seconds, rate / rate.mean())


def _shrunk_split(whole: Floats, left: Floats) -> Floats:
    """Share of each stretch's requests in its left half, shrunk by what binomial chance explains of the variance."""
    seen = whole > 0
    if not seen.any():
        return np.full(len(whole), 0.5)
    share = np.where(seen, left / np.maximum(whole, 1.0), 0.5)
    weight = whole[seen]
    observed = float(np.sum(weight * (share[seen] - 0.5) ** 2))
    by_chance = 0.25 * int(seen.sum())
    kept = max(0.0, 1.0 - by_chance / observed) if observed > 0 else 0.0
    return 0.5 + kept * (share - 0.5)


def draw(intensity: Intensity, rate_per_second: float, count: int, rng: np.random.Generator) -> Floats:
    """Return `count` arrivals (seconds from 0, ascending) at the mean rate, with the intensity's bursts.

    Stretches from anywhere in the recording follow one another, so that its whole variety is met in a short window.
    Within a stretch the rate changes as recorded and arrivals are independent: an inhomogeneous Poisson process.
    """
    bins = len(intensity.relative)
    seconds = min(STRETCH_SECONDS, count / rate_per_second / STRETCHES)
    stretch = max(1, min(bins, round(seconds / intensity.bin_seconds)))
    needed = int(np.ceil(1.2 * count / rate_per_second / intensity.bin_seconds / stretch)) + 2
    starts = rng.integers(bins, size=needed)
    index = (starts[:, None] + np.arange(stretch)[None, :]).ravel() % bins
    cumulative = np.concatenate([[0.0], np.cumsum(intensity.relative[index])]) * intensity.bin_seconds
    if cumulative[-1] * rate_per_second < count:
        cumulative *= 1.05 * count / (cumulative[-1] * rate_per_second)
    clock = np.cumsum(rng.exponential(1.0 / rate_per_second, count))
    edges = np.arange(len(cumulative)) * intensity.bin_seconds
    return np.asarray(np.interp(clock, cumulative, edges))


def replay(
    recorded: Recording, intensity: Intensity, rate_per_second: float, count: int, rng: np.random.Generator
) -> Floats:
    """Return about `count` arrivals (seconds from 0, ascending) at a rate, from the recording itself where it can be.

    intensity: what was learnt of it. The stretch of the recording that is most like the whole is taken as it came,
    thinned for a lower rate, and for a higher one filled up with independent arrivals that follow the intensity. A
    difference below CHANCE is the recording's own chance and is not made up for: what comes in a burst is then as it
    was. Fewer than LEAST_RECORDED arrivals are drawn from the intensity.
    """
    recording = recorded.arrivals
    if len(recording) < LEAST_RECORDED:
        return draw(intensity, rate_per_second, count, rng)
    ratio = rate_per_second * float(recording[-1] - recording[0]) / (len(recording) - 1)
    if abs(np.log(ratio)) < CHANCE:
        return _typical(recorded, count)[1]
    offset, part = _typical(recorded, int(np.ceil(count / ratio)))
    if ratio < 1.0:
        return part[rng.random(len(part)) < ratio]
    bins = np.arange(len(intensity.relative) + 1) * intensity.bin_seconds
    passed = np.concatenate([[0.0], np.cumsum(intensity.relative)])
    begin, end = np.interp([offset, offset + part[-1]], bins, passed)
    more = begin + (end - begin) * rng.random(round((ratio - 1.0) * len(part)))
    return np.sort(np.concatenate([part, np.interp(more, passed, bins) - offset]))


def _typical(recorded: Recording, count: int) -> tuple[float, Floats]:
    """The stretch of `count` arrivals whose rate and overload are most like those of the whole; all where it has fewer.

    Returns where it begins, in seconds from the recording's begin, and its arrivals from there.
    """
    recording = recorded.arrivals
    if count >= len(recording):
        return 0.0, recording - recording[0]
    span = float(recording[-1] - recording[0])
    queued = recorded.overload
    bins = len(queued)
    starts = np.linspace(0, len(recording) - count, PLACES).astype(np.int64)
    until = recording[starts + count - 1]
    edges = np.concatenate([[0.0], np.cumsum(queued)])
    at = (np.array([recording[starts], until]) - recording[0]) / span * bins
    overload = np.diff(np.interp(at, np.arange(bins + 1), edges), axis=0)[0] / np.maximum(at[1] - at[0], 1e-9)
    rate = (count / np.maximum(until - recording[starts], 1e-9)) / (len(recording) / span)
    usual = max(float(queued.mean()), 1e-12)
    unlike = np.abs(np.log(rate)) / 0.05 + np.abs(np.sqrt(overload / usual) - 1.0) / 0.2
    begin = starts[int(np.argmin(np.round(unlike, 9)))]
    return float(recording[begin] - recording[0]), recording[begin : begin + count] - recording[begin]
