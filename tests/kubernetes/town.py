"""A namespace as a team has it: two Triton pods behind a Service and an HTTPRoute, configured by a ConfigMap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from autotuner.sandbox.model_repository import config_pbtxt, reference_requests, write_repository
from autotuner.sandbox.traffic import TrafficConfig, TrafficProcess
from autotuner.sandbox.tritonserver import TritonInstallation, install
from autotuner.sandbox.workload import Workload, parse_workload
from tests.cluster import team
from tests.cluster.team import CANARY, CONFIG, CORE, MODEL, NAME, NAMESPACE
from tests.kubernetes.api import Api
from tests.kubernetes.dataplane import DataPlane
from tests.kubernetes.kubelet import Kubelet

CEILING_MS, LARGEST_SHARE = 150, 0.9


def a_workload(preferred: Sequence[int] = (4, 8)) -> Workload:
    """A model whose incumbent forms batches that are too small, so that production meets its ceiling too early.

    With batches of 8 it carries a little more than the highest share asks of it or a little less; of 4 two thirds.
    """
    return parse_workload(
        {
            "name": MODEL,
            "model": "emulated-gpu",
            "max_batch_size": 32,
            "batch_latency_ms": {1: 12, 2: 13, 4: 15.5, 8: 21, 16: 32, 32: 54},
            "transfer_ms_per_item": 0.2,
            "instance_memory_mb": 900,
            "device_memory_mb": 16000,
            "incumbent": {"preferred_batch_size": list(preferred), "instance_count": 1},
            "traffic": {"requests_per_second": 340, "arrivals": {"poisson": True}},
            "slo": {"p99_ms": CEILING_MS, "max_canary_share": LARGEST_SHARE},
        }
    )


@dataclass
class Town:
    """The namespace, its nodes, its data plane and its users. directory: of all files."""

    api: Api
    directory: Path
    workload: Workload = field(default_factory=a_workload)
    nodes: dict[str, int] = field(default_factory=lambda: {"gpu-0": 2, "gpu-1": 2})
    kubelet: Kubelet = field(init=False)
    gateway: DataPlane = field(init=False)
    traffic: TrafficProcess = field(init=False)

    @contextmanager
    def running(self, *, users: bool = True) -> Iterator[Town]:
        """The town while it lives, with its users; its namespace is deleted at the end."""
        with self.standing(install()), ExitStack() as stack:
            ceiling = timedelta(milliseconds=self.workload.slo.p99_ms)
            self.gateway = DataPlane(self.api, NAMESPACE, NAME, self.directory / "gateway", ceiling)
            stack.enter_context(self.gateway)
            if users:
                stack.callback(self._start_users())
            yield self

    @contextmanager
    def standing(self, installation: TritonInstallation | None = None) -> Iterator[Town]:
        """The town without users, and without an installation with pods that only seem to run."""
        with ExitStack() as stack:
            self.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            stack.callback(self._remove)
            self.api.wait_for(f"{CORE}/serviceaccounts/default", timedelta(seconds=30))
            self.found()
            self.kubelet = Kubelet(self.api, installation, self.directory / "pods", self.nodes)
            stack.enter_context(self.kubelet)
            until(lambda: len(self.ready()) == 2, "two pods are ready", 90)
            yield self

    def found(self) -> None:
        """Make what the team has made."""
        repository = write_repository(self.workload, self.directory / "models")
        team.found(self.api, repository, config_pbtxt(self.workload))

    def ready(self, labels: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """Ready pods with these labels."""
        return team.ready(self.api, labels)

    def snapshot(self) -> dict[str, Any]:
        """Every object of the namespace without what changes by itself: names and content."""
        return team.snapshot(self.api)

    def target(self, **study: Any) -> dict[str, Any]:
        """The content of a target file for this town."""
        brisk = {
            "warm_up": "2s",
            "settle": "1s",
            "look_interval": "500ms",
            "flush_interval": "500ms",
            "step_minimum": "3s",
            "production_window": "10s",
            "step_limit": "60s",
            "no_data_limit": "4s",
            "load_limit": "40s",
            "stage_limit": "90s",
            "bake": "10s",
            "study_limit": "20m",
            "restore_limit": "60s",
        }
        return {
            "name": NAME,
            "model": MODEL,
            "kubernetes": {
                "namespace": NAMESPACE,
                "name": NAME,
                "replicas": 2,
                "service": NAME,
                "route": {"kind": "HTTPRoute", "name": NAME},
                "config_map": CONFIG,
            },
            "gateway": {
                "admin": self.gateway.admin_url if hasattr(self, "gateway") else "http://127.0.0.1:9",
                "clusters": {"stable": NAME, "canary": CANARY},
            },
            "limits": {"instance_count": 3, "max_queue_delay_microseconds": 20000},
            "slo": {
                "p99_ms": CEILING_MS,
                "max_canary_share": LARGEST_SHARE,
                "harm_budget_requests": 5000,
                "error_ratio": 0.005,
            },
            "study": {"max_trials": 2, "ramp_steps": 4, "pace": brisk, **study},
        }

    def write_target(self, **study: Any) -> Path:
        """Write the target file and return its path."""
        path = self.directory / "target.yaml"
        path.write_text(yaml.safe_dump(self.target(**study), sort_keys=False))
        return path

    def _start_users(self) -> Callable[[], None]:
        requests = reference_requests(self.workload)
        folder = self.directory / "traffic"
        folder.mkdir()
        paths = []
        for number, body in enumerate(requests.bodies):
            path = folder / f"body-{number}.bin"
            path.write_bytes(body)
            paths.append(str(path))
        config = TrafficConfig(
            url=self.gateway.url,
            path=requests.path,
            body_paths=tuple(paths),
            requests_per_second=self.workload.traffic.requests_per_second,
            arrivals=dict(self.workload.traffic.arrivals),
            status_path=str(folder / "status.json"),
            headers=dict(requests.headers),
        )
        self.traffic = TrafficProcess(config, run_directory=folder)
        self.traffic.start()
        return self.traffic.stop

    def _remove(self) -> None:
        removed(self.api, self.nodes)


def removed(api: Api, nodes: Iterable[str]) -> None:
    """Remove the namespace, its pods and nodes."""
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    for name in nodes:
        api.delete(f"/api/v1/nodes/{name}")
    for pod in api.items(f"{CORE}/pods"):
        api.delete(f"{CORE}/pods/{pod['metadata']['name']}", grace_seconds=0)
    until(lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}") is None, "the namespace is gone", 60)


def until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    """Return when `holds()` is true; fails after `seconds`."""
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
