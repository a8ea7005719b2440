"""`autotuner simulate`: the frontier and what follows from it, and the command from its options to its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from autotuner.batching.arrivals import Intensity
from autotuner.batching.frontier import (
    SENSITIVITY,
    Climb,
    Looker,
    Point,
    Question,
    Reading,
    Replica,
    best,
    burstier,
    climbs,
    frontier,
    knee,
    smooth,
)
from autotuner.batching.trials import Aim, Setting
from autotuner.batching.whatif import Role, answer
from autotuner.cli.app import app
from autotuner.cli.exits import Exit
from autotuner.cli.simulate import as_object
from autotuner.domain.prediction import configuration_of, setting_of
from autotuner.errors import InvalidInput
from autotuner.report.prediction import Source, conclusion, render, tables
from autotuner.sandbox.question import question_of, worth_asking
from autotuner.sandbox.workload import load_workload, parse_workload
from tests.documents import ROOT

pytestmark = pytest.mark.usefixtures("own_logging")


SMALL: dict[str, Any] = {
    "name": "small",
    "model": "emulated-gpu",
    "max_batch_size": 4,
    "batch_latency_ms": {1: 10, 4: 16},
    "transfer_ms_per_item": 1,
    "instance_memory_mb": 100,
    "device_memory_mb": 16000,
    "incumbent": {"max_queue_delay_microseconds": 0, "preferred_batch_size": [2], "instance_count": 1},
    "limits": {"instance_count": 2, "max_queue_delay_microseconds": 10000},
    "traffic": {"requests_per_second": 100, "arrivals": {"poisson": True}},
    "slo": {"p99_ms": 80},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL), "utf-8")
    return path


def a_replica(spread: float = 0.0) -> Replica:
    alone = 0.010 + 0.002 * np.arange(5.0)
    return Replica(alone, np.full(5, 0.8), 0.001, spread)


def a_setting(delay: float = 0.0, preferred: tuple[int, ...] = (), instances: int = 1) -> Setting:
    return Setting(delay, preferred, instances, 4)


def a_question(rate: float = 50.0, ceiling: float = 0.08, aim: Aim = Aim.CAPACITY) -> Question:
    settings = (a_setting(), a_setting(0.0, (2,)), a_setting(0.01), a_setting(instances=2))
    steady = Intensity(1.0, np.ones(1))
    return Question(settings, a_setting(0.0, (2,)), a_replica(), steady, rate, ceiling, aim, tie=0.03)


def a_reading(rate: float, p99: float, busy: float = 0.01) -> Reading:
    return Reading(rate, p99 / 2, p99, 1.0, busy, 0.5)


def a_climb(setting: Setting, p99: dict[float, float], busy: float = 0.01) -> Climb:
    return Climb(setting, tuple(a_reading(rate, value, busy) for rate, value in p99.items()))


# -- rates and capacity


def test_rates_ascend_hold_todays_and_its_neighbours_and_reach_what_the_device_can_do() -> None:
    question = a_question()

    assert list(question.rates) == sorted(set(question.rates))
    assert {50.0 * share for share in SENSITIVITY} < set(question.rates)
    assert question.rates[-1] == pytest.approx(1.02 * 4 / (0.8 * 0.018))


def test_a_single_instance_is_limited_by_the_whole_batch_and_many_by_its_exclusive_part() -> None:
    assert a_replica().most_per_second(1) == pytest.approx(4 / 0.018)
    assert a_replica().most_per_second(8) == pytest.approx(4 / (0.8 * 0.018))


def test_capacity_lies_between_the_last_rate_that_holds_and_the_next() -> None:
    climb = a_climb(a_setting(), {50.0: 0.04, 100.0: 0.05, 200.0: 0.1})

    found = climb.capacity(50.0, 0.0707107)

    assert found == pytest.approx(100.0 * 2**0.5, rel=1e-3)


def test_capacity_ends_at_the_first_rate_above_todays_that_breaks_the_ceiling() -> None:
    climb = a_climb(a_setting(), {25.0: 0.2, 50.0: 0.04, 100.0: 0.09, 200.0: 0.04})

    assert climb.capacity(50.0, 0.08) is not None
    assert (climb.capacity(50.0, 0.08) or 0.0) < 100.0
    assert climb.capacity(25.0, 0.08) is None
    assert climb.capacity(200.0, 0.08) == 200.0


# -- what a climb sees


def test_latencies_are_those_of_the_simulated_batcher_plus_the_overhead() -> None:
    question = replace(a_question(rate=0.5), settings=(a_setting(),))

    reading, share = Looker(question).look(a_setting(), 0.5)

    assert reading.p50_seconds == pytest.approx(0.012 + 0.001)
    assert reading.busy_seconds == pytest.approx(0.8 * 0.012, rel=0.01)
    assert share == pytest.approx(0.8)


def test_the_exclusive_share_is_that_of_the_batches_that_ran() -> None:
    shares = np.array([1.0, 0.9, 0.8, 0.7, 0.6])
    question = replace(a_question(), replica=replace(a_replica(), exclusive_share=shares))
    looker = Looker(question)

    _, alone = looker.look(a_setting(), 1.0)
    _, full = looker.look(a_setting(), 400.0)

    assert alone == pytest.approx(0.9, abs=0.01)
    assert full == pytest.approx(0.6, abs=0.01)


def test_the_same_question_has_the_same_answer() -> None:
    first, second = (answer(q, tuple(climbs(q))) for q in (a_question(), a_question()))

    assert first.climbs == second.climbs
    assert first.patterns == second.patterns


# -- the frontier


def test_the_frontier_is_never_above_any_setting_and_names_the_simplest_that_reaches_it() -> None:
    question = a_question()
    found = tuple(climbs(question))
    points = frontier(question, found)

    assert [p.rate_per_second for p in points] == list(question.rates[: len(points)])
    for point in points:
        there = {c.setting: r.p99_seconds for c in found if (r := c.at(point.rate_per_second)) is not None}
        assert point.p99_seconds == min(there.values())
        tied = [s for s, p99 in there.items() if p99 <= 1.03 * point.p99_seconds]
        assert point.setting.complexity() == min(s.complexity() for s in tied)


def test_the_knee_is_where_a_hockey_stick_bends() -> None:
    heights = [0.02, 0.021, 0.022, 0.023, 0.08, 0.3]
    points = [Point(100.0 * (i + 1), p99, a_setting()) for i, p99 in enumerate(heights)]

    assert knee(points, 1.0) == points[3]


def test_a_bend_beyond_the_ceiling_is_no_knee() -> None:
    heights = [0.02, 0.021, 0.04, 0.07, 0.075, 0.08, 0.9]
    points = [Point(100.0 * (i + 1), p99, a_setting()) for i, p99 in enumerate(heights)]

    assert knee(points, 1.0) == points[5]
    assert knee(points, 0.05) == points[1]


@pytest.mark.parametrize("heights", [[0.02], [0.02, 0.04], [0.02, 0.05, 0.08, 0.09]])
def test_what_has_no_bend_upwards_has_no_knee(heights: list[float]) -> None:
    assert knee([Point(100.0 * (i + 1), p99, a_setting()) for i, p99 in enumerate(heights)], 1.0) is None


# -- the best


def test_within_the_tie_the_other_aim_decides_then_fewer_instances() -> None:
    rates = {50.0: 0.04, 100.0: 0.05, 200.0: 0.079}
    costly = a_climb(a_setting(), rates, busy=0.010)
    lean = a_climb(a_setting(0.005), {**rates, 200.0: 0.0795}, busy=0.005)
    wide = a_climb(a_setting(0.005, instances=2), {**rates, 200.0: 0.0795}, busy=0.005)
    question = a_question()

    assert best(question, [costly, lean, wide], Aim.CAPACITY, 50.0) == lean
    assert best(question, [costly, wide], Aim.CAPACITY, 50.0) == wide


def test_what_breaks_the_ceiling_is_never_best() -> None:
    broken = a_climb(a_setting(), {50.0: 0.09, 100.0: 0.01}, busy=0.001)
    holding = a_climb(a_setting(0.01), {50.0: 0.07, 100.0: 0.2}, busy=0.02)

    assert best(a_question(), [broken, holding], Aim.EFFICIENCY, 50.0) == holding
    assert best(a_question(), [broken], Aim.EFFICIENCY, 50.0) is None


# -- burstiness


def test_poisson_is_constant_and_burstier_keeps_the_mean_and_switches_between_two_rates() -> None:
    question = a_question()

    assert smooth(question).intensity.relative.tolist() == [1.0]
    rate = burstier(question).intensity.relative
    assert rate.mean() == pytest.approx(1.0)
    high, low = rate.max(), rate.min()
    assert high / low == pytest.approx(3.5)
    assert set(np.round(rate, 9)) == set(np.round([high, low], 9))
    switches = np.count_nonzero(np.diff(rate))
    assert 600.0 / switches == pytest.approx(1.2, rel=0.2)


def test_bursts_raise_p99_and_lower_capacity() -> None:
    question = a_question()
    found = answer(question, tuple(climbs(question)))
    rows = {str(row.pattern): row for row in found.patterns}
    capacity = {name: row.capacity[Role.CAPACITY] for name, row in rows.items()}

    assert rows["Poisson"].p99_seconds == rows["as given"].p99_seconds
    assert rows["burstier"].p99_seconds[Role.TODAY] > 1.1 * rows["as given"].p99_seconds[Role.TODAY]
    assert (capacity["burstier"] or 0.0) < 0.9 * (capacity["Poisson"] or 0.0)


# -- from a workload file


def test_a_file_becomes_a_question() -> None:
    question = question_of(parse_workload(SMALL), None, None, 0)

    assert question.rate_per_second == 50.0
    assert question.aim is Aim.CAPACITY
    assert question.ceiling_seconds == 0.08
    assert question.replica.curve_seconds[4] == pytest.approx(0.0018 + 0.004 + 0.016)
    assert question.replica.exclusive_share[4] == pytest.approx(0.016 / 0.0218)
    assert question.incumbent in question.settings


def test_what_memory_or_the_ceiling_forbid_is_not_asked() -> None:
    heavy = parse_workload({**SMALL, "limits": {"instance_count": 4}, "device_memory_mb": 350})
    tight = parse_workload({**SMALL, "slo": {"p99_ms": 17}})

    assert {one.instance_count for one in worth_asking(heavy)} == {1, 2}
    assert max(one.max_queue_delay_microseconds for one in worth_asking(tight)) < 6000


def test_a_setting_and_its_configuration_are_each_others_inverse() -> None:
    for configuration in worth_asking(parse_workload(SMALL)):
        assert configuration_of(setting_of(configuration)) == configuration


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_rate_is_refused_by_name(rate: float) -> None:
    with pytest.raises(InvalidInput, match="--rate"):
        question_of(parse_workload(SMALL), rate, None, 0)


REAL = {
    ((), 0, 1, 180): 45,
    ((), 0, 1, 360): 91,
    ((), 0, 2, 180): 54,
    ((), 0, 2, 360): 90,
    ((), 0, 2, 440): 116,
    ((16,), 20000, 2, 180): 52,
    ((4, 8), 0, 1, 180): 62,
    ((), 5000, 1, 180): 58,
}
"""p99 in ms of a real server with small-vision's emulated device and Poisson arrivals.

