"""Trials and studies as lists show them, from a study's own records: what every store answers alike."""

from __future__ import annotations

from autotuner.bookkeeping.rules import plain, summarise
from autotuner.catalogue import StudyStanding, TrialSummary
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.study import Study, Trial, Wish


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
