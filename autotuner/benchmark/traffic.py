"""When requests arrive and how service times scatter: the same seed gives the same chance at every rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autotuner.benchmark.truth import Traffic

Floats = NDArray[np.float64]

HIGH, LOW = 1.75, 0.5
"""Rates in the two states of bursty traffic, as multiples of the mean rate."""

HIGH_SHARE = (1.0 - LOW) / (HIGH - LOW)
STATE_SECONDS = 1.2
"""Mean length of a state, averaged over both kinds."""

SWING = 0.25
"""The rate of a day goes up and down by this share of its mean."""

NOISE_SIGMA = 0.05
"""Standard deviation of the logarithm of service times."""

TAIL_SHARE = 0.01
TAIL_FACTORS = (2.0, 4.0)
"""Share of batches that take longer, and by what factors, evenly."""


class Pattern(StrEnum):
    """How the rate changes while one watches."""

    POISSON = "poisson"
    BURSTY = "bursty"
    DIURNAL = "diurnal"


@dataclass(frozen=True)
class Process:
    """Traffic of one kind. tails: whether some batches take much longer."""

    pattern: Pattern
    tails: bool


def draw(
    process: Process, rate: float, seconds: float, seed: int, day_seconds: float | None = None
) -> Traffic:
    """Return traffic of a mean rate (requests per second) over a time, begun at 0.

    day_seconds: length of a day for diurnal traffic, which then starts somewhere in it; None: a whole day passes. For
    bursty traffic None means that the states' lengths are spread evenly over their distribution, so that a
    long run is like every other.
    """
    arrivals_seed, states_seed, factors_seed = np.random.SeedSequence(seed).spawn(3)
    intensity = _intensity(process.pattern, seconds, np.random.default_rng(states_seed), day_seconds)
    expected = rate * intensity[1][-1]
    dice = np.random.default_rng(arrivals_seed)
    count = int(expected + 6.0 * math.sqrt(expected) + 20.0)
    unit = np.cumsum(dice.exponential(size=count))
    arrivals = np.interp(unit[unit < expected] / rate, intensity[1], intensity[0])
    return Traffic(arrivals, _factors(process, arrivals.size, np.random.default_rng(factors_seed)))


def _intensity(
    pattern: Pattern, seconds: float, dice: np.random.Generator, day_seconds: float | None
) -> tuple[Floats, Floats]:
    """Instants and the integral of the relative rate up to each, between which it is linear."""
    if pattern is Pattern.BURSTY:
        return _bursts(seconds, dice, even=day_seconds is None)
    if pattern is Pattern.DIURNAL:
        day = day_seconds or seconds
        phase = dice.uniform(0.0, 2.0 * math.pi)
        at = np.linspace(0.0, seconds, 513)
        angle = 2.0 * math.pi * at / day
        passed = SWING * day / (2.0 * math.pi) * (math.cos(phase) - np.cos(angle + phase))
        return at, at + passed
    return np.array([0.0, seconds]), np.array([0.0, seconds])


def _bursts(seconds: float, dice: np.random.Generator, *, even: bool) -> tuple[Floats, Floats]:
    """States of exponential length, high and low in turns."""
    pairs = max(2, math.ceil(seconds / (2.0 * STATE_SECONDS)))
    means = 2.0 * STATE_SECONDS * np.array([HIGH_SHARE, 1.0 - HIGH_SHARE])
    if even:
        spread = -np.log1p(-(np.arange(pairs) + 0.5) / pairs)
        lengths = np.stack([dice.permutation(spread), dice.permutation(spread)], axis=1)
        lengths *= seconds / float((lengths * means).sum())
    else:
        lengths = dice.exponential(size=(2 * pairs + 40, 2))
    lengths = lengths * means
    rates = np.tile([HIGH, LOW], lengths.shape[0])
    flat = lengths.ravel()
    if not even and dice.uniform() > HIGH_SHARE:
        flat, rates = flat[1:], rates[1:]
    at = np.concatenate(([0.0], np.cumsum(flat)))
    passed = np.concatenate(([0.0], np.cumsum(flat * rates)))
    end = float(np.interp(seconds, at, passed))
    inside = at < seconds
    return np.append(at[inside], seconds), np.append(passed[inside], end)


def _factors(process: Process, count: int, dice: np.random.Generator) -> Floats:
    factors = np.exp(NOISE_SIGMA * dice.standard_normal(count) - NOISE_SIGMA**2 / 2.0)
    rare, extra = dice.uniform(size=count), dice.uniform(*TAIL_FACTORS, size=count)
    return np.where(rare < TAIL_SHARE, factors * extra, factors) if process.tails else factors
