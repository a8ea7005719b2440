"""What every world does, simulated or real: the controller relies on nothing else of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from autotuner.domain.configuration import Configuration, fingerprint, read_configuration
from autotuner.domain.measurement import Window
from autotuner.errors import InvalidInput, Refused, Unavailable
from autotuner.sandbox.envoy import find_envoy
from autotuner.sandbox.processes import ProcessFailed
from autotuner.sandbox.tritonserver import TritonInstallation, install
from autotuner.sandbox.wheels import UnsupportedMachine
from tests.contract.worlds import LIMIT, Found, PrometheusRig, Rig, SandboxRig, SimulatedRig, load

STABLE, CANARY = "stable-0", "canary"
HALF = {STABLE: 500, CANARY: 500}
REAL = {"sandbox": SandboxRig, "prometheus": PrometheusRig}


def installed() -> TritonInstallation:
    try:
        find_envoy()
        return install()
    except (ProcessFailed, UnsupportedMachine, Unavailable) as reason:
        pytest.skip(f"the real parts are not here: {reason}")


@pytest.fixture(
    scope="module",
    params=["simulated", *(pytest.param(name, marks=pytest.mark.integration) for name in REAL)],
)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Rig, Found]]:
    if request.param == "simulated":
        rig = SimulatedRig()
        yield rig, Found(rig)
        return
    with REAL[request.param](installed(), tmp_path_factory.mktemp("world")).running() as sandbox:
        yield sandbox, Found(sandbox)


@pytest.fixture
def found(shared: tuple[Rig, Found]) -> Found:
    return shared[1]


@pytest.fixture
def rig(shared: tuple[Rig, Found]) -> Rig:
    """The world as it was found: a test may leave it as it likes, so long as everything runs."""
    shared[1].restore()
    return shared[0]


def served(rig: Rig, replica: str) -> Configuration:
    return read_configuration(rig.world.serving.model_config(replica))


def another(configuration: Configuration) -> Configuration:
    """A configuration that differs in everything that is tuned on a running model."""
    return replace(
        configuration,
        max_queue_delay_microseconds=configuration.max_queue_delay_microseconds + 1500,
        preferred_batch_size=(2, 6),
        instance_count=configuration.instance_count + 1,
    )


# ---- model control ----


def test_every_replica_tells_a_complete_configuration_of_the_model(rig: Rig) -> None:
    for replica in rig.target.replicas:
        config = rig.world.serving.model_config(replica.name)
        assert config["name"] == rig.target.model
        assert config["input"]
        assert config["output"]
        assert read_configuration(config).max_batch_size >= 1
        assert rig.world.serving.is_ready(replica.name)


def test_a_loaded_configuration_is_read_back_on_that_replica_alone(rig: Rig) -> None:
    before = served(rig, STABLE)
    wanted = another(served(rig, CANARY))
    sent = load(rig, CANARY, wanted)
    assert fingerprint(rig.world.serving.model_config(CANARY)) == fingerprint(sent)
    assert served(rig, CANARY) == wanted
    assert rig.world.serving.is_ready(CANARY)
    assert served(rig, STABLE) == before


def test_no_preferred_sizes_are_read_back_as_none(rig: Rig) -> None:
    wanted = replace(served(rig, CANARY), preferred_batch_size=())
    load(rig, CANARY, wanted)
    assert served(rig, CANARY) == wanted


def test_loading_the_configuration_that_was_read_restores_it_exactly(rig: Rig) -> None:
    as_read = rig.world.serving.model_config(CANARY)
    load(rig, CANARY, another(served(rig, CANARY)))
    assert fingerprint(rig.world.serving.model_config(CANARY)) != fingerprint(as_read)
    rig.world.serving.load(CANARY, as_read, LIMIT)
    assert rig.world.serving.model_config(CANARY) == as_read


def test_loading_twice_is_the_same_as_loading_once(rig: Rig) -> None:
    sent = load(rig, CANARY, another(served(rig, CANARY)))
    rig.world.serving.load(CANARY, sent, LIMIT)
    assert fingerprint(rig.world.serving.model_config(CANARY)) == fingerprint(sent)


def test_a_refused_load_leaves_the_old_version_serving(rig: Rig) -> None:
    before = rig.world.serving.model_config(CANARY)
    too_large = {**before["dynamic_batching"], "preferred_batch_size": [before["max_batch_size"] + 1]}
    with pytest.raises(Refused, match=CANARY):
        rig.world.serving.load(CANARY, {**before, "dynamic_batching": too_large}, LIMIT)
    assert rig.world.serving.model_config(CANARY) == before
    assert rig.world.serving.is_ready(CANARY)


def test_an_unknown_replica_is_a_wrong_input(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="nobody"):
        rig.world.serving.model_config("nobody")


def test_every_replica_tells_which_versions_it_runs(rig: Rig) -> None:
    sample = rig.world.metrics.sample()
    for replica in rig.target.replicas:
        assert sample.servers[replica.name].model_versions == ("1",)
        told = rig.world.serving.provenance(replica.name)
        assert told.triton
        assert (told.image, told.device_type) == ("", "")


# ---- weights ----


def test_weights_are_read_back_as_set_and_may_be_set_twice(rig: Rig) -> None:
    for weights in (HALF, HALF, {STABLE: 999, CANARY: 1}, {STABLE: 0, CANARY: 1000}):
        rig.world.route.set_weights(weights)
        assert rig.world.route.weights() == weights


@pytest.mark.parametrize("wrong", [{STABLE: 1000}, {STABLE: 1100, CANARY: -100}, {STABLE: 0, CANARY: 0}])
def test_weights_that_are_no_split_of_the_traffic_are_refused_and_nothing_changes(
    rig: Rig, wrong: dict[str, int]
) -> None:
    rig.world.route.set_weights(HALF)
    with pytest.raises(Refused, match="weights"):
        rig.world.route.set_weights(wrong)
    assert rig.world.route.weights() == HALF


def test_the_weights_found_give_everything_to_the_stable_replicas(rig: Rig) -> None:
    assert rig.world.route.weights() == {STABLE: 1000, CANARY: 0}


# ---- counters ----


def test_a_sample_reads_every_replica_at_both_places(rig: Rig) -> None:
    rig.send(50)
    sample = rig.world.metrics.sample()
    assert sample.missing([STABLE, CANARY]) == ""
    assert sample.edges_seconds[-1] == math.inf
    assert list(sample.edges_seconds) == sorted(set(sample.edges_seconds))
    for counters in sample.gateway.values():
        assert len(counters.buckets) == len(sample.edges_seconds)
        assert list(counters.buckets) == sorted(counters.buckets)


def test_the_counts_are_the_requests_that_were_sent(rig: Rig) -> None:
    rig.world.route.set_weights(HALF)
    rig.send(50)
    first = rig.world.metrics.sample()
    sent = rig.send(300)
    window = Window(first, rig.world.metrics.sample())
    assert window.sent(STABLE) + window.sent(CANARY) == sent
    assert window.sent(CANARY) == pytest.approx(sent / 2, rel=0.35)
    for name in (STABLE, CANARY):
        counts = window.counts([name], _an_edge(window))
        assert counts.total == window.sent(name)
        assert counts.failed == 0
        assert _served_requests(window, name) == window.sent(name)
        assert window.last.gateway[name].latency_sum_seconds > window.first.gateway[name].latency_sum_seconds


def test_a_replica_without_weight_gets_no_request(rig: Rig) -> None:
    rig.send(20)
    first = rig.world.metrics.sample()
    rig.send(100)
    window = Window(first, rig.world.metrics.sample())
    assert window.sent(CANARY) == 0
    assert window.sent(STABLE) > 0


def test_no_counter_ever_falls_while_nothing_restarts(rig: Rig) -> None:
    rig.world.route.set_weights(HALF)
    rig.send(50)
    samples = [rig.world.metrics.sample()]
    for _ in range(3):
        rig.send(40)
        samples.append(rig.world.metrics.sample())
    for earlier, later in pairwise(samples):
        assert later.at > earlier.at
        for name in (STABLE, CANARY):
            assert not later.gateway[name].behind(earlier.gateway[name])
            assert not later.servers[name].behind(earlier.servers[name])
            assert earlier.gateway[name].behind(later.gateway[name])


def test_the_executions_by_batch_size_add_up_and_start_again_at_a_load(rig: Rig) -> None:
    rig.world.route.set_weights(HALF)
    load(rig, CANARY, another(served(rig, CANARY)))
    first = rig.seen_from_now().servers[CANARY]
    rig.send(100)
    second = rig.world.metrics.sample().servers[CANARY]
    assert first.batches == ()
    assert sum(b.size * b.executions for b in second.batches) == second.inferences - first.inferences
    assert sum(b.executions for b in second.batches) == second.executions - first.executions
    assert all(b.compute_seconds > 0 for b in second.batches)
    assert second.queue_seconds > first.queue_seconds
    assert second.infer_seconds > first.infer_seconds


def _an_edge(window: Window) -> float:
    """The largest finite edge: a ceiling at which everything counts as in time."""
    return window.last.edges_seconds[-2]


def _served_requests(window: Window, name: str) -> int:
    first, last = window.first.servers[name], window.last.servers[name]
    return last.succeeded + last.failed - first.succeeded - first.failed


# ---- what breaks ----


def test_a_crashed_replica_is_absent_and_explained_while_the_others_are_read(rig: Rig) -> None:
    rig.send(20)
    rig.crash(CANARY)
    try:
        sample = rig.world.metrics.sample()
        assert CANARY not in sample.servers
        assert sample.missing([CANARY]).startswith("canary: ")
        assert len(sample.faults[CANARY].split()) > 3
        assert sample.missing([STABLE]) == ""
        assert not rig.world.serving.is_ready(CANARY)
        with pytest.raises(Unavailable, match=CANARY):
            rig.world.serving.model_config(CANARY)
    finally:
        rig.start(CANARY)


def test_requests_to_a_crashed_replica_are_counted_as_failed_and_unmeasured(rig: Rig) -> None:
    rig.world.route.set_weights(HALF)
    rig.send(50)
    before = rig.world.metrics.sample().gateway[CANARY]
    rig.crash(CANARY)
    try:
        rig.send(60)
        after = rig.world.metrics.sample().gateway[CANARY]
    finally:
        rig.start(CANARY)
    assert after.sent - before.sent > 10
    assert after.failed - before.failed == after.sent - before.sent
    assert after.failed_unmeasured - before.failed_unmeasured == after.sent - before.sent
    assert after.buckets == before.buckets


def test_a_restarted_replica_is_behind_and_back_to_its_own_configuration(rig: Rig, found: Found) -> None:
    rig.world.route.set_weights(HALF)
    load(rig, CANARY, another(served(rig, CANARY)))
    rig.send(60)
    before = rig.world.metrics.sample()
    rig.crash(CANARY)
    rig.start(CANARY)
    after = rig.world.metrics.sample()
    assert after.servers[CANARY].behind(before.servers[CANARY])
    assert not after.servers[STABLE].behind(before.servers[STABLE])
    assert rig.world.serving.is_ready(CANARY)
    assert fingerprint(rig.world.serving.model_config(CANARY)) == fingerprint(found.configs[CANARY])


def test_without_its_gateway_a_world_explains_itself_and_comes_back_behind(rig: Rig, found: Found) -> None:
    rig.world.route.set_weights(HALF)
    rig.send(60)
    before = rig.world.metrics.sample()
    rig.stop_gateway()
    try:
        without = rig.world.metrics.sample()
        assert without.gateway == {}
        assert "gateway" in without.missing([STABLE])
        assert set(without.servers) == {STABLE, CANARY}
        with pytest.raises(Unavailable):
            rig.world.route.weights()
        with pytest.raises(Unavailable):
            rig.world.route.set_weights(HALF)
    finally:
        rig.restart_gateway()
    assert rig.world.route.weights() == found.weights
    rig.send(20)
    after = rig.world.metrics.sample()
    assert after.gateway[STABLE].behind(before.gateway[STABLE])
    assert not after.servers[STABLE].behind(before.servers[STABLE])
