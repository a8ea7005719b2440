"""Which pods a target's replicas are at this moment, and what a replica without a ready pod is waiting for.

Replicas keep their names, pods do not: `stable-0` is the oldest pod of the workload. Their number is part of what a
study began with: while there are more or fewer the windows are void, because somebody scales or a pod is replaced.
Those that are left of fewer can still be put right; which of more are the study's own is not known.
When the API server does not answer, pods stay where they were seen last: users are served by them, not by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.domain.manifests import Manifest, canary_labels, canary_name, is_of_canary, provenance_of
from autotuner.domain.measurement import Sample
from autotuner.domain.pod_status import is_ready, running_since, waits_for
from autotuner.domain.provenance import UNKNOWN, Provenance
from autotuner.domain.serving_shapes import as_workload
from autotuner.domain.target import Replica, Target
from autotuner.domain.workload import CANARY, Workload
from autotuner.errors import AutotunerError, Unavailable
from autotuner.ports import Clock, MetricsSource

FRESH_FOR = timedelta(milliseconds=400)
"""Pods are asked for once for all reads of one look."""

REMEMBERED_FOR = timedelta(minutes=2)
"""How long pods are believed to be where they were while the API server does not answer."""


@dataclass(frozen=True)
class Found:
    """Where replicas are, why those that are nowhere are not, what their pods run and since when: by replica name."""

    target: Target
    faults: Mapping[str, str] = field(default_factory=dict)
    provenances: Mapping[str, Provenance] = field(default_factory=dict)
    started: Mapping[str, datetime] = field(default_factory=dict)


def workload_of(target: Target) -> Workload:
    """Return where a target runs; asking that of a target of static endpoints is a mistake of ours."""
    assert target.workload is not None
    return target.workload


def owner_of_pods(cluster: Cluster, target: Target) -> Manifest:
    """Return the workload of a target, with its pods' selector and template. Raises NotFound, Unavailable, Refused."""
    workload = workload_of(target)
    found = cluster.get(workload.kind, workload.namespace, workload.name)
    return as_workload(workload, target.name, found)


def stable_pods(cluster: Cluster, workload: Workload, stable: Manifest) -> list[Manifest]:
    """Return the ready pods of a workload, oldest first. Raises Unavailable, Refused.

    A canary may carry the same labels: where its route has no weights, or its pods are made as production's are.
    """
    pods = cluster.listed("Pod", workload.namespace, stable["spec"]["selector"]["matchLabels"])
    return sorted((pod for pod in pods if is_ready(pod) and not is_of_canary(pod)), key=_age)


