"""What a study was worth: incumbent against winner at equal load and in capacity, and what finding out cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotuner.domain.configuration import Configuration
from autotuner.domain.gpu_hours import Carried, GpuHours, gpu_hours
from autotuner.domain.judgement import Verdict
from autotuner.domain.ramp import production_level
from autotuner.domain.selection import baseline, choose
from autotuner.domain.study import Outcome, Step, Study, Trial, TrialKind

MILLION = 1_000_000
SECONDS_PER_HOUR = 3600.0
NOT_KEPT = GpuHours(unknown="not kept when this was recorded")


@dataclass(frozen=True)
class Standing:
    """One configuration as the study measured it; None where it was not measured.

    capacity_per_second: highest accepted rate per replica; at_least: only the traffic limited it.
    p99_seconds, compute_seconds_per_million: at production's load per replica.
    cost_per_million: cost of a million inferences at capacity: replica cost per hour ÷ (capacity × 3600) × 10⁶.
    """

    configuration: Configuration
    capacity_per_second: float | None
    at_least: bool
    p99_seconds: float | None
    compute_seconds_per_million: float | None
    cost_per_million: float | None


@dataclass(frozen=True)
class Benefit:
    """Incumbent and, if there is one, winner; their capacities' ratio; harm against its budget; GPU hours."""

    incumbent: Standing | None
    winner: Standing | None
    capacity_ratio: float | None
    candidates: int
    harm_requests: float
    harm_budget_requests: int
    gpu_hours: GpuHours = NOT_KEPT


def benefit(study: Study) -> Benefit:
    """Return what a study was worth so far. The winner is the promoted one, else the best candidate there was."""
    before = baseline(study)
    old = _standing(study, [before, *_of(study, TrialKind.CONTROL)]) if before else None
    best = winning_trial(study)
    new = _standing(study, [best]) if best is not None else None
    ratio = None
    if old and new and old.capacity_per_second and new.capacity_per_second:
        ratio = new.capacity_per_second / old.capacity_per_second
    return Benefit(
        incumbent=old,
        winner=new,
        capacity_ratio=ratio,
        candidates=len(_of(study, TrialKind.CANDIDATE)),
        harm_requests=study.harm_requests,
        harm_budget_requests=study.plan.slo.harm_budget_requests,
        gpu_hours=gpu_hours(study, _carried(old), _carried(new)),
    )


def _carried(standing: Standing | None) -> Carried | None:
    return Carried(standing.capacity_per_second, standing.at_least) if standing is not None else None


def _of(study: Study, kind: TrialKind) -> list[Trial]:
    return [trial for trial in study.trials if trial.kind is kind]


def winning_trial(study: Study) -> Trial | None:
    """Return the trial whose figures stand for the winner, or for the best candidate while there is no winner.

    A confirmed winner is shown by its fresh data alone: the search's own figures flatter it.
    """
    if study.winner is None:
        return None if study.outcome is Outcome.PROMOTED else choose(study).trial
    chosen = study.trials[study.winner]
    fresh = [t for t in _of(study, TrialKind.CONFIRMATION) if t.configuration == chosen.configuration]
    return fresh[-1] if fresh and fresh[-1].verdict is Verdict.ACCEPT else chosen


def _standing(study: Study, trials: Iterable[Trial]) -> Standing:
    known = list(trials)
    level = production_level(study.plan)
    steps = [step for trial in known for step in trial.accepted]
    today = next((step for step in steps if step.level == level), None)
    top = max(steps, key=lambda step: step.level.share, default=None)
    capacity = _capacity(study, top)
    cost = study.plan.target.replica_cost_per_hour
    work = today.use.compute_seconds_per_inference if today and today.use else None
    return Standing(
        configuration=known[0].configuration,
        capacity_per_second=capacity,
        at_least=any(trial.censored for trial in known),
        p99_seconds=today.latency.p99_seconds if today else None,
        compute_seconds_per_million=work * MILLION if work is not None else None,
        cost_per_million=cost / (capacity * SECONDS_PER_HOUR) * MILLION if cost and capacity else None,
    )


def _capacity(study: Study, top: Step | None) -> float | None:
    if top is None or study.reference_rate_per_second is None:
        return None
    return top.level.share * study.reference_rate_per_second
