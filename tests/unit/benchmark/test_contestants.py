"""The contestants: each proposes what may be tried and was not, the same every time, and keeps an accepted setting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.batching.trials import Aim, BatchCount, Measured, Problem, Setting, Tried
from autotuner.benchmark.contestants import ENTRIES, FILTERED, Entry, contestant, missing, names
from autotuner.benchmark.history import best_accepted, capacity, value, violation, winner
from autotuner.benchmark.safety import admissible
from autotuner.errors import InvalidInput

CEILING = 0.05
INCUMBENT = Setting(0.0, (4,), 1, 8)
RIVALS = [name for name in names() if not name.startswith("grey-box") and not missing(name)]


def a_problem(aim: Aim = Aim.EFFICIENCY) -> Problem:
    candidates = tuple(
        Setting(share * CEILING, preferred, instances, 8)
        for share in (0.0, 0.1, 0.5, 0.8)
        for preferred in ((), (4,), (2, 4))
        for instances in (1, 2, 3)
    )
    rates = (100.0,) if aim is Aim.EFFICIENCY else (100.0, 112.0, 125.0)
    return Problem(candidates, INCUMBENT, CEILING, aim, rates, np.linspace(0.0, 10.0, 1000), seed=1)


def a_level(
    *, rate: float = 100.0, bad: int = 0, p99: float = 0.03, busy: float = 0.004, accepted: bool = True
) -> Measured:
    return Measured(
        rate_per_second=rate,
        arrivals=np.linspace(0.0, 10.0, 1000),
        total=1000,
        bad=bad,
        accepted=accepted,
        p99_seconds=p99,
        busy_seconds_per_inference=busy,
        batches=(BatchCount(2, 500, 5.0),),
    )


def a_trial(setting: Setting, *levels: Measured) -> Tried:
    return Tried(setting, levels or (a_level(),))


def a_history(problem: Problem, length: int) -> list[Tried]:
    """Trials of the incumbent and of what comes first, worth a little more each time, every third a bad one."""
    others = [candidate for candidate in problem.candidates if candidate != INCUMBENT][::3][: length - 1]
    return [
        a_trial(
            setting,
            a_level(
                bad=60 if index % 3 == 2 else 1,
                p99=0.08 if index % 3 == 2 else 0.03,
                busy=0.004 - 0.0002 * index,
                accepted=index % 3 != 2,
            ),
        )
        for index, setting in enumerate([INCUMBENT, *others])
    ]


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("length", [1, 6])
def test_a_rival_proposes_an_untried_candidate_and_the_same_again(name: str, length: int) -> None:
    problem = a_problem()
    history = a_history(problem, length)

    first, again = (contestant(name).propose(problem, history).setting for _ in range(2))

    assert first is not None
    assert first == again
    assert first in problem.candidates
    assert first not in {tried.setting for tried in history}


@pytest.mark.parametrize("name", [name for name in RIVALS if name.endswith(FILTERED)])
def test_with_the_filter_nothing_is_proposed_that_cannot_meet_the_ceiling(name: str) -> None:
    problem = a_problem()
    slow = a_trial(
        INCUMBENT,
        replace(a_level(), batches=(BatchCount(4, 250, 250 * 0.035),), busy_seconds_per_inference=0.01),
    )

    for seed in range(12):
        proposed = contestant(name).propose(replace(problem, seed=seed), [slow]).setting
        assert proposed is not None
        assert proposed.delay_seconds + 0.01 <= 0.95 * CEILING


def test_the_filter_leaves_out_what_the_veto_excludes_and_nothing_else() -> None:
    problem = a_problem()
    slow = a_trial(
        INCUMBENT,
        replace(a_level(), batches=(BatchCount(4, 250, 250 * 0.035),), busy_seconds_per_inference=0.01),
    )

    before, after = admissible(problem, []), admissible(problem, [slow])

    assert before == problem.candidates
    assert set(after) < set(problem.candidates)
    assert {s.delay_seconds for s in after if s.instances == 1} == {0.0, 0.1 * CEILING}
    assert {s.delay_seconds for s in after if s.instances == 3} == {0.0, 0.1 * CEILING, 0.5 * CEILING}


def test_when_everything_was_tried_nothing_is_proposed() -> None:
    problem = a_problem()
    history = [a_trial(candidate) for candidate in problem.candidates]

    for name in RIVALS:
        assert contestant(name).propose(problem, history).setting is None


def test_the_hill_climber_stays_near_the_best_and_stops_at_a_summit() -> None:
    problem = a_problem()
    climber = contestant("hill-climb")
    history = [a_trial(INCUMBENT)]
    while (setting := climber.propose(problem, history).setting) is not None:
        history.append(a_trial(setting, a_level(busy=0.005)))

    assert len(history) < 10
    for tried in history[1:]:
        changed = [
            tried.setting.delay_seconds != INCUMBENT.delay_seconds,
            tried.setting.preferred != INCUMBENT.preferred,
            tried.setting.instances != INCUMBENT.instances,
        ]
        assert sum(changed) == 1


@pytest.mark.parametrize("name", ["grey-box", "grey-box+filter"])
def test_the_products_proposer_begins_with_the_incumbent(name: str) -> None:
    problem = a_problem()

    assert contestant(name).propose(problem, []).setting == INCUMBENT


# -- values and choices


def test_capacity_is_the_last_level_before_one_that_was_not_accepted() -> None:
    levels = [a_level(rate=100.0), a_level(rate=112.0), a_level(rate=125.0, accepted=False)]

    assert capacity(a_trial(INCUMBENT, *levels)) == 112.0
    assert capacity(a_trial(INCUMBENT, a_level(accepted=False))) == 0.0


def test_a_trial_without_an_acceptance_is_worth_half_the_lowest_rate() -> None:
    problem = a_problem(Aim.CAPACITY)

    assert value(problem, a_trial(INCUMBENT, a_level(accepted=False))) == 50.0
    assert value(problem, a_trial(INCUMBENT)) == 100.0
    assert value(a_problem(), a_trial(INCUMBENT)) == pytest.approx(250.0)


def test_only_an_accepted_trial_satisfies_the_constraint() -> None:
    assert violation(a_trial(INCUMBENT, a_level(bad=0))) < 0.0
    assert violation(a_trial(INCUMBENT, a_level(bad=30))) < 0.0
    assert violation(a_trial(INCUMBENT, a_level(bad=30, accepted=False))) == pytest.approx(
        np.log(3.05 / 1.001), rel=0.01
    )
    assert violation(a_trial(INCUMBENT, a_level(bad=0, accepted=False))) > 0.0


def test_the_choice_is_the_best_accepted_and_in_a_tie_the_simplest() -> None:
    more, same = replace(INCUMBENT, instances=2), replace(INCUMBENT, instances=3)
    capacities = a_problem(Aim.CAPACITY)
    better = [a_level(rate=100.0), a_level(rate=112.0)]
    bad = a_trial(replace(INCUMBENT, preferred=()), a_level(busy=0.001, accepted=False))

    assert best_accepted(a_problem(), []) == INCUMBENT
    assert best_accepted(a_problem(), [bad]) == INCUMBENT
    assert best_accepted(a_problem(), [a_trial(INCUMBENT), a_trial(more, a_level(busy=0.003)), bad]) == more
    assert (
        best_accepted(capacities, [a_trial(INCUMBENT), a_trial(same, *better), a_trial(more, *better)])
        == more
    )


def test_what_is_confirmed_is_the_leanest_accepted_at_todays_rate_and_in_a_tie_the_simplest() -> None:
    more, most = replace(INCUMBENT, instances=2), replace(INCUMBENT, instances=3)
    gentle = a_trial(replace(INCUMBENT, preferred=()), a_level(rate=50.0, busy=0.001))
    wide = [a_level(rate=rate, busy=0.0039) for rate in (100.0, 112.0)]

    assert winner(a_problem(), [gentle]) == INCUMBENT
    assert winner(a_problem(), [a_trial(INCUMBENT), a_trial(more, a_level(busy=0.0038)), gentle]) == more
    assert (
        winner(a_problem(), [a_trial(most, a_level(busy=0.0030)), a_trial(more, a_level(busy=0.00305))])
        == more
    )
    assert winner(a_problem(Aim.CAPACITY), [a_trial(INCUMBENT), a_trial(most, *wide)]) == most


# -- names


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    for name in ("annealing", "tpe+safety", "+filter"):
        with pytest.raises(InvalidInput, match="hill-climb"):
            contestant(name)


def test_a_contestant_without_its_module_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENTRIES, "lacking", Entry(ENTRIES["random"].make, ("no_such_module",)))

    assert missing("lacking") == "no_such_module"
    assert missing("random") == ""
    with pytest.raises(InvalidInput, match="no_such_module is installed"):
        contestant("lacking+filter")
