"""Arrival processes: right mean rate, repeatable by seed, bursty where they should be."""

from __future__ import annotations

from importlib.resources import files
from itertools import islice, takewhile

import numpy as np
import pytest

from autotuner.errors import InvalidInput
from autotuner.sandbox.arrivals import (
    Arrivals,
    Bursty,
    Offsets,
    Poisson,
    Trace,
    describe,
    offsets,
    recorded_offsets,
    trace_names,
)

AZURE = "azure_llm_2023_conv"
RATE = 500.0
PROCESSES: list[Arrivals] = [
    Poisson(RATE),
    Trace(AZURE, RATE),
    Trace(AZURE, RATE, steady_seconds=5.0),
    Bursty(RATE, high=1.75, low=0.5, mean_seconds=1.2),
]


def first_offsets(arrivals: Arrivals, *, seed: int, count: int) -> Offsets:
    """The first `count` arrival times in seconds, shape (count,)."""
    return np.fromiter(islice(offsets(arrivals, seed=seed), count), dtype=np.float64, count=count)


def offsets_within(arrivals: Arrivals, *, seed: int, seconds: float) -> Offsets:
    """All arrival times before `seconds`, shape (n,)."""
    return np.fromiter(takewhile(lambda time: time < seconds, offsets(arrivals, seed=seed)), dtype=np.float64)


def dispersion(times: np.ndarray, window_seconds: float) -> float:
    """Variance over mean of the counts in windows: 1 for Poisson arrivals, more for bursts."""
    counts = np.histogram(times, np.arange(0, times[-1], window_seconds))[0]
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("arrivals", PROCESSES, ids=str)
def test_mean_rate_is_the_wanted_one(arrivals: Arrivals) -> None:
    seconds = 400.0
    rates = [len(offsets_within(arrivals, seed=seed, seconds=seconds)) / seconds for seed in range(5)]
    # Bursty: an hour of one-second stays leaves about 1 % of noise in each mean, the other two far less.
    assert np.mean(rates) == pytest.approx(RATE, rel=0.03)


@pytest.mark.parametrize("arrivals", PROCESSES, ids=str)
def test_same_seed_gives_the_same_times_and_another_seed_others(arrivals: Arrivals) -> None:
    once, again, other = (first_offsets(arrivals, seed=seed, count=5000) for seed in (7, 7, 8))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


@pytest.mark.parametrize("arrivals", PROCESSES, ids=str)
def test_times_ascend_from_zero(arrivals: Arrivals) -> None:
    times = first_offsets(arrivals, seed=3, count=60_000)
    assert times[0] >= 0
    assert np.all(np.diff(times) >= 0)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(first_offsets(Poisson(RATE), seed=1, count=50_000)) * RATE
    assert gaps.mean() == pytest.approx(1, rel=0.02)
    assert gaps.std() == pytest.approx(1, rel=0.02)
    assert np.mean(gaps > 2) == pytest.approx(np.exp(-2), rel=0.05)


def test_poisson_is_not_bursty_and_the_others_are() -> None:
    poisson, trace, _, bursty = (dispersion(offsets_within(p, seed=2, seconds=200), 0.25) for p in PROCESSES)
    assert 0.8 < poisson < 1.25
    assert trace > 1.5
    assert bursty > 10


def test_a_whole_lap_of_a_trace_has_exactly_the_mean_rate() -> None:
    count = len(recorded_offsets(AZURE))
    times = first_offsets(Trace(AZURE, RATE), seed=11, count=3 * count)
    for lap in (1, 2):
        assert times[(lap + 1) * count - 1] - times[lap * count - 1] == pytest.approx(count / RATE)


def test_the_seam_of_a_trace_is_one_ordinary_gap() -> None:
    recorded = np.diff(recorded_offsets(AZURE))
    count = len(recorded) + 1
    gaps = np.diff(first_offsets(Trace(AZURE, RATE), seed=5, count=count + 1)) * RATE * recorded.mean()
    # One lap holds the recorded gaps, each once, and one more of the mean length.
    expected = np.sort(np.append(recorded, recorded.mean()))
    assert np.sort(gaps) == pytest.approx(expected, abs=1e-6)


def test_seeds_start_at_different_places_of_a_trace() -> None:
    starts = {round(next(offsets(Trace(AZURE, RATE), seed=seed)), 9) for seed in range(20)}
    assert len(starts) > 10


def test_rate_only_scales_the_time_of_a_trace() -> None:
    slow, fast = (first_offsets(Trace(AZURE, rate), seed=4, count=4000) for rate in (50.0, 500.0))
    assert slow == pytest.approx(10 * fast)


def test_bursty_spends_the_time_its_mean_rate_asks_for_in_the_high_state() -> None:
    bursty = Bursty(1000, high=1.75, low=0.5, mean_seconds=1.2)
    assert bursty.high_share * bursty.high + (1 - bursty.high_share) * bursty.low == pytest.approx(1)
    blocks = list(islice(bursty.blocks(np.random.default_rng(0)), 4000))
    stays = np.diff([block[0] for block in blocks if len(block)])
    assert stays.mean() == pytest.approx(1.2, rel=0.06)


def test_descriptions_of_a_workload_file_give_the_processes() -> None:
    assert describe({"poisson": True}, requests_per_second=9) == Poisson(9)
    assert describe({"trace": AZURE}, requests_per_second=9) == Trace(AZURE, 9)
    burst = {"high": 1.75, "low": 0.5, "mean_seconds": 1.2}
    assert describe({"bursty": burst}, requests_per_second=9) == Bursty(9, **burst)


@pytest.mark.parametrize(
    ("description", "field"),
    [
        ({}, "arrivals"),
        ({"poisson": False}, "arrivals"),
        ({"poisson": True, "trace": AZURE}, "arrivals"),
        ({"trace": "unheard-of"}, "arrivals.trace"),
        ({"bursty": {"high": 2}}, "arrivals"),
        ({"bursty": {"high": 2, "low": 0.5, "mean_seconds": 1, "typo": 1}}, "arrivals"),
        ({"bursty": {"high": 0.9, "low": 0.5, "mean_seconds": 1}}, "arrivals.bursty.high"),
        ({"bursty": {"high": 2, "low": 1.5, "mean_seconds": 1}}, "arrivals.bursty.low"),
        ({"bursty": {"high": 2, "low": 0.5, "mean_seconds": 0}}, "arrivals.bursty.mean_seconds"),
        ({"bursty": {"high": "2", "low": 0.5, "mean_seconds": 1}}, "arrivals.bursty.high"),
    ],
)
def test_a_wrong_description_names_the_field(description: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        describe(description, requests_per_second=10)
    assert caught.value.field == field


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), True])
def test_a_rate_that_is_not_positive_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInput):
        Poisson(rate)


def test_every_packaged_trace_is_attributed() -> None:
    readme = files("autotuner.sandbox").joinpath("traces", "README.md").read_text()
    assert trace_names()
    assert all(name in readme for name in trace_names())
    assert "CC-BY 4.0" in readme


def test_a_steadied_trace_keeps_its_bursts_and_loses_its_drift() -> None:
    raw, steady = (
        offsets_within(Trace(AZURE, RATE, seconds), seed=1, seconds=200.0) for seconds in (0.0, 5.0)
    )
    assert dispersion(raw, 16.0) > 100
    assert dispersion(steady, 16.0) < 2
    assert dispersion(steady, 1.0) > 2


def test_a_negative_steadiness_is_refused() -> None:
    with pytest.raises(InvalidInput, match="steady_seconds"):
        describe({"trace": AZURE, "steady_seconds": -1}, requests_per_second=RATE)
