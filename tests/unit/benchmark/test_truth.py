"""The true system: the batcher's rules as they were seen on a real server, and what no rule may break."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotuner.batching.batcher import examine
from autotuner.batching.trials import Setting
from autotuner.benchmark.traffic import Pattern, Process, draw
from autotuner.benchmark.truth import Device, Law, Outcome, Traffic, preferred_at_most, run

POISSON = Process(Pattern.POISSON, tails=False)


def a_device(
    fixed: float = 0.004,
    item: float = 0.0003,
    *,
    most: int = 32,
    interference: float = 0.5,
    law: Law = Law.DISPATCH,
    overhead: float = 0.0,
) -> Device:
    curve = fixed + item * np.arange(most + 1, dtype=np.float64)
    return Device(curve, interference, law, overhead / 2, overhead / 2, np.zeros(1), np.ones(1))


def a_setting(delay: float = 0.0, preferred: tuple[int, ...] = (), instances: int = 1) -> Setting:
    return Setting(delay, preferred, instances, 32)


def arriving(*seconds: float) -> Traffic:
    return Traffic(np.array(seconds), np.ones(len(seconds)))


def sizes(rate: float, setting: Setting) -> dict[int, int]:
    """Executions by batch size, on the model of 4 ms + 0.3 ms an item that the real server was seen with."""
    outcome = run(a_device(), setting, draw(POISSON, rate, 30.0, 1))
    return {int(size): int(count) for size, count in enumerate(np.bincount(outcome.size)) if count}


def share(counts: dict[int, int], wanted: set[int]) -> float:
    return sum(count for size, count in counts.items() if size in wanted) / sum(counts.values())


# -- what was seen on the real server at 500 requests a second, one instance


def test_without_a_delay_the_preferred_size_caps_the_batch() -> None:
    assert set(sizes(500, a_setting(0.0, (4,)))) == {1, 2, 3, 4}


def test_once_the_delay_is_exceeded_batches_grow_beyond_the_preferred_size() -> None:
    assert max(sizes(500, a_setting(0.002, (4,)))) > 6


def test_with_a_long_delay_almost_only_the_preferred_size_and_one_more_occur() -> None:
    counts = sizes(500, a_setting(0.2, (4,)))

    assert share(counts, {4, 5}) > 0.99
    assert counts[5] > 20


def test_the_first_preferred_size_is_sent_as_soon_as_it_can_be_formed() -> None:
    assert share(sizes(500, a_setting(0.02, (8, 16))), {8}) > 0.8


def test_with_a_delay_and_no_preferred_size_batches_spread_around_what_arrives_meanwhile() -> None:
    counts = sizes(500, a_setting(0.02))

    assert 9 < sum(size * count for size, count in counts.items()) / sum(counts.values()) < 14


def test_at_a_low_rate_the_delay_is_simply_added() -> None:
    traffic = draw(POISSON, 50.0, 30.0, 1)
    plain = np.median(run(a_device(), a_setting(), traffic).latency)
    delayed = np.median(run(a_device(), a_setting(0.02), traffic).latency)

    assert delayed - plain == pytest.approx(0.02, abs=0.001)


REAL = {
    ((), 0.0, 180): (45, 3.0),
    ((), 0.005, 180): (58, 3.1),
    ((4, 8), 0.0, 180): (62, 3.0),
    ((), 0.0, 360): (91, 10.7),
    ((), 0.005, 360): (122, 10.7),
}
"""p99 in ms and mean batch of a real server with an emulated device, by preferred sizes, delay and rate."""


@pytest.mark.parametrize(("measured", "seen"), REAL.items(), ids=map(str, REAL))
def test_a_real_servers_latency_and_batches_are_predicted(
    measured: tuple[tuple[int, ...], float, int], seen: tuple[float, float]
) -> None:
    preferred, delay, rate = measured
    points = {1: 12.0, 2: 13.0, 4: 15.5, 8: 21.0, 16: 32.0, 32: 54.0}
    size = np.arange(33)
    curve = (
        np.interp(size, list(points), list(points.values())) + 0.2 * size + 1.8
    )  # 1.8 ms: the Python backend
    device = replace(a_device(overhead=0.001), curve_seconds=curve / 1e3)

    outcome = run(device, a_setting(delay, preferred), draw(POISSON, rate, 60.0, 1))

    p99_ms, batch = seen
    assert np.quantile(outcome.latency, 0.99) * 1e3 == pytest.approx(p99_ms, rel=0.16)
    assert outcome.size.mean() == pytest.approx(batch, rel=0.09)


# -- one look of the batcher's thread


@pytest.mark.parametrize(
    ("queued", "size", "age", "delay", "expected"),
    [
        (3, 0, 0.0, 0.0, (3, False, 0.0)),  # no delay: everything goes, and the payload may grow
        (5, 0, 0.0, 0.0, (4, True, 0.0)),  # no delay: the largest preferred size among those queued
        (9, 0, 0.0, 0.0, (8, True, 0.0)),
        (1, 3, 0.0, 0.0, (1, True, 0.0)),  # no delay: grown to a preferred size, closed
        (3, 0, 0.001, 0.004, (0, False, 0.003)),  # waits for the rest of the delay
        (5, 0, 0.001, 0.004, (4, False, 0.0)),  # a preferred size goes at once and may still grow
        (5, 0, 0.004, 0.004, (5, False, 0.0)),  # delay exceeded: everything queued
        (40, 0, 0.004, 0.004, (32, True, 0.0)),  # up to the largest batch
        (1, 8, 0.001, 0.004, (1, True, 0.0)),  # a full payload that still waits takes one more
        (3, 8, 0.001, 0.004, (1, True, 0.0)),
        (2, 3, 0.001, 0.004, (1, False, 0.0)),  # grown to 4, the next preferred size
        (1, 5, 0.001, 0.004, (1, False, 0.0)),  # a payload of no preferred size takes what there is
        (1, 32, 0.001, 0.004, (0, True, 0.0)),  # no room: closed as it is
    ],
)
def test_a_look_takes_waits_or_closes(
    queued: int, size: int, age: float, delay: float, expected: tuple[int, bool, float]
) -> None:
    taken, saturated, wait, _ = examine(queued, size, age, delay, preferred_at_most(a_setting(delay, (4, 8))))

    assert (taken, bool(saturated)) == expected[:2]
    assert wait == pytest.approx(expected[2])


def test_no_preferred_size_means_the_largest_batch() -> None:
    assert preferred_at_most(a_setting()).tolist() == preferred_at_most(a_setting(0.0, (32,))).tolist()
    assert preferred_at_most(Setting(0.0, (2, 4), 1, 5)).tolist() == [0, 0, 2, 2, 4, 4]


# -- the device


def test_a_lone_request_takes_its_compute_and_the_overhead() -> None:
    outcome = run(a_device(overhead=0.0008), a_setting(), arriving(1.0))

    assert outcome.latency.tolist() == pytest.approx([0.0043 + 0.0008])
    assert outcome.queued.tolist() == [0.0]


def test_interference_fixed_at_dispatch_slows_the_second_batch_alone() -> None:
    outcome = run(a_device(), a_setting(instances=2), arriving(0.0, 0.001))

    assert outcome.latency.tolist() == pytest.approx([0.0043, 0.0043 * 1.5])


def test_shared_work_is_done_more_slowly_while_both_are_busy() -> None:
    outcome = run(a_device(law=Law.SHARING), a_setting(instances=2), arriving(0.0, 0.001))

    first = 0.001 + (0.0043 - 0.001) * 1.5
    left = 0.0043 - (first - 0.001) / 1.5
    assert outcome.latency.tolist() == pytest.approx([first, first + left - 0.001])


def test_another_user_of_the_device_slows_what_starts_meanwhile_or_goes_on_meanwhile() -> None:
    since, factor = np.array([0.0, 1.002]), np.array([1.0, 2.0])
    traffic = arriving(1.0, 2.0)

    fixed, shared = (
        run(replace(a_device(law=law), slow_from=since, slow_factor=factor), a_setting(), traffic)
        for law in (Law.DISPATCH, Law.SHARING)
    )

    assert fixed.latency.tolist() == pytest.approx([0.0043, 0.0086])
    assert shared.latency.tolist() == pytest.approx([0.002 + 2 * 0.0023, 0.0086])


def test_a_batch_takes_the_factor_of_its_first_request() -> None:
    traffic = Traffic(np.array([0.0, 0.001, 0.002]), np.array([1.0, 3.0, 9.0]))

    outcome = run(a_device(), a_setting(), traffic)

    assert outcome.size.tolist() == [1, 2]
    assert (outcome.ended - outcome.began).tolist() == pytest.approx([0.0043, 3 * 0.0046])


def test_busy_time_counts_overlapping_batches_once() -> None:
    outcome = Outcome(
        latency=np.zeros(3),
        queued=np.zeros(3),
        size=np.ones(3, dtype=np.int64),
        began=np.array([0.0, 1.0, 5.0]),
        ended=np.array([3.0, 2.0, 6.0]),
        complete=True,
    )

    assert outcome.busy_seconds() == 4.0
    assert outcome.busy_seconds(until=5.5) == 3.5
    assert outcome.busy_seconds(until=2.5) == 2.5


# -- what holds whatever the rules


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("setting", [a_setting(), a_setting(0.003, (4,), 3), a_setting(0.01, (8, 16), 2)])
def test_every_request_is_served_once_and_in_order(law: Law, setting: Setting) -> None:
    traffic = draw(Process(Pattern.BURSTY, tails=True), 900.0, 20.0, 7, 60.0)
    device = a_device(law=law, overhead=0.001)

    outcome = run(device, setting, traffic)

    assert outcome.complete
    assert outcome.size.sum() == traffic.arrivals.size == outcome.latency.size
    assert outcome.size.min() >= 1
    assert outcome.size.max() <= 32
    assert (np.diff(outcome.began) >= 0.0).all()
    assert (outcome.queued >= 0.0).all()
    assert (outcome.latency >= outcome.queued + 0.001).all()
    running = (outcome.began[:, None] >= outcome.began) & (outcome.began[:, None] < outcome.ended)
    assert running.sum(axis=1).max() <= setting.instances


def test_the_same_traffic_gives_the_same_outcome() -> None:
    first, second = (run(a_device(), a_setting(0.004), draw(POISSON, 400.0, 10.0, 3)) for _ in range(2))

    assert first.latency.tolist() == second.latency.tolist()


def test_a_run_ends_early_once_too_many_requests_were_slow() -> None:
    traffic = draw(POISSON, 2000.0, 20.0, 1)
    setting = a_setting(0.0, (2,))

    early = run(a_device(), setting, traffic, ceiling_seconds=0.05, slow_limit=100)
    whole = run(a_device(), setting, traffic, ceiling_seconds=0.05, slow_limit=0)

    assert not early.complete
    assert whole.complete
    assert early.latency.size < 0.1 * whole.latency.size
    assert early.latency.tolist() == whole.latency[: early.latency.size].tolist()


def test_a_run_with_fewer_slow_requests_than_allowed_is_complete() -> None:
    traffic = draw(POISSON, 100.0, 20.0, 1)

    assert run(a_device(), a_setting(), traffic, ceiling_seconds=0.05, slow_limit=1).complete


# -- traffic


@pytest.mark.parametrize("pattern", Pattern)
def test_the_mean_rate_is_what_was_asked_for_and_chance_is_the_same_at_every_rate(pattern: Pattern) -> None:
    process = Process(pattern, tails=False)
    slow, fast = draw(process, 100.0, 400.0, 5), draw(process, 200.0, 400.0, 5)

    assert slow.arrivals.size == pytest.approx(40_000, rel=0.02)
    assert fast.arrivals.size == pytest.approx(80_000, rel=0.02)
    assert (np.diff(slow.arrivals) > 0.0).all()
    assert slow.arrivals[-1] <= 400.0


def test_bursts_last_about_as_long_as_they_should() -> None:
    traffic = draw(Process(Pattern.BURSTY, tails=False), 1000.0, 600.0, 1, 600.0)
    counts = np.bincount((traffic.arrivals / 0.1).astype(int))

    high = counts > 112
    assert high.mean() == pytest.approx(0.4, abs=0.06)
    switches = int(np.count_nonzero(high[1:] != high[:-1]))
    assert 600.0 / switches == pytest.approx(1.2, rel=0.2)


def test_a_day_begins_at_another_hour_with_another_seed() -> None:
    rates = [
        draw(Process(Pattern.DIURNAL, tails=False), 100.0, 60.0, seed, 1200.0).arrivals.size
        for seed in range(8)
    ]

    assert min(rates) < 0.85 * 6000
    assert max(rates) > 1.15 * 6000


def test_one_batch_in_a_hundred_takes_much_longer_where_tails_are_heavy() -> None:
    factors = draw(Process(Pattern.POISSON, tails=True), 1000.0, 100.0, 1).factors
    plain = draw(POISSON, 1000.0, 100.0, 1).factors

    assert np.mean(factors > 1.7) == pytest.approx(0.01, rel=0.15)
    assert plain.max() < 1.3
    assert math.log(plain.std()) == pytest.approx(math.log(0.05), abs=0.05)
