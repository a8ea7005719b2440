"""The model's simulator: the server's rules as they were seen, three laws by hand, and what no rule may break."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.batching.simulator import Device, Law, Run, preferred_at_most, simulate
from autotuner.batching.trials import Floats, Setting
from autotuner.benchmark import truth

ONES = np.ones(1)


def a_device(
    law: Law = Law.DISPATCH, strength: float = 0.5, *, fixed: float = 0.004, item: float = 0.0003
) -> Device:
    return Device(fixed + item * np.arange(33.0), law, strength)


def flat(law: Law, strength: float) -> Device:
    """A second for every batch, whatever its size."""
    return Device(np.ones(33), law, strength)


def a_setting(
    delay: float = 0.0, preferred: tuple[int, ...] = (), instances: int = 1, most: int = 32
) -> Setting:
    return Setting(delay, preferred, instances, most)


def run_at(seconds: Sequence[float], setting: Setting, device: Device, factors: Floats = ONES) -> Run:
    return simulate(np.array(seconds, dtype=np.float64), setting, device, factors)


def poisson(rate: float, seconds: float = 30.0, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(1.0 / rate, int(rate * seconds)))


@pytest.mark.parametrize("count", [1, 7, 400, 20_000])
@pytest.mark.parametrize("clustered", [False, True])
def test_the_tail_is_that_of_all_latencies_in_order(count: int, clustered: bool) -> None:
    drawn = np.random.default_rng(count).exponential(0.01, count)
    run = Run(np.sort(drawn) if clustered else drawn, np.ones(2, dtype=np.int64), np.ones(2), 1.0, 0.0, 1.0)

    ordered = np.sort(drawn)
    ranks = [min(count - 1, int(np.ceil(share * count))) for share in (0.95, 0.99, 0.995)]

    assert run.tail == tuple(ordered[ranks])
    assert run.far_tail == run.tail[1:]


def sizes(run: Run) -> dict[int, int]:
    return {int(size): int(run.executions[size]) for size in np.flatnonzero(run.executions)}


def seen(rate: float, setting: Setting) -> dict[int, int]:
    """Executions by batch size on the model of 4 ms + 0.3 ms an item that the real server was seen with."""
    return sizes(simulate(poisson(rate), setting, a_device(), ONES))


def share(counts: dict[int, int], wanted: set[int]) -> float:
    return sum(count for size, count in counts.items() if size in wanted) / sum(counts.values())


# -- the batcher, as it was seen on the real server at 500 requests a second with one instance


def test_without_a_delay_a_preferred_size_caps_the_batch() -> None:
    assert set(seen(500, a_setting(0.0, (4,)))) == {1, 2, 3, 4}


def test_once_the_delay_is_exceeded_everything_queued_goes() -> None:
    assert max(seen(500, a_setting(0.002, (4,)))) > 6


def test_with_a_long_delay_almost_only_the_preferred_size_and_one_more_occur() -> None:
    counts = seen(500, a_setting(0.2, (4,)))

    assert share(counts, {4, 5}) > 0.99
    assert counts[5] > 20


def test_the_smaller_preferred_size_is_sent_as_soon_as_it_can_be_formed() -> None:
    assert share(seen(500, a_setting(0.02, (8, 16))), {8}) > 0.8


def test_with_a_delay_and_no_preferred_size_batches_are_what_arrives_meanwhile() -> None:
    assert 9 < simulate(poisson(500), a_setting(0.02), a_device(), ONES).mean_batch < 14


def test_at_a_low_rate_the_delay_is_added() -> None:
    plain, delayed = (
        np.median(simulate(poisson(50), a_setting(delay), a_device(), ONES).latency_seconds)
        for delay in (0.0, 0.02)
    )

    assert delayed - plain == pytest.approx(0.02, abs=0.001)


def test_no_preferred_size_and_only_the_largest_are_the_same() -> None:
    arrivals = poisson(800, 5.0)
    none, largest = (simulate(arrivals, a_setting(0.003, p), a_device(), ONES) for p in ((), (32,)))

    assert preferred_at_most(a_setting()).tolist() == preferred_at_most(a_setting(0.0, (32,))).tolist()
    assert none.latency_seconds.tolist() == largest.latency_seconds.tolist()


def test_with_two_preferred_sizes_and_no_delay_a_waiting_batch_stops_at_the_smaller() -> None:
    """What waits is closed at 4 as it grows one by one; a real server with [4, 8] was as slow."""
    counts = seen(500, a_setting(0.0, (4, 8)))

    assert set(counts) <= set(range(1, 9))
    assert share(counts, {5, 6, 7}) < 0.05


# -- the batcher, request by request


def test_what_waits_without_a_delay_grows_until_it_is_taken() -> None:
    run = run_at([0.0, 0.1, 0.2, 0.9], a_setting(), flat(Law.DISPATCH, 0.0))

    assert sizes(run) == {1: 1, 3: 1}
    assert run.latency_seconds.tolist() == pytest.approx([1.0, 1.9, 1.8, 1.1])


def test_what_waits_with_a_delay_does_not_grow_once_the_delay_is_over() -> None:
    run = run_at([0.0, 0.1, 0.5, 0.6], a_setting(0.2), flat(Law.DISPATCH, 0.0))

    # 0.0 and 0.1 leave together at 0.2. What arrived at 0.5 is due at 0.7 with 0.6; the device is free at 1.2.
    assert run.latency_seconds.tolist() == pytest.approx([1.2, 1.1, 1.7, 1.6])
    assert sizes(run) == {2: 2}


def test_a_lone_request_waits_the_delay_and_a_preferred_size_goes_at_once() -> None:
    alone = run_at([1.0], a_setting(0.2, (2,)), flat(Law.DISPATCH, 0.0))
    pair = run_at([1.0, 1.05], a_setting(0.2, (2,)), flat(Law.DISPATCH, 0.0))

    assert alone.latency_seconds.tolist() == pytest.approx([1.2])
    assert pair.latency_seconds.tolist() == pytest.approx([1.05, 1.0])


def test_no_batch_exceeds_the_largest_size() -> None:
    run = run_at([0.0, *np.linspace(0.1, 0.2, 10)], a_setting(most=4), flat(Law.DISPATCH, 0.0))

    assert sizes(run) == {1: 1, 2: 1, 4: 2}


def test_factors_are_used_in_turn_and_from_the_start_again() -> None:
    run = run_at([0.0, 10.0, 20.0], a_setting(), flat(Law.DISPATCH, 0.0), np.array([1.0, 3.0]))

    assert run.latency_seconds.tolist() == pytest.approx([1.0, 3.0, 1.0])


# -- the laws, by hand: one second a batch, the second batch begins half a second after the first


TOGETHER = [0.0, 0.5]
PAIR = a_setting(instances=2, most=32)


def test_interference_at_dispatch_slows_only_what_begins_beside_another() -> None:
    run = run_at(TOGETHER, PAIR, flat(Law.DISPATCH, 0.4))

    assert run.latency_seconds.tolist() == pytest.approx([1.0, 1.4])
    assert run.busy_seconds == pytest.approx(1.9)
    assert run.compute_seconds[1] == pytest.approx(2.4)


def test_under_sharing_both_are_slowed_while_both_run() -> None:
    run = run_at(TOGETHER, PAIR, flat(Law.SHARING, 0.4))

    # Half a second alone, then 0.5 of work at 1/1.4: until 1.2. The second has done 0.5 by then.
    assert run.latency_seconds.tolist() == pytest.approx([1.2, 1.2])
    assert run.busy_seconds == pytest.approx(1.7)


def test_exclusive_parts_follow_one_another_and_the_rest_overlaps() -> None:
    run = run_at(TOGETHER, PAIR, flat(Law.EXCLUSIVE, 0.8))

    # Exclusive from 0.2 to 1.0; the second's own 0.2 are over at 0.7, so it computes from 1.0 to 1.8.
    assert run.latency_seconds.tolist() == pytest.approx([1.0, 1.3])
    assert run.busy_seconds == pytest.approx(1.6)


@pytest.mark.parametrize("law", [Law.DISPATCH, Law.SHARING])
def test_three_at_once_slow_one_another_by_two_strengths(law: Law) -> None:
    run = run_at([0.0, 0.0, 0.0], a_setting(0.0, (1,), 3), flat(law, 0.5))

    # At dispatch each counts those that already run; shared, all three advance at half the pace.
    expected = [1.0, 1.5, 2.0] if law is Law.DISPATCH else [2.0, 2.0, 2.0]
    assert run.latency_seconds.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("law", Law)
def test_a_single_instance_knows_no_interference(law: Law) -> None:
    arrivals = poisson(400, 10.0)
    alone = simulate(arrivals, a_setting(0.002, (8,)), a_device(Law.DISPATCH, 0.0), ONES)

    run = simulate(arrivals, a_setting(0.002, (8,)), a_device(law, 0.7), ONES)

    assert run.latency_seconds.tolist() == pytest.approx(alone.latency_seconds.tolist())


@pytest.mark.parametrize("law", Law)
def test_more_interference_is_never_faster(law: Law) -> None:
    arrivals = poisson(600, 10.0)
    p99 = [
        float(
            np.quantile(
                simulate(arrivals, a_setting(instances=3), a_device(law, s), ONES).latency_seconds, 0.99
            )
        )
        for s in (0.1, 0.5, 0.9)
    ]

    assert p99 == sorted(p99)


# -- what no rule may break


@st.composite
def windows(draw: st.DrawFn) -> tuple[Floats, Setting, Device, Floats]:
    gaps = draw(st.lists(st.floats(0.0, 0.02), min_size=1, max_size=60))
    most = draw(st.integers(1, 12))
    preferred = draw(st.sets(st.integers(1, most), max_size=3))
    delay = draw(st.one_of(st.just(0.0), st.floats(0.0, 0.03)))
    setting = Setting(delay, tuple(sorted(preferred)), draw(st.integers(1, 4)), most)
    device = Device(
        draw(st.floats(0.0005, 0.02)) + draw(st.floats(0.0, 0.002)) * np.arange(most + 1.0),
        draw(st.sampled_from(Law)),
        draw(st.floats(0.0, 1.0)),
    )
    factors = np.array(draw(st.lists(st.floats(0.5, 3.0), min_size=1, max_size=4)))
    return np.cumsum(gaps), setting, device, factors


@given(windows())
@settings(max_examples=200, deadline=None)
def test_every_request_is_served_once_within_the_caps_and_never_faster_than_its_batch(
    window: tuple[Floats, Setting, Device, Floats],
) -> None:
    arrivals, setting, device, factors = window

    run = simulate(arrivals, setting, device, factors)

    counts = np.arange(setting.max_batch_size + 1) * run.executions
    assert counts.sum() == len(arrivals) == len(run.latency_seconds)
    assert run.executions[0] == 0
    if setting.delay_seconds == 0.0 and setting.instances == 1:
        assert max(sizes(run)) <= setting.cap
    smallest = factors.min() * device.curve_seconds[min(sizes(run))]
    assert (run.latency_seconds >= smallest - 1e-9).all()
    least = factors.min() * (run.executions * device.curve_seconds).sum()
    assert run.compute_seconds.sum() >= least - 1e-9
    assert run.queue_seconds >= -1e-9
    assert 0.0 <= run.busy_seconds <= run.span_seconds + 1e-9
    assert run.compute_seconds.sum() <= setting.instances * run.span_seconds + 1e-9
    again = simulate(arrivals, setting, device, factors)
    assert again.latency_seconds.tolist() == run.latency_seconds.tolist()


@given(windows())
@settings(max_examples=100, deadline=None)
def test_the_latencies_add_up_to_queue_and_batch(window: tuple[Floats, Setting, Device, Floats]) -> None:
    arrivals, setting, device, factors = window
    one = Setting(setting.delay_seconds, (1,), setting.instances, 1)

    run = simulate(arrivals, one, Device(device.curve_seconds[:2], device.law, device.strength), factors)

    assert run.latency_seconds.sum() == pytest.approx(run.queue_seconds + run.compute_seconds.sum())


# -- two simulators agree: the benchmark's own loop over time against the model's


LAWS = {Law.DISPATCH: truth.Law.DISPATCH, Law.SHARING: truth.Law.SHARING}
SETTINGS = [
    a_setting(delay, preferred, instances)
    for delay, preferred in ((0.0, ()), (0.0, (4, 8)), (0.002, ()), (0.01, (8,)), (0.03, (4, 8)))
    for instances in (1, 2, 4)
]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rate", [150.0, 900.0, 1800.0])
def test_the_truth_of_the_benchmark_and_the_model_agree_on_the_same_arrivals(law: Law, rate: float) -> None:
    arrivals = poisson(rate, 8.0, seed=3)
    curve = 0.004 + 0.0003 * np.arange(33.0)
    device = truth.Device(curve, 0.5, LAWS[law], 0.0, 0.0, np.zeros(1), np.ones(1))
    for setting in SETTINGS:
        outcome = truth.run(device, setting, truth.Traffic(arrivals, np.ones(len(arrivals))))
        run = simulate(arrivals, setting, Device(curve, law, 0.5), ONES)

        assert run.latency_seconds == pytest.approx(outcome.latency, abs=1e-9), setting
        assert run.executions.tolist() == np.bincount(outcome.size, minlength=33).tolist()
        assert run.busy_seconds == pytest.approx(outcome.busy_seconds())
        assert run.queue_seconds == pytest.approx(outcome.queued.sum())


# -- ending early


@settings(max_examples=40, deadline=None)
@given(st.floats(0.002, 0.08), st.sampled_from(list(Law)), st.integers(1, 3))
def test_a_run_ends_early_exactly_where_too_many_requests_are_slow(
    patience: float, law: Law, instances: int
) -> None:
    arrivals, setting, device = poisson(900.0, 2.0), a_setting(0.004, (), instances), a_device(law)
    whole = simulate(arrivals, setting, device, ONES)
    slow = int(np.count_nonzero(whole.latency_seconds > patience))

    allowed = [simulate(arrivals, setting, device, ONES, patience, most) for most in (slow, max(0, slow - 1))]

    assert allowed[0].complete
    assert allowed[0].latency_seconds.tolist() == whole.latency_seconds.tolist()
    assert allowed[1].complete == (slow == 0)
