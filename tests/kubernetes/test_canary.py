"""A canary on a real control plane: what it is made of, waits for, and comes to. Its pods only seem to run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.adapters.clock import ManualClock, SystemClock
from autotuner.adapters.kubernetes import (
    Cluster,
    KubernetesCanary,
    KubernetesRoute,
    Production,
    Whereabouts,
    ready_pods,
    reap,
    route_seen,
    survey,
)
from autotuner.domain.configuration import ModelConfig
from autotuner.domain.manifests import Manifest
from autotuner.domain.needs import Answer
from autotuner.domain.target import Target
from autotuner.errors import Conflict, Refused, Unavailable
from autotuner.target_file import parse_target_file
from tests.cluster.team import APPS, CANARY, CONFIG, CORE, LABELS, NAME, NAMESPACE
from tests.kubernetes.kubelet import IMAGE_DIGEST
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import Town, until


class CutOff(Cluster):
    """An API server that stops answering after some calls; the last of them may have taken effect."""

    def __init__(self, kubeconfig: str, calls: int, *, done: bool) -> None:
        super().__init__(kubeconfig)
        self.left = calls
        self.done = done

    def _ask(self, method: str, *args: Any, **more: Any) -> Manifest:
        self.left -= 1
        if self.left >= 0:
            return super()._ask(method, *args, **more)
        if self.left == -1 and self.done:
            super()._ask(method, *args, **more)
        raise Unavailable("kubernetes", "cut off")


CANARY_LABELS = {"autotuner/target": NAME, "autotuner/role": "canary"}
SERVED: ModelConfig = {"name": "quick", "max_batch_size": 8}


@dataclass
class Rig:
    """The product's doors to one town."""

    town: Town
    cluster: Cluster
    target: Target
    clock: SystemClock

    def __post_init__(self) -> None:
        self.route = KubernetesRoute(self.cluster, self.target)
        self.canary = KubernetesCanary(self.cluster, self.target, self.route, self.clock)
        self.production = Production(self.cluster, self.target, self.clock, str)

    def whereabouts(self) -> Whereabouts:
        return Whereabouts(self.cluster, self.target, self.clock)

    def fault(self) -> str:
        return self.whereabouts().now().faults.get("canary", "")


@pytest.fixture
def rig(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Rig]:
    with Town(control_plane.api, tmp_path).standing() as town:
        target = parse_target_file(town.target()).target()
        yield Rig(town, Cluster(str(control_plane.kubeconfig)), target, SystemClock())


def test_a_canary_is_a_clone_that_nothing_of_production_catches_and_leaves_no_trace(rig: Rig) -> None:
    before = rig.town.snapshot()
    rig.canary.put_up()
    until(lambda: len(rig.town.ready(CANARY_LABELS)) == 1, "the canary is ready", 30)
    pod = rig.town.ready(CANARY_LABELS)[0]
    assert pod["spec"]["containers"][0]["image"] == f"registry.example/triton@{IMAGE_DIGEST}"
    assert pod["spec"]["nodeSelector"] == {"accelerator": "emulated"}
    assert "app" not in pod["metadata"]["labels"]
    assert len(rig.town.ready(LABELS)) == 2
    assert rig.canary.objection() == ""
    assert rig.fault() == ""
    located = rig.whereabouts().located("canary").canary
    assert located.http_url == f"http://{pod['status']['podIP']}:8000"

    rig.canary.put_up()
    assert len(rig.town.api.items(f"{APPS}/deployments")) == 2
    rig.canary.take_down()
    until(lambda: not rig.town.ready(CANARY_LABELS), "the canary is gone", 30)
    assert rig.town.snapshot() == before


