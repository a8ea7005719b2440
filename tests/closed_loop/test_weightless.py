"""A study behind a Service that has no weights: the canary gets one pod's share or nothing, and efficiency leads."""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Outcome
from autotuner.domain.target import Objective, Target
from autotuner.domain.workload import RouteKind, RouteReference
from tests.closed_loop.loop import QuickStore, a_brisk_plan, a_short_plan
from tests.closed_loop.pooled import a_pooled_target, a_workload
from tests.closed_loop.test_pooled import PooledLoop, as_found


def a_weightless_target() -> Target:
    route = RouteReference(RouteKind.SERVICE, "vision")
    return a_pooled_target(workload=a_workload(route=route), objective=Objective.EFFICIENCY)


def test_every_weight_of_a_whole_study_is_one_that_a_service_can_give() -> None:
    loop = PooledLoop(a_brisk_plan(target=a_weightless_target()), seed=2)
    study = loop.run()
    actions = [entry.action for entry in loop.store.journal(loop.study_id) if entry.action]
    given = {each["weights"]["canary"] for each in actions if each["type"] == "SetWeights"}
    assert given == {0, 333}
    assert {step.level.share for trial in study.trials for step in trial.steps} <= {0.3333, 0.5, 1.0}
    assert study.outcome in (Outcome.PROMOTED, Outcome.KEPT), study.reason


def test_a_budget_that_allows_less_than_one_pods_share_refuses_the_study() -> None:
    plan = a_short_plan(target=a_weightless_target())
    slo: SloBudget = replace(plan.slo, max_canary_share=0.2)
    loop = PooledLoop(replace(plan, slo=slo), store=QuickStore())
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert (
        "without weights the canary gets 33% of the requests, and the SLO budget allows 20%" in study.reason
    )
    assert as_found(loop)
