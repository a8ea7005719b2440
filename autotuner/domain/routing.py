"""The gateway weights of a trial: at each level, while its replica is loaded, when it ends, and while nobody watches.

Every split of the traffic that a trial asks for is made here, so that a look can compare the weights in force with the
ones it means, and a way back always exists: the canary carries no more than its level, and a stage is relieved
only while the canary serves what production may serve (guards rules 3 and 6).
"""

from __future__ import annotations

from autotuner.domain.judgement import Verdict
from autotuner.domain.observation import Observation
from autotuner.domain.ramp import canary_weights, relieved_weights, warm_up_level
from autotuner.domain.study import IN_PRODUCTION, Level, Study, Trial, TrialKind
from autotuner.domain.trial_states import incumbent_of, production_fingerprint, wanted_fingerprint

STAGE_WARM_UP = 0.25
"""Share of its own production traffic that a newly promoted replica carries while it warms up."""


def next_level(study: Study, trial: Trial) -> Level:
    """Return the level a trial is routed at next: the warm-up first, then one above those it was accepted at."""
    if not trial.warmed and trial.kind not in (TrialKind.PRODUCTION, TrialKind.WATCH):
        return warm_up_level(study.plan)
    return trial.levels[len(trial.accepted)]


def level_weights(study: Study, trial: Trial, level: Level) -> dict[str, int]:
    """Return the gateway weights of one level of a trial."""
    incumbent = incumbent_of(study)
    if trial.kind in (TrialKind.PRODUCTION, TrialKind.WATCH):
        return dict(incumbent.weights)
    if trial.kind is TrialKind.STAGE:
        if level.number >= 0:
            return dict(incumbent.weights)
        return relieved_weights(study.plan, incumbent, trial.replicas[0], STAGE_WARM_UP)
    return canary_weights(study.plan, incumbent, level.share)


def parked_weights(study: Study, trial: Trial) -> dict[str, int]:
    """Return the weights at which the replica under test carries nothing, so that it can be loaded anew."""
    incumbent = incumbent_of(study)
    if trial.kind is TrialKind.STAGE:
        return relieved_weights(study.plan, incumbent, trial.replicas[0], 0.0)
    if trial.kind in (TrialKind.PRODUCTION, TrialKind.WATCH):
        return dict(incumbent.weights)
    return canary_weights(study.plan, incumbent, 0.0)


def retreat_weights(study: Study, trial: Trial, seen: Observation) -> dict[str, int]:
    """Return the weights to fall back on when a trial ends or is spoilt.

    A stage that was not accepted loses its traffic to the canary if that can stand in; otherwise production's own
    weights are the best there is.
    """
    relieved = (
        trial.kind is TrialKind.STAGE
        and trial.verdict is not Verdict.ACCEPT
        and not no_stand_in(study, trial, seen)
    )
    if trial.kind in IN_PRODUCTION and not relieved:
        return dict(incumbent_of(study).weights)
    return parked_weights(study, trial)


def unwatched_weights(study: Study) -> tuple[dict[str, int], ...]:
    """Return the weights that may stay while nobody watches, those to fall back on first.

    The canary carries nothing, except where production is measured as it is; a stable replica that is loaded or was
    not accepted stays relieved.
    """
    incumbent, trial = incumbent_of(study), study.trial
    if trial is not None and trial.kind is TrialKind.STAGE:
        return dict(incumbent.weights), parked_weights(study, trial)
    canary = study.plan.target.canary.at_gateway
    if (trial is not None and trial.kind in IN_PRODUCTION) or not incumbent.weights[canary]:
        return (dict(incumbent.weights), canary_weights(study.plan, incumbent, 0.0))
    return (canary_weights(study.plan, incumbent, 0.0),)


def no_stand_in(study: Study, trial: Trial, seen: Observation) -> str:
    """Return why the canary cannot carry a stage's traffic; empty when it can: it serves what production may serve."""
    incumbent, canary = incumbent_of(study), study.plan.target.canary.name
    served = seen.fingerprints.get(canary)
    if served is None:
        return f"{canary} cannot stand in: {seen.faults.get(canary, 'no answer')}"
    if served not in (
        production_fingerprint(incumbent, canary),
        wanted_fingerprint(incumbent, canary, trial),
    ):
        return f"{canary} cannot stand in: it serves neither the incumbent nor the winner"
    return ""
