"""Where a target runs on Kubernetes: its workload of Triton pods, the route to it, what owns its configuration.

Only names and numbers: what is made of them is in `domain.manifests` and `domain.route_shapes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

STABLE = "stable"
"""What the gateway's weights and counters call all stable pods together: a Service has no weight for each."""

CANARY = "canary"
"""What they call the canary, and the name of its replica."""

DEFAULT_TTL = timedelta(hours=24)
"""After so long the reaper removes a canary whatever its study says: longer than a study waits for its approval."""


class RouteKind(StrEnum):
    """What divides the traffic between the stable pods and the canary."""

    HTTP_ROUTE = "HTTPRoute"
    GRPC_ROUTE = "GRPCRoute"
    VIRTUAL_SERVICE = "VirtualService"
    INGRESS = "Ingress"
    INFERENCE_SERVICE = "InferenceService"
    SELDON_DEPLOYMENT = "SeldonDeployment"
    EXPERIMENT = "Experiment"
    SERVICE = "Service"

    @property
    def in_percent(self) -> bool:
        """Whether its weights are whole percents."""
        return self in (RouteKind.INFERENCE_SERVICE, RouteKind.SELDON_DEPLOYMENT)

    @property
    def makes_canary(self) -> bool:
        """Whether the canary's pods are made by the route's own controller, from what the route says."""
        return self in (RouteKind.INFERENCE_SERVICE, RouteKind.SELDON_DEPLOYMENT, RouteKind.EXPERIMENT)

    @property
    def has_weights(self) -> bool:
        """Whether the canary can get another share than that of one pod among all."""
        return self is not RouteKind.SERVICE


class WorkloadKind(StrEnum):
    """What owns the stable pods."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    INFERENCE_SERVICE = "InferenceService"


@dataclass(frozen=True)
class RouteReference:
    """The object that divides the traffic. rule: the number of its rule whose backend the stable Service is.

    backend: what it calls the stable pods, where that is not their Service's name: a predictor, or a Model of Seldon.
    """

    kind: RouteKind
    name: str
    rule: int = 0
    backend: str = ""


@dataclass(frozen=True)
class Ports:
    """Where a Triton pod listens."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002


@dataclass(frozen=True)
class Workload:
    """The stable pods of one target.

    service: the Service in front of them, which the route names. config_map: the ConfigMap that owns the model's
    `config.pbtxt`, under the key `config_key`; empty where the model repository owns it: then a promotion lives in the
    servers' memory, and is put on again after a restart only while a study watches.
    container: the one that runs tritonserver; empty for the pod's only one.
    """

    namespace: str
    kind: WorkloadKind
    name: str
    service: str
    route: RouteReference
    config_map: str = ""
    config_key: str = "config.pbtxt"
    container: str = ""
    ports: Ports = Ports()
    ttl: timedelta = DEFAULT_TTL

    @property
    def backend(self) -> str:
        """What the route calls the stable pods."""
        return self.route.backend or self.service

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
