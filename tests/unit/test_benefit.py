from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.benefit import benefit
from autotuner.domain.judgement import Verdict
from autotuner.domain.measurement import Latency
from autotuner.domain.ramp import ladder
from autotuner.domain.study import Outcome, Study, Trial, TrialKind
from tests.builders import a_budget, a_configuration, a_plan, a_study, a_target, changed
from tests.searches import a_step, a_trial, a_use

PLAN = a_plan(
    target=changed(a_target(), replica_cost_per_hour=3.6),
    slo=a_budget(max_canary_share=0.8),
    ramp_steps=5,
)
LADDER = ladder(PLAN)


def run(
    number: int, kind: TrialKind, *levels: int, p99: float = 0.05, compute: float = 0.004, **changes: Any
) -> Trial:
    use = a_use(compute_seconds_per_inference=compute)
    steps = tuple(a_step(LADDER[n], use=use, latency=Latency(0.02, 0.03, p99)) for n in levels)
    verdict = Verdict.ACCEPT if levels else Verdict.REJECT
    return a_trial(number, **{"kind": kind, "steps": steps, "verdict": verdict, **changes})


def a_case(*trials: Trial, **changes: Any) -> Study:
    return a_study(plan=PLAN, trials=trials, reference_rate_per_second=500.0, **changes)


BASELINE = run(0, TrialKind.BASELINE, 0, 1)
WINNER = run(
    1,
    TrialKind.CANDIDATE,
    0,
    1,
    2,
    3,
    4,
    compute=0.001,
    configuration=a_configuration(preferred_batch_size=()),
)
CONFIRMED = run(
    2,
    TrialKind.CONFIRMATION,
    1,
    4,
    p99=0.08,
    compute=0.003,
    configuration=WINNER.configuration,
    limited_by="traffic",
)


def test_before_anything_is_measured_nothing_is_known() -> None:
    worth = benefit(a_case())
    assert (worth.incumbent, worth.winner, worth.capacity_ratio) == (None, None, None)
    assert (worth.candidates, worth.harm_requests, worth.harm_budget_requests) == (0, 0, 200)


def test_incumbent_and_winner_are_compared_in_capacity_and_at_production_s_load() -> None:
    worth = benefit(a_case(BASELINE, WINNER, CONFIRMED, winner=1))
    assert worth.incumbent is not None
    assert worth.winner is not None
    assert worth.incumbent.capacity_per_second == pytest.approx(250.0)
    assert worth.winner.capacity_per_second == pytest.approx(400.0)
    assert worth.capacity_ratio == pytest.approx(1.6)
    assert (worth.incumbent.at_least, worth.winner.at_least) == (False, True)
    assert worth.incumbent.p99_seconds == 0.05
    assert worth.candidates == 1


def test_a_confirmed_winners_figures_are_those_of_fresh_data() -> None:
    worth = benefit(a_case(BASELINE, WINNER, CONFIRMED, winner=1))
    assert worth.winner is not None
    assert worth.winner.p99_seconds == 0.08
    assert worth.winner.compute_seconds_per_million == pytest.approx(3000.0)
    unconfirmed = benefit(a_case(BASELINE, WINNER, changed(CONFIRMED, verdict=Verdict.REJECT), winner=1))
    assert unconfirmed.winner is not None
    assert unconfirmed.winner.p99_seconds == 0.05


def test_cost_is_that_of_a_replica_at_its_capacity() -> None:
    worth = benefit(a_case(BASELINE))
    assert worth.incumbent is not None
    assert worth.incumbent.cost_per_million == pytest.approx(3.6 / (250 * 3600) * 1e6)
    free = changed(PLAN, target=a_target())
    unpriced = benefit(changed(a_case(BASELINE), plan=free)).incumbent
    assert unpriced is not None
    assert unpriced.cost_per_million is None


def test_an_incumbent_that_holds_nothing_has_no_capacity_and_no_ratio() -> None:
    worth = benefit(a_case(run(0, TrialKind.BASELINE), WINNER, CONFIRMED, winner=1))
    assert worth.incumbent is not None
    assert worth.incumbent.capacity_per_second is None
    assert worth.capacity_ratio is None


def test_the_incumbent_measured_again_counts_with_its_best() -> None:
    control = run(3, TrialKind.CONTROL, 2)
    worth = benefit(a_case(BASELINE, WINNER, CONFIRMED, control, winner=1))
    assert worth.incumbent is not None
    assert worth.incumbent.capacity_per_second == pytest.approx(0.5848 * 500)


def test_without_a_winner_the_best_candidate_is_shown() -> None:
    worth = benefit(a_case(BASELINE, WINNER, outcome=Outcome.KEPT))
    assert worth.winner is not None
    assert worth.winner.configuration == WINNER.configuration
    poor = run(1, TrialKind.CANDIDATE, 0)
    assert benefit(a_case(BASELINE, poor)).winner is None


def test_harm_is_summed_over_all_trials() -> None:
    harmful = changed(WINNER, closed_harm_requests=12.5)
    assert benefit(a_case(changed(BASELINE, closed_harm_requests=3.0), harmful)).harm_requests == 15.5
