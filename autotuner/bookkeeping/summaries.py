"""Trials and studies as lists show them, from a study's own records: what every store answers alike."""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.bookkeeping.rules import plain, summarise
from autotuner.catalogue import LedgerLine, StudyStanding, TrialSummary
from autotuner.domain.benefit import benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.study import Outcome, Study, Trial, TrialKind, Wish

GLANCED_AT = 2
"""Newest studies of a target that are looked at: the newest one may not have read production yet."""


def trial_summaries(studies: Iterable[Study]) -> list[TrialSummary]:
    """Return every trial of studies as a list shows them."""
    return [trial_summary(study, trial) for study in studies for trial in study.trials]


def serving(trials: Iterable[TrialSummary]) -> Configuration | None:
    """Return what production serves by the newest trial that tells: as it was found, or as a watch accepted it."""
    telling = [trial for trial in trials if tells_production(trial)]
    newest = max(telling, key=lambda trial: (trial.proposed_at, trial.number), default=None)
    return None if newest is None else newest.configuration


def tells_production(trial: TrialSummary) -> bool:
    """Say whether a trial's configuration is what production served when the trial ended."""
    accepted = trial.kind is TrialKind.WATCH and trial.verdict is Verdict.ACCEPT
    return accepted or trial.kind is TrialKind.PRODUCTION


def trial_summary(study: Study, trial: Trial) -> TrialSummary:
    """Return a trial of a study as a list shows it."""
    return TrialSummary(
        study=study.id,
        target=study.plan.target.name,
        number=trial.number,
        kind=trial.kind,
        state=trial.state,
        replicas=trial.replicas,
        configuration=trial.configuration,
        verdict=trial.verdict,
        limited_by=plain(trial.limited_by),
        reason=plain(trial.reason),
        capacity_per_second=capacity_per_second(study, trial),
        harm_requests=trial.harm_requests,
        proposed_at=trial.proposed_at,
        ended_at=trial.ended_at,
    )


def standing_of(study: Study, wish: Wish, sequence: int) -> StudyStanding:
    """Return a study without its trials. sequence: number of its newest journal entry."""
    return StudyStanding(
        summary=summarise(study),
        plan=study.plan,
        actor=study.actor,
        wish=wish,
        sequence=sequence,
        winner=study.winner,
        promoted=study.promoted,
        harm_requests=study.harm_requests,
        dispersion=study.dispersion,
        reference_rate_per_second=study.reference_rate_per_second,
    )


def ledger_line(study: Study) -> LedgerLine | None:
    """Return what a study's promotion was worth; None when it has promoted nothing."""
    if study.outcome is not Outcome.PROMOTED or study.ended_at is None:
        return None
    target = study.plan.target
    reason = plain(study.reason)
    return LedgerLine(study.id, target.name, study.ended_at, reason, benefit(study), target.currency)
