"""When requests arrive: the rate's changes are learnt from a recording, at every time scale, and drawn from again.

A recording is one draw of chance, and at another rate it does not exist at all. So what is kept of it is the rate over
time, cleaned of what a constant rate would show too: at each time scale, from the whole recording down to a few
requests, the split of a stretch's requests between its halves is shrunk towards one half by the part of its variance
that counting alone explains (multiscale analysis of Poisson data: Kolaczyk 1999, Statistica Sinica 9; Timmermann and
Nowak 1999, IEEE Trans. Inf. Theory 45). Poisson arrivals come out with a constant rate, bursts stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.batching.trials import Floats

REQUESTS_PER_BIN = 2.0
"""Mean requests in a bin of the finest time scale."""

MAX_SCALES = 16
STRETCH_SECONDS = 10.0
STRETCHES = 16
"""Longest stretch that is drawn from a recording, and how many a window is put together of at least."""


@dataclass(frozen=True)
class Intensity:
    """The rate over time relative to its mean (shape (n,), mean 1), in bins of bin_seconds."""

    bin_seconds: float
    relative: Floats


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
