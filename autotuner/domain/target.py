"""A target: one model on one Triton deployment, how traffic reaches it and what may be tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.domain.sources import Instrumentation, TraceStore
from autotuner.domain.workload import Workload
from autotuner.errors import InvalidInput

DEFAULT_SITE = "default"
"""The site of a target that names none."""


class Objective(StrEnum):
    """What a study maximises; both are always measured and reported."""

    CAPACITY = "capacity"
    EFFICIENCY = "efficiency"


@dataclass(frozen=True)
class Replica:
    """One Triton server.

    backend: what the gateway weighs and counts it as; empty for its own name. Several servers may stand behind one, as
    the pods of a Service do: the gateway then knows nothing of each. pod: the name of the pod it is at this moment, on
    Kubernetes, where the addresses too are those of the moment.
    """

    name: str
    http_url: str
    metrics_url: str
    backend: str = ""
    pod: str = ""

    @property
    def at_gateway(self) -> str:
        """Its name in the gateway's weights and counters."""
        return self.backend or self.name


@dataclass(frozen=True)
class Gateway:
    """The Envoy in front: its admin address, and the runtime keys that hold the weights.

    runtime_prefix: the route's `runtime_key_prefix`; the weight of replica R is the key `<prefix>.R`.
    total_weight: what the weights add up to.
    clusters: what the gateway's statistics call a backend, where that is not its name.
    """

    admin_url: str
    runtime_prefix: str
    total_weight: int = 1000
    clusters: Mapping[str, str] = field(default_factory=dict)

    def cluster(self, backend: str) -> str:
        """Return what the gateway's statistics call a backend."""
        return self.clusters.get(backend, backend)


@dataclass(frozen=True)
class Limits:
    """What the search space may contain; None means "as the incumbent has it"."""

    max_instance_count: int
    max_queue_delay_microseconds: int
    preferred_batch_sizes: tuple[tuple[int, ...], ...] | None = None
    memory_headroom: float = 0.10

    def __post_init__(self) -> None:
        if not 1 <= self.max_instance_count <= 1000:
            raise InvalidInput(
                "limits.instance_count", self.max_instance_count, "a whole number from 1 to 1000"
            )
        if not 0.0 <= self.memory_headroom < 1.0:
            raise InvalidInput("limits.memory_headroom", self.memory_headroom, "a fraction from 0 to below 1")


@dataclass(frozen=True)
class Target:
    """Where a model runs, how it is reached, and what may be tuned."""

    name: str
    model: str
    stable: tuple[Replica, ...]
    canary: Replica
    gateway: Gateway
    limits: Limits
    objective: Objective = Objective.CAPACITY
    note: str = ""
    replica_cost_per_hour: float | None = None
    """Cost of one replica for an hour, in the currency of `currency`."""
    currency: str = "USD"
    site: str = DEFAULT_SITE
    """The cluster or site whose canaries are limited together."""
    metrics: Instrumentation | None = None
    """The metrics server that counts; None where the gateway and every server are read directly."""
    workload: Workload | None = None
    """Where the servers run on Kubernetes; None for static endpoints. The canary is then put up for each study."""
    traces: TraceStore | None = None
    """Who has the spans of its requests; None where nobody is asked."""

    def __post_init__(self) -> None:
        names = [replica.name for replica in self.replicas]
        if len(set(names)) != len(names):
            raise InvalidInput("replicas", names, "each replica once")
        if not self.stable:
            raise InvalidInput("stable", [], "at least one stable replica")
        if self.canary.at_gateway in self.backends(self.stable_names):
            raise InvalidInput("canary", self.canary.at_gateway, "a backend of its own")

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Every replica, stable ones first."""
        return (*self.stable, self.canary)

    @property
    def stable_names(self) -> tuple[str, ...]:
        """Names of the stable replicas, in order."""
        return tuple(replica.name for replica in self.stable)

    @property
    def only_share(self) -> float | None:
        """The one share of all requests that a canary can get; None where the route has weights."""
        if self.workload is None or self.workload.route.kind.has_weights:
            return None
        return 1.0 / len(self.replicas)

    def backends(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return what the gateway weighs for the replicas `names`, each once, in order."""
        return tuple(dict.fromkeys(self.replica(name).at_gateway for name in names))

    def behind(self, backend: str) -> tuple[str, ...]:
        """Return the names of the replicas behind one backend of the gateway."""
        return tuple(replica.name for replica in self.replicas if replica.at_gateway == backend)

    def marks(self, names: Iterable[str]) -> tuple[dict[str, str], ...]:
        """Return the attributes that single out the spans of each of the replicas `names`; none where nobody traces."""
        if self.traces is None:
            return ()
        called: Iterable[str] = names
        if self.traces.gateway:
            called = [self.gateway.cluster(backend) for backend in self.backends(names)]
        template = self.traces.marks
        return tuple({key: text.replace("{name}", name) for key, text in template} for name in called)

    def replica(self, name: str) -> Replica:
        """Return the replica called `name`. Raises InvalidInput when there is none."""
        for replica in self.replicas:
            if replica.name == name:
                return replica
        raise InvalidInput("replica", name, f"one of {', '.join(r.name for r in self.replicas)}")
