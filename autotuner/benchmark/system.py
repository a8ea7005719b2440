"""One workload under one scenario: its device, its traffic, what may be tried and what runs today."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autotuner.batching.trials import Aim, Setting
from autotuner.benchmark.scenarios import CHANGES, Changes, Scenario
from autotuner.benchmark.traffic import Process, draw
from autotuner.benchmark.truth import Device, Outcome, Traffic, run
from autotuner.benchmark.workloads import BenchWorkload
from autotuner.domain.space import DENSE_SHARES
from autotuner.errors import InvalidInput

Floats = NDArray[np.float64]

DELAY_SHARES = (0.0, *DENSE_SHARES)
"""Queue delays that may be tried, as shares of the ceiling: none, and those that the product adds for its sampler."""

MOST_SETS = 8
"""Preferred sets that may be tried, "none" included; the smallest sizes are left out where there are more."""

STEP = 1.12
"""Ratio of one load level to the one before it."""

MOST_LOAD = 3.0
"""The highest load level, in multiples of today's rate."""

SPARE = 0.9
"""The incumbent's p99 is at most this share of the ceiling: it serves its users well before tuning begins."""

RETREAT, MOST_RETREATS = 0.93, 60
"""Factor on today's rate, as often as needed, where the incumbent cannot carry it; at 1 % of it there is no hope."""

LONG_REQUESTS = 120_000
LONG_SECONDS = 120.0
"""What the truth at today's rate is read from: at least so many requests, and at least so long."""

BRIEF_SHARE = 0.5
"""Share of it for what is looked at often: the rungs of a capacity, and whether the incumbent serves well."""

ALLOWED = 0.01
"""Share of requests that may be slower than the ceiling."""

MOST_RATIO = 4.0
"""Multiple of the ceiling above which one p99 is not told from another: a replica that is overrun has none."""

TRUTH_SEED = 20_250_101
"""Seed of the traffic that every setting's truth is read from: the same for all, so that luck favours none."""

BUSY_SECONDS, QUIET_SECONDS, SLOWED = 2.0, 6.0, 1.5
"""Another model on the device: how long it is busy and quiet on average, and the factor on compute meanwhile."""

DAY_SECONDS = 1200.0

_BEFORE_SHARE = 0.6
"""Of the overhead, spent on the way to Triton."""


@dataclass(frozen=True)
class System:
    """What contestants tune. rate: today's, in requests per second; see `system_of`."""

    workload: BenchWorkload
    scenario: Scenario
    rate: float
    incumbent: Setting

    @property
    def changes(self) -> Changes:
        """What the scenario changes."""
        return CHANGES[self.scenario]

    @property
    def ceiling_seconds(self) -> float:
        """Of the p99 that a client sees."""
        return self.workload.ceiling_ms / 1e3

    @property
    def process(self) -> Process:
        """How requests arrive and service times scatter."""
        return Process(self.changes.pattern, self.changes.tails)

    @property
    def final_rate(self) -> float:
        """Today's rate once it has drifted: what the final choice has to serve."""
        return self.rate * (1.0 + self.changes.drift)

    def rate_at(self, trial: int) -> float:
        """Today's rate during a trial, the first being number 1."""
        return self.rate * (1.0 + self.changes.drift * min(1.0, (trial - 1) / 9.0))

    def long_traffic(self, rate: float, share: float = 1.0) -> Traffic:
        """The traffic that the truth at a rate is read from, or a share of it."""
        return draw(self.process, rate, share * self.long_seconds(rate), TRUTH_SEED)

    def brief_traffic(self, rate: float, share: float = 1.0) -> Traffic:
        """Traffic as of the truth, but less of it, or a share of that."""
        return self.long_traffic(rate, BRIEF_SHARE * share)

    def long_seconds(self, rate: float) -> float:
        """Return how long that traffic lasts."""
        return max(LONG_SECONDS, LONG_REQUESTS / rate)

    def long_run(
        self, setting: Setting, traffic: Traffic, *, slow_limit: int = 0, ceilings: float = 1.0
    ) -> Outcome:
        """Return what the replica does with that traffic.

        slow_limit: as of `truth.run`, of that many ceilings.
        """
        device = self.device(float(traffic.arrivals[-1]) + 1.0, None)
        patience = ceilings * self.ceiling_seconds
        return run(device, setting, traffic, ceiling_seconds=patience, slow_limit=slow_limit)

    def tail(self, setting: Setting, traffic: Traffic) -> tuple[float, float]:
        """Return p99 and busy seconds per inference; a p99 of MOST_RATIO ceilings means that or more."""
        device = self.device(float(traffic.arrivals[-1]) + 1.0, None)
        most = MOST_RATIO * self.ceiling_seconds
        limit = max(1, int(ALLOWED * traffic.arrivals.size))
        outcome = run(device, setting, traffic, ceiling_seconds=most, slow_limit=limit)
        busy = outcome.busy_seconds() / max(1, outcome.latency.size)
        return (min(p99(outcome.latency), most) if outcome.complete else most), busy

    def device(self, seconds: float, seed: int | None) -> Device:
        """The device for a run of a length. seed: of whoever else uses it; None spreads that evenly."""
        overhead = self.workload.overhead_ms / 1e3
        since, factor = np.zeros(1), np.ones(1)
        if self.changes.background:
            since, factor = _background(seconds, seed)
        return Device(
            curve_seconds=curve_seconds(self.workload, self.changes),
            interference=self.workload.interference,
            law=self.changes.law,
            before_seconds=_BEFORE_SHARE * overhead,
            after_seconds=(1.0 - _BEFORE_SHARE) * overhead,
            slow_from=since,
            slow_factor=factor,
        )

    def candidates(self) -> tuple[Setting, ...]:
        """Every setting that may be tried, each once, sorted; the incumbent is one of them."""
        workload = self.workload
        made = {
            Setting(share * self.ceiling_seconds, preferred, instances, workload.max_batch_size)
            for share in DELAY_SHARES
            for preferred in preferred_sets(workload.max_batch_size)
            for instances in range(1, workload.max_instances + 1)
        }
        return tuple(sorted(made | {self.incumbent}))

    def rates(self, aim: Aim) -> tuple[float, ...]:
        """The load levels of a trial as planned: today's rate, and for capacity those above it."""
        if aim is Aim.EFFICIENCY:
            return (self.rate,)
        levels = math.floor(math.log(MOST_LOAD) / math.log(STEP))
        return tuple(self.rate * STEP**level for level in range(levels + 1))


