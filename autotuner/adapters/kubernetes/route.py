"""Weights at whatever object divides the traffic: read, changed under test, read back.

A change that meets somebody else's is tried again on what is there now; when that is not what we left, it is reported,
never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.whereabouts import workload_of
from autotuner.domain.manifests import Manifest, canary_name, canary_service
from autotuner.domain.route_shapes import (
    SHAPES,
    Operation,
    Place,
    canary_ingress,
    ingress_weights,
)
from autotuner.domain.target import Target
from autotuner.domain.workload import CANARY, STABLE, RouteKind
from autotuner.errors import Conflict, Refused

ATTEMPTS = 3
"""How often a change is tried on an object that others write to as well."""

OF_INGRESS = "ingress"
"""What is remembered of an Ingress: nothing in it is changed."""


class KubernetesRoute:
    """`Route` of one target, over any kind of route. Safe to use from several threads at once."""

    def __init__(self, cluster: Cluster, target: Target) -> None:
        self._cluster = cluster
        self._target = target
        self._workload = workload_of(target)
        self._name = canary_name(self._workload, target.name)
        self._place = Place(self._workload.service, self._name, target.gateway.total_weight)

    def weights(self) -> Mapping[str, int]:
        """Return the weight of each backend as the route has it now. Raises Unavailable, Refused."""
        if self._workload.route.kind is RouteKind.INGRESS:
            return ingress_weights(self._of_ours(), self._place)
        return SHAPES[self._workload.route.kind].weights(self.read(), self._workload, self._place)

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set all weights at once and read them back; idempotent. Raises Unavailable, Refused."""
        if set(weights) != {STABLE, CANARY}:
            raise Refused(f"the route's weights need one for {STABLE} and one for {CANARY}: {_list(weights)}")
        if min(weights.values()) < 0 or sum(weights.values()) != self._place.total:
            raise Refused(f"the route's weights must add up to {self._place.total}: {_list(weights)}")
        if self._workload.route.kind is RouteKind.INGRESS:
            self._weigh_ingress(weights)
        else:
            shape = SHAPES[self._workload.route.kind]
            self._change(lambda route: shape.weigh(route, self._workload, self._place, weights))
        held = self.weights()
        if held != weights:
            raise Refused(
                f"the route took other weights than it was given: {_list(held)} for {_list(weights)}"
            )

    def before(self) -> str:
        """Return what the route is like without a canary, as `dismiss` wants it. Raises Refused, Unavailable."""
        route = self.read()
        if self._workload.route.kind is RouteKind.INGRESS:
            return OF_INGRESS
        return SHAPES[self._workload.route.kind].before(route, self._workload, self._place)

    def admit(self, before: str, stable: Manifest, until: datetime) -> None:
        """Give the canary a place without traffic; idempotent. before: so that it is certain to be remembered."""
        if not before:
            raise Refused("the route is not changed before it is remembered what it was")
        if self._workload.route.kind is RouteKind.INGRESS:
            self._admit_to_ingress(stable, until)
            return
        shape = SHAPES[self._workload.route.kind]
        self._change(lambda route: shape.admit(route, self._workload, self._place))

    def dismiss(self, before: str) -> None:
        """Put back what was before; idempotent. An Ingress of ours goes with the canary's other objects."""
        if self._workload.route.kind is not RouteKind.INGRESS:
            shape = SHAPES[self._workload.route.kind]
            self._change(lambda route: shape.dismiss(route, self._workload, self._place, before))

    def _change(self, operations: Callable[[Manifest], Sequence[Operation]]) -> None:
        """Change the route by what `operations` makes of it, anew when it was changed meanwhile."""
        kind, name = self._workload.route.kind, self._workload.route.name
        for attempt in range(ATTEMPTS):
            wanted = operations(self.read())
            if not wanted:
                return
            try:
                self._cluster.patch(kind, self._workload.namespace, name, wanted)
                return
            except Conflict as conflict:
                if attempt == ATTEMPTS - 1:
                    why = f"{kind} {name} is changed by somebody else at the same time: {conflict}"
                    raise Refused(why) from conflict

    def read(self) -> Manifest:
        """Return the route as it is. Raises NotFound, Refused, Unavailable."""
        route = self._workload.route
        return self._cluster.get(route.kind, self._workload.namespace, route.name)

    def _of_ours(self) -> Manifest | None:
        return self._cluster.find("Ingress", self._workload.namespace, self._name)

    def _admit_to_ingress(self, stable: Manifest, until: datetime) -> None:
        if self._of_ours() is not None:
            return
        front = self._cluster.get("Service", self._workload.namespace, self._workload.service)
        metadata = canary_service(self._workload, self._target.name, stable, front, until)["metadata"]
        self._cluster.apply(canary_ingress(self.read(), self._place, metadata, 0))

    def _weigh_ingress(self, weights: Mapping[str, int]) -> None:
        ours = self._of_ours()
        if ours is None:
            raise Refused("the canary's Ingress is gone: somebody deleted it")
        kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
        metadata = {key: ours["metadata"][key] for key in kept}
        self._cluster.apply(canary_ingress(self.read(), self._place, metadata, weights[CANARY]))


def _list(weights: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {weight}" for name, weight in weights.items())
