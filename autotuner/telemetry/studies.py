"""What a study's steps look like from outside: spans of its trials, fields of its log lines, and counts.

All is told after a step is recorded, from the study before it and after it, so nothing is told that did not happen; a
worker that dies in between tells less, never more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import IN_PRODUCTION, Outcome, Phase, Study, Trial, TrialState
from autotuner.telemetry import traces
from autotuner.telemetry.traces import NOTHING, Course, Span, Value

if TYPE_CHECKING:
    from autotuner.telemetry.metrics import Instruments  # half of what importing the controller would cost


def trial_under_way(study: Study) -> Trial | None:
    """Return the trial that is being carried through; None between trials."""
    trial = study.trial
    return None if trial is None or trial.state is TrialState.JUDGED else trial


def tick_span(study: Study) -> AbstractContextManager[Span]:
    """Open the span of a tick, in the trace of the trial under way, or else in that of the study."""
    if not traces.recording():
        return NOTHING
    trial = trial_under_way(study)
    names = {"study": study.id, "target": study.plan.target.name, "phase": study.phase.value}
    if trial is None:
        return traces.within(traces.course_of_study(study.id), "tick", **names)
    course = traces.course_of_trial(study.id, trial.number)
    return traces.within(course, "tick", trial=trial.number, state=trial.state.value, **names)


class Watched:
    """Tells traces and instruments what the steps of this process's studies came to."""

    def __init__(self, instruments: Instruments | None = None) -> None:
        self._instruments = instruments
        self._shares: dict[str, float] = {}
        self._harm: dict[str, float] = {}
        """The most harm that was seen of each study: a recount may lower it, a counter cannot."""

    def stepped(self, before: Study, after: Study) -> None:
        """Tell of one recorded step."""
        judged = _judged(before, after) if before.trials is not after.trials else []
        if traces.recording():
            _tell_traces(before, after, judged)
        if self._instruments is not None:
            self._count(self._instruments, before, after, judged)

    def gone(self, study_id: str) -> None:
        """Tell that this process carries a study no longer."""
        self._harm.pop(study_id, None)
        if self._shares.pop(study_id, None) is not None:
            self._show_share()

    def _count(self, to: Instruments, before: Study, after: Study, judged: list[Trial]) -> None:
        for trial in judged:
            to.verdicts.labels(trial.kind.value, (trial.verdict or Verdict.VOID).value).inc()
        if before.trials is not after.trials:
            most = self._harm.get(after.id, before.harm_requests)
            self._harm[after.id] = max(most, after.harm_requests)
            to.harm.inc(self._harm[after.id] - most)
        if _blind(after) and not _blind(before):
            to.blind.inc()
        share = canary_share(after)
        if share != self._shares.get(after.id, 0.0):
            self._shares[after.id] = share
            self._show_share()
        if after.outcome is not None and before.outcome is None:
            self._count_end(to, after, after.outcome)

    def _count_end(self, to: Instruments, study: Study, outcome: Outcome) -> None:
        to.ended.labels(outcome.value).inc()
        if study.plan.reverses is None:
            to.harm_share.observe(study.harm_requests / study.plan.slo.harm_budget_requests)
        if outcome is Outcome.PROMOTED:
            to.changes.labels("promotion").inc()
        elif outcome is Outcome.ROLLED_BACK or study.promoted:
            to.changes.labels("rollback").inc()

    def _show_share(self) -> None:
        if self._instruments is not None:
            self._instruments.canary_share.set(max(list(self._shares.values()), default=0.0))


def canary_share(study: Study) -> float:
    """Return the share of requests, 0 to 1, that the canary carries while a level is measured on it; 0 otherwise."""
    trial = study.trial
    if study.phase is Phase.ENDED or trial is None or trial.kind in IN_PRODUCTION or trial.window is None:
        return 0.0
    return trial.window.level.share


def _blind(study: Study) -> bool:
    """Whether something in the open window cannot be measured now."""
    trial = study.trial
    return trial is not None and trial.window is not None and trial.window.blind_since is not None


def _judged(before: Study, after: Study) -> list[Trial]:
    known = {trial.number for trial in before.trials if trial.state is TrialState.JUDGED}
    return [t for t in after.trials if t.state is TrialState.JUDGED and t.number not in known]


def _tell_traces(before: Study, after: Study, judged: list[Trial]) -> None:
    names: dict[str, Value] = {"study": after.id, "target": after.plan.target.name}
    for trial in judged:
        told: dict[str, Value] = {
            **names,
            "trial": trial.number,
            "kind": trial.kind.value,
            "configuration": trial.configuration.describe(),
            "verdict": trial.verdict.value if trial.verdict else "",
            "reason": trial.reason,
        }
        times = (trial.proposed_at, trial.ended_at or trial.proposed_at)
        traces.finished(trial_course(after.id, trial), f"trial {trial.kind}", times, **told)
    if after.outcome is not None and before.outcome is None:
        times = (after.created_at, after.ended_at or after.created_at)
        told = {**names, "outcome": after.outcome.value, "reason": after.reason}
        traces.finished(traces.course_of_study(after.id), "study", times, **told)


def trial_course(study_id: str, trial: Trial) -> Course:
    """Return the trace of a trial of a study."""
    return traces.course_of_trial(study_id, trial.number)
