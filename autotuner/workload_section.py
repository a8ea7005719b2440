"""The section `kubernetes` of a target file: the workload of Triton pods, the route to it, what owns its configuration.

A target that has it needs no addresses: pods are found, and a canary is put up for each study and taken down after it.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from autotuner.domain.target import Replica
from autotuner.domain.workload import (
    CANARY,
    DEFAULT_TTL,
    STABLE,
    Ports,
    RouteKind,
    RouteReference,
    Workload,
    WorkloadKind,
)
from autotuner.errors import InvalidInput
from autotuner.section_values import DURATION_ALLOWED, Duration, duration_text
from autotuner.sections import Section

LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
SUBDOMAIN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
NAMED = "a name that Kubernetes allows: lower-case letters, digits, hyphens and dots"
FILE = r"^([A-Za-z0-9_-]|\.[A-Za-z0-9_-])[A-Za-z0-9._-]{0,251}$"
PORT_ALLOWED = "a port number, 1 to 65535"


class RouteSection(Section):
    """What divides the traffic."""

    kind: RouteKind = Field(strict=False, description=f"one of: {', '.join(RouteKind)}")
    name: str = Field(pattern=SUBDOMAIN, description=NAMED)
    rule: int = Field(default=0, ge=0, le=100, description="a whole number, 0 to 100: which of its rules")
    backend: str = Field(
        default="",
        pattern=f"^$|{SUBDOMAIN}",
        description="what the route calls the stable pods: a predictor, a Model; left out: the Service's name",
    )


class PortsSection(Section):
    """Where a Triton pod listens."""

    http: int = Field(default=8000, ge=1, le=65535, description=PORT_ALLOWED)
    grpc: int = Field(default=8001, ge=1, le=65535, description=PORT_ALLOWED)
    metrics: int = Field(default=8002, ge=1, le=65535, description=PORT_ALLOWED)


class WorkloadSection(Section):
    """Where the servers run."""

    namespace: str = Field(
        pattern=LABEL, description="a namespace: lower-case letters, digits and hyphens, up to 63"
    )
    kind: WorkloadKind = Field(
        default=WorkloadKind.DEPLOYMENT, strict=False, description=f"one of: {', '.join(WorkloadKind)}"
    )
    name: str = Field(pattern=SUBDOMAIN, description=NAMED)
    replicas: int = Field(ge=1, le=200, description="a whole number, 1 to 200: the stable pods")
    service: str = Field(pattern=LABEL, description="the Service in front of the stable pods")
    route: RouteSection = Field(description="a section with kind and name")
    config_map: str = Field(
        default="",
        pattern=f"^$|{SUBDOMAIN}",
        description="the ConfigMap that owns the model's config.pbtxt; left out: the model repository does",
    )
    config_key: str = Field(default="config.pbtxt", pattern=FILE, description="a key of that ConfigMap")
    container: str = Field(
        default="",
        pattern=f"^$|{LABEL}",
        description="the container with tritonserver; left out: the only one",
    )
    ports: PortsSection = Field(default=PortsSection(), description="a section with http, grpc, metrics")
    canary_ttl: Duration = Field(default=DEFAULT_TTL, description=DURATION_ALLOWED)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        """A workload that makes its own revisions and the route that weighs them are one object."""
        isvc = self.kind is WorkloadKind.INFERENCE_SERVICE
        if isvc != (self.route.kind is RouteKind.INFERENCE_SERVICE) or (
            isvc and self.route.name != self.name
        ):
            allowed = "InferenceService and the same name for kubernetes and its route, or for neither"
            raise InvalidInput("kubernetes.route", f"{self.route.kind} {self.route.name}", allowed)
        if self.route.kind is RouteKind.SERVICE and self.route.name != self.service:
            allowed = f"{self.service}, the Service itself, since it is the route"
            raise InvalidInput("kubernetes.route.name", self.route.name, allowed)
        return self

    def workload(self) -> Workload:
        """The workload in the domain's words."""
        return Workload(
            namespace=self.namespace,
            kind=self.kind,
            name=self.name,
            service=self.service,
            route=RouteReference(self.route.kind, self.route.name, self.route.rule, self.route.backend),
            config_map=self.config_map,
            config_key=self.config_key,
            container=self.container,
            ports=Ports(self.ports.http, self.ports.grpc, self.ports.metrics),
            ttl=self.canary_ttl,
        )

    def stable(self) -> tuple[Replica, ...]:
        """The stable replicas: pods that the gateway knows together only. Where they are is asked at each look."""
        return tuple(Replica(f"{STABLE}-{number}", "", "", STABLE) for number in range(self.replicas))

    def canary(self) -> Replica:
        """The canary."""
        return Replica(CANARY, "", "")


def section_of(workload: Workload, replicas: int) -> dict[str, Any]:
    """Return what a target file would say of a workload."""
    route, ports = workload.route, workload.ports
    return {
        "namespace": workload.namespace,
        "kind": workload.kind.value,
        "name": workload.name,
        "replicas": replicas,
        "service": workload.service,
        "route": {
            "kind": route.kind.value,
            "name": route.name,
            "rule": route.rule,
            "backend": route.backend,
        },
        "config_map": workload.config_map,
        "config_key": workload.config_key,
        "container": workload.container,
        "ports": {"http": ports.http, "grpc": ports.grpc, "metrics": ports.metrics},
        "canary_ttl": duration_text(workload.ttl),
    }
