# ruff: noqa: ARG002 - the arguments are those of every way
"""The ways in which an object divides the traffic: its own weights, an object of ours beside it, or pods behind it.

A change that meets somebody else's is tried again on what is there now; when that is not what we left, it is reported,
never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.whereabouts import owner_of_pods, stable_pods
from autotuner.domain.manifests import Manifest, canary_labels, canary_name, canary_service
from autotuner.domain.pod_status import is_ready
from autotuner.domain.route_shapes import (
    Operation,
    Place,
    RouteShape,
    canary_ingress,
    ingress_weights,
    labelling,
    shared_weights,
)
from autotuner.domain.serving_shapes import SHAPES
from autotuner.domain.target import Target
from autotuner.domain.workload import CANARY, STABLE, RouteKind, Workload
from autotuner.errors import Conflict, Refused, Unavailable

ATTEMPTS = 3
"""How often a change is tried on an object that others write to as well."""

OF_INGRESS, OF_SERVICE = "ingress", "service"
"""What is remembered of an Ingress and of a Service: nothing in them is changed."""


class Way(Protocol):
    """One way of dividing the traffic. All raise Refused, Unavailable."""

    def weights(self) -> dict[str, int]:
        """Return the weight of each backend as it is now."""

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Set the weights; idempotent."""

    def before(self) -> str:
        """Return what the route is like without a canary."""

    def admit(self, stable: Manifest, until: datetime) -> None:
        """Give the canary a place without traffic; idempotent."""

    def dismiss(self, before: str) -> None:
        """Put back what was before; idempotent."""


@dataclass(frozen=True)
class Site:
    """One target's route on its cluster."""

    cluster: Cluster
    target: Target
    workload: Workload
    place: Place

    def route(self) -> Manifest:
        """Return the route's object."""
        route = self.workload.route
        return self.cluster.get(route.kind, self.workload.namespace, route.name)

    def canary_pods(self) -> list[Manifest]:
        """Return the canary's pods that are not on their way out."""
        found = self.cluster.listed("Pod", self.workload.namespace, canary_labels(self.target.name))
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def way_of(cluster: Cluster, target: Target, workload: Workload) -> Way:
    """Return how the route of a target divides the traffic."""
    name = canary_name(workload, target.name)
    place = Place(workload.backend, name, target.gateway.total_weight, canary_labels(target.name))
    site = Site(cluster, target, workload, place)
    if workload.route.kind is RouteKind.INGRESS:
        return BesideIngress(site)
    if workload.route.kind is RouteKind.SERVICE:
        return BehindService(site)
    return OwnWeights(site, SHAPES[workload.route.kind])


@dataclass(frozen=True)
class OwnWeights:
    """A route whose own object holds the weights."""

    site: Site
    shape: RouteShape

    def weights(self) -> dict[str, int]:
        """Return the weights that the object has."""
        return self.shape.weights(self.site.route(), self.site.workload, self.site.place)

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Change the weights in the object."""
        self._change(lambda route: self.shape.weigh(route, self.site.workload, self.site.place, weights))

    def before(self) -> str:
        """Return what will be changed, as it is."""
        return self.shape.before(self.site.route(), self.site.workload, self.site.place)

    def admit(self, stable: Manifest, until: datetime) -> None:
        """Add the canary to the object."""
        self._change(lambda route: self.shape.admit(route, self.site.workload, self.site.place))

    def dismiss(self, before: str) -> None:
        """Put back what was changed, in two steps where the canary's pods come from the object itself."""
        workload, place = self.site.workload, self.site.place
        self._change(lambda route: self.shape.dismiss(route, workload, place, before))
        if not workload.route.kind.makes_canary:
            return
        if self.shape.finish(self.site.route(), workload, place, before) and self.site.canary_pods():
            raise Unavailable(str(workload.route.kind), "the canary's pods are not gone yet")
        self._change(lambda route: self.shape.finish(route, workload, place, before))

    def _change(self, operations: Callable[[Manifest], Sequence[Operation]]) -> None:
        """Change the route by what `operations` makes of it, anew when it was changed meanwhile."""
        workload = self.site.workload
        kind, name = workload.route.kind, workload.route.name
        for attempt in range(ATTEMPTS):
            wanted = operations(self.site.route())
            if not wanted:
                return
            try:
                self.site.cluster.patch(kind, workload.namespace, name, wanted)
                return
            except Conflict as conflict:
                if attempt == ATTEMPTS - 1:
                    why = f"{kind} {name} is changed by somebody else at the same time: {conflict}"
                    raise Refused(why) from conflict


