"""Trials and studies as lists show them, from a study's own records: what every store answers alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotuner.bookkeeping.rules import plain, summarise
from autotuner.catalogue import LedgerLine, StudyStanding, TrialSummary
from autotuner.domain.benefit import benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.study import Outcome, Study, StudyPlan, Trial, TrialKind, Wish

GLANCED_AT = 2
"""Newest studies of a target that are looked at: the newest one may not have read production yet."""


def trial_summaries(studies: Iterable[Study]) -> list[TrialSummary]:
    """Return every trial of studies as a list shows them."""
    return [trial_summary(study, trial) for study in studies for trial in study.trials]


def serving(
    newest_first: Iterable[str], restored: Mapping[str, Configuration], trials: Iterable[TrialSummary]
) -> Configuration | None:
    """Return what production serves by the newest study that tells, or None.

    newest_first: ids of studies of a target. restored: what each study that took a promotion back has restored. Of
    the trials the newest one tells: production as it was found, or as a watch accepted it.
    """
    told: dict[str, TrialSummary] = {}
    for trial in sorted(filter(tells_production, trials), key=lambda trial: trial.number):
        told[trial.study] = trial
    for study in newest_first:
        if study in restored:
            return restored[study]
        if study in told:
            return told[study].configuration
    return None


def restored_by(study_id: str, plan: StudyPlan, outcome: str | None) -> dict[str, Configuration]:
    """Return what a study has restored by taking a promotion back, under its id; nothing when it has not."""
    if plan.reverses is None or outcome != Outcome.ROLLED_BACK:
        return {}
    return {study_id: plan.reverses.before.configuration}


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
