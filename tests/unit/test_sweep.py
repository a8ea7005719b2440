"""A sweep on a simulated target: what it measures, where it stops, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.simulated import SimulatedWorld, small_vision
from autotuner.cli import sweep as command
from autotuner.domain.configuration import Configuration, fingerprint, read_configuration
from autotuner.domain.judgement import Counts
from autotuner.domain.measurement import Latency, ServerUse
from autotuner.domain.ramp import ladder
from autotuner.domain.space import search_space
from autotuner.domain.study import Level
from autotuner.domain.target import Limits
from autotuner.errors import AutotunerError, Refused, Unavailable
from autotuner.sandbox.sweep import Grid, Reading, Row, Sweep, best, configurations
from autotuner.sandbox.workload import load_workload
from tests.builders import START, a_configuration, a_plan, a_target

UNCAPPED = a_configuration(preferred_batch_size=())
WINDOW = timedelta(seconds=30)


@dataclass
class Bench:
    """A sweep over a simulated target whose clock turns when the sweep waits."""

    stop_after: timedelta | None = None
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = a_plan(ramp_steps=5)
        self.clock = ManualClock(START)
        self.target = SimulatedWorld(self.plan.target, self.clock, small_vision(), seed=2)
        self.before: Callable[[], None] = lambda: None
        self.clock.advance(timedelta(seconds=2))

    def wait(self, duration: timedelta) -> None:
        self.before()
        self.clock.advance(duration)

    def stopped(self) -> bool:
        return self.stop_after is not None and self.clock.now() - START >= self.stop_after

    def sweep(self) -> Sweep:
        return Sweep(self.plan, self.target.world, WINDOW, self.wait, self.stopped, self.said.append)

    def state(self) -> tuple[str, dict[str, int]]:
        return fingerprint(self.target.serving.model_config("canary")), dict(self.target.route.weights())


def a_reading(share: float, bad: int = 0, total: int = 1000, work: float | None = 0.004) -> Reading:
    number = round(share * 10)
    use = ServerUse(0.01, 0.02, 4.0, work, None, None, None)
    return Reading(Level(number, share), Counts(total, bad, bad, 0), 100.0, Latency(0.01, 0.02, 0.05), use)


@pytest.fixture(scope="module")
def measured() -> tuple[Bench, Row, Row, tuple[str, dict[str, int]]]:
    bench = Bench()
    before = bench.state()
    with bench.sweep() as running:
        rows = [running.measure(a_configuration()), running.measure(UNCAPPED)]
    return bench, rows[0], rows[1], before


def test_a_configuration_is_measured_up_to_the_first_level_it_does_not_hold(measured: Any) -> None:
    bench, capped, _, _ = measured
    assert [reading.held for reading in capped.readings[:-1]] == [True] * (len(capped.readings) - 1)
    assert not capped.readings[-1].held
    assert [reading.level for reading in capped.readings] == list(ladder(bench.plan))[: len(capped.readings)]


def test_a_better_configuration_carries_more(measured: Any) -> None:
    bench, capped, uncapped, _ = measured
    assert capped.capacity is not None
    assert uncapped.capacity is not None
    assert uncapped.capacity.level.share > capped.capacity.level.share
    assert best([capped, uncapped], bench.plan) is uncapped


def test_the_canary_carries_the_share_of_its_level(measured: Any) -> None:
    _, capped, _, _ = measured
    low, high = capped.readings[0], capped.readings[1]
    assert high.rate_per_second / low.rate_per_second == pytest.approx(
        high.level.share / low.level.share, rel=0.3
    )


def test_everything_is_as_it_was_found_afterwards(measured: Any) -> None:
    bench, _, _, before = measured
    assert bench.state() == before


def test_stopping_in_the_middle_of_a_level_restores_everything() -> None:
    bench = Bench(stop_after=timedelta(seconds=14))
    before = bench.state()
    with pytest.raises(KeyboardInterrupt), bench.sweep() as running:
        running.measure(UNCAPPED)
    assert bench.state() == before


def test_a_stop_takes_effect_while_another_configuration_is_served() -> None:
    bench = Bench(stop_after=timedelta(seconds=14))
    seen: list[Configuration] = []
    bench.before = lambda: seen.append(read_configuration(bench.target.serving.model_config("canary")))
    with pytest.raises(KeyboardInterrupt), bench.sweep() as running:
        running.measure(UNCAPPED)
    assert UNCAPPED in seen


def test_a_server_that_cannot_be_restored_is_reported() -> None:
    bench = Bench()
    running = bench.sweep().__enter__()
    bench.target.faults.crash("canary")
    with pytest.raises(AutotunerError, match="could not be restored, a person must look"):
        running.__exit__(None, None, None)


class Stubborn:
    """A server that refuses, or does not take, every configuration but the one it has."""

    def __init__(self, bench: Bench, error: AutotunerError) -> None:
        self._serving, self._error = bench.target.serving, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._serving, name)

    def load(self, replica: str, config: Any, limit: timedelta) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "words"),
    [(Refused("no memory for it"), "no memory"), (Unavailable("triton canary", "hung"), "hung")],
)
def test_a_configuration_that_does_not_load_is_a_row_with_the_reason(
    error: AutotunerError, words: str
) -> None:
    bench = Bench()
    running = bench.sweep()
    running.world = type(running.world)(
        Stubborn(bench, error),
        running.world.route,
        running.world.metrics,
    )
    with running:
        row = running.measure(UNCAPPED)
    assert words in row.problem
    assert row.capacity is None


def test_a_level_without_a_request_is_not_held() -> None:
    assert not a_reading(0.5, bad=0, total=0).held


def test_one_percent_is_held_and_more_is_not() -> None:
    assert a_reading(0.5, bad=10).held
    assert not a_reading(0.5, bad=11).held


def test_the_leanest_of_equal_capacity_is_best() -> None:
    lean = Row(a_configuration(instance_count=2), (a_reading(0.5, work=0.003),))
    heavy = Row(a_configuration(instance_count=1), (a_reading(0.5, work=0.004),))
    nothing = Row(UNCAPPED, (a_reading(0.3, bad=500),))
    assert best([nothing, heavy, lean], a_plan()) is lean
    assert best([nothing], a_plan()) is None


def test_the_small_grid_has_every_combination_and_the_incumbent_first() -> None:
    found = configurations(a_plan(), a_configuration(), Grid.SMALL)
    assert found[0] == a_configuration()
    assert len(found) == len(set(found)) == 27
    assert {c.instance_count for c in found} == {1, 2, 3}


def test_the_small_grid_stays_within_the_limits() -> None:
    target = a_target(limits=Limits(max_instance_count=2, max_queue_delay_microseconds=5000))
    found = configurations(
        a_plan(target=target), a_configuration(preferred_batch_size=(), max_batch_size=8), Grid.SMALL
    )
    assert all(c.instance_count <= 2 and c.max_queue_delay_microseconds <= 5000 for c in found)
    assert all(max(c.preferred_batch_size, default=0) <= 8 for c in found)
    assert len(found) == 2 * 2 * 2


def test_the_full_grid_is_what_a_search_could_propose() -> None:
    plan, incumbent = a_plan(), a_configuration()
    assert set(configurations(plan, incumbent, Grid.FULL)) == set(search_space(plan, incumbent).candidates)


@pytest.fixture
def result(measured: Any) -> command.Result:
    bench, capped, uncapped, _ = measured
    broken = Row(a_configuration(instance_count=3), (), "no memory for it | none")
    return command.Result(
        load_workload("small-vision"),
        bench.plan,
        "emulated GPU",
        Grid.SMALL,
        WINDOW,
        START,
        a_configuration(),
        4,
        (capped, uncapped, broken),
    )


def test_the_markdown_has_a_row_a_configuration_with_as_many_cells_as_headings(
    result: command.Result,
) -> None:
    page = command.as_markdown(result)
    rows = [line for line in page.splitlines() if line.startswith("| ") and "instance" in line]
    heading = next(line for line in page.splitlines() if line.startswith("| configuration"))
    assert len(rows) == 3
    assert {row.replace("\\|", "").count("|") for row in rows} == {heading.count("|")}
    assert "emulated GPU" in page
    assert "3 of 4 configurations measured" in page
    assert "(incumbent)" in rows[0]
    assert rows[1].startswith("| **delay 0 ms, preferred none, 1 instance**")


def test_the_json_answer_names_the_best_and_holds_the_whole_table(result: command.Result) -> None:
    answer = json.loads(json.dumps(command.as_object(result), allow_nan=False))
    assert answer["best"]["preferred_batch_size"] == []
    assert answer["capacity_per_second"] == max(r["capacity_per_second"] or 0 for r in answer["table"])
    assert [len(row["levels"]) > 0 for row in answer["table"]] == [True, True, False]
    assert answer["table"][2]["problem"].startswith("no memory")
