"""Taking a promotion back: a study that tries nothing, and restores production as it was before.

Being a study it has all that one has: a journal, a lease, actions that are recorded before they are done, and one
unfinished one a target, so that it never meets another on the same replicas. It begins only while production
is on what was promoted; what somebody else has put there since is left alone (guards rules 3 and 5). Freezes and a
stopped line do not hold it up: it brings nothing new.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from autotuner.domain.observation import Decision, Observation
from autotuner.domain.phases import ending
from autotuner.domain.rollout import known_fingerprints
from autotuner.domain.study import Outcome, Reversal, Study, Wish
from autotuner.domain.target import Target
from autotuner.errors import Refused


def reversal_of(promotion: Study, target: Target, now: datetime, actor: str, reason: str) -> Study:
    """Return the study that takes `promotion` back, without an id of its own yet.

    target: as it is registered now. Raises Refused when nothing was promoted, or when the target's replicas are others
    by now.
    """
    before = promotion.incumbent
    if promotion.outcome is not Outcome.PROMOTED or promotion.winner is None or before is None:
        how = promotion.outcome or f"in phase {promotion.phase}"
        raise Refused(f"study {promotion.id} is {how}: only a promotion can be rolled back")
    then, now_named = (sorted(r.name for r in each.replicas) for each in (promotion.plan.target, target))
    if then != now_named:
        raise Refused(
            f"target {target.name} had the replicas {', '.join(then)} and has {', '.join(now_named)} now: "
            "what was before the promotion is not known for all of them"
        )
    reverses = Reversal(promotion.id, before, promotion.trials[promotion.winner].configuration)
    plan = replace(promotion.plan, target=target, reverses=reverses)
    return Study(promotion.id, plan, now, actor, reason=reason)


def begin(study: Study, reverses: Reversal, seen: Observation) -> Decision:
    """Return the decision to restore, to wait until the target can be read, or to leave production alone."""
    if seen.wish is Wish.CANCEL:
        return ending(study, Outcome.ABORTED, "cancelled by an operator before anything was touched", seen.at)
    incumbent = replace(reverses.before, weights=dict(seen.weights or {}))
    # On Kubernetes what keeps production's old text is taken down at the end, as a canary would be.
    kept_since = seen.at if study.plan.target.workload is not None else None
    touched = replace(study, incumbent=incumbent, canary_since=kept_since)
    foreign = foreign_to(touched, seen)
    if foreign:
        return ending(study, Outcome.ABORTED, f"not rolled back: {foreign}", seen.at)
    gateway, names = _gateway_fault(study, seen), study.plan.target.stable_names
    unread = [name for name in names if name not in seen.fingerprints]
    faults = [f"{name}: {seen.faults.get(name, 'no answer')}" for name in unread]
    faults += [gateway] if gateway else []
    if faults and seen.at - study.created_at < study.plan.pace.no_data_limit:
        return Decision(study, None, f"waiting: {'; '.join(faults)}", study.plan.pace.look_interval)
    if gateway or len(unread) == len(names):
        why = f"the target could not be read: {'; '.join(faults)}"
        return ending(study, Outcome.ABORTED, why, seen.at)
    text = f"the promotion of study {reverses.study_id} is rolled back: {study.reason}"
    return ending(touched, Outcome.ROLLED_BACK, text, seen.at)


def foreign_to(study: Study, seen: Observation) -> str:
    """Return which stable replica serves neither what was promoted nor what was before; empty when none does."""
    known = known_fingerprints(study)
    for name in study.plan.target.stable_names:
        served = seen.fingerprints.get(name)
        if served is not None and served not in known[name]:
            return (
                f"{name} serves neither what was promoted nor what was before: production is no longer on "
                "the promoted configuration"
            )
    return ""


def _gateway_fault(study: Study, seen: Observation) -> str:
    if seen.weights is None:
        return f"gateway: {seen.faults.get('gateway', 'no answer')}"
    target = study.plan.target
    names = target.stable_names if target.workload is not None else [r.name for r in target.replicas]
    missing = [name for name in target.backends(names) if name not in seen.weights]
    return f"the gateway has no weight for {', '.join(missing)}" if missing else ""
