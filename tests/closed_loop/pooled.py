"""The simulated target as a workload on Kubernetes looks: one weight for all stable pods, a canary for each study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from autotuner.adapters.simulated import SimulatedWorld
from autotuner.domain.configuration import ModelConfig
from autotuner.domain.measurement import GatewayCounters, Sample
from autotuner.domain.provenance import Provenance
from autotuner.domain.target import Replica, Target
from autotuner.domain.workload import (
    CANARY,
    STABLE,
    RouteKind,
    RouteReference,
    Workload,
    WorkloadKind,
)
from autotuner.errors import Refused, Unavailable
from autotuner.ports import World
from tests.builders import a_target


def a_workload(**changes: object) -> Workload:
    """A Deployment behind an HTTPRoute."""
    fields = {
        "namespace": "prod",
        "kind": WorkloadKind.DEPLOYMENT,
        "name": "vision",
        "service": "vision",
        "route": RouteReference(RouteKind.HTTP_ROUTE, "vision"),
        "config_map": "vision-config",
    }
    return Workload(**{**fields, **changes})  # type: ignore[arg-type]


def a_pooled_target(pods: int = 2, **changes: object) -> Target:
    """A target whose stable pods share one backend, and whose canary is put up for each study."""
    stable = tuple(Replica(f"{STABLE}-{number}", "", "", STABLE) for number in range(pods))
    fields = {"stable": stable, "canary": Replica(CANARY, "", ""), "workload": a_workload(), **changes}
    return a_target(**fields)  # type: ignore[arg-type]


def apart(target: Target) -> Target:
    """The same target as the simulation has it: each replica weighed by itself."""
    stable = tuple(replace(replica, backend="") for replica in target.stable)
    return replace(target, stable=stable, workload=None)


@dataclass
class PooledWorld:
    """The doors of a pooled target over a simulated one. Is its serving, route, metrics and canary at once.

    up: whether a canary stands; refuses: why none can be put up; rolled_out: what somebody did to
    production. kept_by: who owns its configuration. since: when servers started.
    """

    simulated: SimulatedWorld
    target: Target
    up: bool = False
    refuses: str = ""
    rolled_out: str = ""
    kept_by: str = ""
    put_up_calls: int = 0
    taken_down: int = 0
    held: dict[str, int] = field(default_factory=dict)
    since: dict[str, datetime] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The doors."""
        return World(self, self, self, self, self)

    def model_config(self, replica: str) -> ModelConfig:
        """As the simulated server; there is none before the canary is up."""
        self._require(replica)
        return self.simulated.serving.model_config(replica)

    def is_ready(self, replica: str) -> bool:
        """As the simulated server."""
        self._require(replica)
        return self.simulated.serving.is_ready(replica)

    def provenance(self, replica: str) -> Provenance:
        """As the simulated server."""
        self._require(replica)
        return self.simulated.serving.provenance(replica)

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """As the simulated server."""
        self._require(replica)
        self.simulated.serving.load(replica, config, limit)

    def _require(self, replica: str) -> None:
        if replica == CANARY and not self.up:
            raise Unavailable("triton canary", "no pod yet")

    def weights(self) -> Mapping[str, int]:
        """One weight for all stable replicas."""
        found = self.simulated.route.weights()
        stable = sum(weight for name, weight in found.items() if name != CANARY)
        return {STABLE: stable, CANARY: found[CANARY]} if self.up else {STABLE: 1}

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Divide the stable weight equally, as a Service does."""
        if not self.up:
            raise Refused("the route has no place for a canary")
        names = self.target.stable_names
        share, rest = divmod(weights[STABLE], len(names))
        each = {name: share + (number < rest) for number, name in enumerate(names)}
        self.simulated.route.set_weights({**each, CANARY: weights[CANARY]})

    def sample(self) -> Sample:
        """Counters of all stable replicas together."""
        sample = self.simulated.metrics.sample()
        gateway = {name: each for name, each in sample.gateway.items() if name == CANARY and self.up}
        stable = [sample.gateway[name] for name in self.target.stable_names if name in sample.gateway]
        if len(stable) == len(self.target.stable):
            gateway[STABLE] = together(stable)
        servers = {name: each for name, each in sample.servers.items() if name != CANARY or self.up}
        return replace(sample, gateway=gateway, servers=servers)

    def put_up(self) -> None:
        """Let the canary be there."""
        self.put_up_calls += 1
        if self.refuses:
            raise Refused(self.refuses)
        self.up = True

    def take_down(self, *, give_back: bool = False) -> None:
        """Let the canary be gone."""
        self.taken_down += 1
        self.up = False

    def objection(self) -> str:
        """What somebody did to production."""
        return self.rolled_out

    def keeper(self) -> str:
        """Who owns production's configuration."""
        return self.kept_by

    def started(self) -> Mapping[str, datetime]:
        """Since when servers run that a test has started anew."""
        return self.since

    def start_anew(self, replica: str, at: datetime) -> None:
        """Let a pod die and come up again with what its repository says."""
        self.simulated.faults.crash(replica)
        self.simulated.faults.start(replica)
        self.since[replica] = at


def together(counters: list[GatewayCounters]) -> GatewayCounters:
    """What a gateway counts of several servers that it knows as one."""
    return GatewayCounters(
        sent=sum(each.sent for each in counters),
        ended=sum(each.ended for each in counters),
        failed=sum(each.failed for each in counters),
        failed_unmeasured=sum(each.failed_unmeasured for each in counters),
        buckets=tuple(map(sum, zip(*(each.buckets for each in counters), strict=True))),
        latency_sum_seconds=sum(each.latency_sum_seconds for each in counters),
    )
