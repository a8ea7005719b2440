"""A workload under a scenario with an aim, as a contestant meets it: the problem, its trials, and the truth."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from autotuner.batching.trials import Aim, Problem, Setting, Tried
from autotuner.benchmark.exhaustive import Report, Truth
from autotuner.benchmark.scenarios import Scenario
from autotuner.benchmark.system import DAY_SECONDS, System, system_of
from autotuner.benchmark.traffic import draw
from autotuner.benchmark.window import Trial, baseline_dispersion, confirmation, trial, window_seconds
from autotuner.benchmark.workloads import BenchWorkload

_RECORDING = 0x4EC0
_SLACK = 1e-9

RECORDED_WINDOWS = 10
"""Length of the recording that a contestant is given: production was there long before the study."""


class World:
    """What is to be tuned, and for what.

    cache_folder: where the truth is kept. report: receives a sentence when the truth has to be computed.
    """

    def __init__(
        self,
        workload: BenchWorkload,
        scenario: Scenario,
        aim: Aim,
        cache_folder: Path,
        report: Report = lambda _: None,
    ) -> None:
        self.aim = aim
        self.system: System = system_of(workload, scenario)
        self._cache_folder = cache_folder
        self._report = report
        self._dispersion = lru_cache(maxsize=256)(lambda seed: baseline_dispersion(self.system, seed))
        self._p99_at = lru_cache(maxsize=4096)(self._long_p99)

    @cached_property
    def truth(self) -> Truth:
        """What candidates really do, and which is the best."""
        return Truth(self.system, self.aim, self._cache_folder, self._report)

    def problem(self, seed: int) -> Problem:
        """Return what a contestant knows before the first trial. seed: of the study; its recording comes from it."""
        system = self.system
        chance = int(np.random.SeedSequence([seed, _RECORDING]).generate_state(1)[0])
        seconds = RECORDED_WINDOWS * window_seconds(system.rate)
        recording = draw(system.process, system.rate, seconds, chance, DAY_SECONDS)
        return Problem(
            candidates=system.candidates(),
            incumbent=system.incumbent,
            ceiling_seconds=system.ceiling_seconds,
            aim=self.aim,
            rates=system.rates(self.aim),
            arrivals=recording.arrivals,
            seed=seed,
        )

    def trial(self, setting: Setting, seed: int, number: int, highest_rate: float = math.inf) -> Trial:
        """Return what trial `number` of the study with this seed measures, and what it costs.

        highest_rate: no level above it is opened; where even today's is above it, it is the only level.
        """
        kept = tuple(r for r in self.system.rates(self.aim) if r <= highest_rate * (1.0 + _SLACK))
        rates = kept or (highest_rate,)
        return trial(self.system, setting, rates, self._dispersion(seed), number, seed)

    def confirmation(self, setting: Setting, seed: int, number: int) -> tuple[bool, float]:
        """Return whether the setting is confirmed on fresh data, and how many slow requests above 1 % that caused."""
        return confirmation(self.system, setting, self._dispersion(seed), number, seed)

    def measure(self, setting: Setting, seed: int, number: int = 1) -> Tried:
        """Return what that trial measures."""
        return self.trial(setting, seed, number).tried

    def reaches_today(self, highest_rate: float) -> bool:
        """Say whether a trial with this limit opens the level of today's rate."""
        return self.system.rate <= highest_rate * (1.0 + _SLACK)

    def true_p99(self, setting: Setting, number: int, highest_rate: float = math.inf) -> float:
        """Return the setting's true p99, in seconds, at what was today's rate during trial `number`.

        highest_rate: of that trial; where it is below today's, the p99 at that rate.
        """
        rate = self.system.rate_at(number)
        if not self.reaches_today(highest_rate):
            return self._p99_at(setting, rate * highest_rate / self.system.rate)
        if rate == self.system.final_rate:
            return self.truth.p99_seconds(setting)
        return self._p99_at(setting, rate)

    def _long_p99(self, setting: Setting, rate: float) -> float:
        return self.system.tail(setting, self.system.long_traffic(rate))[0]
