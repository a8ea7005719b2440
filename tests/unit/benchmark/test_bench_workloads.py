"""Workload files of the benchmark: the six, random ones, and errors that name the field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from autotuner.batching.trials import Aim
from autotuner.benchmark.scenarios import CHANGES, Scenario
from autotuner.benchmark.system import (
    DELAY_SHARES,
    MOST_SETS,
    SPARE,
    curve_seconds,
    p99,
    preferred_sets,
    system_of,
)
from autotuner.benchmark.workloads import as_yaml, builtin, load, parse, random_workloads
from autotuner.errors import InvalidInput


def test_the_six_have_the_figures_they_are_known_by() -> None:
    known = {
        w.name: (
            *(w.fixed_ms, w.item_ms, w.interference, w.ceiling_ms),
            *(w.max_instances, w.max_batch_size, w.requests_per_second),
        )
        for w in builtin()
    }

    assert known == {
        "small-vision": (1.5, 0.35, 0.45, 50, 6, 64, 1116),
        "embedding": (1.0, 0.12, 0.60, 20, 6, 64, 2360),
        "heavy-detector": (18, 9, 0.70, 400, 3, 16, 48),
        "large-transformer": (35, 3, 0.80, 300, 2, 32, 74),
        "launch-bound": (2.5, 0.05, 0.15, 12, 8, 64, 1358),
        "tight": (6, 1.2, 0.35, 35, 4, 16, 209),
    }


def test_a_workload_survives_being_written_and_read() -> None:
    for workload in (*builtin(), *random_workloads(3, 5)):
        assert parse(as_yaml(workload), "file") == workload


def test_random_workloads_come_from_the_seed_and_span_the_six() -> None:
    drawn = random_workloads(11, 60)

    assert drawn[:5] == random_workloads(11, 5) == load("random:11:5")
    assert random_workloads(12, 1) != drawn[:1]
    for figures, low, high in (
        ([w.fixed_ms for w in drawn], 1.5, 25.0),
        ([w.ceiling_ms for w in drawn], 20.0, 250.0),
        ([w.requests_per_second for w in drawn], 80.0, 2000.0),
    ):
        assert min(figures) < low
        assert max(figures) > high
    assert {w.max_batch_size for w in drawn} == {16, 32, 64}
    assert {bool(w.preferred_batch_size) for w in drawn} == {True, False}


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    for workload in random_workloads(1, 2):
        (tmp_path / f"{workload.name}.yaml").write_text(as_yaml(workload), "utf-8")

    assert load(str(tmp_path)) == random_workloads(1, 2)


@pytest.mark.parametrize("source", ["nowhere", "random:1", "random:1:0", "random:1:201", "Builtin"])
def test_an_unknown_source_is_refused_with_what_is_allowed(source: str) -> None:
    with pytest.raises(InvalidInput, match="random:SEED:NUMBER"):
        load(source)


def test_two_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    for file in ("a.yaml", "b.yaml"):
        (tmp_path / file).write_text(as_yaml(builtin()[0]), "utf-8")

    with pytest.raises(InvalidInput, match="embedding"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ceiling_ms": 2.0}, "ceiling_ms"),
        ({"preferred_batch_size": [128]}, "preferred_batch_size"),
        ({"fixed_ms": 0}, "fixed_ms"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_impossible_workload_is_refused_by_field(change: dict[str, object], field: str) -> None:
    content = yaml.safe_load(as_yaml(builtin()[0])) | change

    with pytest.raises(InvalidInput) as caught:
        parse(yaml.safe_dump(content), "file")
    assert caught.value.field == field


# -- workloads under scenarios


def test_every_scenario_changes_something_and_says_so() -> None:
    plain = CHANGES[Scenario.MATCHED]

    assert set(CHANGES) == set(Scenario)
    assert all(changes != plain for name, changes in CHANGES.items() if name is not Scenario.MATCHED)
    assert len({changes.words for changes in CHANGES.values()}) == len(CHANGES)


def test_curves_are_straight_stepped_or_bent() -> None:
    workload = builtin()[0].model_copy(update={"fixed_ms": 1.0, "item_ms": 1.0, "max_batch_size": 8})

    straight = curve_seconds(workload, CHANGES[Scenario.MATCHED]) * 1e3
    stepped = curve_seconds(workload, CHANGES[Scenario.STEPPED]) * 1e3
    bent = curve_seconds(workload, CHANGES[Scenario.SUPER_LINEAR]) * 1e3

    assert straight[[1, 4, 5, 8]].tolist() == pytest.approx([2.0, 5.0, 6.0, 9.0])
    assert stepped[[1, 4, 5, 8]].tolist() == pytest.approx([2.0, 5.0, 7.5, 9.0])
    assert bent[[1, 8]].tolist() == pytest.approx([1.0 + 1.0625, 1.0 + 12.0])


@pytest.mark.parametrize("most", [2, 4, 16, 48, 64])
def test_preferred_sets_are_few_and_below_the_largest_batch(most: int) -> None:
    sets = preferred_sets(most)

    assert sets[0] == ()
    assert len(sets) == len(set(sets)) <= MOST_SETS
    assert all(1 < size < most for sizes in sets for size in sizes)


def test_candidates_are_the_whole_grid_and_hold_the_incumbent() -> None:
    workload = next(w for w in builtin() if w.name == "tight")
    system = system_of(workload, Scenario.MATCHED)
    candidates = system.candidates()

    assert len(DELAY_SHARES) == 31
    assert DELAY_SHARES[:4] == (0.0, 0.03, 0.1, 0.125)
    assert DELAY_SHARES[-1] == 0.8
    assert len(candidates) == len(set(candidates)) == 31 * len(preferred_sets(16)) * 4
    assert system.incumbent in candidates
    assert max(c.delay_seconds for c in candidates) == pytest.approx(0.8 * 0.035)


def test_levels_rise_to_three_times_todays_rate_for_capacity_alone() -> None:
    system = system_of(next(w for w in builtin() if w.name == "tight"), Scenario.MATCHED)
    rates = system.rates(Aim.CAPACITY)

    assert system.rates(Aim.EFFICIENCY) == (rates[0],) == (209.0,)
    assert np.diff(np.log(rates)) == pytest.approx(np.log(1.12))
    assert 2.6 < rates[-1] / rates[0] <= 3.0


@pytest.mark.parametrize("scenario", [Scenario.MATCHED, Scenario.HARD])
def test_the_incumbent_holds_the_ceiling_with_something_to_spare(scenario: Scenario) -> None:
    workload = next(w for w in builtin() if w.name == "tight")
    system = system_of(workload, scenario)

    latency = system.long_run(system.incumbent, system.long_traffic(system.rate)).latency

    assert p99(latency) <= SPARE * system.ceiling_seconds
    assert system.incumbent.instances == 1
    assert system.incumbent.delay_seconds == 0.0


def test_where_the_incumbent_cannot_carry_it_todays_rate_is_lowered() -> None:
    workload = next(w for w in builtin() if w.name == "tight")
    busy = workload.model_copy(update={"requests_per_second": 2000.0})

    system = system_of(busy, Scenario.MATCHED)

    assert system.incumbent.preferred == ()
    assert 0.1 * 2000 < system.rate < 0.4 * 2000


def test_a_drift_ends_at_the_tenth_trial() -> None:
    system = system_of(next(w for w in builtin() if w.name == "tight"), Scenario.DRIFT)

    assert system.rate_at(1) == system.rate
    assert system.rate_at(10) == system.rate_at(20) == pytest.approx(system.final_rate) == system.rate * 1.25


def test_another_model_takes_the_device_a_quarter_of_the_time() -> None:
    system = system_of(next(w for w in builtin() if w.name == "tight"), Scenario.TWO_MODELS)
    at = np.arange(0.0, 120.0, 0.01)

    shares = []
    for seed in [None, *range(60)]:
        device = system.device(120.0, seed)
        factor = device.slow_factor[np.searchsorted(device.slow_from, at, side="right") - 1]
        shares.append(float(np.mean(factor == 1.5)))

    assert shares[0] == pytest.approx(0.25, abs=0.06)
    assert np.mean(shares[1:]) == pytest.approx(0.25, abs=0.04)