def test_a_canary_without_a_free_gpu_says_what_the_scheduler_says(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with Town(control_plane.api, tmp_path, nodes={"gpu-0": 2}).standing() as town:
        target = parse_target_file(town.target()).target()
        rig = Rig(town, Cluster(str(control_plane.kubeconfig)), target, SystemClock())
        rig.canary.put_up()
        until(lambda: "nvidia.com/gpu" in rig.fault(), "the fault names the GPU", 30)
        assert rig.fault().startswith("not scheduled: Unschedulable: ")
        rig.canary.take_down()


def test_an_image_that_cannot_be_pulled_is_named(rig: Rig) -> None:
    rig.town.kubelet.unpullable = (CANARY,)
    rig.canary.put_up()
    until(lambda: "ErrImagePull" in rig.fault(), "the fault names the pull", 30)
    with pytest.raises(Unavailable, match="ErrImagePull"):
        rig.whereabouts().located("canary")
    rig.canary.take_down()


def test_somebody_elses_rollout_and_a_deleted_canary_are_objections(rig: Rig) -> None:
    rig.canary.put_up()
    container = {"name": "triton", "env": [{"name": "NEW", "value": "1"}]}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    path = f"{APPS}/deployments/{NAME}"
    rig.town.api.ask("PATCH", path, change, "application/strategic-merge-patch+json")
    assert "rolled out another pod template" in rig.canary.objection()
    rig.town.api.delete(f"{APPS}/deployments/{CANARY}")
    assert rig.canary.objection() == "somebody deleted the canary"
    rig.canary.take_down()
    rig.town.api.delete(path)
    until(lambda: rig.canary.objection() == f"Deployment {NAMESPACE}/{NAME} is gone", "it is gone", 30)


def test_while_pods_are_more_or_fewer_no_stable_replica_is_where_it_was(rig: Rig) -> None:
    rig.town.api.merge(f"{APPS}/deployments/{NAME}", {"spec": {"replicas": 3}})
    until(lambda: len(rig.town.ready()) == 3, "three pods", 30)
    found = rig.whereabouts().now()
    assert found.faults["stable-0"] == found.faults["stable-1"]
    assert "3 ready pods where this target has 2" in found.faults["stable-0"]
    with pytest.raises(Refused, match=r"set .*replicas"):
        rig.canary.put_up()


def test_an_evicted_stable_pod_is_replaced_and_found_again(rig: Rig) -> None:
    name = rig.town.ready()[0]["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    rig.town.api.create(f"{CORE}/pods/{name}/eviction", eviction)

    def replaced() -> bool:
        names = {pod["metadata"]["name"] for pod in rig.town.ready()}
        return len(names) == 2 and name not in names

    until(replaced, "another pod stands in", 30)
    assert not {"stable-0", "stable-1"} & rig.whereabouts().now().faults.keys()


def test_a_promotion_keeps_the_old_text_writes_the_new_one_and_gives_the_old_one_back(rig: Rig) -> None:
    path = f"{CORE}/configmaps/{CONFIG}"
    original = rig.town.api.get(path)["data"]
    winner = {**SERVED, "max_batch_size": 16}
    rig.production.keep(SERVED)
    rig.production.write(winner)
    assert rig.town.api.get(path)["data"]["config.pbtxt"] == str(winner)
    rig.production.keep(winner)
    rig.production.write(SERVED)
    assert rig.town.api.get(path)["data"] == original
    rig.canary.take_down()


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done but not answered"])
def test_a_worker_that_dies_at_any_call_leaves_nothing_that_the_next_one_does_not_put_right(
    rig: Rig, control_plane: ControlPlane, done: bool
) -> None:
    before = rig.town.snapshot()
    for calls in range(MOST_CALLS):
        if _all_at_once(rig, control_plane, calls, done=done):
            break
        _all_at_once(rig, control_plane, MOST_CALLS, done=done)
        assert rig.town.snapshot() == before, f"cut off after {calls} calls"
    assert 10 < calls < MOST_CALLS - 1
    assert rig.town.snapshot() == before


MOST_CALLS = 100


def _all_at_once(rig: Rig, control_plane: ControlPlane, calls: int, *, done: bool) -> bool:
    """Put a canary up, weigh it, promote, take all back; says whether it came to its end."""
    cluster = CutOff(str(control_plane.kubeconfig), calls, done=done)
    other = Rig(rig.town, cluster, rig.target, rig.clock)
    try:
        other.canary.put_up()
        other.route.set_weights({"stable": 500, "canary": 500})
        other.production.keep(SERVED)
        other.production.write({**SERVED, "max_batch_size": 16})
        other.production.write(SERVED)
        other.canary.take_down()
    except Unavailable:
        return False
    return True


def test_what_argo_cd_owns_is_never_written(rig: Rig) -> None:
    mark = {"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "vision:/ConfigMap"}}}
    rig.town.api.merge(f"{CORE}/configmaps/{CONFIG}", mark)
    with pytest.raises(Refused, match="owned by Argo CD"):
        rig.production.keep(SERVED)


def test_an_object_of_ours_that_somebody_took_over_is_a_conflict(rig: Rig) -> None:
    rig.canary.put_up()
    path = f"{APPS}/deployments/{CANARY}?fieldManager=somebody"
    rig.town.api.ask("PATCH", path, {"spec": {"replicas": 2}}, "application/merge-patch+json")
    with pytest.raises(Conflict, match="somebody"):
        rig.canary.put_up()
    rig.canary.take_down()


def test_the_reaper_takes_down_what_is_past_its_time_and_gives_the_route_back(rig: Rig) -> None:
    before = rig.town.snapshot()
    rig.canary.put_up()
    rig.route.set_weights({"stable": 500, "canary": 500})
    assert reap(rig.cluster, rig.clock, NAMESPACE, lambda name: rig.canary) == ()
    later = ManualClock(rig.clock.now() + timedelta(hours=25))
    said = reap(rig.cluster, later, NAMESPACE, lambda name: rig.canary)
    assert said == ("the canary of vision was past its time and is taken down",)
    assert rig.town.snapshot() == before


def test_without_its_api_server_pods_are_where_they_were_and_nothing_is_changed(
    rig: Rig, control_plane: ControlPlane
) -> None:
    rig.canary.put_up()
    until(lambda: rig.fault() == "", "the canary is ready", 30)
    clock = ManualClock(rig.clock.now())
    whereabouts = Whereabouts(rig.cluster, rig.target, clock)
    known = whereabouts.now()
    control_plane.parts["kube-apiserver"].stop()
    try:
        clock.advance(timedelta(seconds=60))
        assert whereabouts.now() == known
        with pytest.raises(Unavailable, match="kubernetes"):
            rig.route.set_weights({"stable": 500, "canary": 500})
        with pytest.raises(Unavailable, match="kubernetes"):
            rig.canary.objection()
        clock.advance(timedelta(seconds=70))
        with pytest.raises(Unavailable):
            whereabouts.now()
    finally:
        control_plane.start_api_server()
    until(lambda: rig.canary.objection() == "", "the API server answers again", 30)
    assert rig.route.weights() == {"stable": 1000, "canary": 0}
    rig.canary.take_down()


def test_the_preflight_of_a_running_workload_finds_nothing_missing(
    rig: Rig, control_plane: ControlPlane
) -> None:
    assert [each for each in survey(rig.cluster, rig.target) if each.answer is Answer.NO] == []
    path = rig.town.directory / "target.yaml"
    path.write_text(yaml.safe_dump(rig.town.target()))
    said = subprocess.run(
        [sys.executable, "-m", "autotuner", "kubernetes", "preflight", str(path)],
        env={
            "AUTOTUNER_KUBECONFIG": str(control_plane.kubeconfig),
            "PATH": "",
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "model control: explicit" in said.stdout
    assert "1 of nvidia.com/gpu for each pod" in said.stdout


def test_a_diagnosis_finds_the_pods_and_the_weights_and_changes_nothing(rig: Rig) -> None:
    before = rig.town.snapshot()
    pods = ready_pods(rig.cluster, rig.target)
    route = route_seen(rig.cluster, rig.target)

    assert len({pod.http_url for pod in pods}) == len(rig.target.stable)
    assert all(pod.metrics_url.endswith("/metrics") for pod in pods)
    assert (route.weighted, route.unread) == (True, ())
    assert "with the weights stable" in route.detail
    assert rig.town.snapshot() == before


def test_a_workload_that_lacks_explicit_control_is_refused_before_anything_is_made(rig: Rig) -> None:
    before = rig.town.snapshot()
    stable = rig.cluster.get("Deployment", NAMESPACE, NAME)
    container = stable["spec"]["template"]["spec"]["containers"][0]
    args = [word for word in container["args"] if "model-control" not in word]
    change = {"spec": {"template": {"spec": {"containers": [{"name": "triton", "args": args}]}}}}
    path = f"{APPS}/deployments/{NAME}"
    rig.town.api.ask("PATCH", path, change, "application/strategic-merge-patch+json")
    with pytest.raises(Refused, match="--model-control-mode=explicit"):
        rig.canary.put_up()
    assert rig.town.snapshot().keys() == before.keys()


def test_a_target_that_names_another_workload_is_told_apart_from_one_that_is_away(rig: Rig) -> None:
    assert rig.target.workload is not None
    other = replace(rig.target, workload=replace(rig.target.workload, name="nobody"))
    canary = KubernetesCanary(rig.cluster, other, rig.route, rig.clock)
    assert "nobody is gone" in canary.objection()
