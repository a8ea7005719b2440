"""What outlives a trial's window: harm that is still to be counted, and loads that may still take effect.

Users go on suffering after a configuration is taken off, and a load that was given up may succeed behind our back.
Neither is forgotten with the trial it belongs to: the harm budget pays for the one, and nothing rests on what a
replica serves while the other is open (guards rules 3 and 6).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from autotuner.domain.evidence import answered, recounted
from autotuner.domain.judgement import Verdict
from autotuner.domain.observation import ActionResult, Observation
from autotuner.domain.study import IN_PRODUCTION, Study, Trial, TrialState

DRAIN_LIMIT = timedelta(seconds=10)
"""How long a replica may take to answer what it already has before it is loaded anew."""


def closed_window(trial: Trial, at: datetime) -> Trial:
    """Return the trial without an open window; the harm of what was sent in it goes on counting in the tail.

    Replicas of production have no tail: their traffic goes on, and what they answer next is nobody's harm any more.
    """
    if trial.window is None:
        return trial
    if trial.kind in IN_PRODUCTION:
        return replace(trial, closed_harm_requests=trial.harm_requests, window=None)
    tail = replace(trial.window, increments=(), closed_at=at)
    return replace(folded(trial), window=None, tail=tail)


def folded(trial: Trial) -> Trial:
    """Return the trial with its tail closed for good."""
    harm = trial.tail.harm_requests if trial.tail else 0.0
    return replace(trial, closed_harm_requests=trial.closed_harm_requests + harm, tail=None)


def aftermath(study: Study, seen: Observation) -> Study:
    """Return the study with the harm of closed windows counted on until the last request in them is answered.

    A configuration that is taken off still answers what it was sent, late: a third or more of the harm it does.
    """
    if not any(trial.tail for trial in study.trials):
        return study
    return replace(study, trials=tuple(_counted_on(study, trial, seen) for trial in study.trials))


def _counted_on(study: Study, trial: Trial, seen: Observation) -> Trial:
    tail, newest = trial.tail, study.trial
    if tail is None or tail.closed_at is None:
        return trial
    if newest is not None and newest.window is not None:
        return folded(trial)
    trial = replace(trial, tail=recounted(study, trial, tail, seen.sample))
    since, flush = seen.at - tail.closed_at, study.plan.pace.flush_interval
    counted_since = seen.sample is not None and seen.sample.at >= tail.closed_at
    limit = flush if counted_since and answered(study, trial, seen.sample) else flush + DRAIN_LIMIT
    return folded(trial) if since >= limit else trial


def settled(study: Study, replica: str, result: ActionResult) -> Study:
    """Return the study with it noted whether a load on `replica` may still take effect after it was given up.

    Loads of a model queue up in the server: one that succeeded has all earlier ones behind it.
    """
    others = tuple(name for name in study.unsettled if name != replica)
    if result.done:
        return replace(study, unsettled=others)
    return replace(study, unsettled=(*others, replica)) if result.retry else study


def interrupted(trial: Trial, at: datetime, reason: str) -> Trial:
    """Return the trial closed because the study ends."""
    return replace(
        closed_window(trial, at),
        state=TrialState.JUDGED,
        verdict=trial.verdict
        or (Verdict.ACCEPT if trial.accepted and trial.kind not in IN_PRODUCTION else Verdict.VOID),
        limited_by=trial.limited_by or "evidence",
        reason=reason,
        ended_at=at,
    )
