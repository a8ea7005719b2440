"""A world of the benchmark: its truth, its trials and what they cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotuner.batching.trials import Advice, Aim, History, Problem, Setting
from autotuner.benchmark import exhaustive
from autotuner.benchmark.contestants import GreyBox
from autotuner.benchmark.scenarios import Scenario
from autotuner.benchmark.study import run_study
from autotuner.benchmark.system import MOST_RATIO
from autotuner.benchmark.window import baseline_dispersion, window_seconds
from autotuner.benchmark.world import RECORDED_WINDOWS, World
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from tests.bench_worlds import SMALL


def a_world(folder: Path, scenario: Scenario = Scenario.MATCHED, aim: Aim = Aim.EFFICIENCY) -> World:
    return World(SMALL, scenario, aim, folder)


def overloaded(world: World) -> Setting:
    """A setting whose delay alone takes most of the ceiling."""
    return max(world.system.candidates(), key=lambda setting: setting.delay_seconds)


# -- truth


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_the_best_is_looked_for_once_and_then_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = World(SMALL, Scenario.MATCHED, Aim.EFFICIENCY, folder, said.append).truth.best

    def refuse(*_: object) -> None:
        raise AssertionError("looked for again")

    monkeypatch.setattr(exhaustive, "best_of", refuse)

    assert len(said) <= 1
    assert a_world(folder).truth.best == first


def test_a_file_that_cannot_be_read_is_computed_anew(folder: Path) -> None:
    world = a_world(folder)
    best = world.truth.best
    digest = exhaustive.digest(world.system)
    path = folder / exhaustive.FOLDER / f"small-matched-{digest}-efficiency.npz"
    assert path.exists()
    path.write_bytes(b"half a file")

    assert a_world(folder).truth.best == best


@pytest.mark.parametrize("aim", list(Aim))
def test_the_best_is_the_best_of_all(folder: Path, aim: Aim) -> None:
    truth = a_world(folder, aim=aim).truth
    worth = [truth.worth(setting) for setting in truth.settings]

    assert truth.best.worth == max(worth) == truth.worth(truth.best.setting)
    assert max(truth.quality(setting) for setting in truth.settings) == 1.0


def test_another_scenario_or_rate_has_another_name(folder: Path) -> None:
    system = a_world(folder).system

    names = {
        exhaustive.digest(system),
        exhaustive.digest(replace(system, scenario=Scenario.BURSTY)),
        exhaustive.digest(replace(system, rate=system.rate + 1.0)),
    }

    assert len(names) == 3


def test_capacity_is_the_highest_rung_that_holds(folder: Path) -> None:
    world = a_world(folder, aim=Aim.CAPACITY)
    truth, system = world.truth, world.system
    rate = truth.capacity(system.incumbent)

    def slow_share(at: float) -> float:
        latency = system.long_run(system.incumbent, system.brief_traffic(at)).latency
        return float(np.mean(latency > system.ceiling_seconds))

    assert slow_share(rate) <= ALLOWED_BAD_SHARE < slow_share(rate * exhaustive.FINE_STEP)


def test_what_misses_the_ceiling_is_worth_nothing(folder: Path) -> None:
    for aim in Aim:
        truth = a_world(folder, aim=aim).truth
        missed = [setting for setting in truth.settings if truth.p99_seconds(setting) > truth.ceiling_seconds]

        assert missed
        assert not any(truth.quality(setting) for setting in missed)
        assert all(truth.quality(setting) for setting in truth.settings if setting not in missed)


def test_a_replica_that_is_overrun_has_the_highest_p99_that_is_told_apart(folder: Path) -> None:
    system = a_world(folder).system
    flooded = system.long_traffic(20.0 * system.rate)

    tail, _busy = system.tail(system.incumbent, flooded)

    assert tail == MOST_RATIO * system.ceiling_seconds


def test_a_drifting_rate_changes_the_p99_until_the_tenth_trial(folder: Path) -> None:
    world = a_world(folder, Scenario.DRIFT)
    incumbent = world.system.incumbent

    early, late = world.true_p99(incumbent, 1), world.true_p99(incumbent, 10)

    assert early < late == world.true_p99(incumbent, 15)
    assert late == world.truth.p99_seconds(incumbent)


# -- trials


def test_the_same_seed_and_number_give_the_same_trial(folder: Path) -> None:
    world = a_world(folder)
    incumbent = world.system.incumbent

    one, same, other = (
        world.trial(incumbent, 1, 1),
        world.trial(incumbent, 1, 1),
        world.trial(incumbent, 1, 2),
    )

    assert one.tried.levels[0].p99_seconds == same.tried.levels[0].p99_seconds
    assert one.tried.levels[0].arrivals.tolist() == same.tried.levels[0].arrivals.tolist()
    assert one.tried.levels[0].arrivals.tolist() != other.tried.levels[0].arrivals.tolist()


def test_a_good_setting_is_watched_for_the_whole_window_and_accepted(folder: Path) -> None:
    world = a_world(folder)

    (level,) = world.measure(world.system.incumbent, 3).levels

    assert window_seconds(80.0) == 125.0
    assert level.accepted
    assert level.total == pytest.approx(80 * 125, rel=0.05)
    quantiles = [level.p50_seconds or 0.0, level.p95_seconds or 0.0, level.p99_seconds or 0.0]
    assert 0.0 < quantiles[0] < quantiles[1] < quantiles[2] < 0.05
    assert level.busy_seconds_per_inference == pytest.approx(0.006, abs=0.002)
    inferences = sum(batch.size * batch.executions for batch in level.batches)
    assert inferences == pytest.approx(level.total, abs=20)


def test_a_bad_setting_is_left_within_seconds_and_its_harm_is_counted(folder: Path) -> None:
    world = a_world(folder)
    setting = overloaded(world)

    trial = world.trial(setting, 3, 2)

    (level,) = trial.tried.levels
    assert world.true_p99(setting, 2) > 1.02 * world.system.ceiling_seconds
    assert not level.accepted
    assert level.bad >= 8
    assert level.total < 0.1 * trial.window_requests
    assert level.bad - 0.01 * level.total - 1.0 <= trial.harm_requests < 0.1 * trial.window_requests
    assert trial.harm_today_requests == trial.harm_requests
    assert trial.requests >= level.total


def test_a_capacity_trial_climbs_until_a_level_is_not_accepted(folder: Path) -> None:
    world = a_world(folder, aim=Aim.CAPACITY)

    trial = world.trial(world.system.incumbent, 1, 1)
    levels = trial.tried.levels

    assert trial.harm_today_requests == 0.0 < trial.harm_requests
    assert [level.accepted for level in levels] == [True] * (len(levels) - 1) + [False]
    assert [level.rate_per_second for level in levels] == list(world.problem(1).rates[: len(levels)])
    true = world.truth.capacity(world.system.incumbent)
    assert levels[-2].rate_per_second <= 1.04 * true


def test_a_good_setting_is_confirmed_and_a_bad_one_costs_seconds_and_is_not(folder: Path) -> None:
    world = a_world(folder)

    good, nothing = world.confirmation(world.system.incumbent, 3, 5)
    bad, harm = world.confirmation(overloaded(world), 3, 5)

    assert (good, nothing) == (True, 0.0)
    assert not bad
    assert 0.0 < harm < 0.1 * world.trial(world.system.incumbent, 3, 1).window_requests


class Unlucky(World):
    """A world in which nothing is confirmed."""

    def confirmation(self, setting: Setting, seed: int, number: int) -> tuple[bool, float]:
        return False, 7.0


def test_what_is_not_confirmed_is_not_kept(folder: Path) -> None:
    world = a_world(folder)
    wanted = next(s for s in world.system.candidates() if world.truth.quality(s) > 0.9 and s.instances == 2)

    class Once(GreyBox):
        def propose(self, problem: Problem, history: History) -> Advice:
            return Advice(wanted if len(history) == 1 else None, "once")

    kept = run_study(world, Once(filtered=False), "once", 3, 5).final
    unlucky = Unlucky(SMALL, Scenario.MATCHED, Aim.EFFICIENCY, folder)
    course = run_study(unlucky, Once(filtered=False), "once", 3, 5)

    assert kept == wanted
    assert (course.final, course.confirmation_harm_requests) == (world.system.incumbent, 7.0)


def test_a_trial_may_be_limited_to_less_than_todays_rate_and_has_found_nothing_then(folder: Path) -> None:
    world = a_world(folder)
    setting, half = overloaded(world), 0.5 * world.system.rate

    class Gentle(GreyBox):
        def propose(self, problem: Problem, history: History) -> Advice:
            return Advice(setting if len(history) == 1 else None, "gently", highest_rate=half)

    course = run_study(world, Gentle(filtered=False), "gentle", 3, 5)

    gentle = course.attempts[1]
    assert (gentle.setting, gentle.rate_share, gentle.quality) == (setting, 0.5, 0.0)
    assert gentle.p99_ratio == world.true_p99(setting, 2, half) / world.system.ceiling_seconds
    assert world.true_p99(setting, 2, half) != world.true_p99(setting, 2)
    assert [level.rate_per_second for level in world.trial(setting, 3, 2, half).tried.levels] == [half]


def test_miscounted_batches_are_other_ones_than_true_batches(folder: Path) -> None:
    plain, wrong = a_world(folder), a_world(folder, Scenario.MISCOUNTED)
    incumbent = plain.system.incumbent

    true, told = (world.measure(incumbent, 1).levels[0] for world in (plain, wrong))

    assert true.total == told.total
    assert {batch.size for batch in true.batches} == {1, 2}
    assert {batch.size for batch in told.batches} == {1, 2, 3}
    assert sum(b.executions for b in true.batches) == sum(b.executions for b in told.batches)


def test_the_dispersion_is_limited_as_in_a_rehearsal(folder: Path) -> None:
    assert 1.0 <= baseline_dispersion(a_world(folder, Scenario.BURSTY).system, 1) <= 3.0


def test_the_problem_holds_a_recording_of_todays_traffic(folder: Path) -> None:
    world = a_world(folder)
    problem = world.problem(4)

    assert problem.arrivals.size == pytest.approx(RECORDED_WINDOWS * 80 * 125, rel=0.05)
    assert problem.arrivals.tolist() == world.problem(4).arrivals.tolist()
    assert problem.arrivals.tolist() != world.problem(5).arrivals.tolist()
    assert problem.incumbent in problem.candidates
    assert problem.seed == 4
