"""The data plane of the tests: a real Envoy, fed from an HTTPRoute by a small controller as a Gateway would be.

A Service's endpoints are found here from its selector and the pods that are ready: the API server takes no loopback
address in an EndpointSlice. Envoy reads routes, clusters and endpoints from files that are exchanged as a whole.
"""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from autotuner.domain.target import Replica
from autotuner.sandbox import envoy
from autotuner.sandbox.envoy import LOOPBACK, Topology, bootstrap, find_envoy
from autotuner.sandbox.processes import ManagedProcess, free_port, wait_until
from autotuner.sandbox.traffic import write_atomically
from tests.kubernetes.api import Api, ApiError

PERIOD_SECONDS = 0.2
TYPE = "type.googleapis.com/envoy.config"
NOWHERE = Replica("none", "http://127.0.0.1:9", "")


class DataPlane:
    """Envoy and the controller that feeds it from one HTTPRoute. Use as a context manager."""

    def __init__(self, api: Api, namespace: str, route: str, directory: Path, ceiling: timedelta) -> None:
        self._api = api
        self._namespace = namespace
        self._route = route
        self._directory = directory
        self._timeout = envoy.default_route_timeout(ceiling)
        self._ports = {"listener_port": free_port(), "admin_port": free_port()}
        self._topology = Topology(
            [NOWHERE], ceiling, {"none": envoy.TOTAL_WEIGHT}, flush_interval=timedelta(seconds=0.5)
        )
        self._written: dict[str, list[dict[str, Any]]] = {}
        self._versions = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="test-gateway", daemon=True)
        command = [str(find_envoy()), "-c", str(directory / "envoy.json"), "--concurrency", "1"]
        self.process = ManagedProcess(
            "Envoy", [*command, "-l", "warning", "--disable-hot-restart"], directory / "envoy.log"
        )
        self.faults: list[str] = []

    @property
    def url(self) -> str:
        """Where users send their requests."""
        return f"http://{LOOPBACK}:{self._ports['listener_port']}"

    @property
    def admin_url(self) -> str:
        """Where statistics are read."""
        return f"http://{LOOPBACK}:{self._ports['admin_port']}"

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.sync()
        (self._directory / "envoy.json").write_text(json.dumps(self._bootstrap()))
        self.process.start()
        self._thread.start()
        wait_until(
            self._serves, within=timedelta(seconds=30), what="Envoy has its route", process=self.process
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        self.process.stop()

    def _serves(self) -> bool:
        return "cds" in self._written and "rds" in self._written

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self.sync()
            except (ApiError, OSError) as error:
                self.faults.append(str(error))

    def sync(self) -> None:
        """Carry over what the route and the Services say now."""
        path = f"/apis/gateway.networking.k8s.io/v1/namespaces/{self._namespace}/httproutes/{self._route}"
        backends = self._api.get(path)["spec"]["rules"][0]["backendRefs"]
        pods = self._api.items(f"/api/v1/namespaces/{self._namespace}/pods")
        self._write("cds", [self._cluster(each["name"], each["port"], pods) for each in backends])
        weights = [{"name": each["name"], "weight": each.get("weight", 1)} for each in backends]
        self._write("rds", [self._routes(weights)])

    def _write(self, kind: str, resources: list[dict[str, Any]]) -> None:
        if self._written.get(kind) == resources:
            return
        self._versions += 1
        content = {"version_info": str(self._versions), "resources": resources}
        write_atomically(self._directory / f"{kind}.json", json.dumps(content))
        self._written[kind] = resources

    def _cluster(self, name: str, port: int, pods: list[dict[str, Any]]) -> dict[str, Any]:
        service = self._api.find(f"/api/v1/namespaces/{self._namespace}/services/{name}")
        endpoints = [] if service is None else _endpoints(service, port, pods)
        made = envoy._cluster(NOWHERE)
        return {
            **made,
            "@type": f"{TYPE}.cluster.v3.Cluster",
            "name": name,
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        }

    def _routes(self, weights: list[dict[str, Any]]) -> dict[str, Any]:
        action = {
            "timeout": f"{self._timeout.total_seconds():.3f}s",
            "weighted_clusters": {"clusters": weights},
        }
        host = {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": action}]}
        return {
            "@type": f"{TYPE}.route.v3.RouteConfiguration",
            "name": "all",
            "validate_clusters": False,
            "virtual_hosts": [host],
        }

    def _bootstrap(self) -> dict[str, Any]:
        made = bootstrap(self._topology, **self._ports)
        manager = made["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        del manager["route_config"]
        manager["rds"] = {"route_config_name": "all", "config_source": self._file("rds")}
        made["static_resources"]["clusters"] = []
        made["dynamic_resources"] = {"cds_config": self._file("cds")}
        made["node"] = {"id": "test", "cluster": "test"}
        return made

    def _file(self, kind: str) -> dict[str, Any]:
        return {
            "path_config_source": {"path": str(self._directory / f"{kind}.json")},
            "resource_api_version": "V3",
        }


def _endpoints(service: dict[str, Any], port: int, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    selector = service["spec"]["selector"].items()
    goal = next(each["targetPort"] for each in service["spec"]["ports"] if each["port"] == port)
    found = []
    for pod in pods:
        conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
        ready = conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp")
        if ready and selector <= pod["metadata"].get("labels", {}).items():
            address = {"socket_address": {"address": pod["status"]["podIP"], "port_value": goal}}
            found.append({"endpoint": {"address": address}})
    return found
