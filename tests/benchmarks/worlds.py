"""Simulated traffic whose true share of slow requests is known, to measure the verdict's error rates on.

Three worlds, from the kindest to the most faithful. All give counts per look (one second), shape (runs, looks):

- *independent*: Poisson arrivals, each request slow by itself.
- *clustered*: arrivals modulated by a two-state Markov chain; slow requests come in clusters of geometric size, as one
  stalled batch makes them, ten times as often in the high state.
- *queue*: the same arrivals into a queue served at a constant rate; a request is slow when the backlog it finds takes
  longer than the ceiling. Nothing is put in by hand: clusters are the busy periods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SLOT_SECONDS = 0.05
SLOTS_A_LOOK = 20
HIGH, LOW = 1.75, 0.5
"""Arrival rate of the two states, as multiples of the mean rate."""
MEAN_DWELL_SECONDS = 1.2
HIGH_TIME_SHARE = (1 - LOW) / (HIGH - LOW)
CEILING_SECONDS = 0.1
EDGES = (1.0, 0.75, 0.5, 0.25, 0.1)
"""Bucket edges as fractions of the ceiling, from it downwards."""
CLUSTER_REQUESTS = 4.0
HIGH_CLUSTER_INTENSITY = 10.0
EDGE_GROWTH = 2.0
"""In the clustered world each lower edge is exceeded by this many times as many clusters."""


@dataclass(frozen=True)
class Traffic:
    """Counts per look: totals (runs, looks); exceeding (edges, runs, looks), the ceiling's edge first."""

    totals: Ints
    exceeding: Ints


def independent(rng: np.random.Generator, shape: tuple[int, int], rate: float, share: float) -> Traffic:
    """Poisson arrivals at `rate` per second; a request is slow with probability `share`, whatever came before."""
    totals = rng.poisson(rate, shape)
    exceeding = np.zeros((len(EDGES), *shape), dtype=np.int64)
    exceeding[-1] = rng.binomial(totals, min(1.0, share * EDGE_GROWTH ** (len(EDGES) - 1)))
    for edge in range(len(EDGES) - 2, -1, -1):
        exceeding[edge] = rng.binomial(exceeding[edge + 1], 1 / EDGE_GROWTH)
    return Traffic(totals, exceeding)


def clustered(rng: np.random.Generator, shape: tuple[int, int], rate: float, share: float) -> Traffic:
    """Markov-modulated arrivals; clusters of slow requests of geometric size, mean `CLUSTER_REQUESTS`.

    The expected share of slow requests is `share` exactly; a look's slow requests are added to its arrivals.
    """
    runs, looks = shape
    high_share = _high_share(rng, runs, looks)
    arrivals = rng.poisson(rate * (1 - share) * (LOW + (HIGH - LOW) * high_share))
    mean_intensity = HIGH_TIME_SHARE * HIGH_CLUSTER_INTENSITY + (1 - HIGH_TIME_SHARE)
    intensity = (1 + (HIGH_CLUSTER_INTENSITY - 1) * high_share) / mean_intensity
    exceeding = np.zeros((len(EDGES), *shape), dtype=np.int64)
    clusters = rng.poisson(intensity * rate * share / CLUSTER_REQUESTS)
    exceeding[0] = _geometric_sums(rng, clusters)
    for edge in range(1, len(EDGES)):
        more = rng.poisson(intensity * rate * share / CLUSTER_REQUESTS * EDGE_GROWTH ** (edge - 1))
        exceeding[edge] = exceeding[edge - 1] + _geometric_sums(rng, more)
    totals = arrivals + exceeding[0]
    return Traffic(totals, np.minimum(exceeding, totals))


SERVICE_OVER_RATE = {(300.0, 0.0025): 1.825, (300.0, 0.01): 1.802}
"""Service rate as a multiple of the arrival rate that makes the second number the share of slow requests; found by
bisection on simulated streams of some 10⁹ requests. The benchmark prints the share that it then sees."""


def queue(rng: np.random.Generator, shape: tuple[int, int], rate: float, share: float) -> Traffic:
    """Markov-modulated arrivals into a queue whose service rate makes `share` of the requests slow.

    Raises KeyError for a rate and share without a calibrated service rate.
    """
    return _queue(rng, shape, rate, rate * SERVICE_OVER_RATE[rate, share])


def _queue(rng: np.random.Generator, shape: tuple[int, int], rate: float, served: float) -> Traffic:
    runs, looks = shape
    high = rng.random(runs) < HIGH_TIME_SHARE
    backlog = np.zeros(runs)
    totals = np.zeros((looks, runs), dtype=np.int64)
    exceeding = np.zeros((len(EDGES), looks, runs), dtype=np.int64)
    for slot in range(-10 * SLOTS_A_LOOK, looks * SLOTS_A_LOOK):  # ten seconds to reach the steady state
        high = _switched(rng, high)
        arrivals = rng.poisson(rate * SLOT_SECONDS * np.where(high, HIGH, LOW))
        wait = (backlog + arrivals / 2) / (served * CEILING_SECONDS)
        backlog = np.maximum(0.0, backlog + arrivals - served * SLOT_SECONDS)
        if slot >= 0:
            look = slot // SLOTS_A_LOOK
            totals[look] += arrivals
            for edge, fraction in enumerate(EDGES):
                exceeding[edge, look] += arrivals * (wait > fraction)
    return Traffic(totals.T, exceeding.transpose(0, 2, 1))


def _switched(rng: np.random.Generator, high: NDArray[np.bool_]) -> NDArray[np.bool_]:
    leave_high = SLOT_SECONDS / (2 * MEAN_DWELL_SECONDS * HIGH_TIME_SHARE)
    leave_low = SLOT_SECONDS / (2 * MEAN_DWELL_SECONDS * (1 - HIGH_TIME_SHARE))
    return np.asarray(high ^ (rng.random(high.size) < np.where(high, leave_high, leave_low)))


def _high_share(rng: np.random.Generator, runs: int, looks: int) -> NDArray[np.float64]:
    """Share of each look spent in the high state."""
    high = rng.random(runs) < HIGH_TIME_SHARE
    share = np.zeros((runs, looks))
    for slot in range(looks * SLOTS_A_LOOK):
        high = _switched(rng, high)
        share[:, slot // SLOTS_A_LOOK] += high / SLOTS_A_LOOK
    return share


def _geometric_sums(rng: np.random.Generator, clusters: Ints) -> Ints:
    """Requests in `clusters` clusters of geometric size (at least one each)."""
    extra = rng.negative_binomial(np.maximum(clusters, 1), 1 / CLUSTER_REQUESTS)
    return np.asarray(np.where(clusters > 0, clusters + extra, 0), dtype=np.int64)
