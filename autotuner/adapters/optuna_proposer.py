"""Optuna behind the Proposer port: a sampler suggests, the search space decides.

The Optuna study is rebuilt in memory from the study's own trials at every ask, and the seed comes from the records
too: the records alone make the proposal, on any machine. Every suggestion, of whichever sampler, start-ups
included, passes the filter of `domain.space`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.distributions import IntDistribution

from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.selection import baseline, capacity_per_second, compute_per_inference
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.space import SEARCHED_KINDS, Examination, SearchSpace, examine, why_done
from autotuner.domain.study import Proposal, Step, Study, Trial
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput

FIRST_SAMPLED_TRIAL = 4
"""Trials on record before TPE or GP trust their model: the incumbent and up to three informative starts."""

MAX_ASKS = 8
"""Suggestions asked for before the nearest admissible candidate is taken instead."""

EFFICIENCY_WEIGHT = 0.015
"""Largest relative part of efficiency in a capacity: within the 3 % that count as a tie."""

START_UP = "start-up"

_CONSTRAINT = "log_bad_share_over_allowed"
_LEAST_VIOLATION = 0.01
_MOST_VIOLATION = 5.0
_UNSEEN_VIOLATION = 1.0
"""For a trial that was rejected before anything was counted."""

_SAMPLERS: Mapping[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST_SAMPLED_TRIAL),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=FIRST_SAMPLED_TRIAL),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


class OptunaProposer:
    """The Proposer port over Optuna's samplers `tpe`, `gp` and `random`.

    sampler: its name; None takes the one each study's plan names. Raises InvalidInput for an unknown name, and
    for `gp` where torch is not installed: at once when given here, else at the first proposal.
    """

    def __init__(self, sampler: str | None = None) -> None:
        if sampler is not None:
            _check_sampler(sampler)
        self._sampler = sampler
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def propose(self, study: Study) -> Proposal | None:
        """Return the next configuration to try, or None when nothing is worth a trial (`space.why_done` says why).

        Raises InvalidInput as the constructor does, and for a study that has not read its incumbent.
        """
        name = self._sampler or study.plan.sampler
        _check_sampler(name)
        examination = examine(study)
        if why_done(study, examination):
            return None
        remaining = (
            f"{len(examination.admissible)} of {len(examination.space.candidates)} candidates remain "
            f"({examination.exclusions.describe()})"
        )
        start = _start(study, examination)
        if start is not None:
            configuration, why = start
            return Proposal(configuration, f"{why}; {remaining}", START_UP)
        configuration, why = _ask(study, examination, name)
        return Proposal(configuration, f"{why}; {remaining}", name)


def _check_sampler(name: str) -> None:
    if name not in _SAMPLERS:
        raise InvalidInput("sampler", name, f"one of {', '.join(_SAMPLERS)}")
    if name == "gp" and importlib.util.find_spec("torch") is None:
        raise InvalidInput(
            "sampler", name, "gp only where torch is installed: pip install 'autotuner[gp]'; else tpe"
        )


def seed_of(study: Study) -> int:
    """Return the sampler's seed, 0 to 2**32 - 1: a digest of study id, plan seed and number of trials."""
    text = f"{study.id}\n{study.plan.seed}\n{len(study.trials)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


# ---- informative starts


def _start(study: Study, examination: Examination) -> tuple[Configuration, str] | None:
    """The next start that is admissible, has not been tried and is not made pointless by the one before it."""
    if len(_searched(study)) >= FIRST_SAMPLED_TRIAL:
        return None
    admissible, results = set(examination.admissible), {t.configuration: t for t in _searched(study)}
    incumbent = examination.incumbent
    for configuration, why in _starts(incumbent):
        if configuration in admissible:
            return configuration, why
        tried = results.get(configuration)
        more = configuration.instance_count > incumbent.instance_count
        if more and tried is not None and (violation(tried) or 0.0) > 0.0:
            return None
    return None


def _starts(incumbent: Configuration) -> Iterable[tuple[Configuration, str]]:
    bare, count = replace(incumbent, preferred_batch_size=()), incumbent.instance_count
    yield bare, "start-up: the incumbent without preferred sizes shows what they cost as a cap on the batch"
    yield (
        replace(bare, instance_count=count + 1),
        "start-up: one more instance, no preferred sizes: shows how instances interfere",
    )
    yield (
        replace(bare, instance_count=count + 2),
        "start-up: two more instances, no preferred sizes: shows whether the gain goes on",
    )


# ---- the study as Optuna sees it


