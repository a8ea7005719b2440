"""The canary of one workload: put up before a study, taken down after it, and what production looked like meanwhile.

Everything is applied under deterministic names, in an order in which each object remembers what is needed to undo the
next one: what the route was like is written to our Service before the route is touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.production import put_text_back
from autotuner.adapters.kubernetes.route import KubernetesRoute
from autotuner.adapters.kubernetes.survey import require
from autotuner.adapters.kubernetes.whereabouts import owner_of_pods, stable_pods, workload_of
from autotuner.domain.manifests import (
    ROUTE_BEFORE,
    TEMPLATE,
    Manifest,
    canary_deployment,
    canary_name,
    canary_service,
    running_images,
    template_digest,
)
from autotuner.domain.permissions import needs_of_study
from autotuner.domain.preflight import Facts, blocking, git_owner
from autotuner.domain.target import Target
from autotuner.errors import NotFound, Refused
from autotuner.ports import Clock

MADE_OF = ("Ingress", "Deployment", "Service", "ConfigMap")
"""Kinds of the objects that a canary is made of, in the order in which they are removed."""


class KubernetesCanary:
    """`Canary` beside one workload. Safe to use from several threads at once."""

    def __init__(self, cluster: Cluster, target: Target, route: KubernetesRoute, clock: Clock) -> None:
        self._cluster = cluster
        self._target = target
        self._workload = workload_of(target)
        self._route = route
        self._clock = clock
        self._name = canary_name(self._workload, target.name)

    def put_up(self) -> None:
        """Make the canary and its place in the route; idempotent, does not wait for it. Raises Refused, Unavailable."""
        workload, target, cluster = self._workload, self._target, self._cluster
        require(cluster, workload.namespace, needs_of_study(workload))
        stable = self._stable()
        pods = stable_pods(cluster, workload, stable)
        self._check(stable, pods)
        until = self._clock.now() + workload.ttl
        self._put_up_service(stable, until)
        if not workload.route.kind.makes_canary:
            cluster.apply(canary_deployment(workload, target.name, stable, running_images(pods), until))
        self._route.admit(self._route_before(), stable, until)

    def _check(self, stable: Manifest, pods: list[Manifest]) -> None:
        wrong = blocking(self._target, Facts(workload=stable, pods=tuple(pods)))
        if wrong:
            raise Refused("; ".join(wrong))
        if len(pods) != len(self._target.stable):
            raise Refused(
                f"{self._workload} has {len(pods)} ready pods where this target has {len(self._target.stable)}: "
                "set kubernetes.replicas to it"
            )

    def _put_up_service(self, stable: Manifest, until: datetime) -> None:
        workload, cluster = self._workload, self._cluster
        front = cluster.get("Service", workload.namespace, workload.service)
        made = canary_service(workload, self._target.name, self._route.read(), front, until)
        before = self._route_before() or self._route.before()
        made["metadata"]["annotations"] |= {ROUTE_BEFORE: before, TEMPLATE: template_digest(stable)}
        cluster.apply(made)

    def _route_before(self) -> str:
        service = self._cluster.find("Service", self._workload.namespace, self._name)
        found = service["metadata"].get("annotations", {}) if service is not None else {}
        return str(found.get(ROUTE_BEFORE, ""))

    def take_down(self, *, give_back: bool = False) -> None:
        """Remove all that `put_up` made and give the route back as it was; idempotent. Raises Unavailable, Refused.

        give_back: whether the text that pods start with is put back too, as it was kept before a promotion.
        Nothing is left to do when the workload's namespace or route went with it.
        """
        self._dismiss(self._route_before())
        if give_back:
            put_text_back(self._cluster, self._target)
        for made in self._made():
            self._cluster.delete(made)

    def _made(self) -> Iterator[Manifest]:
        """What there is of the canary's objects, in the order in which it is removed."""
        for kind in MADE_OF:
            made = self._cluster.find(kind, self._workload.namespace, self._name)
            if made is not None:
                yield made

    def _dismiss(self, before: str) -> None:
        """Put the route back; a refusal is passed over where nothing was made, as then the route was never touched."""
        try:
            self._route.dismiss(before)
        except NotFound:
            return
        except Refused:
            if before or any(self._made()):
                raise

    def objection(self) -> str:
        """Return why production is not what the study began with; empty while it is. Raises Unavailable, Refused."""
        try:
            stable = self._stable()
        except NotFound:
            return f"{self._workload} is gone"
        of = "Service" if self._workload.route.kind.makes_canary else "Deployment"
        made = self._cluster.find(of, self._workload.namespace, self._name)
        if made is None:
            return "somebody deleted the canary"
        if self._cluster.find("Service", self._workload.namespace, self._name) is None:
            return "somebody deleted the canary's Service"
        if stable["metadata"].get("deletionTimestamp"):
            return f"{self._workload} is being deleted"
        then = made["metadata"].get("annotations", {}).get(TEMPLATE, "")
        if then and then != template_digest(stable):
            return f"somebody rolled out another pod template of {self._workload}: {_images(stable)}"
        return ""

    def keeper(self) -> str:
        """Return which GitOps tool owns the ConfigMap that production starts with. Raises Unavailable, Refused."""
        workload = self._workload
        if not workload.config_map:
            return ""
        found = self._cluster.find("ConfigMap", workload.namespace, workload.config_map)
        owner = git_owner(found) if found is not None else ""
        return f"ConfigMap {workload.config_map} is owned by {owner}" if owner else ""

    def _stable(self) -> Manifest:
        return owner_of_pods(self._cluster, self._target)


def _images(stable: Manifest) -> str:
    containers = stable["spec"]["template"]["spec"].get("containers", [])
    found = {each["name"]: each.get("image", "") for each in containers}
    return json.dumps(found)
