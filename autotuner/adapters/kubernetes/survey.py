"""All objects that a target's workload depends on, read once for the preflight; nothing is changed."""

from __future__ import annotations

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.whereabouts import stable_pods, workload_of
from autotuner.domain.preflight import Facts, Finding, preflight
from autotuner.domain.target import Target


def survey(cluster: Cluster, target: Target) -> tuple[Finding, ...]:
    """Return what a study of the target would find. Raises NotFound without the workload, Refused, Unavailable."""
    workload = workload_of(target)
    space = workload.namespace
    owner = cluster.get(workload.kind, space, workload.name)
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
