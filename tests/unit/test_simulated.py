"""The simulated target behaves like the real parts where the loop can tell: arrivals, batching, counting."""

from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from autotuner.adapters.simulated import (
    Bursts,
    SimulatedProfile,
    SlowClusters,
    already_best,
    flat,
    no_help,
    small_vision,
    thin_traffic,
)
from autotuner.adapters.simulated.arrivals import Arrivals
from autotuner.domain.configuration import Configuration
from autotuner.domain.measurement import Window
from tests.builders import a_configuration
from tests.scenes import CANARY, FINE_EDGES, SIMPLE, STABLE, Scene


def one_server(configuration: Configuration, rate: float, **changes: Any) -> Window:
    """Half a minute of `configuration` on the only replica with traffic."""
    profile = dataclasses.replace(SIMPLE, requests_per_second=rate, **changes)
    scene = Scene(profile, stable=1)
    scene.load("stable-0", configuration)
    scene.clock.turn(5)
    return scene.window(30)


def p50_and_p99(window: Window) -> tuple[float, float]:
    latency = window.latency(["stable-0"])
    assert latency.p50_seconds is not None
    assert latency.p99_seconds is not None
    return latency.p50_seconds, latency.p99_seconds


def batch_sizes(window: Window) -> set[int]:
    return {batch.size for batch in window.last.servers["stable-0"].batches}


def usual_batch_share(window: Window, size: int) -> float:
    batches = window.last.servers["stable-0"].batches
    return sum(b.executions for b in batches if b.size == size) / sum(b.executions for b in batches)


# ---- one seed, one world ----


def test_the_same_seed_gives_the_same_sample_and_another_seed_another() -> None:
    samples = [Scene(small_vision(), seed).after(20) for seed in (1, 1, 2)]
    assert samples[0] == samples[1]
    assert samples[0] != samples[2]


@pytest.mark.parametrize(
    "profile", [small_vision(), flat(), dataclasses.replace(small_vision(), error_ratio=0.01)]
)
def test_looking_more_often_changes_nothing(profile: SimulatedProfile) -> None:
    once, often = Scene(profile), Scene(profile)
    for scene in (once, often):
        scene.share_canary(500)
        scene.sim.faults.slow(after=timedelta(seconds=7), lasting=timedelta(seconds=3))
    for _ in range(93):
        often.after(0.31)
    seen, expected = often.after(30 - 93 * 0.31), once.after(30)
    for name in (*STABLE, CANARY):
        assert seen.gateway[name].buckets == expected.gateway[name].buckets
        assert seen.gateway[name].sent == expected.gateway[name].sent
        assert seen.gateway[name].failed == expected.gateway[name].failed
        assert seen.servers[name].executions == expected.servers[name].executions
        assert seen.servers[name].queue_seconds == pytest.approx(expected.servers[name].queue_seconds)


# ---- arrivals ----


@pytest.mark.parametrize("bursts", [None, Bursts()])
def test_arrivals_come_at_the_mean_rate_and_follow_a_change_of_it(bursts: Bursts | None) -> None:
    arrivals = Arrivals(100.0, bursts, np.random.SeedSequence(3))
    before = arrivals.until(2000.0)
    arrivals.set_rate(10.0, 2000.0)
    after = arrivals.until(4000.0)
    assert len(before) == pytest.approx(200_000, rel=0.05)
    assert len(after) == pytest.approx(20_000, rel=0.05)
    assert before[-1] <= 2000.0 < after[0]
    assert (np.diff(before) >= 0).all()


def test_bursty_arrivals_vary_more_than_poisson_ones() -> None:
    def dispersion(bursts: Bursts | None) -> float:
        times = Arrivals(100.0, bursts, np.random.SeedSequence(3)).until(1000.0)
        counts = np.histogram(times, bins=1000, range=(0, 1000))[0]
        return float(counts.var() / counts.mean())

    assert dispersion(None) == pytest.approx(1.0, abs=0.2)
    assert dispersion(Bursts()) > 5