By preferred sizes, delay in microseconds, instances and requests per second.
"""


@pytest.mark.parametrize(("asked", "seen_ms"), REAL.items(), ids=map(str, REAL))
def test_a_real_servers_p99_is_predicted(asked: tuple[tuple[int, ...], int, int, int], seen_ms: int) -> None:
    preferred, delay_us, instances, rate = asked
    question = smooth(question_of(load_workload("small-vision"), float(rate), None, 0))

    reading, _ = Looker(question).look(Setting(delay_us / 1e6, preferred, instances, 32), float(rate))

    assert reading.p99_seconds * 1e3 == pytest.approx(seen_ms, rel=0.2)


# -- the command


def simulated(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_the_answer_is_one_object_and_progress_goes_to_standard_error(file: Path) -> None:
    done = simulated("--workload", str(file), "--rate", "40", "--objective", "efficiency", "--json")

    assert done.exit_code == Exit.DONE, done.stderr
    found = json.loads(done.stdout)
    assert "simulating" in done.stderr
    assert found["objective"] == "efficiency"
    assert found["rate_per_second"] == 40.0
    assert set(found["named"]) == {"today", "best_for_capacity", "best_for_efficiency"}
    today = found["named"]["today"]
    assert today["configuration"]["preferred_batch_size"] == [2]
    spent = {k: one["at_rate"]["device_seconds_per_inference"] for k, one in found["named"].items()}
    assert spent["best_for_efficiency"] <= spent["today"]
    assert [row["share"] for row in found["sensitivity_to_rate"]] == list(SENSITIVITY)
    assert [row["arrivals"] for row in found["sensitivity_to_burstiness"]] == [
        "poisson",
        "as given",
        "burstier",
    ]


def test_every_field_of_the_object_is_documented(file: Path) -> None:
    workload = load_workload(file)
    question = question_of(workload, None, None, 0)
    made = as_object(answer(question, tuple(climbs(question))), workload)
    text = (ROOT / "docs" / "simulate.md").read_text("utf-8")

    named = set(made)
    for part in (made["named"]["today"], made["frontier"][0], made["configurations"][0]):
        named |= set(part)
    named |= set(made["configurations"][0]["readings"][0]) | set(made["sensitivity_to_burstiness"][0])
    assert sorted(name for name in named if f"`{name}`" not in text) == []


def test_the_terminal_shows_every_table(file: Path) -> None:
    done = simulated("--workload", str(file))

    assert done.exit_code == Exit.DONE
    for words in ("worth naming", "The frontier", "(knee)", "Sensitivity to the rate", "burstier"):
        assert words in done.stdout
    assert "predicted, not measured (emulated GPU)" in done.stdout


def test_the_page_needs_no_other_file_and_escapes_what_it_is_given(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"

    done = simulated("--workload", str(file), "--html", str(page))

    assert done.exit_code == Exit.DONE
    text = page.read_text("utf-8")
    assert text.count('<svg class="chart"') == 4
    assert "http://" not in text
    assert "https://" not in text
    assert "predicted, not measured" in text
    question = a_question()
    evil = render(answer(question, tuple(climbs(question))), Source("<b>", "Poisson", "a & b"))
    assert "<b>" not in evil
    assert "a &amp; b" in evil


def test_an_answer_without_any_configuration_that_holds_says_so() -> None:
    question = a_question(ceiling=0.012)
    found = answer(question, tuple(climbs(question)))

    assert found.choice is None
    assert "No configuration holds" in conclusion(found)
    assert len(tables(found)[0].rows) == 1
    assert "No configuration holds" in render(found, Source("none", "Poisson", "emulated GPU"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--workload", "nowhere.yaml"), "workload"),
        (("--workload", "onnx-magika"), "emulated-gpu"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_what_cannot_be_used_is_named(arguments: tuple[str, ...], named: str) -> None:
    done = simulated(*arguments)

    assert done.exit_code == Exit.INVALID_INPUT
    assert named in done.stderr


def test_a_page_that_cannot_be_written_is_named(file: Path, tmp_path: Path) -> None:
    done = simulated("--workload", str(file), "--html", str(tmp_path))

    assert done.exit_code == Exit.INVALID_INPUT
    assert "--html" in done.stderr
