"""From looks to a window: differences, reloads in between, replicas that were not reached, and quantiles."""

from __future__ import annotations

import pytest

from autotuner.domain.findings.reading import Device, Quantiles, Work
from autotuner.domain.findings.window import gather
from autotuner.domain.measurement import GatewayCounters
from tests.diagnoses import MODEL, a_look, some_work


def counted(requests: int, queue_ms: float = 2.0) -> Work:
    """What a server has counted after so many requests of one item."""
    return some_work({1: (requests, 10.0)}, queue_ms=queue_ms)


def test_the_window_is_what_was_done_between_the_first_and_the_last_look() -> None:
    looks = [a_look(number, {"r0": {MODEL: counted(100 + 50 * number)}}) for number in range(5)]
    window = gather(looks, MODEL)

    assert (window.seconds, window.work.requests, window.rate_per_second) == (4.0, 200, 50.0)
    assert window.replicas["r0"].counts == (50, 50, 50, 50)
    assert window.work.batches[0].executions == 200
    assert window.mean(window.work.queue_seconds) == pytest.approx(0.002)
    assert window.occupancy(1) == pytest.approx(200 * 0.010 / 4.0)


def test_a_reload_in_between_is_survived_and_counted() -> None:
    works = [counted(1000), counted(1050), counted(20), counted(70)]
    looks = [a_look(number, {"r0": {MODEL: work}}) for number, work in enumerate(works)]
    window = gather(looks, MODEL)

    assert (window.reloads, window.work.requests) == (1, 50 + 20 + 50)


def test_a_replica_that_was_not_reached_at_both_ends_is_left_out() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0)}, "r1": {MODEL: counted(0)}}),
        a_look(10, {"r0": {MODEL: counted(100)}}),
    ]

    assert set(gather(looks, MODEL).replicas) == {"r0"}


def test_replicas_are_pooled_by_their_sums() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0)}, "r1": {MODEL: counted(0)}}),
        a_look(10, {"r0": {MODEL: counted(300, 2.0)}, "r1": {MODEL: counted(100, 10.0)}}),
    ]
    window = gather(looks, MODEL)

    assert window.work.requests == 400
    assert window.mean(window.work.queue_seconds) == pytest.approx(0.004)
    assert window.rate_per_second == 20.0


def test_members_are_kept_apart_from_the_model() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0), "member": counted(5)}}),
        a_look(1, {"r0": {MODEL: counted(10), "member": counted(35)}}),
    ]

    assert gather(looks, MODEL).replicas["r0"].members["member"].requests == 30


def test_a_model_that_saw_no_traffic_has_no_means() -> None:
    looks = [a_look(number, {"r0": {MODEL: Work()}}) for number in range(3)]
    window = gather(looks, MODEL)

    assert (window.work.requests, window.mean(0.0), window.occupancy(1)) == (0, None, None)


def test_a_busy_counter_tells_the_devices_share_exactly() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0)}}, metrics=True, device=Device(busy_seconds=7.0)),
        a_look(10, {"r0": {MODEL: counted(1)}}, metrics=True, device=Device(busy_seconds=12.0)),
    ]
    one = gather(looks, MODEL).replicas["r0"]

    assert (one.utilisation, one.busy_counted) == (0.5, True)


def test_a_gauge_is_averaged_over_the_looks_that_read_it() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0)}}, metrics=True, device=Device(utilisation=0.2)),
        a_look(1, {"r0": {MODEL: counted(1)}}),
        a_look(2, {"r0": {MODEL: counted(2)}}, metrics=True, device=Device(utilisation=0.6)),
    ]
    one = gather(looks, MODEL).replicas["r0"]

    assert one.utilisation == pytest.approx(0.4)
    assert not one.busy_counted


def test_a_device_that_is_not_told_is_unknown_and_not_idle() -> None:
    looks = [a_look(number, {"r0": {MODEL: counted(number)}}, metrics=True) for number in range(3)]

    assert gather(looks, MODEL).utilisation is None


def a_gateway_at(requests: int, slow: int) -> GatewayCounters:
    return GatewayCounters(requests, requests, 0, 0, (requests - slow, requests), requests * 0.02)


def test_the_gateways_histogram_is_a_difference_too() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0)}}, {"c": a_gateway_at(1000, 50)}),
        a_look(1, {"r0": {MODEL: counted(50)}}),
        a_look(2, {"r0": {MODEL: counted(100)}}, {"c": a_gateway_at(1100, 50)}),
    ]
    window = gather(looks, MODEL)

    assert window.gateway is not None
    assert window.gateway.mean_seconds == pytest.approx(0.02)
    assert window.latency.p99_seconds == pytest.approx(0.099)


def test_a_gateway_that_began_anew_is_not_believed() -> None:
    looks = [
        a_look(0, {"r0": {MODEL: counted(0)}}, {"c": a_gateway_at(1000, 50)}),
        a_look(2, {"r0": {MODEL: counted(100)}}, {"c": a_gateway_at(10, 0)}),
    ]

    assert gather(looks, MODEL).gateway is None


def test_without_a_gateway_the_worst_replicas_summary_is_told() -> None:
    slow, fast = Quantiles(0.01, 0.02, 0.09), Quantiles(0.02, 0.03, 0.04)
    first = a_look(0, {"r0": {MODEL: counted(0)}, "r1": {MODEL: counted(0)}}, metrics=True)
    last = a_look(1, {"r0": {MODEL: counted(9)}, "r1": {MODEL: counted(9)}}, metrics=True)
    replicas = {
        name: type(one)(one.work, True, quantiles={"request": told})
        for (name, one), told in zip(last.replicas.items(), (slow, fast), strict=True)
    }

    assert gather([first, type(last)(last.at, replicas)], MODEL).latency == slow
