from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.selection import (
    capacity_per_second,
    choose,
    compute_per_inference,
    gain_in_efficiency,
)
from autotuner.domain.study import Level, Proposal, Step, Study, Trial, TrialKind
from autotuner.domain.target import Objective
from tests.builders import a_configuration, changed
from tests.searches import a_search, a_step, a_trial, a_use


def carried(number: int, *shares: float, compute: float | None = 0.004, **changes: Any) -> Trial:
    """A candidate that was accepted at each of the shares and rejected at the next."""
    use = a_use(compute_seconds_per_inference=compute)
    steps = tuple(a_step(Level(index, share), use=use) for index, share in enumerate(shares))
    beyond = a_step(Level(len(shares), 0.99), Verdict.REJECT, bad=50, use=use)
    fields: dict[str, Any] = {
        "configuration": a_configuration(max_queue_delay_microseconds=number * 100),
        "steps": (*steps, beyond),
        "verdict": Verdict.ACCEPT if shares else Verdict.REJECT,
    }
    return a_trial(number, **{**fields, **changes})


def a_choice(*candidates: Trial, incumbent: Trial | None = None, **plan: Any) -> int | None:
    """The number of the trial that is chosen."""
    study = a_search(*candidates, **plan)
    first = incumbent if incumbent is not None else carried(0, 0.33, 0.5)
    study = changed(study, trials=(changed(first, kind=TrialKind.BASELINE), *candidates))
    chosen = choose(study).trial
    return chosen.number if chosen is not None else None


def a_shape(delay: int = 0, preferred: tuple[int, ...] = (), instances: int = 1) -> Configuration:
    return Configuration(delay, preferred, instances, 32)


def test_capacity_is_the_highest_accepted_rate_a_replica() -> None:
    study = a_search()
    assert capacity_per_second(study, carried(1, 0.33, 0.5)) == pytest.approx(250.0)
    assert capacity_per_second(study, carried(1)) is None
    assert capacity_per_second(changed(study, reference_rate_per_second=None), carried(1, 0.5)) is None


def test_efficiency_is_that_of_the_lowest_accepted_level_where_it_is_known() -> None:
    assert compute_per_inference(carried(1, 0.33, 0.5, compute=0.003)) == 0.003
    assert compute_per_inference(carried(1, 0.33, compute=None)) is None
    assert compute_per_inference(carried(1)) is None


def test_a_trial_that_was_only_to_teach_is_never_chosen() -> None:
    gentle = Proposal(a_configuration(), "because", "greybox", highest_rate_per_second=90.0)
    best = carried(1, 0.33, 0.5, 0.8, compute=0.001)

    assert a_choice(best) == 1
    assert a_choice(changed(best, proposal=gentle)) is None


def test_more_capacity_wins() -> None:
    assert a_choice(carried(1, 0.33, 0.6), carried(2, 0.33, 0.8, compute=0.009)) == 2


def test_within_three_percent_the_leaner_one_wins() -> None:
    assert a_choice(carried(1, 0.33, 0.80, compute=0.005), carried(2, 0.33, 0.78, compute=0.004)) == 2
    assert a_choice(carried(1, 0.33, 0.80, compute=0.005), carried(2, 0.33, 0.77, compute=0.004)) == 1


def test_among_equals_fewer_instances_win_and_then_the_simpler_configuration() -> None:
    wide = carried(1, 0.33, 0.8, compute=0.0040, configuration=a_shape(instances=2))
    narrow = carried(2, 0.33, 0.8, compute=0.0041, configuration=a_shape(5000, (4, 8)))
    simple = carried(3, 0.33, 0.8, compute=0.0041, configuration=a_shape(0))
    assert a_choice(wide, narrow) == 2
    assert a_choice(wide, narrow, simple) == 3


