"""What goes wrong on a cluster, one function each, and the sentence in which a study tells it.

The page on Kubernetes lists these; a test compares.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autotuner.domain.study import Outcome, Wish
from autotuner.operations import ask
from autotuner.ports import Clock
from tests.cluster import team
from tests.cluster.loop import ClusterLoop
from tests.cluster.server import Answer, Away, Request
from tests.kubernetes.api import STRATEGIC, Api

LASTS = timedelta(seconds=60)
SCALED_FOR = timedelta(seconds=5)


@dataclass
class Outage:
    """Nobody answers until a moment."""

    clock: Clock
    until: datetime

    def __call__(self, request: Request) -> Answer | None:
        """Refuse the connection."""
        if self.clock.now() < self.until:
            raise Away("connection refused")
        return None


@dataclass
class Answers:
    """Some requests, of the kind that can be answered so, are answered with an error."""

    status: int
    reason: str
    share: float
    writes: bool = True
    reads: bool = True
    _dice: random.Random = field(default_factory=lambda: random.Random(7))

    def __call__(self, request: Request) -> Answer | None:
        """Answer in place of the server, or let the request through."""
        reading = request.verb in ("get", "list") or request.place.plural.endswith("reviews")
        if not (self.reads if reading else self.writes):
            return None
        if self._dice.random() >= self.share:
            return None
        return self.status, {
            "kind": "Status",
            "message": self.reason,
            "reason": self.reason,
            "code": self.status,
        }


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    says: a part of the sentence in which the study, or one of its looks, tells it. ends: how a study may end that it
    strikes at `moment`. theirs: objects that are somebody else's doing, and stay it.
    """

    strike: Callable[[ClusterLoop], None]
    says: str
    ends: tuple[Outcome, ...]
    theirs: tuple[str, ...] = ()
    moment: str = "candidate"


def away(loop: ClusterLoop) -> None:
    """The API server is away for a minute."""
    loop.server.between.append(Outage(loop.clock, loop.clock.now() + LASTS))


def busy(loop: ClusterLoop) -> None:
    """The API server sheds load."""
    loop.server.between.append(Answers(429, "too many requests", share=0.1))


def broken(loop: ClusterLoop) -> None:
    """The API server fails now and then."""
    loop.server.between.append(Answers(500, "etcdserver: request timed out", share=0.1))


def expired(loop: ClusterLoop) -> None:
    """The API server has forgotten what a list began from."""
    reason = "The resourceVersion for the provided list is too old"
    loop.server.between.append(Answers(410, reason, share=0.1, writes=False))


def contended(loop: ClusterLoop) -> None:
    """Somebody writes to the same objects at the same time."""
    reason = "the object has been modified; please apply your changes to the latest version"
    loop.server.between.append(Answers(409, reason, share=0.5, reads=False))


def pod_of(api: Api, labels: dict[str, str]) -> str:
    """The name of a pod with these labels."""
    name: str = next(
        pod["metadata"]["name"]
        for pod in api.items(f"{team.CORE}/pods")
        if labels.items() <= pod["metadata"]["labels"].items()
        and not pod["metadata"].get("deletionTimestamp")
    )
    return name


def canary_evicted(loop: ClusterLoop) -> None:
    """The canary's pod is evicted."""
    team.evict(loop.api, pod_of(loop.api, team.CANARY_LABELS))


def node_drained(loop: ClusterLoop) -> None:
    """The node of a stable pod is drained."""
    name = pod_of(loop.api, team.LABELS)
    pod = loop.api.get(f"{team.CORE}/pods/{name}")
    team.drain(loop.api, pod["spec"]["nodeName"])


def killed_for_memory(loop: ClusterLoop) -> None:
    """The canary is killed for memory."""
    loop.controllers.restart(team.CANARY)


def no_gpu(loop: ClusterLoop) -> None:
    """There is no third GPU."""
    loop.controllers.nodes["gpu-1"] = 0


def no_image(loop: ClusterLoop) -> None:
    """The canary's node cannot pull the image."""
    loop.controllers.unpullable = (team.CANARY,)


def scaled(loop: ClusterLoop) -> None:
    """An autoscaler adds a pod and takes it away again."""
    path = f"{team.APPS}/deployments/{team.NAME}"
    loop.api.merge(path, {"spec": {"replicas": 3}})
    loop.later.append(
        (loop.clock.now() + SCALED_FOR, lambda at: at.api.merge(path, {"spec": {"replicas": 2}}))
    )


def route_edited(loop: ClusterLoop) -> None:
    """Somebody sends a part of the route elsewhere."""
    backends = [
        {"name": team.NAME, "port": 8000, "weight": 1},
        {"name": "vision-v2", "port": 8000, "weight": 1},
    ]
    loop.api.merge(f"{team.ROUTES}/{team.NAME}", {"spec": {"rules": [{"backendRefs": backends}]}})