# ---- the batcher, as seen on the real server ----


def test_without_a_delay_a_preferred_size_caps_the_batch() -> None:
    window = one_server(a_configuration(preferred_batch_size=(4,)), 500.0)
    assert batch_sizes(window) == {1, 2, 3, 4}


def test_once_the_delay_is_exceeded_everything_queued_goes() -> None:
    delayed = a_configuration(preferred_batch_size=(4,), max_queue_delay_microseconds=2_000)
    sizes = batch_sizes(one_server(delayed, 1500.0))
    assert max(sizes) > 8


def test_a_preferred_size_is_sent_as_soon_as_it_can_be_formed() -> None:
    patient = a_configuration(preferred_batch_size=(4,), max_queue_delay_microseconds=200_000)
    assert usual_batch_share(one_server(patient, 500.0), 4) > 0.95


def test_the_largest_batch_is_never_exceeded() -> None:
    small = a_configuration(preferred_batch_size=(), max_batch_size=8)
    assert max(batch_sizes(one_server(small, 3000.0))) == 8


def test_a_preferred_size_of_the_largest_batch_is_the_same_as_none() -> None:
    none, largest = (one_server(a_configuration(preferred_batch_size=sizes), 500.0) for sizes in ((), (32,)))
    assert none == largest


def test_at_a_low_rate_the_delay_is_added_to_every_latency() -> None:
    prompt, _ = p50_and_p99(one_server(a_configuration(preferred_batch_size=()), 30.0))
    patient = a_configuration(preferred_batch_size=(), max_queue_delay_microseconds=20_000)
    delayed, _ = p50_and_p99(one_server(patient, 30.0))
    assert delayed - prompt == pytest.approx(0.020, abs=0.002)


def test_latency_without_load_is_transfer_compute_and_network() -> None:
    window = one_server(
        a_configuration(preferred_batch_size=()), 1.0, transfer_seconds_per_item=0.003, network_seconds=0.002
    )
    assert p50_and_p99(window)[0] == pytest.approx(0.009, abs=0.0011)


def test_several_instances_share_one_device() -> None:
    single = one_server(a_configuration(preferred_batch_size=(1,), max_batch_size=1), 245.0)
    several = one_server(
        a_configuration(preferred_batch_size=(1,), max_batch_size=1, instance_count=4), 245.0
    )
    assert several.use("stable-0").device_utilisation == pytest.approx(
        single.use("stable-0").device_utilisation
    )
    assert several.rate_per_second(["stable-0"]) <= 250.0


def test_above_capacity_the_queue_grows_until_the_gateway_gives_up() -> None:
    window = one_server(a_configuration(preferred_batch_size=(1,), max_batch_size=1), 400.0)
    counters = window.last.gateway["stable-0"]
    assert counters.failed_unmeasured > 2_000
    assert counters.failed == counters.failed_unmeasured
    assert counters.sent - counters.ended == pytest.approx(400 * 2, rel=0.1)


# ---- the named profiles ----


def p99_at(profile: SimulatedProfile, configuration: Configuration, rate: float) -> float:
    scene = Scene(dataclasses.replace(profile, requests_per_second=rate, edges_seconds=FINE_EDGES), stable=1)
    scene.load("stable-0", configuration)
    scene.clock.turn(5)
    p99 = scene.window(90).latency(["stable-0"]).p99_seconds
    return math.inf if p99 is None else p99


def test_small_vision_carries_a_third_more_with_no_preferred_sizes() -> None:
    profile, plain = small_vision(), a_configuration(preferred_batch_size=())
    assert p99_at(profile, profile.incumbent, 230) < 0.08
    assert p99_at(profile, profile.incumbent, 310) > 0.1
    assert p99_at(profile, plain, 370) < 0.1
    assert p99_at(profile, plain, 430) > 0.1


