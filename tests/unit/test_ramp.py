from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.domain.ramp import (
    affordable,
    canary_weights,
    fair_share,
    ladder,
    limited_ladder,
    production_level,
    production_share,
    relieved_weights,
    reserve_requests,
    share_problem,
    warm_up_level,
)
from autotuner.domain.study import Incumbent, Level, StudyPlan
from autotuner.domain.workload import RouteKind, RouteReference
from tests.builders import a_budget, a_configuration, a_plan, a_study, a_target
from tests.closed_loop.pooled import a_pooled_target, a_workload

plans = st.builds(
    lambda stable, share, steps: a_plan(
        target=a_target(stable=stable), slo=a_budget(max_canary_share=share), ramp_steps=steps
    ),
    st.integers(1, 6),
    st.floats(0.01, 0.95),
    st.integers(1, 9),
)


def an_incumbent(weights: dict[str, int]) -> Incumbent:
    return Incumbent(a_configuration(), {}, {}, weights)


@given(plans)
def test_levels_rise_from_the_fair_share_and_never_exceed_the_budgets_share(plan: StudyPlan) -> None:
    shares = [level.share for level in ladder(plan)]
    assert [level.number for level in ladder(plan)] == list(range(len(shares)))
    assert shares == sorted(set(shares))
    assert shares[0] == pytest.approx(fair_share(plan), abs=1e-4)
    assert shares[-1] <= plan.slo.max_canary_share + 5e-5


@given(plans)
def test_what_a_stable_replica_carries_in_production_is_one_of_the_levels(plan: StudyPlan) -> None:
    level = production_level(plan)
    assert level in ladder(plan)
    assert level.share == pytest.approx(production_share(plan), rel=0.02, abs=1e-4)


def test_the_levels_above_production_have_equal_ratios_up_to_the_largest_share() -> None:
    plan = a_plan(ramp_steps=5, slo=a_budget(max_canary_share=0.8))
    assert [level.share for level in ladder(plan)] == [0.3333, 0.5, 0.5848, 0.684, 0.8]


@pytest.mark.parametrize(
    ("highest", "shares"),
    [(None, [0.3333, 0.5, 0.8]), (1000.0, [0.3333, 0.5, 0.8]), (510.0, [0.3333, 0.5]), (200.0, [0.2])],
)
def test_a_trial_that_is_limited_to_a_rate_opens_no_level_above_it(
    highest: float | None, shares: list[float]
) -> None:
    plan = a_plan(ramp_steps=3, slo=a_budget(max_canary_share=0.8))

    assert [level.share for level in limited_ladder(plan, 1000.0, highest)] == shares


def test_a_share_below_the_fair_one_is_the_only_level() -> None:
    plan = a_plan(slo=a_budget(max_canary_share=0.2))
    assert ladder(plan) == (Level(0, 0.2),)
    assert production_level(plan) == Level(0, 0.2)


def test_the_warm_up_is_no_level_and_no_larger_than_the_fair_share() -> None:
    assert warm_up_level(a_plan()) == Level(-1, 0.1)
    assert warm_up_level(a_plan(slo=a_budget(max_canary_share=0.05))) == Level(-1, 0.05)


weights = st.fixed_dictionaries(
    {"stable-0": st.integers(0, 900), "stable-1": st.integers(0, 900), "stable-2": st.integers(0, 900)}
)


@given(weights, st.floats(0, 0.95))
def test_weights_add_up_exactly_and_give_the_canary_its_share(found: dict[str, int], share: float) -> None:
    plan = a_plan(target=a_target(stable=3))
    made = canary_weights(plan, an_incumbent({**found, "canary": 0}), share)
    assert sum(made.values()) == 1000
    assert min(made.values()) >= 0
    assert abs(made["canary"] - 1000 * share) <= 0.5


def test_stable_replicas_keep_their_proportions() -> None:
    made = canary_weights(a_plan(), an_incumbent({"stable-0": 750, "stable-1": 250, "canary": 0}), 0.2)
    assert made == {"stable-0": 600, "stable-1": 200, "canary": 200}


def test_what_does_not_divide_goes_to_the_first_replicas() -> None:
    plan = a_plan(target=a_target(stable=3))
    made = canary_weights(plan, an_incumbent(dict.fromkeys(("stable-0", "stable-1", "stable-2"), 1)), 0.0)
    assert made == {"stable-0": 334, "stable-1": 333, "stable-2": 333, "canary": 0}


@given(weights, st.floats(0, 1), st.floats(0.05, 0.95), st.sampled_from(["stable-0", "stable-1", "stable-2"]))
def test_a_relieved_replica_keeps_its_part_and_the_canary_stays_within_its_share(
    found: dict[str, int], kept: float, share: float, name: str
) -> None:
    plan = a_plan(target=a_target(stable=3), slo=a_budget(max_canary_share=share))
    incumbent = an_incumbent({**found, "canary": 0})
    own = canary_weights(plan, incumbent, 0.0)
    made = relieved_weights(plan, incumbent, name, kept)
    assert sum(made.values()) == 1000
    assert min(made.values()) >= 0
    assert made[name] == round(own[name] * kept)
    assert made["canary"] <= 1000 * share