@dataclass(frozen=True)
class BesideIngress:
    """An Ingress, with a second one of ours for ingress-nginx. It goes with the canary's other objects."""

    site: Site

    def weights(self) -> dict[str, int]:
        """Return the weights that our Ingress means."""
        return ingress_weights(self._ours(), self.site.place)

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Apply our Ingress with the weight."""
        ours = self._ours()
        if ours is None:
            raise Refused("the canary's Ingress is gone: somebody deleted it")
        kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
        metadata = {key: ours["metadata"][key] for key in kept}
        made = canary_ingress(self.site.route(), self.site.place, metadata, weights[CANARY])
        self.site.cluster.apply(made)

    def before(self) -> str:
        """Nothing is changed in it; raises when there is none."""
        self.site.route()
        return OF_INGRESS

    def admit(self, stable: Manifest, until: datetime) -> None:
        """Apply our Ingress without traffic."""
        if self._ours() is not None:
            return
        site, workload = self.site, self.site.workload
        front = site.cluster.get("Service", workload.namespace, workload.service)
        metadata = canary_service(workload, site.target.name, stable, front, until)["metadata"]
        site.cluster.apply(canary_ingress(site.route(), site.place, metadata, 0))

    def dismiss(self, before: str) -> None:
        """Leave it to the removal of the canary's other objects."""

    def _ours(self) -> Manifest | None:
        return self.site.cluster.find("Ingress", self.site.workload.namespace, self.site.place.canary)


@dataclass(frozen=True)
class BehindService:
    """The stable Service itself: the canary's pod gets the labels that it selects, and so one pod's share, or not."""

    site: Site

    def weights(self) -> dict[str, int]:
        """Return the weights that the pods behind the Service mean."""
        site = self.site
        if site.cluster.find("Service", site.workload.namespace, site.place.canary) is None:
            return {STABLE: site.place.total}
        selector = self._selector()
        behind = [pod for pod in site.canary_pods() if is_ready(pod) and _has(pod, selector)]
        owner = owner_of_pods(site.cluster, site.target)
        return shared_weights(
            len(stable_pods(site.cluster, site.workload, owner)), len(behind), site.place.total
        )

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Put the canary's pods behind the Service, or take them away from it."""
        total = self.site.place.total
        possible = shared_weights(len(self.site.target.stable), 1, total)[CANARY]
        if weights[CANARY] not in (0, possible):
            raise Refused(
                f"Service {self.site.workload.service} has no weights: with one canary beside "
                f"{len(self.site.target.stable)} pods it gives 0 or {possible} of {total}, not {weights[CANARY]}"
            )
        selector = self._selector()
        for pod in self.site.canary_pods():
            changes = labelling(pod, selector, behind=weights[CANARY] > 0)
            if changes:
                name = pod["metadata"]["name"]
                self.site.cluster.patch("Pod", self.site.workload.namespace, name, changes)

    def before(self) -> str:
        """Nothing is changed in it; raises when it selects nothing."""
        self._selector()
        return OF_SERVICE

    def admit(self, stable: Manifest, until: datetime) -> None:
        """A canary's pod has none of the labels to begin with."""

    def dismiss(self, before: str) -> None:
        """Take the canary's pods away from it, before they are removed."""
        selector = self._selector()
        for pod in self.site.canary_pods():
            changes = labelling(pod, selector, behind=False)
            if changes:
                name = pod["metadata"]["name"]
                self.site.cluster.patch("Pod", self.site.workload.namespace, name, changes)

    def _selector(self) -> Mapping[str, str]:
        workload = self.site.workload
        service = self.site.cluster.get("Service", workload.namespace, workload.service)
        selector: Mapping[str, str] = service["spec"].get("selector") or {}
        if not selector:
            raise Refused(f"Service {workload.service} selects no pods")
        return selector


def _has(pod: Manifest, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (pod["metadata"].get("labels") or {}).items()
