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
from dataclasses import dataclass, field
from typing import Any, Protocol

from autotuner.domain.manifests import Manifest
from autotuner.domain.workload import CANARY, STABLE, RouteKind, Workload
from autotuner.errors import Refused

Operation = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""


@dataclass(frozen=True)
class Place:
    """Where a canary stands in a route: what the route calls the stable pods and the canary, what weights add up to.

    labels: by which the canary's pods are found, where the route's controller makes them.
    """

    stable: str
    canary: str
    total: int
    labels: Mapping[str, str] = field(default_factory=dict)


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

    def finish(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:
        """Return what is left to change once the canary's pods are gone; none where dismissing was all.

        Raises Unavailable while the route's controller is not there yet.
        """


@dataclass(frozen=True)
class WeightedList:
    """A route with a list of rules, each with a list of weighted backends.

    rules, backends: the names of these lists; without rules there is one list of backends. name_of: where a backend
    says which Service it is. weight: what its weight is called.
    """

    kind: RouteKind
    rules: str
    backends: str
    name_of: tuple[str, ...]
    default_weight: int
    weight: str = "weight"

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
                f"{workload.route.kind} {workload.route.name} sends {self._what(workload)} to "
                f"{', '.join(names) or 'nothing'}: it must have {place.stable} as its only backend"
            )
        stable = {**found[0], self.weight: place.total}
        return self._exchanged(workload, found, [stable, self._beside(found[0], place)])

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
            {"op": "add", "path": f"{path}/{number}/{self.weight}", "value": weight}
            for number, weight in enumerate(wanted)
        ]
        return [{"op": "test", "path": path, "value": found}, *changes]

    def before(self, route: Manifest, workload: Workload, place: Place) -> str:
        """Return the list of backends as it is. Raises Refused when the canary is in it already."""
        found = self._listed(route, workload)
        names = [self._name(each) for each in found]
        if names != [place.stable]:
            raise Refused(
                f"{workload.route.kind} {workload.route.name} sends {self._what(workload)} to "
                f"{', '.join(names) or 'nothing'}: it must have {place.stable} as its only backend"
            )
        return json.dumps(found, sort_keys=True)

    def dismiss(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:
        """Return the change that puts back what was before; none when no canary is in the route.

        Where somebody else has changed the list meanwhile, or it is not known any more what was before, only our own
        backend is taken out of it.
        """
        there = not self.rules or _has(route.get("spec", {}).get(self.rules, []), workload)
        found = self._listed(route, workload) if there else []
        names = [self._name(each) for each in found]
        if place.canary not in names:
            return []
        if before and names == [place.stable, place.canary]:
            return self._exchanged(workload, found, json.loads(before))
        others = [each for each in found if self._name(each) != place.canary]
        return self._exchanged(workload, found, others)

    def finish(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:  # noqa: ARG002 - of every shape
        """Nothing is left to change."""
        return []

    def _exchanged(
        self, workload: Workload, found: Sequence[Manifest], wanted: Sequence[Manifest]
    ) -> list[Operation]:
        path = self._path(workload)
        return [
            {"op": "test", "path": path, "value": list(found)},
            {"op": "replace", "path": path, "value": list(wanted)},
        ]

    def _path(self, workload: Workload) -> str:
        rule = f"{self.rules}/{workload.route.rule}/" if self.rules else ""
        return f"/spec/{rule}{self.backends}"

    def _what(self, workload: Workload) -> str:
        return f"rule {workload.route.rule}" if self.rules else "everything"

    def _listed(self, route: Manifest, workload: Workload) -> list[Manifest]:
        if not self.rules:
            listed: list[Manifest] = route.get("spec", {}).get(self.backends, [])
            return listed
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
                f"somebody else changed {workload.route.kind} {workload.route.name}: {self._what(workload)} "
                f"goes to {', '.join(names) or 'nothing'} where it should go to {place.stable} and {place.canary}"
            )

    def _name(self, backend: Manifest) -> str:
        value: Any = backend
        for key in self.name_of:
            value = value.get(key, {})
        return str(value or "").partition(".")[0]

    def _weight(self, backend: Manifest) -> int:
        return int(backend.get(self.weight, self.default_weight))

    def _beside(self, backend: Manifest, place: Place) -> dict[str, Any]:
        """A copy of a backend that means the canary, without traffic; a host name keeps its domain."""
        *path, last = self.name_of
        made: dict[str, Any] = {**backend, self.weight: 0}
        inner = made
        for key in path:
            inner[key] = dict(inner[key])
            inner = inner[key]
        domain = str(inner[last]).partition(".")[2]
        inner[last] = f"{place.canary}.{domain}" if domain else place.canary
        return made


def _has(rules: Sequence[Manifest], workload: Workload) -> bool:
    return workload.route.rule < len(rules)


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


def shared_weights(stable: int, behind: int, total: int) -> dict[str, int]:
    """Return the weights that a Service without weights means: every ready pod behind it gets as much as any other.

    stable, behind: how many pods of each. total: what the weights add up to.
    """
    canary = round(total * behind / (stable + behind)) if behind else 0
    return {STABLE: total - canary, CANARY: canary}


def labelling(pod: Manifest, selector: Mapping[str, str], *, behind: bool) -> list[Operation]:
    """Return the change that puts a pod behind the Service with this selector, or takes it away; none when it is so."""
    labels = pod["metadata"].get("labels") or {}
    changes: list[Operation] = []
    for key, value in selector.items():
        path = "/metadata/labels/" + key.replace("~", "~0").replace("/", "~1")
        if behind and labels.get(key) != value:
            changes.append({"op": "add", "path": path, "value": value})
        elif not behind and labels.get(key) == value:
            changes += [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
    return changes
