"""How much more bad requests vary than independent ones would: the factor φ that all counts are divided by.

Slow requests come in clusters: one long batch delays everything behind it, a burst of arrivals fills the queue. Ten
slow requests in one cluster are nearly one observation, and evidence that counts them as ten says REJECT at the first
hiccup and ACCEPT at the first quiet spell. Quasi-likelihood keeps the mean and multiplies the variance by φ, which is
Pearson's X² over its degrees of freedom (McCullagh & Nelder 1989, Generalized Linear Models, §4.5 and §9.2.4); dividing
both counts of a binomial by φ does just that.

For clusters that arrive as a Poisson process this is safe on the accepting side whatever their sizes: with counts
divided by φ = E[size²]/E[size], the expectation of the betting factor of one cluster is at most what it would be for
clusters of the constant size φ (Jensen's inequality under the size-biased law). On the rejecting side clusters of
varying size make it a little too bold; the benchmark measures by how much.

Counts of one-second looks hide clusters that last longer, so seconds are joined into blocks of several lengths; the
length whose factor is most surely the largest (by its lower limit) is taken, and its upper limit used. φ is estimated
at the ceiling's bucket edge if there are enough slow requests there, and otherwise at the next lower edge that has
them: at lower edges more of a burst is seen and clusters are longer, so that errs on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

BLOCK_LOOKS = (1, 2, 4, 8)
"""Lengths of the blocks, in looks (seconds): clusters and bursts last from a fraction of a second to a few."""

FEWEST_BLOCKS = 8
"""A block length is used only with this many blocks: fewer say nothing about a variance."""

FEWEST_EXCEEDING = 30
"""Requests above an edge that make it fit to estimate φ from."""

DEFAULT = 4.0
"""Assumed when the baseline says too little: clusters of about four, as one stalled batch makes."""

CONFIDENCE = 0.80
"""The value used is an upper limit that φ stays below with about this confidence."""


SIGNIFICANT = 1.645
"""Standard errors above 1 (5 % one-sided, at each block length) that a factor needs to count: without this the noise of
four block lengths would slow every verdict down by a third where there are no clusters."""


@dataclass(frozen=True)
class Series:
    """What one replica counted, look by look, under an unchanged configuration.

    totals: requests that ended in each look, length n. exceeding: for each bucket edge, from the ceiling's edge
    downwards, the requests of each look above that edge: shape (edges, n).
    """

    totals: ArrayLike
    exceeding: ArrayLike


@dataclass(frozen=True)
class Dispersion:
    """The over-dispersion factor: what to use, and what stands behind it.

    factor: upper confidence value, ≥ 1; divide counts by it. estimate: the point estimate, ≥ 1.
    edge: index of the bucket edge it was estimated at (0 is the ceiling's), None when `factor` is the default.
    block_looks: block length that showed the largest factor; 0 for the default.
    """

    factor: float
    estimate: float
    edge: int | None
    block_looks: int


@dataclass(frozen=True)
class _Factor:
    """Pearson's factor at one block length, its standard error as seen, and the one chance alone would give."""

    estimate: float
    error: float
    error_if_independent: float
    looks: int


UNKNOWN = Dispersion(DEFAULT, DEFAULT, None, 0)


def estimate_dispersion(series: Iterable[Series]) -> Dispersion:
    """The over-dispersion factor of a baseline, from the looks of one or several replicas.

    Raises ValueError when the lengths within a series differ. Too little information gives `UNKNOWN`.
    """
    replicas = [_arrays(one) for one in series]
    edges = min((len(exceeding) for _, exceeding in replicas), default=0)
    for edge in range(edges):
        pairs = [(totals, exceeding[edge]) for totals, exceeding in replicas]
        if sum(float(bad.sum()) for _, bad in pairs) < FEWEST_EXCEEDING:
            continue
        found = [f for looks in BLOCK_LOOKS if (f := _factor(pairs, looks)) is not None]
        if found:
            return _chosen(found, edge)
    return UNKNOWN


def _chosen(found: Sequence[_Factor], edge: int) -> Dispersion:
    """The block length most surely over-dispersed, or a factor of 1 when none is more so than chance makes it."""
    clustered = [one for one in found if one.estimate > 1 + SIGNIFICANT * one.error_if_independent]
    if not clustered:
        return Dispersion(1.0, 1.0, edge, found[0].looks)
    best = max(clustered, key=lambda one: one.estimate - one.error)
    upper = best.estimate + float(special.ndtri(CONFIDENCE)) * best.error
    return Dispersion(max(1.0, upper), max(1.0, best.estimate), edge, best.looks)


def _arrays(series: Series) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    totals = np.asarray(series.totals, dtype=np.float64)
    exceeding = np.asarray(series.exceeding, dtype=np.float64)
    if totals.ndim != 1 or exceeding.ndim != 2 or exceeding.shape[1] != totals.size:
        raise ValueError(
            f"each edge needs one count per look: {exceeding.shape} counts for {totals.shape} looks"
        )
    return totals, exceeding


def _factor(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], looks: int) -> _Factor | None:
    """Pearson's factor from blocks of `looks` looks; None with too few blocks.

    Each replica keeps its own share: a difference between replicas is no cluster.
    """
    squares: list[NDArray[np.float64]] = []
    lost, rarity = 0, 0.0
    for totals, bad in pairs:
        n, k = _blocks(totals, looks), _blocks(bad, looks)
        n, k = n[n > 0], k[n > 0]
        share = k.sum() / n.sum() if n.size else 0.0
        if 0.0 < share < 1.0:
            squares.append((k - n * share) ** 2 / (n * share * (1 - share)))
            rarity += float((1 / (n * share)).sum())  # the fourth moment of a Poisson count: 3 + 1/mean
            lost += 1
    joined = np.concatenate(squares) if squares else np.empty(0)
    freedom = joined.size - lost
    if freedom < FEWEST_BLOCKS:
        return None
    factor = float(joined.sum()) / freedom
    error = float(joined.std(ddof=1)) / math.sqrt(joined.size)
    chance = math.sqrt(2 / freedom + float(rarity) / freedom**2)
    return _Factor(factor, error, chance, looks)


def _blocks(counts: NDArray[np.float64], looks: int) -> NDArray[np.float64]:
    """Sums over consecutive blocks; the incomplete last block is dropped."""
    whole = counts.size // looks * looks
    return np.asarray(counts[:whole].reshape(-1, looks).sum(axis=1), dtype=np.float64)
