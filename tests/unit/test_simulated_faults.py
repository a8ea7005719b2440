"""The simulated target loads, fails and recovers like the real parts, as far as the loop can tell."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from autotuner.adapters.simulated import (
    MetricsFault,
)
from autotuner.domain.configuration import fingerprint, with_configuration
from autotuner.errors import Refused, Unavailable
from tests.builders import a_configuration
from tests.scenes import CANARY, LIMIT, SIMPLE, STABLE, Scene

# ---- loads ----


def test_an_instant_load_is_read_back_at_once_and_starts_the_batch_timings_anew() -> None:
    scene = Scene(SIMPLE)
    before = scene.after(20).servers["stable-0"]
    scene.load("stable-0", a_configuration(instance_count=2))
    after = scene.sim.metrics.sample().servers["stable-0"]
    assert scene.loaded("stable-0").instance_count == 2
    assert before.batches
    assert after == dataclasses.replace(
        before, batches=(), memory_used_bytes=2 * SIMPLE.instance_memory_bytes
    )


def test_until_a_slow_load_is_done_the_old_version_serves_and_is_read_back() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, load_time=timedelta(seconds=2)))
    scene.load("stable-0", a_configuration(instance_count=2))
    scene.clock.turn(1.9)
    assert scene.loaded("stable-0").instance_count == 1
    assert scene.sim.serving.is_ready("stable-0")
    memory_bytes = scene.sim.metrics.sample().servers["stable-0"].memory_used_bytes
    assert memory_bytes == 3 * SIMPLE.instance_memory_bytes
    scene.clock.turn(0.1)
    assert scene.loaded("stable-0").instance_count == 2


def test_no_request_fails_over_a_load_and_the_first_second_after_is_slow() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, cold_time=timedelta(seconds=1), cold_factor=8.0))
    scene.clock.turn(10)
    scene.load("stable-0", a_configuration(instance_count=2))
    cold, warm = scene.window(1), scene.window(1)
    assert cold.counts(["stable-0"], 0.05).failed == 0
    cold_p50, warm_p50 = cold.latency(["stable-0"]).p50_seconds, warm.latency(["stable-0"]).p50_seconds
    assert cold_p50 is not None
    assert warm_p50 is not None
    assert cold_p50 > 3 * warm_p50


def test_the_server_spells_a_configuration_in_its_own_way() -> None:
    scene = Scene(SIMPLE)
    sent = with_configuration(
        scene.sim.serving.model_config(CANARY), a_configuration(preferred_batch_size=())
    )
    scene.sim.serving.load(CANARY, sent, LIMIT)
    read = scene.sim.serving.model_config(CANARY)
    assert read["dynamic_batching"] == {
        "preferred_batch_size": [32],
        "max_queue_delay_microseconds": "0",
    }
    assert fingerprint(read) == fingerprint(sent)


@pytest.mark.parametrize(
    "broken",
    [
        {"dynamic_batching": {"preferred_batch_size": [64]}},
        {"dynamic_batching": {"max_queue_delay_microseconds": -1}},
        {"dynamic_batching": None},
    ],
)
def test_what_cannot_load_is_refused_and_the_old_version_serves_on(broken: dict[str, Any]) -> None:
    scene = Scene(SIMPLE)
    before = scene.sim.serving.model_config(CANARY)
    with pytest.raises(Refused, match="poll from model repository"):
        scene.sim.serving.load(CANARY, {**before, **broken}, LIMIT)
    assert scene.sim.serving.model_config(CANARY) == before
    assert scene.sim.serving.is_ready(CANARY)


def test_what_does_not_fit_beside_the_old_version_is_refused() -> None:
    scene = Scene(SIMPLE)
    scene.sim.faults.take_memory(CANARY, SIMPLE.device_memory_bytes - 2.5 * SIMPLE.instance_memory_bytes)
    scene.load(CANARY, a_configuration(instance_count=1, preferred_batch_size=()))
    with pytest.raises(Refused, match="in memory"):
        scene.load(CANARY, a_configuration(instance_count=2))


def submitted(scene: Scene, replica: str = CANARY) -> Future[Any]:
    return scene.sim.background.submit(scene.load, replica, a_configuration(instance_count=2))


def test_background_work_ends_when_its_load_does() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, load_time=timedelta(seconds=2)))
    work = submitted(scene)
    scene.clock.turn(1.9)
    assert not work.done()
    with pytest.raises(TimeoutError):
        work.result()
    scene.clock.turn(0.1)
    assert work.done()
    assert work.result() is None
    assert submitted(Scene(SIMPLE)).done()


def test_background_work_fails_when_its_load_hangs_is_lost_or_is_refused() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, load_time=timedelta(seconds=2)))
    scene.sim.faults.hang_loads("stable-0")
    scene.sim.faults.refuse_loads("stable-1")
    hanging, refused, lost = (submitted(scene, name) for name in ("stable-0", "stable-1", CANARY))
    scene.sim.faults.crash(CANARY, after=timedelta(seconds=1))
    assert isinstance(refused.exception(), Refused)
    scene.clock.turn(1)
    assert lost.done()
    with pytest.raises(Unavailable, match="lost"):
        lost.result()
    scene.clock.turn(LIMIT.total_seconds() - 2)
    assert not hanging.done()
    scene.clock.turn(1)
    with pytest.raises(Unavailable, match="within 30 s"):
        hanging.result()


# ---- faults ----


def test_a_crashed_replica_is_absent_its_requests_fail_and_the_fault_says_why() -> None:
    scene = Scene(SIMPLE)
    scene.share_canary(500)
    before = scene.after(10)
    scene.sim.faults.crash(CANARY)
    after = scene.after(5)
    counted = after.gateway[CANARY]
    assert after.missing([CANARY]) == "canary: server metrics: connection refused"
    assert after.missing(STABLE) == ""
    assert counted.failed_unmeasured == counted.failed == pytest.approx(500, rel=0.15)
    assert counted.sent == counted.ended
    assert not counted.behind(before.gateway[CANARY])
    assert not scene.sim.serving.is_ready(CANARY)
    with pytest.raises(Unavailable, match="connection refused"):
        scene.sim.serving.model_config(CANARY)


def test_a_restarted_replica_is_back_to_its_repository_and_behind() -> None:
    scene = Scene(SIMPLE)
    scene.share_canary(500)
    scene.load(CANARY, a_configuration(instance_count=2))
    before = scene.after(10)
    scene.sim.faults.crash(CANARY)
    scene.sim.faults.start(CANARY, after=timedelta(seconds=1))
    after = scene.after(5)
    assert after.servers[CANARY].behind(before.servers[CANARY])
    assert after.servers[CANARY].succeeded > 0
    assert scene.loaded(CANARY) == SIMPLE.incumbent


def test_a_load_under_way_ends_with_the_server() -> None:
    scene = Scene(dataclasses.replace(SIMPLE, load_time=timedelta(seconds=5)))
    scene.load(CANARY, a_configuration(instance_count=2))
    scene.sim.faults.crash(CANARY)
    scene.sim.faults.start(CANARY)
    scene.clock.turn(10)
    assert scene.loaded(CANARY) == SIMPLE.incumbent


def test_a_restarted_gateway_has_its_initial_weights_and_is_behind() -> None:
    scene = Scene(SIMPLE)
    scene.share_canary(500)
    before = scene.after(10)
    scene.sim.faults.gateway_restart()
    after = scene.after(2)
    assert after.gateway["stable-0"].behind(before.gateway["stable-0"])
    assert not after.servers["stable-0"].behind(before.servers["stable-0"])
    assert scene.sim.route.weights() == {"stable-0": 500, "stable-1": 500, CANARY: 0}
    assert after.gateway["stable-0"].ended <= after.gateway["stable-0"].sent


def test_without_its_gateway_nothing_arrives_and_nothing_can_be_read_or_set() -> None:
    scene = Scene(SIMPLE)
    scene.sim.faults.gateway_down()
    scene.clock.turn(1)
    window = scene.window(5)
    assert window.last.gateway == {}
    assert window.last.missing(STABLE) == "stable-0: gateway metrics: connection refused"
    assert window.last.servers["stable-0"] == window.first.servers["stable-0"]
    with pytest.raises(Unavailable):
        scene.sim.route.weights()
    with pytest.raises(Unavailable):
        scene.share_canary(100)


@pytest.mark.parametrize(
    ("fault", "words"),
    [(MetricsFault.NAN, "NaN"), (MetricsFault.HTML, "HTML"), (MetricsFault.SILENT, "no answer")],
)
@pytest.mark.parametrize("source", [CANARY, "gateway"])
def test_metrics_that_are_no_numbers_are_absent_and_explained(
    source: str, fault: MetricsFault, words: str
) -> None:
    scene = Scene(SIMPLE)
    scene.sim.faults.metrics(source, fault)
    assert words in scene.after(1).missing([CANARY])
    scene.sim.faults.metrics_well(source)
    assert scene.after(1).missing([CANARY]) == ""


def test_zeros_and_old_values_are_passed_on_as_values() -> None:
    scene = Scene(SIMPLE)
    before = scene.after(10)
    scene.sim.faults.metrics("stable-0", MetricsFault.FROZEN)
    scene.sim.faults.metrics("stable-1", MetricsFault.ZEROS)
    after = scene.after(10)
    assert after.faults == {}
    assert after.servers["stable-0"] == before.servers["stable-0"]
    assert after.servers["stable-1"].behind(before.servers["stable-1"])
    scene.sim.faults.metrics("gateway", MetricsFault.FROZEN)
    assert scene.after(10).gateway == scene.after(0).gateway
    scene.sim.faults.metrics("gateway", MetricsFault.ZEROS)
    assert scene.after(1).gateway["stable-0"].behind(before.gateway["stable-0"])


def test_a_refused_and_a_hanging_load_leave_the_old_version() -> None:
    scene = Scene(SIMPLE)
    scene.sim.faults.refuse_loads("stable-0", "no such device")
    scene.sim.faults.hang_loads("stable-1")
    with pytest.raises(Refused, match="no such device"):
        scene.load("stable-0", a_configuration(instance_count=2))
    scene.load("stable-1", a_configuration(instance_count=2))
    scene.clock.turn(60)
    assert scene.loaded("stable-0") == scene.loaded("stable-1") == SIMPLE.incumbent
    assert scene.sim.serving.is_ready("stable-1")


def test_a_shared_burst_slows_all_replicas_for_its_time() -> None:
    scene = Scene(SIMPLE)
    scene.share_canary(333)
    scene.sim.faults.slow(factor=15.0, after=timedelta(seconds=10), lasting=timedelta(seconds=5))
    before, during, after = (scene.window(seconds) for seconds in (10, 6, 10))
    for name in (*STABLE, CANARY):
        assert before.counts([name], 0.05).bad_at_least == 0
        assert during.counts([name], 0.05).bad_at_least > 50
        assert after.counts([name], 0.05).bad_at_least < 10


def test_one_replica_alone_can_become_slow() -> None:
    scene = Scene(SIMPLE)
    scene.sim.faults.slow("stable-0", factor=15.0)
    window = scene.window(10)
    assert window.counts(["stable-0"], 0.05).bad_at_least > 100
    assert window.counts(["stable-1"], 0.05).bad_at_least == 0


def test_traffic_can_change_and_stop() -> None:
    scene = Scene(SIMPLE)
    scene.sim.faults.traffic(50.0, after=timedelta(seconds=20))
    scene.sim.faults.traffic(0.0, after=timedelta(seconds=40))
    rates = [scene.window(20).rate_per_second(STABLE) for _ in range(3)]
    assert rates[:2] == [pytest.approx(200, rel=0.1), pytest.approx(50, rel=0.2)]
    assert rates[2] == 0


def test_direct_traffic_is_counted_by_the_server_alone() -> None:
    scene = Scene(SIMPLE)
    scene.share_canary(200)
    scene.sim.faults.direct_traffic(30.0)
    window = scene.window(60)
    served = window.last.servers[CANARY].succeeded - window.first.servers[CANARY].succeeded
    assert window.sent(CANARY) == pytest.approx(2400, rel=0.1)
    assert served - window.sent(CANARY) == pytest.approx(1800, rel=0.1)


def test_somebody_else_can_change_weights_and_configuration() -> None:
    scene = Scene(SIMPLE)
    theirs = {"stable-0": 0, "stable-1": 0, CANARY: 1000}
    scene.sim.faults.foreign_weights(theirs, after=timedelta(seconds=3))
    scene.sim.faults.foreign_configuration(
        CANARY, a_configuration(instance_count=3), after=timedelta(seconds=3)
    )
    assert scene.sim.route.weights() != theirs
    scene.clock.turn(3)
    assert scene.sim.route.weights() == theirs
    assert scene.loaded(CANARY).instance_count == 3
