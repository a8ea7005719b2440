"""A study's trials in the words of samplers that know nothing of batching: one value and one constraint each."""

from __future__ import annotations

import math

from autotuner.domain.judgement import Verdict
from autotuner.domain.selection import baseline, capacity_per_second, compute_per_inference
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.space import SEARCHED_KINDS
from autotuner.domain.study import Step, Study, Trial
from autotuner.domain.target import Objective

EFFICIENCY_WEIGHT = 0.015
"""Largest relative part of efficiency in a capacity: within the 3 % that count as a tie."""

_LEAST_VIOLATION = 0.01
_MOST_VIOLATION = 5.0
_UNSEEN_VIOLATION = 1.0
"""For a trial that was rejected before anything was counted."""


def searched(study: Study) -> list[Trial]:
    """Return every judged trial that a search learns from, in order."""
    return [trial for trial in study.trials if trial.kind in SEARCHED_KINDS and trial.verdict is not None]


def measured(trial: Trial) -> list[Step]:
    """Return the steps that say something of the configuration: not void; warming up only where nothing else was."""
    believed = [step for step in trial.steps if step.verdict is not Verdict.VOID]
    return [step for step in believed if step.level.number >= 0] or believed


def violation(trial: Trial) -> float | None:
    """Return the constraint of a judged trial: at most 0 where today's load was accepted; None where nothing is known.

    The natural logarithm of the bad share over the allowed share at the lowest level, half a request added, at
    most ±5. Without an acceptance it is positive, however few requests were seen.
    """
    steps = measured(trial)
    if not steps:
        return _UNSEEN_VIOLATION if trial.verdict is Verdict.REJECT else None
    lowest = min(steps, key=lambda step: step.level.share)
    share = (lowest.candidate.bad_at_most + 0.5) / (lowest.candidate.total + 1.0)
    raw = max(-_MOST_VIOLATION, min(_MOST_VIOLATION, math.log(share / ALLOWED_BAD_SHARE)))
    return min(raw, -_LEAST_VIOLATION) if trial.accepted else max(raw, _LEAST_VIOLATION)


def value(study: Study, trial: Trial) -> float:
    """Return what the sampler maximises, for a trial that measured something.

    Where capacity leads: the highest accepted rate in requests per second, changed by at most 1.5 % for compute
    per inference against the incumbent's; half the lowest level's rate stands for a trial that was never accepted.
    Where efficiency leads: minus compute seconds per inference; the most that was seen stands for an unknown one.
    """
    spent = _spent(trial)
    if study.plan.target.objective is Objective.EFFICIENCY:
        return -(spent if spent is not None else _most_spent(study))
    capacity = capacity_per_second(study, trial)
    if capacity is None:
        lowest_share = min((level.share for level in trial.levels), default=0.0)
        return 0.5 * lowest_share * (study.reference_rate_per_second or 0.0)
    start = baseline(study)
    usual = _spent(start) if start else None
    if spent is None or usual is None or spent + usual <= 0.0:
        return capacity
    return capacity * (1.0 + EFFICIENCY_WEIGHT * (usual - spent) / (usual + spent))


def _most_spent(study: Study) -> float:
    known = [spent for trial in searched(study) if (spent := _spent(trial)) is not None]
    return max(known, default=0.0)


def _spent(trial: Trial) -> float | None:
    """Compute seconds per inference at the lowest accepted level, else at any measured one."""
    accepted = compute_per_inference(trial)
    if accepted is not None:
        return accepted
    uses = [step.use for step in measured(trial) if step.use is not None]
    return next(
        (u.compute_seconds_per_inference for u in uses if u.compute_seconds_per_inference is not None), None
    )