@dataclass(frozen=True)
class _Axes:
    """The space as whole numbers, near ones meaning alike: preferred sizes are ordered by the cap they set."""

    delays: tuple[int, ...]
    preferred: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, space: SearchSpace) -> _Axes:
        batch = space.candidates[0].max_batch_size
        return cls(
            tuple(sorted({c.max_queue_delay_microseconds for c in space.candidates})),
            tuple(
                sorted(
                    {c.preferred_batch_size for c in space.candidates},
                    key=lambda s: (max(s, default=batch), s),
                )
            ),
            tuple(sorted({c.instance_count for c in space.candidates})),
        )

    def distributions(self) -> dict[str, Any]:
        return {
            "delay": IntDistribution(0, len(self.delays) - 1),
            "preferred": IntDistribution(0, len(self.preferred) - 1),
            "instances": IntDistribution(0, len(self.counts) - 1),
        }

    def point(self, configuration: Configuration) -> dict[str, int]:
        return {
            "delay": self.delays.index(configuration.max_queue_delay_microseconds),
            "preferred": self.preferred.index(configuration.preferred_batch_size),
            "instances": self.counts.index(configuration.instance_count),
        }

    def distance(self, one: Mapping[str, int], other: Mapping[str, int]) -> float:
        """Sum over the axes of the distance as a share of the axis."""
        lengths = {"delay": len(self.delays), "preferred": len(self.preferred), "instances": len(self.counts)}
        return sum(abs(one[name] - other[name]) / max(1, length - 1) for name, length in lengths.items())


def _ask(study: Study, examination: Examination, name: str) -> tuple[Configuration, str]:
    """The sampler's first admissible suggestion, else the admissible candidate nearest to what it wanted first."""
    axes = _Axes.of(examination.space)
    rebuilt = _rebuild(study, axes, set(examination.space.candidates), _SAMPLERS[name](seed_of(study)))
    points = {candidate: axes.point(candidate) for candidate in examination.admissible}
    by_point = {tuple(sorted(point.items())): candidate for candidate, point in points.items()}
    told, first = len(rebuilt.trials), dict[str, int]()
    for _ in range(MAX_ASKS):
        wanted = dict(rebuilt.ask(axes.distributions()).params)
        first = first or wanted
        found = by_point.get(tuple(sorted(wanted.items())))
        if found is not None:
            return found, f"{name} suggests it from {told} measured trials"
    nearest = min(examination.admissible, key=lambda c: (axes.distance(points[c], first), c.complexity(), c))
    return nearest, f"the admissible candidate nearest to what {name} suggested {MAX_ASKS} times in vain"


def _rebuild(
    study: Study, axes: _Axes, known: set[Configuration], sampler: optuna.samplers.BaseSampler
) -> optuna.Study:
    """An in-memory Optuna study that holds every trial that measured something, aborted ones included."""
    rebuilt = optuna.create_study(sampler=sampler, direction="maximize")
    for trial in _searched(study):
        constraint = violation(trial)
        if constraint is None or trial.configuration not in known:
            continue
        rebuilt.add_trial(
            optuna.trial.create_trial(
                value=value(study, trial),
                params=axes.point(trial.configuration),
                distributions=axes.distributions(),
                constraints={_CONSTRAINT: constraint},
            )
        )
    return rebuilt


def _searched(study: Study) -> list[Trial]:
    return [trial for trial in study.trials if trial.kind in SEARCHED_KINDS and trial.verdict is not None]


def _measured(trial: Trial) -> list[Step]:
    """Steps that say something about the configuration: not void, and warming up only where nothing else was."""
    believed = [step for step in trial.steps if step.verdict is not Verdict.VOID]
    return [step for step in believed if step.level.number >= 0] or believed


def violation(trial: Trial) -> float | None:
    """Return the constraint of a judged trial: at most 0 where today's load was accepted; None where nothing is known.

    The natural logarithm of the bad share over the allowed share at the lowest level, half a request added, at
    most ±5. Without an acceptance it is positive, however few requests were seen.
    """
    steps = _measured(trial)
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
    known = [spent for trial in _searched(study) if (spent := _spent(trial)) is not None]
    return max(known, default=0.0)


def _spent(trial: Trial) -> float | None:
    """Compute seconds per inference at the lowest accepted level, else at any measured one."""
    accepted = compute_per_inference(trial)
    if accepted is not None:
        return accepted
    uses = [step.use for step in _measured(trial) if step.use is not None]
    return next(
        (u.compute_seconds_per_inference for u in uses if u.compute_seconds_per_inference is not None), None
    )
