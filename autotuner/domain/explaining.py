"""Which judged steps have slow requests to be explained, and when: evidence beside the verdict, never a part of it.

Spans reach whoever keeps them some seconds after a request, so a step is asked about a while after it was judged, by
which time the study has gone on. Nothing waits for an answer but the end of the study, and not for long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from autotuner.domain.observation import Observation, Told
from autotuner.domain.slow_requests import Question
from autotuner.domain.study import Step, Study

LAST_ANSWER_WITHIN = timedelta(seconds=20)
"""How long, after spans can be read, a study that is otherwise over waits for the answer about its last step."""


@dataclass(frozen=True)
class Asked:
    """A step whose slow requests are to be explained: its trial, its place there, and the question."""

    trial: int
    step: int
    question: Question


def due(study: Study, now: datetime) -> Asked | None:
    """Return the oldest step that has slow requests nobody has explained, once their spans can be read."""
    store = study.plan.target.traces
    oldest = _oldest_unexplained(study)
    if store is None or oldest is None or now < oldest[2].ended_at + store.arrival:
        return None
    number, place, step = oldest
    question = Question(
        step.started_at,
        step.ended_at,
        study.plan.slo.p99_ceiling_seconds,
        study.trials[number].replicas,
    )
    return Asked(number, place, question)


def awaited(study: Study, now: datetime) -> bool:
    """Say whether a study that is otherwise over should stay a little for an answer."""
    store = study.plan.target.traces
    oldest = _oldest_unexplained(study)
    if store is None or oldest is None:
        return False
    return now < oldest[2].ended_at + store.arrival + LAST_ANSWER_WITHIN


def _oldest_unexplained(study: Study) -> tuple[int, int, Step] | None:
    """Trial, place and step; steps are explained in order, so none is before the newest one that is."""
    found = None
    for trial in reversed(study.trials):
        for place in range(len(trial.steps) - 1, -1, -1):
            step = trial.steps[place]
            if step.slow is not None:
                return found
            if step.candidate.bad_at_most > 0:
                found = trial.number, place, step
    return found


def explained(study: Study, seen: Observation) -> Study:
    """Return the study with what traces told noted at the step that they told it of."""
    if seen.told is None:
        return study
    trials = tuple(
        replace(trial, steps=tuple(_noted(step, seen.told, place) for place, step in enumerate(trial.steps)))
        if trial.number == seen.told.trial
        else trial
        for trial in study.trials
    )
    return replace(study, trials=trials)


def _noted(step: Step, told: Told, place: int) -> Step:
    return replace(step, slow=told.slow) if place == told.step and step.slow is None else step