def weights_edited(loop: ClusterLoop) -> None:
    """Somebody changes the weights of the route."""
    backends = loop.api.get(f"{team.ROUTES}/{team.NAME}")["spec"]["rules"][0]["backendRefs"]
    backends[0]["weight"], backends[1]["weight"] = 900, 100
    loop.api.merge(f"{team.ROUTES}/{team.NAME}", {"spec": {"rules": [{"backendRefs": backends}]}})


def canary_deleted(loop: ClusterLoop) -> None:
    """Somebody deletes the canary."""
    loop.api.delete(f"{team.APPS}/deployments/{team.CANARY}")


def canary_service_deleted(loop: ClusterLoop) -> None:
    """Somebody deletes the canary's Service, which remembers what the route was."""
    loop.api.delete(f"{team.CORE}/services/{team.CANARY}")


def rolled_out(loop: ClusterLoop) -> None:
    """Somebody rolls out another image."""
    container = {"name": "triton", "image": "registry.example/triton:25.02"}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    loop.api.ask("PATCH", f"{team.APPS}/deployments/{team.NAME}?fieldManager=team", change, STRATEGIC)


def configuration_edited(loop: ClusterLoop) -> None:
    """Somebody edits the ConfigMap."""
    loop.api.merge(f"{team.CORE}/configmaps/{team.CONFIG}", {"data": {"config.pbtxt": loop.original + " "}})


def workload_deleted(loop: ClusterLoop) -> None:
    """Somebody deletes the workload."""
    loop.api.delete(f"{team.APPS}/deployments/{team.NAME}")


def namespace_deleted(loop: ClusterLoop) -> None:
    """Somebody deletes the namespace."""
    loop.api.delete(f"/api/v1/namespaces/{team.NAMESPACE}")


def uninstalled(loop: ClusterLoop) -> None:
    """The chart is uninstalled: its hook cancels every study and waits for the end."""
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "leave", "the autotuner is uninstalled")


STABLE = f"Deployment/{team.NAME}"
ROUTE = f"HTTPRoute/{team.NAME}"
CONFIGURATION = f"ConfigMap/{team.CONFIG}"
ALL = tuple(f"{kind}/{team.NAME}" for kind in ("Deployment", "Service", "HTTPRoute"))
ON, OFF = (Outcome.PROMOTED,), (Outcome.ABORTED,)
UNMEASURED = (Outcome.INCONCLUSIVE, Outcome.KEPT)

FAULTS = {
    "API server away for a minute": Fault(away, "no answer from the API server", ON),
    "API server answers 429": Fault(busy, "the API server answers with HTTP 429", ON),
    "API server answers 500": Fault(broken, "the API server answers with HTTP 500", ON),
    "API server answers 410 (a list has expired)": Fault(expired, "the API server answers with HTTP 410", ON),
    "API server answers 409 (somebody writes too)": Fault(contended, "somebody else changed it", ON + OFF),
    "canary's pod evicted": Fault(canary_evicted, "VOID: canary", ON),
    "canary killed for memory": Fault(killed_for_memory, "OOMKilled (exit code 137)", ON),
    "node of a stable pod drained": Fault(node_drained, "ready pods where this target has 2", UNMEASURED),
    "no GPU free": Fault(no_gpu, "not scheduled: Unschedulable", OFF, moment="start"),
    "image cannot be pulled": Fault(no_image, "ErrImagePull", OFF, moment="start"),
    "an autoscaler adds a pod": Fault(scaled, "3 ready pods where this target has 2", ON),
    "route sent elsewhere": Fault(route_edited, "somebody else changed HTTPRoute vision", OFF, (ROUTE,)),
    "weights of the route changed": Fault(weights_edited, "the gateway's weights are not the ones", ON),
    "canary deleted": Fault(canary_deleted, "somebody deleted the canary", OFF),
    "canary's Service deleted": Fault(
        canary_service_deleted, "somebody deleted the canary's Service", OFF, (ROUTE,)
    ),
    "another image rolled out": Fault(rolled_out, "rolled out another pod template", OFF, (STABLE,)),
    "ConfigMap edited during a promotion": Fault(
        configuration_edited,
        "somebody else changed ConfigMap vision-config",
        OFF,
        (CONFIGURATION,),
        moment="between stages",
    ),
    "workload deleted": Fault(workload_deleted, "Deployment prod/vision is gone", OFF, (STABLE,)),
    "namespace deleted": Fault(
        namespace_deleted,
        "not permitted: get on deployments.apps in namespace prod",
        OFF,
        (*ALL, CONFIGURATION),
    ),
    "autotuner uninstalled": Fault(uninstalled, "cancelled by an operator", OFF),
}
