"""All objects that a target's workload depends on, read once for the preflight; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.whereabouts import owner_of_pods, stable_pods, workload_of
from autotuner.domain.needs import Answer, Check
from autotuner.domain.permissions import Need, needs_of
from autotuner.domain.preflight import Facts, preflight
from autotuner.domain.target import Target
from autotuner.errors import Refused


def lacking(cluster: Cluster, namespace: str, needs: Sequence[Need]) -> dict[Need, str]:
    """Return the needs that are not permitted, each with the words of a refusal. Raises Unavailable."""
    found = {need: cluster.lacks(need.verb, need.kind, namespace) for need in needs}
    return {need: why for need, why in found.items() if why}


def require(cluster: Cluster, namespace: str, needs: Sequence[Need]) -> None:
    """Raise Refused naming every need that is not permitted and what it is for; raises Unavailable too."""
    lacks = [f"{why}, needed to {need.purpose}" for need, why in lacking(cluster, namespace, needs).items()]
    if lacks:
        raise Refused(f"{'; '.join(lacks)}; grant it to the service account")


def survey(cluster: Cluster, target: Target) -> tuple[Check, ...]:
    """Return what a study of the target would find; what is not permitted alone, when something is not.

    Raises NotFound without the workload, Refused, Unavailable.
    """
    workload = workload_of(target)
    space = workload.namespace
    lacks = lacking(cluster, space, needs_of(workload))
    if lacks:
        return tuple(
            Check("permission", Answer.NO, f"{why}, needed to {need.purpose}") for need, why in lacks.items()
        )
    owner = owner_of_pods(cluster, target)
    facts = Facts(
        workload=owner,
        pods=tuple(stable_pods(cluster, workload, owner)),
        service=cluster.find("Service", space, workload.service),
        route=cluster.find(workload.route.kind, space, workload.route.name),
        config_map=cluster.find("ConfigMap", space, workload.config_map) if workload.config_map else None,
        scalers=tuple(cluster.listed("HorizontalPodAutoscaler", space)),
        budgets=tuple(cluster.listed("PodDisruptionBudget", space)),
    )
    return preflight(target, facts)
