"""What explains trials: the law and the strength that were planted are found, and what is not known stays open."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from autotuner.batching.ensemble import UNKNOWN, explain
from autotuner.batching.forecast import Forecaster
from autotuner.batching.simulator import Device, Law, simulate
from autotuner.batching.trials import Aim, BatchCount, Floats, Measured, Problem, Setting, Tried

CEILING = 0.05
OVERHEAD = 0.0008
CURVE = 0.003 + 0.0006 * np.arange(33.0)


def poisson(rate: float, count: int, seed: int) -> Floats:
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, count))


def a_setting(delay: float = 0.0, instances: int = 1) -> Setting:
    return Setting(delay, (), instances, 32)


def tried(setting: Setting, device: Device, seed: int, rate: float = 600.0) -> Tried:
    """A trial of one level on a device whose truth is known."""
    arrivals = poisson(rate, 15_000, seed)
    noise = np.random.default_rng(seed).standard_normal(4096)
    run = simulate(arrivals, setting, device, np.exp(0.05 * noise - 0.00125))
    latency = run.latency_seconds + OVERHEAD
    p50, p95, p99 = (float(q) for q in np.quantile(latency, (0.5, 0.95, 0.99)))
    batches = tuple(
        BatchCount(int(size), int(run.executions[size]), float(run.compute_seconds[size]))
        for size in np.flatnonzero(run.executions)
    )
    bad = int(np.count_nonzero(latency > CEILING))
    busy = run.busy_seconds / len(arrivals)
    level = Measured(rate, arrivals, len(arrivals), bad, True, p50, p95, p99, None, busy, batches)
    return Tried(setting, (level,))


PLANTED = {Law.DISPATCH: 0.5, Law.SHARING: 0.6, Law.EXCLUSIVE: 0.85}


@cache
def history(law: Law) -> tuple[Tried, ...]:
    device = Device(CURVE, law, PLANTED[law])
    asked = (a_setting(), a_setting(instances=2), a_setting(instances=3), a_setting(0.008, 2))
    return tuple(tried(setting, device, seed) for seed, setting in enumerate(asked))


@pytest.mark.parametrize("law", Law)
def test_the_law_and_the_strength_that_were_planted_are_found(law: Law) -> None:
    members = explain(history(law), seed=1)

    heaviest: dict[Law, float] = dict.fromkeys(Law, 0.0)
    for member in members:
        heaviest[member.device.law] += member.weight
    assert max(heaviest, key=lambda one: heaviest[one]) is law
    strength = sum(m.weight * m.device.strength for m in members if m.device.law is law) / heaviest[law]
    assert strength == pytest.approx(PLANTED[law], abs=0.12)


@pytest.mark.parametrize("law", Law)
def test_curve_and_overhead_are_found_beside_interference(law: Law) -> None:
    best = explain(history(law), seed=1)[0]

    seen = slice(1, min(best.known_size, 10))
    assert best.device.curve_seconds[seen] == pytest.approx(CURVE[seen], rel=0.05)
    assert best.overhead_seconds == pytest.approx(OVERHEAD, abs=0.0004)


def test_weights_are_of_the_heaviest_first_and_add_up_to_one() -> None:
    weights = [member.weight for member in explain(history(Law.DISPATCH), seed=1)]

    assert sum(weights) == pytest.approx(1.0)
    assert weights == sorted(weights, reverse=True)


def test_with_a_single_instance_alone_several_laws_stay_possible() -> None:
    members = explain(history(Law.DISPATCH)[:1], seed=1)

    known = {(m.device.law, m.device.strength) for m in members}
    assert len({law for law, _ in known}) > 1
    assert known <= set(UNKNOWN)


def test_without_batches_nothing_is_explained() -> None:
    empty = Measured(100.0, poisson(100.0, 500, 1), 500, 0, True)

    assert explain((Tried(a_setting(), (empty,)),), seed=1) == ()
    assert explain((), seed=1) == ()


def test_the_same_trials_and_seed_give_the_same_members() -> None:
    first, again = (explain(history(Law.SHARING), seed=4) for _ in range(2))

    assert [(m.device.law, m.device.strength, m.weight) for m in first] == [
        (m.device.law, m.device.strength, m.weight) for m in again
    ]
    assert all(
        one.device.curve_seconds.tolist() == two.device.curve_seconds.tolist()
        for one, two in zip(first, again, strict=True)
    )


@cache
def a_problem(law: Law) -> Problem:
    del law
    candidates = (a_setting(), a_setting(0.004), a_setting(0.012, 2), a_setting(instances=4))
    return Problem(candidates, a_setting(), CEILING, Aim.EFFICIENCY, (600.0,), poisson(600.0, 60_000, 77))


@pytest.mark.parametrize("law", Law)
def test_a_setting_that_was_never_tried_is_forecast_within_its_band(law: Law) -> None:
    forecaster = Forecaster(a_problem(law), history(law))
    device = Device(CURVE, law, PLANTED[law])
    for setting in (a_setting(0.004), a_setting(0.012, 2), a_setting(instances=4)):
        forecast = forecaster.forecast(setting)
        run = simulate(poisson(600.0, 60_000, 99), setting, device, np.ones(1))
        observed = np.log(float(np.quantile(run.latency_seconds, 0.99)) + OVERHEAD)

        assert abs(observed - forecast.log_p99) < max(0.08, 2.5 * forecast.spread), setting
        assert forecast.violation(np.exp(forecast.log_p99)) == pytest.approx(0.5)


def test_a_forecast_is_a_pure_function_of_problem_and_history() -> None:
    first, again = (
        Forecaster(a_problem(Law.DISPATCH), history(Law.DISPATCH)).forecast(a_setting(0.004)) for _ in "ab"
    )

    assert (first.log_p99, first.spread, first.value) == (again.log_p99, again.spread, again.value)
