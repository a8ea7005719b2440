"""The phases of a study and the only ways from one to another."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from autotuner.domain.aftermath import interrupted
from autotuner.domain.observation import Decision
from autotuner.domain.study import Outcome, Phase, Study, TrialState
from autotuner.domain.trial_states import with_trial
from autotuner.errors import AutotunerError

TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (Phase.CREATED, "inspected"): Phase.BASELINE,
    (Phase.CREATED, "ending"): Phase.RESTORATION,
    (Phase.BASELINE, "baseline measured"): Phase.SEARCH,
    (Phase.BASELINE, "ending"): Phase.RESTORATION,
    (Phase.SEARCH, "winner chosen"): Phase.CONFIRMATION,
    (Phase.SEARCH, "ending"): Phase.RESTORATION,
    (Phase.CONFIRMATION, "confirmed"): Phase.APPROVAL,
    (Phase.CONFIRMATION, "confirmed, approval automatic"): Phase.PROMOTION,
    (Phase.CONFIRMATION, "ending"): Phase.RESTORATION,
    (Phase.APPROVAL, "approved"): Phase.PROMOTION,
    (Phase.APPROVAL, "ending"): Phase.RESTORATION,
    (Phase.PROMOTION, "all stages accepted"): Phase.WATCH,
    (Phase.PROMOTION, "ending"): Phase.RESTORATION,
    (Phase.WATCH, "ending"): Phase.RESTORATION,
    (Phase.RESTORATION, "restored"): Phase.ENDED,
}
"""Every way a study's phase may change. Every end goes through RESTORATION, a promotion's too."""


def entered(study: Study, event: str, at: datetime) -> Study:
    """Return the study in the phase that `event` leads to. Raises AutotunerError for an unlisted transition."""
    phase = TRANSITIONS.get((study.phase, event))
    if phase is None:
        raise AutotunerError(f"study {study.id}: no transition from {study.phase} on '{event}'")
    return replace(study, phase=phase, phase_since=at)


def ending(study: Study, outcome: Outcome, reason: str, at: datetime) -> Decision:
    """Return the decision to end the study with `outcome`: whatever is under way stops, then all is put right.

    A winner that was not confirmed is none: nobody shall export it as the winner of a study that ran out of time.
    """
    trial = study.trial
    if study.phase is Phase.CONFIRMATION:
        study = replace(study, winner=None)
    if trial is not None and trial.state is not TrialState.JUDGED:
        study = with_trial(study, interrupted(trial, at, reason))
    study = entered(replace(study, intended=outcome, reason=reason), "ending", at)
    return Decision(study, None, reason)