def system_of(workload: BenchWorkload, scenario: Scenario) -> System:
    """Return the workload under a scenario, with an incumbent that holds the ceiling with something to spare.

    Where the workload's own incumbent does not, it loses its preferred sizes; where that is not enough, today's rate
    is lowered in small steps until one of the two does. Raises InvalidInput when none does at hardly any rate.
    """
    rate = workload.requests_per_second
    for _ in range(MOST_RETREATS):
        for preferred in dict.fromkeys([workload.preferred_batch_size, ()]):
            canonical = () if preferred == (workload.max_batch_size,) else tuple(sorted(set(preferred)))
            system = System(workload, scenario, rate, Setting(0.0, canonical, 1, workload.max_batch_size))
            if _holds_well(system):
                return system
        rate *= RETREAT
    raise InvalidInput(
        "ceiling_ms", workload.ceiling_ms, f"a ceiling that one instance can hold when {scenario}"
    )


def _holds_well(system: System) -> bool:
    latency = system.long_run(system.incumbent, system.brief_traffic(system.rate)).latency
    return p99(latency) <= SPARE * system.ceiling_seconds


def p99(latency: Floats) -> float:
    """Return the smallest latency that at most 1 % of requests exceed."""
    return float(np.quantile(latency, 0.99, method="inverted_cdf"))


def preferred_sets(max_batch_size: int) -> tuple[tuple[int, ...], ...]:
    """None, powers of two below the largest batch, and neighbouring pairs of them, the largest sizes first."""
    powers = [2**k for k in range(1, max_batch_size.bit_length()) if 2**k < max_batch_size]
    sets = [*((size,) for size in powers), *pairwise(powers)]
    return ((), *sorted(sets, key=lambda sizes: (-sizes[-1], len(sizes)))[: MOST_SETS - 1])


def curve_seconds(workload: BenchWorkload, changes: Changes) -> Floats:
    """Return compute seconds by batch size on an idle device, index 0 unused, shape (max_batch_size + 1,)."""
    size = np.arange(workload.max_batch_size + 1, dtype=np.float64)
    charged = size.copy()
    if changes.stepped:
        charged = 0.5 * (size + 2.0 ** np.ceil(np.log2(np.maximum(size, 1.0))))
    if changes.super_linear:
        charged = charged * (1.0 + 0.5 * size / workload.max_batch_size)
    return (workload.fixed_ms + workload.item_ms * charged) / 1e3


def _background(seconds: float, seed: int | None) -> tuple[Floats, Floats]:
    """Since when compute takes how many times as long: quiet and busy in turns, for at least so many seconds."""
    turns = math.ceil(seconds / (BUSY_SECONDS + QUIET_SECONDS)) + 2
    if seed is None:
        dice = np.random.default_rng(TRUTH_SEED)
        spread = -np.log1p(-(np.arange(turns) + 0.5) / turns)
        quiet, busy = dice.permutation(spread), dice.permutation(spread)
    else:
        turns = 2 * turns + 20  # by chance many may be short
        dice = np.random.default_rng([seed, 0xB6])
        quiet, busy = dice.exponential(size=turns), dice.exponential(size=turns)
    lengths = np.stack([QUIET_SECONDS * quiet, BUSY_SECONDS * busy], axis=1).ravel()
    return np.concatenate(([0.0], np.cumsum(lengths)[:-1])), np.tile([1.0, SLOWED], turns)
