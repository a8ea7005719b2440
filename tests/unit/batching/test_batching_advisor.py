"""What is advised: gently where nothing is safe, safely towards the ceiling, the same again, and of a known version."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from autotuner.batching.advisor import advise, record
from autotuner.batching.simulator import Device, Law, simulate
from autotuner.batching.trials import Advice, Aim, BatchCount, Floats, Measured, Problem, Setting, Tried
from autotuner.domain.study import METHOD

CEILING = 0.05
CURVE = 0.004 + 0.0008 * np.arange(17.0)
DEVICE = Device(CURVE, Law.SHARING, 0.5)
INCUMBENT = Setting(0.0, (), 1, 16)


def poisson(rate: float, count: int, seed: int) -> Floats:
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, count))


def measured(setting: Setting, rate: float, seed: int) -> Measured:
    """A level of 6,000 requests on the planted device."""
    arrivals = poisson(rate, 6_000, seed)
    factors = np.exp(0.05 * np.random.default_rng(seed).standard_normal(4096) - 0.00125)
    run = simulate(arrivals, setting, DEVICE, factors)
    p95, p99, _ = run.tail
    bad = int(np.count_nonzero(run.latency_seconds > CEILING))
    batches = tuple(
        BatchCount(int(size), int(run.executions[size]), float(run.compute_seconds[size]))
        for size in np.flatnonzero(run.executions)
    )
    busy = run.busy_seconds / len(arrivals)
    return Measured(rate, arrivals, 6_000, bad, bad <= 60, run.median, p95, p99, None, busy, batches)


def a_problem(rate: float) -> Problem:
    candidates = {
        Setting(float(share) * CEILING, preferred, instances, 16)
        for share in np.linspace(0.0, 0.8, 17)
        for preferred in ((), (8,))
        for instances in (1, 2, 3)
    }
    made = tuple(sorted(candidates | {INCUMBENT}))
    return Problem(made, INCUMBENT, CEILING, Aim.EFFICIENCY, (rate,), poisson(rate, 40_000, 99), seed=5)


def tried(problem: Problem, advice: Advice, number: int) -> Tried:
    assert advice.setting is not None
    rate = min(problem.rates[0], advice.highest_rate)
    return record(advice, Tried(advice.setting, (measured(advice.setting, rate, number),)))


@cache
def a_study(rate: float) -> tuple[tuple[Advice, ...], tuple[Tried, ...]]:
    """All that is advised until the search is over, and what was measured."""
    problem = a_problem(rate)
    advices, history = [advise(problem, ())], list[Tried]()
    while advices[-1].setting is not None and len(history) < 8:
        history.append(tried(problem, advices[-1], len(history)))
        advices.append(advise(problem, history))
    return tuple(advices), tuple(history)


NEARLY_SATURATED, EASY = 860.0, 250.0
"""Requests per second of which the incumbent carries the first with effort and the second with ease."""


def test_where_production_is_nearly_saturated_instances_are_learnt_about_at_less_than_todays_load() -> None:
    advices, _ = a_study(NEARLY_SATURATED)

    probe = advices[1]

    assert probe.setting is not None
    assert probe.setting.instances == INCUMBENT.instances + 1
    assert probe.highest_rate < NEARLY_SATURATED
    assert "of today's load" in probe.reason


def test_what_was_only_met_at_less_than_todays_load_may_be_advised_for_all_of_it() -> None:
    problem, (_, history) = a_problem(EASY), a_study(EASY)
    wanted = history[1].setting

    gently = Tried(wanted, (measured(wanted, 0.5 * EASY, 1),))
    only = replace(problem, candidates=(INCUMBENT, wanted))

    assert advise(only, (history[0], gently)).setting == wanted
    assert advise(only, history[:2]).setting is None


def test_every_step_is_within_the_ceiling_and_the_last_ones_near_it() -> None:
    _, history = a_study(EASY)
    tails = [level.p99_seconds or 0.0 for trial in history for level in trial.levels]
    spent = [trial.levels[0].busy_seconds_per_inference or 0.0 for trial in history]

    assert max(tails) <= CEILING
    assert tails[-1] >= 0.85 * CEILING
    assert spent[-1] == min(spent) < 0.5 * spent[0]


def test_the_same_records_give_the_same_advice() -> None:
    advices, history = a_study(EASY)

    assert advise(a_problem(EASY), history[:2]) == advices[2]


def summary(rate: float) -> list[tuple[float, tuple[int, ...], int]]:
    return [
        (round(advice.setting.delay_seconds * 1e3, 1), advice.setting.preferred, advice.setting.instances)
        for advice in a_study(rate)[0]
        if advice.setting is not None
    ]


def test_another_advice_from_the_same_records_is_another_version_of_the_method() -> None:
    """Whoever changes what is advised raises METHOD and writes down here what the new version advises."""
    assert (METHOD, summary(NEARLY_SATURATED), summary(EASY)) == FROZEN


FROZEN = (
    2,
    [(0.0, (), 1), (0.0, (), 2), (12.5, (), 2), (37.5, (), 2)],
    [(0.0, (), 1), (25.0, (), 2), (32.5, (), 1)],
)
"""Version, then delay in milliseconds, preferred sizes and instances of each trial of the two studies."""