def test_the_canary_takes_exactly_what_a_relieved_replica_loses() -> None:
    incumbent = an_incumbent({"stable-0": 500, "stable-1": 500, "canary": 0})
    assert relieved_weights(a_plan(), incumbent, "stable-0", 0.25) == {
        "stable-0": 125,
        "stable-1": 500,
        "canary": 375,
    }
    assert relieved_weights(a_plan(), incumbent, "stable-1", 0.0) == {
        "stable-0": 500,
        "stable-1": 0,
        "canary": 500,
    }


def test_the_only_stable_replica_keeps_what_the_canary_may_not_carry() -> None:
    plan = a_plan(target=a_target(stable=1), slo=a_budget(max_canary_share=0.6))
    made = relieved_weights(plan, an_incumbent({"stable-0": 1000, "canary": 0}), "stable-0", 0.0)
    assert made == {"stable-0": 400, "canary": 600}


def test_the_others_carry_what_the_canary_may_not() -> None:
    plan = a_plan(slo=a_budget(max_canary_share=0.3))
    incumbent = an_incumbent({"stable-0": 500, "stable-1": 500, "canary": 0})
    assert relieved_weights(plan, incumbent, "stable-0", 0.0) == {
        "stable-0": 0,
        "stable-1": 700,
        "canary": 300,
    }


@pytest.mark.parametrize(
    ("sent", "weights", "problem"),
    [
        ({"a": 0, "b": 0}, {"a": 500, "b": 500}, ""),
        ({"a": 10, "b": 10}, {"a": 0, "b": 0}, ""),
        ({"a": 5029, "b": 4971}, {"a": 500, "b": 500}, ""),
        ({"a": 531, "b": 469}, {"a": 500, "b": 500}, ""),
        ({"a": 53_200, "b": 46_800}, {"a": 500, "b": 500}, "a got 53% of the requests where 50% was set"),
        ({"a": 700, "b": 300}, {"a": 500, "b": 500}, "a got 70% of the requests where 50% was set"),
        ({"a": 1000, "b": 0}, {"a": 900, "b": 100}, "a got 100% of the requests where 90% was set"),
        ({"a": 4, "b": 0}, {"a": 500, "b": 500}, ""),
        ({"a": 960, "b": 40}, {"a": 1000, "b": 0}, "a got 96% of the requests where 100% was set"),
    ],
)
def test_a_share_is_wrong_beyond_chance_and_a_small_tolerance(
    sent: dict[str, int], weights: dict[str, int], problem: str
) -> None:
    assert share_problem(sent, weights) == problem


def test_a_level_is_affordable_while_the_budget_pays_for_a_reaction_time_of_its_requests() -> None:
    study = a_study(reference_rate_per_second=300.0)
    assert reserve_requests(study, Level(0, 1 / 3)) == pytest.approx(200.0)
    assert affordable(study, Level(0, 1 / 3))
    assert not affordable(study, Level(1, 0.34))


def test_before_the_rate_is_known_every_level_is_affordable() -> None:
    study = replace(a_study(), reference_rate_per_second=None)
    assert affordable(study, Level(0, 0.85))


def a_weightless_plan(most: float = 0.9, pods: int = 2) -> StudyPlan:
    """A study of pods behind a Service that has no weights."""
    workload = a_workload(route=RouteReference(RouteKind.SERVICE, "vision"))
    return a_plan(
        target=a_pooled_target(pods, workload=workload), slo=a_budget(max_canary_share=most), ramp_steps=6
    )


def test_without_weights_there_is_one_level_and_its_share_is_that_of_one_pod_among_all() -> None:
    plan = a_weightless_plan()
    assert ladder(plan) == (Level(0, 0.3333),)
    assert limited_ladder(plan, 100.0, 5.0) == ladder(plan)
    assert production_level(plan) == ladder(plan)[0]
    assert warm_up_level(plan).share == pytest.approx(1 / 3)


@pytest.mark.parametrize(("share", "canary"), [(0.0, 0), (0.01, 333), (0.3333, 333), (0.9, 333)])
def test_without_weights_the_canary_gets_one_pods_share_or_nothing(share: float, canary: int) -> None:
    plan = a_weightless_plan()
    incumbent = an_incumbent({"stable": 1000, "canary": 0})
    assert canary_weights(plan, incumbent, share) == {"stable": 1000 - canary, "canary": canary}
    assert relieved_weights(plan, incumbent, "stable-0", 0.0) == {"stable": 667, "canary": 333}
    assert relieved_weights(plan, incumbent, "stable-0", 1.0) == {"stable": 1000, "canary": 0}
