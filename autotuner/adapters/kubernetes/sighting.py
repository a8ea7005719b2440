"""Where a target's stable pods are at this moment and what divides its traffic, for a diagnosis; nothing is changed."""

from __future__ import annotations

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.route import KubernetesRoute
from autotuner.adapters.kubernetes.whereabouts import at_pod, owner_of_pods, stable_pods, workload_of
from autotuner.domain.findings.reading import RouteSeen, Unread
from autotuner.domain.pod_status import waits_for
from autotuner.domain.target import Replica, Target
from autotuner.domain.workload import STABLE
from autotuner.errors import NotFound, Refused, Unavailable


def ready_pods(cluster: Cluster, target: Target) -> tuple[Replica, ...]:
    """Return the ready pods of a target's workload, oldest first, however many they are.

    Raises NotFound without the workload, Refused naming the permission that is missing, Unavailable without a pod.
    """
    workload = workload_of(target)
    owner = owner_of_pods(cluster, target)
    pods = stable_pods(cluster, workload, owner)
    if not pods:
        every = cluster.listed("Pod", workload.namespace, owner["spec"]["selector"]["matchLabels"])
        why = waits_for(every[0] if every else None)
        raise Unavailable("kubernetes", f"{workload} has no ready pod: {why}")
    return tuple(
        at_pod(Replica(pod["metadata"]["name"], "", "", backend=STABLE), pod, workload) for pod in pods
    )


def route_seen(cluster: Cluster, target: Target) -> RouteSeen:
    """Return what the route gives the stable pods and whether its weights can be set; never raises.

    What may not be read is told with the permission that is missing.
    """
    workload = workload_of(target)
    named = f"{workload.route.kind} {workload.namespace}/{workload.route.name}"
    try:
        cluster.get(workload.route.kind, workload.namespace, workload.route.name)
    except NotFound:
        return RouteSeen(False, f"there is no {named}")
    except (Refused, Unavailable) as error:
        lost = "which share of the traffic it has, and whether weights can be set"
        return RouteSeen(None, f"{named} could not be read", (Unread(named, str(error), lost),))
    try:
        weights = KubernetesRoute(cluster, target).weights()
    except (Refused, Unavailable) as error:
        return RouteSeen(False, str(error))
    if not workload.route.kind.has_weights:
        return RouteSeen(
            True, f"{named} has no weights: a canary gets one pod's share of the requests, or none"
        )
    told = ", ".join(f"{name} {weight}" for name, weight in weights.items())
    return RouteSeen(True, f"{named}, rule {workload.route.rule}, with the weights {told}")
