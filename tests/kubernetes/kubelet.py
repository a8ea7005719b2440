"""A kubelet for tests: registers nodes with GPUs and runs the Triton container of each pod as a real tritonserver.

Every pod has a loopback address of its own (127.0.N.M) on which its server listens at the pod's ports, so that pods
look as they do on a cluster. What it does of the work: volumes of kind hostPath and configMap (a subPath mount is
copied when the container starts and not changed after, as on a real node), start, readiness, restarts, termination,
image pull errors, out-of-memory kills, and the status of all that.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from autotuner.sandbox.processes import ProcessFailed
from autotuner.sandbox.tritonserver import TritonInstallation, TritonPorts, TritonProcess
from tests.kubernetes.api import STRATEGIC, Api, ApiError

PERIOD_SECONDS = 0.3
RESTART_AFTER = timedelta(seconds=1)
IMAGE_DIGEST = "sha256:" + "ab" * 32


def now() -> str:
    """The present as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class RunningPod:
    """One pod on a node of ours."""

    name: str
    namespace: str
    uid: str
    address: str
    server: TritonProcess | None = None
    started_at: str = ""
    restarts: int = 0
    last_end: dict[str, Any] | None = None
    dead_since: float | None = None
    reported: dict[str, Any] = field(default_factory=dict)


