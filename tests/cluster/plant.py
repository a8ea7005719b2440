"""A simulated Triton in every pod that is ready, and a simulated gateway that follows the route.

Which pod has which server is decided here by pods; which replica is which pod is the product's business. What is
measured is simulated, everything else goes through an API server, in memory or real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from autotuner.adapters.simulated import SimulatedWorld
from autotuner.domain.configuration import ModelConfig
from autotuner.domain.measurement import Sample
from autotuner.domain.provenance import Provenance
from autotuner.domain.target import Target
from autotuner.domain.workload import CANARY, STABLE
from autotuner.errors import Unavailable
from tests.closed_loop.pooled import together
from tests.cluster import team
from tests.kubernetes.api import Api, ApiError


@dataclass(frozen=True)
class Host:
    """A pod in which a server runs."""

    uid: str
    address: str
    starts: int


@dataclass
class Plant:
    """The servers of one target's pods. stable, canary: the names of the simulated servers that there are."""

    simulated: SimulatedWorld
    api: Api
    stable: tuple[str, ...]
    canary: str = CANARY
    hosts: dict[str, Host] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    stranger_share: int = 0
    """The weight of backends in the route that are neither ours nor the team's."""
    on_load: Callable[[str], None] = lambda server: None
    """Told of each load before it begins."""

    def __post_init__(self) -> None:
        for name in (*self.stable, self.canary):
            self.simulated.faults.crash(name)

    def sync(self) -> None:
        """Carry over what pods and route are now; while the API server is away all goes on as it was."""
        try:
            pods = self.api.items(f"{team.CORE}/pods")
            route = self.api.find(f"{team.ROUTES}/{team.NAME}")
            config = self.api.find(f"{team.CORE}/configmaps/{team.CONFIG}")
        except (ApiError, OSError):
            return
        text = (config or {}).get("data", {}).get("config.pbtxt", "")
        for names, labels in ((self.stable, team.LABELS), ((self.canary,), team.CANARY_LABELS)):
            self._settle(names, [pod for pod in pods if _carries(pod, labels)], text)
        if route is not None:
            self._route(route["spec"]["rules"][0]["backendRefs"])

    def _settle(self, names: tuple[str, ...], pods: list[dict[str, Any]], text: str) -> None:
        running = {host.uid: host for host in map(_host, filter(team.is_ready, pods))}
        for name in names:
            host = self.hosts.get(name)
            if host is not None and running.get(host.uid) != host:
                self.simulated.faults.crash(name)
                del self.hosts[name]
        placed = {host.uid for host in self.hosts.values()}
        free = [name for name in names if name not in self.hosts]
        new = [host for host in running.values() if host.uid not in placed]
        for name, host in zip(free, new, strict=False):
            self.simulated.faults.repository(name, json.loads(text))
            self.simulated.faults.start(name)
            self.hosts[name] = host

    def _route(self, backends: list[dict[str, Any]]) -> None:
        given = {each["name"]: each.get("weight", 1) for each in backends}
        self.stranger_share = sum(w for name, w in given.items() if name not in (team.NAME, team.CANARY))
        up = [name for name in self.stable if name in self.hosts] or list(self.stable)
        share, rest = divmod(given.get(team.NAME, 0) * 1000, len(up))
        weights = dict.fromkeys(self.stable, 0) | {
            name: share + (number < rest) for number, name in enumerate(up)
        }
        weights[self.canary] = given.get(team.CANARY, 0) * 1000
        if sum(weights.values()) and weights != self.weights:
            self.simulated.route.set_weights(weights)
            self.weights = weights

    def server(self, replica: str, located: Target) -> str:
        """Return the server that runs at a replica's address. Raises Unavailable when none does."""
        address = urlsplit(located.replica(replica).http_url).hostname
        for name, host in self.hosts.items():
            if host.address == address:
                return name
        raise Unavailable(f"triton {replica}", "connection refused")


def _carries(pod: dict[str, Any], labels: Mapping[str, str]) -> bool:
    carried: dict[str, str] = pod["metadata"].get("labels", {})
    return labels.items() <= carried.items()


def _host(pod: dict[str, Any]) -> Host:
    restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
    return Host(pod["metadata"]["uid"], pod["status"]["podIP"], restarts)


@dataclass(frozen=True)
class PlantServing:
    """`Serving` at the addresses that the product has found."""

    plant: Plant
    located: Target

    def model_config(self, replica: str) -> ModelConfig:
        """As the simulated server."""
        return self.plant.simulated.serving.model_config(self.plant.server(replica, self.located))

    def is_ready(self, replica: str) -> bool:
        """As the simulated server."""
        return self.plant.simulated.serving.is_ready(self.plant.server(replica, self.located))

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """As the simulated server."""
        server = self.plant.server(replica, self.located)
        self.plant.on_load(server)
        self.plant.simulated.serving.load(server, config, limit)

    def provenance(self, replica: str) -> Provenance:
        """As the simulated server."""
        return self.plant.simulated.serving.provenance(self.plant.server(replica, self.located))


@dataclass(frozen=True)
class PlantMetrics:
    """`MetricsSource` at the addresses that the product has found."""

    plant: Plant
    located: Target

    def sample(self) -> Sample:
        """Counters of each replica's server, and of the gateway by backend."""
        sample = self.plant.simulated.metrics.sample()
        servers, faults = {}, {}
        for replica in self.located.replicas:
            try:
                servers[replica.name] = sample.servers[self.plant.server(replica.name, self.located)]
            except (KeyError, Unavailable) as error:
                faults[replica.name] = str(error)
        gateway = {CANARY: sample.gateway[self.plant.canary]}
        gateway[STABLE] = together([sample.gateway[name] for name in self.plant.stable])
        return replace(sample, servers=servers, gateway=gateway, faults=faults)
