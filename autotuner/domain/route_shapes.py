"""How each kind of route says what share the canary gets: what is read from it and the change that sets it.

The lists that hold weights are atomic in the schemas of the Gateway API and of Istio: to server-side apply whoever owns
one weight owns the whole route, and would have to take it from its owner by force. So these are changed by a JSON
patch that first tests that the list is still the one that was read: only numbers of ours change, and an edit of
somebody else is a conflict, never overwritten (guards rule 5). Where a route has an object of our own for the
canary, as ingress-nginx wants it, that object is applied and the other one left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotuner.domain.manifests import Manifest
from autotuner.domain.workload import CANARY, STABLE, RouteKind, Workload
from autotuner.errors import Refused

Operation = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""


@dataclass(frozen=True)
class Place:
    """Where a canary stands in a route: the stable Service, the canary's Service, and what all weights add up to."""

    stable: str
    canary: str
    total: int


class RouteShape(Protocol):
    """One kind of route whose own object holds the weights."""

    def weights(self, route: Manifest, workload: Workload, place: Place) -> dict[str, int]:
        """Return the weights by backend. Raises Refused when the route is not what it should be."""

    def admit(self, route: Manifest, workload: Workload, place: Place) -> list[Operation]:
        """Return the change that gives the canary a place without traffic; none when it has one. Raises Refused."""

    def weigh(
        self, route: Manifest, workload: Workload, place: Place, weights: Mapping[str, int]
    ) -> list[Operation]:
        """Return the change that sets the weights; none when they are set. Raises Refused."""

    def before(self, route: Manifest, workload: Workload, place: Place) -> str:
        """Return what the route is without a canary, as text. Raises Refused."""

    def dismiss(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:
        """Return the change that puts back what was before; none when no canary is in the route.

        before: empty when that is not known any more.
        """


@dataclass(frozen=True)
class WeightedList:
    """A route with a list of rules, each with a list of weighted backends.

    rules, backends: the names of these lists. name_of: where a backend says which Service it is.
    """

    kind: RouteKind
    rules: str
    backends: str
    name_of: tuple[str, ...]
    default_weight: int

    def weights(self, route: Manifest, workload: Workload, place: Place) -> dict[str, int]:
        """Return the weights by backend. Raises Refused when the route is not what it should be."""
        found = self._listed(route, workload)
        names = [self._name(each) for each in found]
        if names == [place.stable]:
            return {STABLE: self._weight(found[0])}
        self._check(workload, place, names)
        return {STABLE: self._weight(found[0]), CANARY: self._weight(found[1])}

    def admit(self, route: Manifest, workload: Workload, place: Place) -> list[Operation]:
        """Return the change that gives the canary a place without traffic; none when it has one. Raises Refused."""
        found = self._listed(route, workload)
        names = [self._name(each) for each in found]
        if names == [place.stable, place.canary]:
            return []
        if names != [place.stable]:
            raise Refused(
                f"{workload.route.kind} {workload.route.name} sends rule {workload.route.rule} to "
                f"{', '.join(names) or 'nothing'}: it must have {place.stable} as its only backend"
            )
        stable = {**found[0], "weight": place.total}
        canary = self._renamed({**found[0], "weight": 0}, place.canary)
        return self._exchanged(workload, found, [stable, canary])

    def weigh(
        self, route: Manifest, workload: Workload, place: Place, weights: Mapping[str, int]
    ) -> list[Operation]:
        """Return the change that sets the weights; none when they are set. Raises Refused."""
        found = self._listed(route, workload)
        self._check(workload, place, [self._name(each) for each in found])
        wanted = [weights[STABLE], weights[CANARY]]
        if [self._weight(each) for each in found] == wanted:
            return []
        path = self._path(workload)
        changes = [
            {"op": "add", "path": f"{path}/{number}/weight", "value": weight}
            for number, weight in enumerate(wanted)
        ]
        return [{"op": "test", "path": path, "value": found}, *changes]

    def before(self, route: Manifest, workload: Workload, place: Place) -> str:
        """Return the list of backends as it is. Raises Refused when the canary is in it already."""
        found = self._listed(route, workload)
        names = [self._name(each) for each in found]
        if names != [place.stable]:
            raise Refused(
                f"{workload.route.kind} {workload.route.name} sends rule {workload.route.rule} to "
                f"{', '.join(names) or 'nothing'}: it must have {place.stable} as its only backend"
            )
        return json.dumps(found, sort_keys=True)

    def dismiss(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:
        """Return the change that puts back what was before; none when no canary is in the route.

        Where somebody else has changed the list meanwhile, or it is not known any more what was before, only our own
        backend is taken out of it.
        """
        rules = route.get("spec", {}).get(self.rules, [])
        found: list[Manifest] = (
            rules[workload.route.rule].get(self.backends, []) if _has(rules, workload) else []
        )
        names = [self._name(each) for each in found]
        if place.canary not in names:
            return []
        if before and names == [place.stable, place.canary]:
            return self._exchanged(workload, found, json.loads(before))
        others = [each for each in found if self._name(each) != place.canary]
        return self._exchanged(workload, found, others)

    def _exchanged(
        self, workload: Workload, found: Sequence[Manifest], wanted: Sequence[Manifest]
    ) -> list[Operation]:
        path = self._path(workload)
        return [
            {"op": "test", "path": path, "value": list(found)},
            {"op": "replace", "path": path, "value": list(wanted)},
        ]

    def _path(self, workload: Workload) -> str:
        return f"/spec/{self.rules}/{workload.route.rule}/{self.backends}"

    def _listed(self, route: Manifest, workload: Workload) -> list[Manifest]:
        rules = route.get("spec", {}).get(self.rules, [])
        if not _has(rules, workload):
            raise Refused(f"{workload.route.kind} {workload.route.name} has no rule {workload.route.rule}")
        found: list[Manifest] = rules[workload.route.rule].get(self.backends, [])
        return found

    def _check(self, workload: Workload, place: Place, names: Sequence[str]) -> None:
        if list(names) == [place.stable]:
            raise Refused(f"{workload.route.kind} {workload.route.name} has no place for {place.canary}")
        if list(names) != [place.stable, place.canary]:
            raise Refused(
                f"somebody else changed {workload.route.kind} {workload.route.name}: rule "
                f"{workload.route.rule} goes to {', '.join(names) or 'nothing'} where it should go to "
                f"{place.stable} and {place.canary}"
            )

    def _name(self, backend: Manifest) -> str:
        value: Any = backend
        for key in self.name_of:
            value = value.get(key, {})
        return str(value or "").partition(".")[0]

    def _weight(self, backend: Manifest) -> int:
        return int(backend.get("weight", self.default_weight))

    def _renamed(self, backend: Manifest, name: str) -> dict[str, Any]:
        """A copy of a backend that means another Service; a host name keeps its domain."""
        *path, last = self.name_of
        made: dict[str, Any] = dict(backend)
        inner = made
        for key in path:
            inner[key] = dict(inner[key])
            inner = inner[key]
        domain = str(inner[last]).partition(".")[2]
        inner[last] = f"{name}.{domain}" if domain else name
        return made


def _has(rules: Sequence[Manifest], workload: Workload) -> bool:
    return workload.route.rule < len(rules)


SHAPES: Mapping[RouteKind, RouteShape] = {
    RouteKind.HTTP_ROUTE: WeightedList(RouteKind.HTTP_ROUTE, "rules", "backendRefs", ("name",), 1),
    RouteKind.GRPC_ROUTE: WeightedList(RouteKind.GRPC_ROUTE, "rules", "backendRefs", ("name",), 1),
    RouteKind.VIRTUAL_SERVICE: WeightedList(
        RouteKind.VIRTUAL_SERVICE, "http", "route", ("destination", "host"), 100
    ),
}
"""Kinds whose own object holds the weights; an Ingress has a second one of ours beside it, see `canary_ingress`."""

WEIGHT = "nginx.ingress.kubernetes.io/canary-weight"
WEIGHT_TOTAL = "nginx.ingress.kubernetes.io/canary-weight-total"
IS_CANARY = "nginx.ingress.kubernetes.io/canary"


def canary_ingress(stable: Manifest, place: Place, metadata: Manifest, weight: int) -> dict[str, Any]:
    """Return the second Ingress by which ingress-nginx gives the canary a share: all paths of the first one.

    metadata: as all objects of the canary have it. weight: out of `place.total`. Raises Refused when the first one
    does not send everything to the stable Service.
    """
    rules = [_redirected(rule, place) for rule in stable["spec"].get("rules", [])]
    if not rules or stable["spec"].get("defaultBackend"):
        raise Refused(f"Ingress {stable['metadata']['name']} must have rules and no default backend")
    annotations = {IS_CANARY: "true", WEIGHT: str(weight), WEIGHT_TOTAL: str(place.total)}
    spec = {key: stable["spec"][key] for key in ("ingressClassName", "tls") if key in stable["spec"]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {**metadata, "annotations": {**metadata["annotations"], **annotations}},
        "spec": {**spec, "rules": rules},
    }


def _redirected(rule: Manifest, place: Place) -> dict[str, Any]:
    paths = []
    for path in rule["http"]["paths"]:
        service = path["backend"].get("service", {})
        if service.get("name") != place.stable:
            raise Refused(f"an Ingress path goes to {service.get('name')}, not to {place.stable}")
        paths.append({**path, "backend": {"service": {**service, "name": place.canary}}})
    return {**rule, "http": {"paths": paths}}


def ingress_weights(canary: Manifest | None, place: Place) -> dict[str, int]:
    """Return the weights that the canary's Ingress means."""
    if canary is None:
        return {STABLE: place.total}
    weight = int(canary["metadata"].get("annotations", {}).get(WEIGHT, "0"))
    return {STABLE: place.total - weight, CANARY: weight}
