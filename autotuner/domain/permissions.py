"""What a service account must be allowed on a cluster, and what each permission is for.

The chart's role is compared with this list: a permission that nothing needs is not asked for, and one that is missing
is named, with what it is for, before a canary is put up. A study that could not take its canary down does not begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain.workload import RouteKind, Workload


@dataclass(frozen=True)
class Need:
    """One verb on one kind of object. purpose: what cannot be done without it."""

    verb: str
    kind: str
    purpose: str


def needs_of_study(workload: Workload) -> tuple[Need, ...]:
    """Return what studies of a workload need, each once: a workload of KServe is its own route."""
    needs = (
        Need("list", "Pod", "find the replicas"),
        Need("list", "Event", "say what a canary waits for"),
        *_needs_of_workload(workload),
        *_needs_of_route(workload.route.kind),
        *CANARY,
        *CONFIGURATION,
    )
    once = {(need.verb, str(need.kind)): need for need in reversed(needs)}
    return tuple(reversed(once.values()))


CANARY = (
    Need("create", "Deployment", "make the canary"),
    Need("patch", "Deployment", "make the canary again as it should be"),
    Need("delete", "Deployment", "take the canary down"),
    Need("get", "Service", "read what stands in front of the replicas"),
    Need("create", "Service", "give the canary an address"),
    Need("patch", "Service", "remember what the route was"),
    Need("delete", "Service", "take the canary's address away"),
)

CONFIGURATION = (
    Need("get", "ConfigMap", "read what replicas start with"),
    Need("create", "ConfigMap", "keep what replicas start with before it is changed"),
    Need("patch", "ConfigMap", "promote a configuration"),
    Need("delete", "ConfigMap", "remove what was kept of a configuration"),
)

NEEDS_OF_PREFLIGHT = (
    Need("list", "HorizontalPodAutoscaler", "warn of an autoscaler"),
    Need("list", "PodDisruptionBudget", "say which disruption budgets there are"),
)

NEEDS_OF_REAPER = tuple(
    Need("list", kind, f"find {what} past its time")
    for kind, what in (
        ("Ingress", "a canary's Ingress"),
        ("Deployment", "a canary"),
        ("Service", "a canary's Service"),
        ("ConfigMap", "what was kept of a configuration"),
    )
)


def needs_of(workload: Workload) -> tuple[Need, ...]:
    """Return everything that is needed for a workload: by its studies, the preflight and the reaper."""
    return (*needs_of_study(workload), *NEEDS_OF_PREFLIGHT, *NEEDS_OF_REAPER)


def _needs_of_workload(workload: Workload) -> tuple[Need, ...]:
    kinds = dict.fromkeys((str(workload.kind), "Deployment"))
    purposes = {"Deployment": "read the workload and the canary"}
    return tuple(Need("get", kind, purposes.get(kind, "read the workload")) for kind in kinds)


def _needs_of_route(kind: RouteKind) -> tuple[Need, ...]:
    beside = Need("get", "Ingress", "look for an Ingress of the canary")
    if kind is RouteKind.SERVICE:
        return (Need("patch", "Pod", "put the canary's pod behind the Service"), beside)
    if kind is not RouteKind.INGRESS:
        return (Need("get", kind, "read the route"), Need("patch", kind, "divide the traffic"), beside)
    return (
        beside,
        Need("create", "Ingress", "give the canary a place in the route"),
        Need("patch", "Ingress", "divide the traffic"),
        Need("delete", "Ingress", "take the canary out of the route"),
    )