def _age(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


class Whereabouts:
    """The pods of one target. Safe to use from several threads at once."""

    def __init__(self, cluster: Cluster, target: Target, clock: Clock) -> None:
        self._cluster = cluster
        self._target = self.target = target
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[datetime, Found] | None = None

    def now(self) -> Found:
        """Return where everything is. Raises Unavailable when that was not known lately either."""
        with self._lock:
            at = self._clock.now()
            if self._seen is not None and at - self._seen[0] < FRESH_FOR:
                return self._seen[1]
            try:
                found = self._look()
            except Unavailable:
                if self._seen is None or at - self._seen[0] >= REMEMBERED_FOR:
                    raise
                return self._seen[1]
            self._seen = (at, found)
            return found

    def located(self, name: str) -> Target:
        """Return the target with its present addresses. Raises Unavailable when the replica `name` has no pod."""
        self._target.replica(name)
        found = self.now()
        if name in found.faults:
            raise Unavailable(f"triton {name}", found.faults[name])
        return found.target

    def provenance(self, name: str) -> Provenance:
        """Return what the pod of a replica tells of what it runs. Raises Unavailable."""
        return self.now().provenances.get(name, UNKNOWN)

    def started(self) -> Mapping[str, datetime]:
        """Return since when the server of each stable replica runs; those without a ready pod are left out."""
        return self.now().started

    def _look(self) -> Found:
        faults: dict[str, str] = {}
        pods: dict[str, Manifest] = {}
        stable = self._stable(faults, pods)
        container = workload_of(self._target).container
        began = {name: running_since(pod, container) for name, pod in pods.items()}
        started = {name: at for name, at in began.items() if at is not None}
        canary = self._canary(faults, pods)
        provenances = {name: provenance_of(pod, container) for name, pod in pods.items()}
        return Found(replace(self._target, stable=stable, canary=canary), faults, provenances, started)

    def _stable(self, faults: dict[str, str], found: dict[str, Manifest]) -> tuple[Replica, ...]:
        workload, wanted = workload_of(self._target), self._target.stable
        owner = owner_of_pods(self._cluster, self._target)
        pods = stable_pods(self._cluster, workload, owner)
        missing = wanted[len(pods) :] if len(pods) <= len(wanted) else wanted
        if len(pods) != len(wanted):
            why = f"{workload} has {len(pods)} ready pods where this target has {len(wanted)}"
            faults |= {replica.name: why for replica in missing}
        there = wanted[: len(wanted) - len(missing)]
        found |= {replica.name: pod for replica, pod in zip(there, pods, strict=False)}
        return (*(at_pod(replica, found[replica.name], workload) for replica in there), *missing)

    def _canary(self, faults: dict[str, str], found: dict[str, Manifest]) -> Replica:
        workload, replica = workload_of(self._target), self._target.canary
        pods = self._cluster.listed("Pod", workload.namespace, canary_labels(self._target.name))
        pods = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        newest = max(pods, key=_age, default=None)
        if newest is not None and is_ready(newest):
            found[replica.name] = newest
            return at_pod(replica, newest, workload)
        faults[replica.name] = waits_for(newest, self._events(workload, newest))
        return replica

    def _events(self, workload: Workload, pod: Manifest | None) -> list[Manifest]:
        name = canary_name(workload, self._target.name)
        events = self._cluster.selected("Event", workload.namespace, "")
        mine = pod["metadata"]["name"] if pod is not None else name
        about = [e for e in events if str(e["involvedObject"].get("name", "")).startswith(mine)]
        return sorted(about, key=lambda event: event["metadata"]["creationTimestamp"])


def at_pod(replica: Replica, pod: Manifest, workload: Workload) -> Replica:
    """Return a replica with the addresses of a pod."""
    host = pod["status"]["podIP"]
    host = f"[{host}]" if ":" in host else host
    return replace(
        replica,
        http_url=f"http://{host}:{workload.ports.http}",
        metrics_url=f"http://{host}:{workload.ports.metrics}/metrics",
        pod=pod["metadata"]["name"],
    )


class LocatedMetrics:
    """`MetricsSource` of a target whose replicas are pods. make: the source of a target with addresses."""

    def __init__(
        self, whereabouts: Whereabouts, make: Callable[[Target], MetricsSource], clock: Clock
    ) -> None:
        self._whereabouts = whereabouts
        self._make = make
        self._clock = clock
        self._made: tuple[Target, MetricsSource] | None = None

    def sample(self) -> Sample:
        """Read everything once; a replica without a pod is absent and explained. Never raises."""
        try:
            found = self._whereabouts.now()
        except AutotunerError as error:
            return Sample(self._clock.now(), (), {}, {}, {"metrics": str(error)})
        if set(found.faults) >= {replica.name for replica in self._whereabouts.target.replicas}:
            why = "there is no pod whose counters could be read"
            return Sample(self._clock.now(), (), {}, {}, {"gateway": why, **found.faults})
        if self._made is None or self._made[0] != found.target:
            self._made = (found.target, self._make(found.target))
        sample = self._made[1].sample()
        servers = {name: each for name, each in sample.servers.items() if name not in found.faults}
        gateway = dict(sample.gateway)
        if CANARY in found.faults:
            gateway.pop(CANARY, None)
        return replace(sample, servers=servers, gateway=gateway, faults={**sample.faults, **found.faults})
