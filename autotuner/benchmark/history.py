"""A study's trials in the words of samplers that know nothing of batching: points, values, constraints."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from autotuner.batching.trials import Aim, History, Problem, Setting, Tried
from autotuner.domain.selection import TIE
from autotuner.domain.slo import ALLOWED_BAD_SHARE

_MOST_VIOLATION = 5.0
_LEAST_VIOLATION = 0.01

Axis = TypeVar("Axis")


def tried_settings(history: History) -> frozenset[Setting]:
    """Return what has been tried."""
    return frozenset(tried.setting for tried in history)


def dice_of(problem: Problem, history: History) -> np.random.Generator:
    """Return chance that depends on the study's seed and on how many trials there were."""
    text = f"{problem.seed}\n{len(history)}"
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def capacity(tried: Tried) -> float:
    """Return the highest accepted rate, all lower ones accepted too; 0 when not even the lowest was."""
    accepted = 0.0
    for level in tried.levels:
        if not level.accepted:
            break
        accepted = level.rate_per_second
    return accepted


def held(tried: Tried) -> bool:
    """Say whether the lowest level was accepted."""
    return bool(tried.levels) and tried.levels[0].accepted


def value(problem: Problem, tried: Tried) -> float:
    """Return what a sampler maximises: capacity in requests per second, or inferences per busy second of the device.

    Half the lowest level's rate stands for a capacity that is not known, as in the product.
    """
    lowest = tried.levels[0]
    if problem.aim is Aim.CAPACITY:
        return capacity(tried) or 0.5 * lowest.rate_per_second
    spent = lowest.busy_seconds_per_inference
    return 1.0 / spent if spent else 0.0


def violation(tried: Tried) -> float:
    """Return the log of the slow share over what is allowed, at the lowest level; never above 0 where it was accepted.

    Half a request is added; at most ±5, and always positive without an acceptance, as in the product.
    """
    lowest = tried.levels[0]
    share = (lowest.bad + 0.5) / (lowest.total + 1.0)
    raw = max(-_MOST_VIOLATION, min(_MOST_VIOLATION, math.log(share / ALLOWED_BAD_SHARE)))
    return min(raw, -_LEAST_VIOLATION) if lowest.accepted else max(raw, _LEAST_VIOLATION)


def best_accepted(problem: Problem, history: History) -> Setting:
    """Return the best accepted trial's setting, among equals the simplest; the incumbent when none was accepted."""
    known = [tried for tried in history if held(tried)]
    if not known:
        return problem.incumbent
    worth = [value(problem, tried) for tried in known]
    least = max(worth) * (1.0 - (TIE if problem.aim is Aim.CAPACITY else 0.0))
    tied = [tried for tried, worth_ in zip(known, worth, strict=True) if worth_ >= least]
    return min(tied, key=lambda tried: (tried.setting.complexity(), tried.setting)).setting


def winner(problem: Problem, history: History) -> Setting:
    """Return what the product would confirm, as `selection.choose` has it; the incumbent when nothing was accepted.

    Of what was accepted at today's rate the one that carries most, or needs least of the device; within TIE the leaner
    and then the simpler. Not asked is whether it gains enough to be worth a promotion.
    """
    known = [trial for trial in history if held(trial) and trial.meets(problem.rates[0])]
    if not known:
        return problem.incumbent
    if problem.aim is Aim.CAPACITY:
        most = max(capacity(trial) for trial in known)
        known = [trial for trial in known if capacity(trial) >= most * (1.0 - TIE)]
    spent = [trial.levels[0].busy_seconds_per_inference or math.inf for trial in known]
    tied = [trial for trial, each in zip(known, spent, strict=True) if each <= min(spent) * (1.0 + TIE)]
    return min(tied, key=lambda trial: trial.setting.complexity()).setting


@dataclass(frozen=True)
class Axes:
    """The candidates as points of whole numbers; preferred sets are ordered by the largest batch they allow."""

    delays: tuple[float, ...]
    preferred: tuple[tuple[int, ...], ...]
    instances: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem) -> Axes:
        """Return the axes of a problem's candidates."""
        most = problem.incumbent.max_batch_size
        sets = {candidate.preferred for candidate in problem.candidates}
        return cls(
            tuple(sorted({candidate.delay_seconds for candidate in problem.candidates})),
            tuple(sorted(sets, key=lambda sizes: (max(sizes, default=most), sizes))),
            tuple(sorted({candidate.instances for candidate in problem.candidates})),
        )

    @property
    def lengths(self) -> Mapping[str, int]:
        """Places on each axis, by its name."""
        return {
            "delay": len(self.delays),
            "preferred": len(self.preferred),
            "instances": len(self.instances),
        }

    def point(self, setting: Setting) -> dict[str, int]:
        """Return where a candidate lies."""
        return {
            "delay": _place(self.delays, setting.delay_seconds),
            "preferred": _place(self.preferred, setting.preferred),
            "instances": _place(self.instances, setting.instances),
        }

    def distance(self, one: Mapping[str, int], other: Mapping[str, int]) -> float:
        """Return the sum over the axes of the distance as a share of the axis."""
        return sum(abs(one[name] - other[name]) / max(1, length - 1) for name, length in self.lengths.items())


def _place(axis: Sequence[Axis], found: Axis) -> int:
    return axis.index(found)