def test_without_compute_times_the_simplest_of_the_equals_wins() -> None:
    wide = carried(1, 0.33, 0.8, compute=None, configuration=a_shape(instances=3))
    plain = carried(2, 0.33, 0.8, compute=None, configuration=a_shape(instances=1))
    assert a_choice(wide, plain) == 2


def test_a_gain_below_the_plans_minimum_is_none() -> None:
    assert a_choice(carried(1, 0.33, 0.52)) is None
    assert a_choice(carried(1, 0.33, 0.53)) == 1


def test_capacities_that_only_the_traffic_limited_are_never_called_better() -> None:
    """Both got to the highest level: the leaner may win, and no capacity does."""
    incumbent = carried(0, 0.33, 0.5, 0.85, limited_by="traffic")
    equal = carried(1, 0.33, 0.5, 0.85, limited_by="traffic", compute=0.0039)
    leaner = carried(2, 0.33, 0.5, 0.85, limited_by="traffic", compute=0.0030)
    assert incumbent.censored
    assert a_choice(equal, incumbent=incumbent) is None
    assert a_choice(equal, leaner, incumbent=incumbent) == 2


def test_a_leaner_candidate_with_less_capacity_is_not_chosen() -> None:
    assert a_choice(carried(1, 0.33, compute=0.001)) is None


def test_where_efficiency_leads_the_leanest_is_chosen_at_no_less_capacity() -> None:
    lean, strong = carried(1, 0.33, 0.5, compute=0.003), carried(2, 0.33, 0.85, compute=0.004)
    assert a_choice(lean, strong, objective=Objective.EFFICIENCY) == 1
    weak = carried(1, 0.33, compute=0.003)
    assert a_choice(weak, objective=Objective.EFFICIENCY) is None


def test_where_the_incumbent_fails_any_candidate_that_holds_is_better() -> None:
    assert a_choice(carried(1, 0.33), incumbent=carried(0)) == 1


def test_winners_that_were_not_confirmed_are_passed_over() -> None:
    study = a_search(carried(1, 0.33, 0.8), carried(2, 0.33, 0.7))
    assert _chosen(study) == 1
    assert _chosen(changed(study, rejected_winners=(1,))) == 2
    assert _chosen(changed(study, rejected_winners=(1, 2))) is None


def test_rejected_candidates_are_not_chosen_and_the_reason_is_said() -> None:
    choice = choose(a_search(carried(1)))
    assert choice.trial is None
    assert choice.reason == "no candidate was accepted at today's load"


def _chosen(study: Study) -> int | None:
    trial = choose(study).trial
    return trial.number if trial is not None else None


def measured(compute: float | None, error: float | None) -> Step:
    return a_step(use=a_use(compute_seconds_per_inference=compute), compute_error=error)


@pytest.mark.parametrize(
    ("winner", "incumbent", "better"),
    [
        ((0.0030, 0.0001), (0.0040, 0.0001), True),
        ((0.0039, 0.00001), (0.0040, 0.00001), False),
        ((0.0038, 0.00001), (0.0040, 0.00001), True),
        ((0.0030, 0.0003), (0.0040, 0.0003), False),
        ((0.0050, 0.0001), (0.0040, 0.0001), False),
        ((None, None), (0.0040, 0.0001), False),
        ((0.0030, None), (0.0040, 0.0001), False),
        ((0.0030, 0.0001), (0.0040, None), False),
    ],
)
def test_a_gain_in_efficiency_is_believed_beyond_chance_and_the_minimum(
    winner: tuple[float | None, float | None], incumbent: tuple[float | None, float | None], better: bool
) -> None:
    believed, text = gain_in_efficiency(measured(*winner), measured(*incumbent), 0.05)
    assert believed is better
    assert text


def test_the_figures_of_a_gain_are_said() -> None:
    _, text = gain_in_efficiency(measured(0.003, 0.0003), measured(0.004, 0.0004), 0.05)
    assert text == "3.00 ms of compute per inference against 4.00 ms (standard error 0.50 ms)"
