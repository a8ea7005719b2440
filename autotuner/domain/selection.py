"""Which trial is best, and whether it is better than the incumbent by enough to be worth a promotion.

Capacity first or efficiency first, as the target says; within a tie the other decides, then fewer instances,
then the simpler configuration. A capacity that only the traffic limited is never called better than another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autotuner.domain.study import Step, Study, Trial, TrialKind
from autotuner.domain.target import Objective

TIE = 0.03
"""Relative difference in an objective that counts as none."""

STANDARD_ERRORS = 3.0
"""How many standard errors a gain in efficiency must exceed before it is believed."""


@dataclass(frozen=True)
class Choice:
    """The trial to confirm, or None, and a sentence that says why."""

    trial: Trial | None
    reason: str


def capacity_per_second(study: Study, trial: Trial) -> float | None:
    """Highest accepted per-replica rate, in requests per second; None when not even the lowest level was accepted."""
    accepted = trial.accepted
    if not accepted or study.reference_rate_per_second is None:
        return None
    return accepted[-1].level.share * study.reference_rate_per_second


def compute_per_inference(trial: Trial) -> float | None:
    """Compute seconds per inference at the lowest accepted level; None when unknown."""
    for step in trial.accepted:
        if step.use is not None and step.use.compute_seconds_per_inference is not None:
            return step.use.compute_seconds_per_inference
    return None


def baseline(study: Study) -> Trial | None:
    """The incumbent's trial on the canary, once judged."""
    return next((t for t in study.trials if t.kind is TrialKind.BASELINE and t.verdict is not None), None)


def choose(study: Study) -> Choice:
    """Return the best candidate if it promises at least the plan's minimum gain over the incumbent."""
    known = [
        t
        for t in study.trials
        if t.kind is TrialKind.CANDIDATE
        and t.accepted
        and not t.only_teaches
        and t.number not in study.rejected_winners
    ]
    if not known:
        other = "other " if study.rejected_winners else ""
        return Choice(None, f"no {other}candidate was accepted at today's load")
    incumbent = baseline(study)
    if study.plan.target.objective is Objective.EFFICIENCY:
        best = _leanest(known)
    else:
        top = max(_capacity(study, t) for t in known)
        best = _leanest([t for t in known if _capacity(study, t) >= top * (1.0 - TIE)])
    return _against(study, best, incumbent)


def _capacity(study: Study, trial: Trial) -> float:
    return capacity_per_second(study, trial) or 0.0


def _leanest(trials: Iterable[Trial]) -> Trial:
    """The most efficient of trials; among equals the one with fewer instances, then the simplest."""
    ranked = sorted(
        trials, key=lambda t: (compute_per_inference(t) or math.inf, t.configuration.complexity())
    )
    lead = compute_per_inference(ranked[0])
    if lead is None:
        return min(ranked, key=lambda t: (t.configuration.complexity(), t.number))
    tied = [t for t in ranked if (compute_per_inference(t) or math.inf) <= lead * (1.0 + TIE)]
    return min(tied, key=lambda t: (t.configuration.complexity(), t.number))


def _against(study: Study, best: Trial, incumbent: Trial | None) -> Choice:
    if incumbent is None or not incumbent.accepted:
        return Choice(best, f"{best.configuration.describe()} holds the ceiling where the incumbent does not")
    gain = study.plan.minimum_gain
    ours, theirs = _capacity(study, best), _capacity(study, incumbent)
    if study.plan.target.objective is Objective.CAPACITY and ours >= theirs * (1.0 + gain):
        return Choice(
            best,
            f"{best.configuration.describe()} carried {ours:.0f}/s where the incumbent carried {theirs:.0f}/s",
        )
    if ours < theirs * (1.0 - TIE):
        return Choice(None, f"no candidate carried the incumbent's {theirs:.0f}/s within the ceiling")
    mine, old = compute_per_inference(best), compute_per_inference(incumbent)
    if mine is not None and old is not None and mine <= old * (1.0 - gain):
        return Choice(
            best,
            f"{best.configuration.describe()} needed {mine * 1e3:.2f} ms of compute per inference "
            f"where the incumbent needed {old * 1e3:.2f} ms, at no less capacity",
        )
    return Choice(None, f"no candidate was better than the incumbent by {gain:.0%} or more")


def gain_in_efficiency(winner: Step, incumbent: Step, minimum_gain: float) -> tuple[bool, str]:
    """Say whether `winner` needs less compute per inference than `incumbent`, beyond chance and by `minimum_gain`."""
    mine = winner.use.compute_seconds_per_inference if winner.use else None
    old = incumbent.use.compute_seconds_per_inference if incumbent.use else None
    if mine is None or old is None or winner.compute_error is None or incumbent.compute_error is None:
        return False, "compute time per inference could not be measured on fresh data"
    error = math.hypot(winner.compute_error, incumbent.compute_error)
    figures = f"{mine * 1e3:.2f} ms of compute per inference against {old * 1e3:.2f} ms"
    text = f"{figures} (standard error {error * 1e3:.2f} ms)"
    return mine <= old * (1.0 - minimum_gain) and old - mine >= STANDARD_ERRORS * error, text
