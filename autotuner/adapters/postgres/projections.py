"""Rows of `trials` and `steps` from a study, and which of them a change of the study touches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotuner.bookkeeping.rules import plain
from autotuner.domain.judgement import Counts
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.study import Step, Study, Trial, TrialState
from autotuner.records import trial_text

Row = Mapping[str, Any]


def changed_trials(before: Study, after: Study) -> list[Row]:
    """Return the rows of the trials that are new or differ. What is the same object is not looked into."""
    known = {trial.number: trial for trial in before.trials}
    same_rate = before.reference_rate_per_second == after.reference_rate_per_second
    rows = []
    for trial in after.trials:
        was = known.get(trial.number)
        if was is trial and same_rate:
            continue
        row = trial_row(after, trial)
        if was is None or trial_row(before, was) != row:
            rows.append(row)
    return rows


def changed_steps(before: Study, after: Study) -> list[Row]:
    """Return the rows of the steps that are new or differ."""
    known = {trial.number: trial.steps for trial in before.trials}
    rows = []
    for trial in after.trials:
        was = known.get(trial.number, ())
        for place, step in enumerate(trial.steps):
            if place >= len(was) or (was[place] is not step and was[place] != step):
                rows.append(step_row(after.id, trial.number, place, step))
    return rows


def trial_row(study: Study, trial: Trial) -> Row:
    """Return a trial as a row of `trials`."""
    configuration = trial.configuration
    return {
        "study_id": study.id,
        "target": study.plan.target.name,
        "number": trial.number,
        "kind": trial.kind.value,
        "state": trial.state.value,
        "replicas": list(trial.replicas),
        "max_queue_delay_microseconds": configuration.max_queue_delay_microseconds,
        "preferred_batch_size": list(configuration.preferred_batch_size),
        "instance_count": configuration.instance_count,
        "max_batch_size": configuration.max_batch_size,
        "verdict": None if trial.verdict is None else trial.verdict.value,
        "limited_by": plain(trial.limited_by),
        "reason": plain(trial.reason),
        "capacity_per_second": capacity_per_second(study, trial),
        "harm_requests": trial.harm_requests,
        "proposed_at": trial.proposed_at,
        "ended_at": trial.ended_at,
        "record": trial_text(trial) if trial.state is TrialState.JUDGED and trial.tail is None else None,
    }


def step_row(study_id: str, trial_number: int, position: int, step: Step) -> Row:
    """Return a step as a row of `steps`; position: its place in the trial, from 0."""
    judgement = step.judgement
    low, high = judgement.interval
    return {
        "study_id": study_id,
        "trial_number": trial_number,
        "position": position,
        "level_number": step.level.number,
        "share": step.level.share,
        "attempt": step.attempt,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        **_counts("candidate", step.candidate),
        **_counts("control", step.control),
        "rate_per_second": step.rate_per_second,
        "total_rate_per_second": step.total_rate_per_second,
        "p50_seconds": step.latency.p50_seconds,
        "p95_seconds": step.latency.p95_seconds,
        "p99_seconds": step.latency.p99_seconds,
        **_use(step),
        "harm_requests": step.harm_requests,
        "verdict": judgement.verdict.value,
        "estimate": judgement.estimate,
        "interval_low": low,
        "interval_high": high,
        "dispersion": judgement.dispersion,
        "log_e_accept": judgement.log_e_accept,
        "log_e_reject": judgement.log_e_reject,
        "reason": plain(judgement.reason),
    }


def _counts(side: str, counts: Counts) -> Row:
    return {
        f"{side}_requests": counts.total,
        f"{side}_bad_at_most": counts.bad_at_most,
        f"{side}_bad_at_least": counts.bad_at_least,
        f"{side}_failed": counts.failed,
    }


def _use(step: Step) -> Row:
    names = (
        "queue_seconds",
        "compute_seconds",
        "realised_batch",
        "compute_seconds_per_inference",
        "device_utilisation",
        "memory_used_bytes",
        "memory_total_bytes",
    )
    return {name: None if step.use is None else getattr(step.use, name) for name in names}
