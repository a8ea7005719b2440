"""The states of a trial and the only ways from one to another, and what a replica must serve to be measured.

A trial's state is a durable truth: whoever carries on after a crash finds it in the records, and an event that the
table does not list raises instead of being guessed at. What a replica serves is compared by fingerprint, so that
nothing is measured, or promoted, on the evidence of another configuration (guards rule 3).
"""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.configuration import configured_fingerprint
from autotuner.domain.study import Incumbent, Study, Trial, TrialState
from autotuner.errors import AutotunerError

TRANSITIONS: dict[tuple[TrialState, str], TrialState] = {
    (TrialState.PROPOSED, "applied"): TrialState.APPLIED,
    (TrialState.PROPOSED, "could not be applied"): TrialState.JUDGED,
    (TrialState.APPLIED, "warm-up routed"): TrialState.WARMING,
    (TrialState.APPLIED, "level routed"): TrialState.ROUTED,
    (TrialState.APPLIED, "spoilt"): TrialState.RETREATING,
    (TrialState.APPLIED, "unaffordable"): TrialState.RETREATING,
    (TrialState.WARMING, "warmed up"): TrialState.APPLIED,
    (TrialState.WARMING, "judged"): TrialState.RETREATING,
    (TrialState.WARMING, "spoilt"): TrialState.RETREATING,
    (TrialState.ROUTED, "settled"): TrialState.MEASURING,
    (TrialState.ROUTED, "spoilt"): TrialState.RETREATING,
    (TrialState.MEASURING, "level accepted"): TrialState.APPLIED,
    (TrialState.MEASURING, "judged"): TrialState.RETREATING,
    (TrialState.MEASURING, "spoilt"): TrialState.RETREATING,
    (TrialState.RETREATING, "withdrawn"): TrialState.JUDGED,
    (TrialState.RETREATING, "withdrawn to repeat"): TrialState.PROPOSED,
}
"""Every way a trial's state may change; `interrupted` (the study ends) leads to JUDGED from anywhere."""


def moved(trial: Trial, event: str) -> Trial:
    """Return the trial in the state that `event` leads to. Raises AutotunerError for an unlisted transition."""
    state = TRANSITIONS.get((trial.state, event))
    if state is None:
        raise AutotunerError(f"trial {trial.number}: no transition from {trial.state} on '{event}'")
    return replace(trial, state=state)


def with_trial(study: Study, trial: Trial) -> Study:
    """Return the study with its newest trial replaced by `trial`."""
    return replace(study, trials=(*study.trials[:-1], trial))


def begin(study: Study, trial: Trial) -> Study:
    """Return the study with `trial` begun."""
    return replace(study, trials=(*study.trials, trial))


def wanted_fingerprint(incumbent: Incumbent, replica: str, trial: Trial) -> str:
    """Return what the replica's complete configuration must mean for the trial to be measured on it."""
    return configured_fingerprint(incumbent.configs[replica], trial.configuration)


def production_fingerprint(incumbent: Incumbent, replica: str) -> str:
    """Return what the replica's configuration means with production's tuned fields.

    The canary may have been found with others, which nothing speaks for: it is given those back, but stands in for
    nobody with them.
    """
    return configured_fingerprint(incumbent.configs[replica], incumbent.configuration)


def incumbent_of(study: Study) -> Incumbent:
    """Return what was found in production; a study that has trials knows it."""
    assert study.incumbent is not None
    return study.incumbent