class Kubelet:
    """All nodes of the test cluster, driven by one thread. Use as a context manager.

    installation: of the tritonserver that pods run; None for pods that are said to run and do nothing.
    unpullable: pods whose names begin so cannot pull their image.
    """

    def __init__(
        self, api: Api, installation: TritonInstallation | None, directory: Path, nodes: dict[str, int]
    ) -> None:
        self._api = api
        self._installation = installation
        self._directory = directory
        self._nodes = nodes
        self._pods: dict[str, RunningPod] = {}
        self._next_address = 0
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="test-kubelet", daemon=True)
        self.faults: list[str] = []
        self.unpullable: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        for name, gpus in self._nodes.items():
            self._register(name, gpus)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)
        for pod in self._pods.values():
            if pod.server is not None:
                pod.server.kill()

    def pod(self, name: str) -> RunningPod:
        """The running pod whose name begins with `name`."""
        with self._lock:
            return next(pod for pod in self._pods.values() if pod.name.startswith(name))

    def kill_out_of_memory(self, name: str) -> None:
        """End a pod's server as the kernel does when memory runs out."""
        with self._lock:
            pod = self.pod(name)
            pod.last_end = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": now()}
            assert pod.server is not None
            pod.server.kill()

    def _register(self, name: str, gpus: int) -> None:
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "100", "nvidia.com/gpu": str(gpus)}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "accelerator": "emulated"}},
        }
        self._api.create("/api/v1/nodes", node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        self._api.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)
        # The taint that every new node gets is taken off by a controller that the tests do without.
        self._api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                with self._lock:
                    self._sync()
            except (ApiError, OSError, ProcessFailed) as error:
                self.faults.append(f"{now()} {error}")

    def _sync(self) -> None:
        found = {p["metadata"]["uid"]: p for p in self._api.items("/api/v1/pods")}
        mine = {uid: pod for uid, pod in found.items() if pod["spec"].get("nodeName") in self._nodes}
        for uid in [uid for uid in self._pods if uid not in mine]:
            self._end(self._pods.pop(uid))
        for uid, pod in mine.items():
            if pod["metadata"].get("deletionTimestamp"):
                if uid in self._pods:
                    self._end(self._pods.pop(uid))
                self._api.delete(_path(pod), grace_seconds=0)
            elif pod.get("status", {}).get("phase") not in ("Failed", "Succeeded"):
                self._carry(uid, pod)

    def _carry(self, uid: str, pod: dict[str, Any]) -> None:
        running = self._pods.get(uid)
        if running is None:
            metadata = pod["metadata"]
            running = RunningPod(metadata["name"], metadata["namespace"], uid, self._address())
            self._pods[uid] = running
        container = pod["spec"]["containers"][0]
        if running.name.startswith(self.unpullable or ("\0",)):
            self._report(
                pod, running, _waiting("ErrImagePull", f"manifest of {container['image']} not found")
            )
            return
        if self._installation is None:
            running.started_at = running.started_at or now()
            self._report(pod, running, {"running": {"startedAt": running.started_at}}, ready=True)
            return
        self._revive(pod, running, container)
        assert running.server is not None
        alive = running.server.process.alive
        state = {"running": {"startedAt": running.started_at}} if alive else _waiting("CrashLoopBackOff", "")
        self._report(pod, running, state, ready=alive and running.server.ready())

    def _revive(self, pod: dict[str, Any], running: RunningPod, container: dict[str, Any]) -> None:
        if running.server is not None and running.server.process.alive:
            running.dead_since = None
            return
        if running.server is not None:
            if running.dead_since is None:
                running.dead_since = time.monotonic()
                running.last_end = running.last_end or {"exitCode": 1, "reason": "Error", "finishedAt": now()}
            if time.monotonic() - running.dead_since < RESTART_AFTER.total_seconds():
                return
            running.restarts += 1
        running.server = self._started(pod, running, container)
        running.started_at = now()

    def _started(self, pod: dict[str, Any], running: RunningPod, container: dict[str, Any]) -> TritonProcess:
        folder = self._directory / running.name
        words = [*container.get("command", []), *container.get("args", [])]
        flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
        repository = self._volumes(pod, container, folder)
        ports = TritonPorts(http=8000, grpc=8001, metrics=8002)
        assert self._installation is not None
        server = TritonProcess(
            running.name,
            self._installation,
            repository / flags["model-repository"].strip("/"),
            flags["load-model"],
            folder,
            ports,
            host=running.address,
        )
        server.start(within=None)
        return server

    def _volumes(self, pod: dict[str, Any], container: dict[str, Any], folder: Path) -> Path:
        """The container's file system, as far as volumes make it, new for each start."""
        root = folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            volume, goal = volumes[mount["name"]], root / mount["mountPath"].strip("/")
            goal.parent.mkdir(parents=True, exist_ok=True)
            if "hostPath" in volume:
                shutil.copytree(volume["hostPath"]["path"], goal, dirs_exist_ok=True)
            elif "configMap" in volume:
                space = pod["metadata"]["namespace"]
                path = f"/api/v1/namespaces/{space}/configmaps/{volume['configMap']['name']}"
                goal.write_text(self._api.get(path)["data"][mount["subPath"]])
        return root

    def _report(
        self, pod: dict[str, Any], running: RunningPod, state: dict[str, Any], *, ready: bool = False
    ) -> None:
        container = pod["spec"]["containers"][0]
        told = "True" if ready else "False"
        since = running.started_at or now()
        kinds = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": told, "Ready": told}
        repository = container["image"].partition("@")[0].rpartition(":")[0] or container["image"]
        status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"{repository}@{IMAGE_DIGEST}",
            "ready": ready,
            "restartCount": running.restarts,
            "state": state,
            **({"lastState": {"terminated": running.last_end}} if running.last_end else {}),
        }
        wanted: dict[str, Any] = {
            "phase": "Running" if "running" in state else "Pending",
            "podIP": running.address,
            "podIPs": [{"ip": running.address}],
            "conditions": [{"type": kind, "status": value} for kind, value in kinds.items()],
            "containerStatuses": [status],
        }
        if wanted == running.reported:
            return
        dated = [{**condition, "lastTransitionTime": now()} for condition in wanted["conditions"]]
        changed = {**wanted, "startTime": since, "conditions": dated}
        self._api.ask("PATCH", f"{_path(pod)}/status", {"status": changed}, STRATEGIC)
        running.reported = wanted

    def _address(self) -> str:
        self._next_address += 1
        return f"127.0.{100 + self._next_address // 250}.{1 + self._next_address % 250}"

    def _end(self, running: RunningPod) -> None:
        if running.server is not None:
            running.server.stop()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._directory / running.name / "root", ignore_errors=True)


def _waiting(reason: str, message: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
