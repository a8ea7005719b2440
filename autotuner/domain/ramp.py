"""Load levels inside a trial, and the gateway weights that make them.

The canary never carries more than the budget's share (guards rule 6), and a level is opened only while the
harm budget could still pay for it going wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from autotuner.domain.study import Incumbent, Level, Study, StudyPlan

SHARE_TOLERANCE = 0.03
"""Difference between the given and the observed share that is put down to chance at any count."""


def fair_share(plan: StudyPlan) -> float:
    """Share of all requests that the canary carries when every replica carries the same."""
    return min(1.0 / len(plan.target.replicas), plan.slo.max_canary_share)


def production_share(plan: StudyPlan) -> float:
    """Share of all requests that one stable replica carries in production, capped by the budget's exposure."""
    return min(1.0 / len(plan.target.stable), plan.slo.max_canary_share)


def ladder(plan: StudyPlan) -> tuple[Level, ...]:
    """Return the levels of a trial: the fair share, production's share, then equal ratios up to the largest share.

    The fair share alone where the route can give no other.
    """
    if plan.target.only_share is not None:
        return (Level(0, round(plan.target.only_share, 4)),)
    low, middle, high = fair_share(plan), production_share(plan), plan.slo.max_canary_share
    shares = [low] if middle <= low * 1.02 else [low, middle]
    above = max(0, plan.ramp_steps - len(shares))
    if above and high > shares[-1] * 1.02:
        ratio = (high / shares[-1]) ** (1.0 / above)
        shares += [shares[-1] * ratio**power for power in range(1, above + 1)]
    return tuple(Level(number, round(share, 4)) for number, share in enumerate(shares))


def limited_ladder(plan: StudyPlan, reference: float, highest: float | None) -> tuple[Level, ...]:
    """Return the levels of a trial that is limited to a rate; the whole ladder where it is not.

    reference: requests per second of all replicas; highest: on the canary, None for no limit. Where even the lowest
    level carries more, the limit itself is the only level.
    """
    if highest is None or reference <= 0.0 or plan.target.only_share is not None:
        return ladder(plan)
    share = highest / reference
    kept = tuple(level for level in ladder(plan) if level.share <= share * (1.0 + SHARE_TOLERANCE))
    return kept or (Level(0, round(share, 4)),)


def production_level(plan: StudyPlan) -> Level:
    """Return the level of the ladder at which the canary carries what one stable replica carries in production."""
    share = production_share(plan)
    return min(ladder(plan), key=lambda level: abs(level.share - share))


def warm_up_level(plan: StudyPlan) -> Level:
    """Return the small first exposure of a newly loaded configuration."""
    return Level(-1, plan.target.only_share or min(plan.warm_up_share, fair_share(plan)))


def canary_weights(plan: StudyPlan, incumbent: Incumbent, share: float) -> dict[str, int]:
    """Return weights that give the canary `share` of all requests and the stable replicas the rest as before."""
    total = plan.target.gateway.total_weight
    canary = _given(plan, share)
    return {
        **_spread(_stable(plan), incumbent.weights, total - canary),
        plan.target.canary.at_gateway: canary,
    }


def _given(plan: StudyPlan, share: float) -> int:
    """The canary's weight for a share of all requests: that of its one share where the route can give no other."""
    if plan.target.only_share is not None and share > 0.0:
        share = plan.target.only_share
    return round(plan.target.gateway.total_weight * share)


def _stable(plan: StudyPlan) -> tuple[str, ...]:
    return plan.target.backends(plan.target.stable_names)


def relieved_weights(
    plan: StudyPlan, incumbent: Incumbent, replica: str, kept_share: float
) -> dict[str, int]:
    """Return production's weights with the stable `replica` at `kept_share` of its own weight.

    Of a backend that several replicas stand behind, its equal share of the weight is what it has of its own.

    The canary, which runs the incumbent or the confirmed winner, carries what is taken away, up to the budget's
    largest share; what is beyond that goes to the other stable replicas.
    """
    total = plan.target.gateway.total_weight
    weights = _spread(_stable(plan), incumbent.weights, total)
    backend, spare = plan.target.replica(replica).at_gateway, plan.target.canary.at_gateway
    own = weights[backend] // len(plan.target.behind(backend))
    taken = own - round(own * kept_share)
    canary = min(taken, math.floor(total * plan.slo.max_canary_share))
    if plan.target.only_share is not None:
        canary = _given(plan, taken / total)
    kept = weights[backend] - taken
    others = tuple(name for name in _stable(plan) if name != backend)
    rest = total - kept - canary
    if not others:
        return {backend: kept + rest, spare: canary}
    return {**_spread(others, incumbent.weights, rest), backend: kept, spare: canary}


def _spread(names: Iterable[str], like: Mapping[str, int], total: int) -> dict[str, int]:
    """Divide `total` over `names` in proportion to `like`, in whole numbers that add up exactly."""
    wanted = list(names)
    whole = sum(like.get(name, 0) for name in wanted)
    shares = [like.get(name, 0) / whole if whole else 1.0 / len(wanted) for name in wanted]
    weights = {name: math.floor(total * share) for name, share in zip(wanted, shares, strict=True)}
    for name in wanted[: total - sum(weights.values())]:
        weights[name] += 1
    return weights


def share_problem(sent: Mapping[str, int], weights: Mapping[str, int]) -> str:
    """Return what is wrong with how the gateway divided the requests; empty when it did as told.

    Four binomial standard errors or SHARE_TOLERANCE are allowed, whichever is more.
    """
    total, weight = sum(sent.values()), sum(weights.values())
    if total == 0 or weight == 0:
        return ""
    for name, count in sent.items():
        expected = weights.get(name, 0) / weight
        allowed = max(SHARE_TOLERANCE, 4.0 * math.sqrt(expected * (1.0 - expected) / total))
        if abs(count / total - expected) > allowed:
            return f"{name} got {count / total:.0%} of the requests where {expected:.0%} was set"
    return ""


def reserve_requests(study: Study, level: Level) -> float:
    """Return the harm a level may do before it can be taken back: every request of one reaction time."""
    pace = study.plan.pace
    reaction = (pace.look_interval + pace.flush_interval).total_seconds()
    return level.share * (study.reference_rate_per_second or 0.0) * reaction


def affordable(study: Study, level: Level) -> bool:
    """Say whether the harm budget could still pay for `level` going wrong at once."""
    left = study.plan.slo.harm_budget_requests - study.harm_requests
    return left >= reserve_requests(study, level)
