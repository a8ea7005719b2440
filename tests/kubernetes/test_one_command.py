"""Real servers without users: one command from a shell, and what pods that start anew come up with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.memory_store import MemoryCatalogue, MemoryLeases, MemoryStore
from autotuner.bootstrap import world_of
from autotuner.bootstrap.doors import ClusterAccess
from autotuner.cli.exits import Exit
from autotuner.domain.configuration import (
    ModelConfig,
    fingerprint,
    read_configuration,
    with_configuration,
)
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Incumbent, Level, Outcome, Phase, Trial, TrialKind, TrialState
from autotuner.domain.target import Target
from autotuner.operations import register_target
from autotuner.ports import World
from autotuner.target_file import parse_target_file
from autotuner.upkeep import Upkeep
from tests.builders import a_budget, a_configuration, a_plan, a_study
from tests.cluster.team import CONFIG, CORE, NAMESPACE
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.studies import command
from tests.kubernetes.town import Town, until
from tests.postgres_server import PostgresServer
from tests.prometheus_server import PrometheusServer, job

LIMIT = timedelta(seconds=40)
WINNER = a_configuration(
    max_queue_delay_microseconds=1500, preferred_batch_size=(8, 16), instance_count=2, max_batch_size=32
)


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    with Town(control_plane.api, folder).running(users=False) as running:
        yield running


def opened(town: Town, control_plane: ControlPlane, *, config_map: bool = True) -> tuple[Target, World]:
    """The town's target and the product's doors to it."""
    target = parse_target_file(town.target()).target()
    assert target.workload is not None
    if not config_map:
        target = replace(target, workload=replace(target.workload, config_map=""))
    return target, world_of(target, SystemClock(), cluster=ClusterAccess(str(control_plane.kubeconfig)))


def started_anew(town: Town, world: World) -> ModelConfig:
    """Let the oldest pod's server die; return what it serves once its kubelet has started it again."""
    pod = town.kubelet.pod(min(town.ready(), key=_age)["metadata"]["name"])
    restarts = pod.restarts
    assert pod.server is not None
    pod.server.kill()
    until(lambda: pod.restarts > restarts and len(town.ready()) == 2, "the pod is ready again", 60)
    until(lambda: world.serving.is_ready("stable-0"), "the model is ready again", 30)
    return world.serving.model_config("stable-0")


def _age(pod: dict[str, dict[str, str]]) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def promoted_to(world: World) -> tuple[ModelConfig, ModelConfig]:
    """Put the winner on the oldest pod as a promotion does; return what it served and what it serves."""
    before = world.serving.model_config("stable-0")
    wanted = with_configuration(before, WINNER)
    world.serving.load("stable-0", wanted, LIMIT)
    return before, wanted


def test_a_pod_that_starts_anew_comes_up_with_what_was_promoted(
    town: Town, control_plane: ControlPlane
) -> None:
    text = town.api.get(f"{CORE}/configmaps/{CONFIG}")["data"]
    _, world = opened(town, control_plane)
    before, wanted = promoted_to(world)
    assert fingerprint(started_anew(town, world)) == fingerprint(wanted)
    world.serving.load("stable-0", before, LIMIT)
    assert town.api.get(f"{CORE}/configmaps/{CONFIG}")["data"] == text
    assert world.canary is not None
    world.canary.take_down()


def test_without_a_config_map_a_worker_puts_it_on_again(town: Town, control_plane: ControlPlane) -> None:
    target, world = opened(town, control_plane, config_map=False)
    before, wanted = promoted_to(world)
    upkeep = an_upkeep(target, world, before)
    assert read_configuration(started_anew(town, world)) == read_configuration(before)
    assert upkeep.look() == (f"stable-0 of {target.name} started anew and was given what was promoted",)
    assert fingerprint(world.serving.model_config("stable-0")) == fingerprint(wanted)
    assert upkeep.look() == ()
    world.serving.load("stable-0", before, LIMIT)


def an_upkeep(target: Target, world: World, before: ModelConfig) -> Upkeep:
    """What looks after a promotion of the winner, recorded as if a study had made it a moment ago."""
    store, clock = MemoryStore(), SystemClock()
    slo = register_target(store, clock, target, a_budget(), "test", "")
    at = clock.now() - timedelta(seconds=2)
    study = a_study(plan=a_plan(target=target, slo=slo), created_at=at)
    store.create_study(study)
    names = [replica.name for replica in target.replicas]
    incumbent = Incumbent(
        read_configuration(before),
        dict.fromkeys(names, json.dumps(before)),
        dict.fromkeys(names, fingerprint(before)),
        {"stable": 1000, "canary": 0},
    )
    winner = Trial(0, TrialKind.CANDIDATE, ("canary",), WINNER, (Level(0, 1.0),), TrialState.JUDGED, at)
    store.memory.studies[study.id].study = replace(
        study,
        phase=Phase.ENDED,
        outcome=Outcome.PROMOTED,
        incumbent=incumbent,
        trials=(replace(winner, verdict=Verdict.ACCEPT, ended_at=at),),
        winner=0,
        promoted=target.stable_names,
        ended_at=at,
    )
    leases, catalogue = MemoryLeases(store, clock), MemoryCatalogue(store.memory)
    return Upkeep(store, catalogue, leases, clock, lambda _: world, "upkeep")


def test_a_prometheus_counts_pods_by_their_names(
    town: Town, control_plane: ControlPlane, tmp_path: Path
) -> None:
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in town.ready()}
    labels = {name: {"namespace": NAMESPACE, "pod": name} for name in pods}
    jobs = [job(name, f"http://{ip}:8002/metrics", labels[name]) for name, ip in pods.items()]
    jobs.append(job("gateway", f"{town.gateway.admin_url}/stats/prometheus"))
    with PrometheusServer(tmp_path, timedelta(milliseconds=250), jobs) as prometheus:
        server = {"namespace": NAMESPACE, "pod": "{pod}"}
        said = {**town.target(), "metrics": {"prometheus": {"url": prometheus.url}, "server": server}}
        target = parse_target_file(said).target()
        world = world_of(target, SystemClock(), cluster=ClusterAccess(str(control_plane.kubeconfig)))
        until(lambda: set(world.metrics.sample().servers) == set(target.stable_names), "both are counted", 20)
        sample = world.metrics.sample()
    assert sample.faults["canary"] == "no pod yet"
    assert not any(name in sample.faults for name in target.stable_names)


def test_one_command_from_a_shell_with_a_kubeconfig_carries_a_whole_study(
    town: Town, control_plane: ControlPlane, postgres_server: PostgresServer
) -> None:
    """Nobody sends a request here, so it ends with that reason, and leaves everything as it was."""
    before = town.snapshot()
    with postgres_server.database() as database:
        shell = {"AUTOTUNER_DATABASE_URL": database, "KUBECONFIG": str(control_plane.kubeconfig)}
        assert command(shell, "db", "upgrade").returncode == 0
        told = command(shell, "tune", str(town.write_target()), "--json")
    assert told.returncode == Exit.ABORTED, told.stderr[-3000:]
    ended = json.loads(told.stdout.splitlines()[-1])
    assert ended["outcome"] == Outcome.ABORTED
    assert "the gateway's statistics of canary: no latency histogram yet" in told.stderr
    assert town.snapshot() == before