def test_no_help_is_over_the_ceiling_whatever_is_configured() -> None:
    profile = no_help()
    assert p99_at(profile, profile.incumbent, 2) > 0.1
    assert p99_at(profile, dataclasses.replace(profile.incumbent, instance_count=4), 2) > 0.1


def test_already_best_has_nothing_better_than_its_incumbent() -> None:
    profile = already_best()
    incumbent = p99_at(profile, profile.incumbent, 200)
    others = [
        a_configuration(preferred_batch_size=sizes, max_queue_delay_microseconds=delay, instance_count=count)
        for sizes, delay, count in [((8,), 0, 1), ((), 10_000, 1), ((), 0, 4), ((16,), 20_000, 2)]
    ]
    assert incumbent < 0.1
    assert all(p99_at(profile, other, 200) > 0.97 * incumbent for other in others)


def test_flat_behaves_alike_under_every_configuration() -> None:
    as_found, changed = Scene(flat()), Scene(flat())
    changed.load("stable-0", a_configuration(preferred_batch_size=(), max_queue_delay_microseconds=20_000))
    as_found.load("stable-0", as_found.loaded("stable-0"))
    assert as_found.after(60) == changed.after(60)
    assert as_found.loaded("stable-0") != changed.loaded("stable-0")


def test_thin_traffic_is_thin() -> None:
    sample = Scene(thin_traffic()).after(100)
    assert 200 < sum(counters.sent for counters in sample.gateway.values()) < 400


# ---- counting ----


def test_requests_are_split_by_weight() -> None:
    scene = Scene(SIMPLE)
    scene.share_canary(600)
    window = scene.window(100)
    assert window.sent(CANARY) == pytest.approx(12_000, rel=0.03)
    assert sum(window.sent(name) for name in (*STABLE, CANARY)) == pytest.approx(20_000, rel=0.03)


def test_a_replica_without_weight_gets_nothing() -> None:
    assert Scene(SIMPLE).window(20).sent(CANARY) == 0


def test_the_histogram_learns_of_a_request_at_the_next_flush() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, flush_interval=timedelta(seconds=5)))
    before, after = scene.after(4.9).gateway["stable-0"], scene.after(0.1).gateway["stable-0"]
    assert before.ended > 400
    assert before.buckets[-1] == 0
    assert after.buckets[-1] >= before.ended
    assert after.latency_sum_seconds > 0


def test_gateway_and_server_count_the_same_requests() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, error_ratio=0.05))
    scene.sim.faults.traffic(0.0, after=timedelta(seconds=60))
    sample = scene.after(65)
    gateway, server = sample.gateway["stable-0"], sample.servers["stable-0"]
    assert gateway.sent == gateway.ended == gateway.buckets[-1] == server.succeeded + server.failed
    assert gateway.failed == server.failed == pytest.approx(0.05 * gateway.sent, rel=0.2)
    assert gateway.failed_unmeasured == 0
    latency_seconds = server.queue_seconds + server.compute_seconds
    assert gateway.latency_sum_seconds == pytest.approx(latency_seconds)


def test_batch_timings_are_the_curve() -> None:
    for batch in Scene(SIMPLE).after(60).servers["stable-0"].batches:
        expected = 0.004 + (batch.size - 1) * 0.0003
        assert batch.compute_seconds / batch.executions == pytest.approx(expected)


def test_slow_clusters_slow_one_replica_at_a_time() -> None:
    clusters = SlowClusters(timedelta(seconds=10), timedelta(milliseconds=500), factor=10.0)
    calm, disturbed = Scene(SIMPLE), Scene(dataclasses.replace(SIMPLE, slow_clusters=clusters))
    slow = [window.counts(STABLE, 0.05).bad_at_least for window in (calm.window(120), disturbed.window(120))]
    assert slow[0] == 0
    assert slow[1] > 100


def test_a_device_that_is_not_reported_is_none() -> None:
    counters = Scene(dataclasses.replace(SIMPLE, reports_device=False)).after(5).servers[CANARY]
    assert counters.memory_used_bytes is None
    assert counters.device_busy_seconds is None
