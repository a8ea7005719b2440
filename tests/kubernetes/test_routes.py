"""One suite for every kind of route, on a real API server with the published schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.kubernetes import Cluster, KubernetesCanary, KubernetesRoute
from autotuner.domain.target import Target
from autotuner.domain.workload import RouteKind, RouteReference
from autotuner.errors import Refused
from autotuner.target_file import parse_target_file
from tests.cluster.team import NAME, NAMESPACE, ROUTE, ROUTES
from tests.kubernetes.api import ApiError
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import Town

GROUPS = {
    RouteKind.HTTP_ROUTE: "apis/gateway.networking.k8s.io/v1",
    RouteKind.GRPC_ROUTE: "apis/gateway.networking.k8s.io/v1",
    RouteKind.VIRTUAL_SERVICE: "apis/networking.istio.io/v1",
    RouteKind.INGRESS: "apis/networking.k8s.io/v1",
}
PLURALS = {
    RouteKind.HTTP_ROUTE: "httproutes",
    RouteKind.GRPC_ROUTE: "grpcroutes",
    RouteKind.VIRTUAL_SERVICE: "virtualservices",
    RouteKind.INGRESS: "ingresses",
}
SERVICE = {"service": {"name": NAME, "port": {"number": 8000}}}
PATHS = [{"path": "/", "pathType": "Prefix", "backend": SERVICE}]
OTHERS: dict[RouteKind, dict[str, Any]] = {
    RouteKind.GRPC_ROUTE: {**ROUTE, "kind": "GRPCRoute"},
    RouteKind.VIRTUAL_SERVICE: {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": NAME},
        "spec": {
            "hosts": [NAME],
            "http": [{"route": [{"destination": {"host": f"{NAME}.{NAMESPACE}.svc"}}]}],
        },
    },
    RouteKind.INGRESS: {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": NAME},
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{"host": "vision.example", "http": {"paths": PATHS}}],
        },
    },
}


class Rig:
    """One kind of route in one town."""

    def __init__(self, town: Town, cluster: Cluster, kind: RouteKind) -> None:
        found = parse_target_file(town.target()).target()
        assert found.workload is not None
        workload = replace(found.workload, route=RouteReference(kind, NAME))
        self.target: Target = replace(found, workload=workload)
        self.town = town
        self.path = f"/{GROUPS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}/{NAME}"
        self.route = KubernetesRoute(cluster, self.target)
        self.canary = KubernetesCanary(cluster, self.target, self.route, SystemClock())

    def spec(self) -> Any:
        return self.town.api.get(self.path)["spec"]


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with Town(control_plane.api, tmp_path_factory.mktemp("town")).standing() as standing:
        for kind, manifest in OTHERS.items():
            path = f"/{GROUPS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}"
            standing.api.create(path, manifest)
        yield standing


@pytest.fixture(params=list(RouteKind))
def rig(request: pytest.FixtureRequest, town: Town, control_plane: ControlPlane) -> Iterator[Rig]:
    made = Rig(town, Cluster(str(control_plane.kubeconfig)), request.param)
    found = made.spec()
    yield made
    made.canary.take_down()
    if made.spec() != found:
        town.api.merge(made.path, {"spec": found})


def test_before_a_canary_everything_is_stable(rig: Rig) -> None:
    assert set(rig.route.weights()) == {"stable"}


def test_a_canary_is_admitted_without_traffic_and_twice_is_once(rig: Rig) -> None:
    for _ in range(2):
        rig.canary.put_up()
        assert rig.route.weights() == {"stable": 1000, "canary": 0}


def test_weights_are_read_back_as_set_and_may_be_set_twice(rig: Rig) -> None:
    rig.canary.put_up()
    for canary in (300, 300, 1, 1000, 0):
        rig.route.set_weights({"stable": 1000 - canary, "canary": canary})
        assert rig.route.weights() == {"stable": 1000 - canary, "canary": canary}


def test_afterwards_the_route_is_what_it_was(rig: Rig) -> None:
    found = rig.spec()
    rig.canary.put_up()
    rig.route.set_weights({"stable": 500, "canary": 500})
    rig.canary.take_down()
    rig.canary.take_down()
    assert rig.spec() == found
    assert set(rig.route.weights()) == {"stable"}


@pytest.mark.parametrize(
    "wrong", [{"stable": 1000}, {"stable": 1100, "canary": -100}, {"stable": 1, "canary": 1}]
)
def test_weights_that_are_no_split_of_the_traffic_are_refused(rig: Rig, wrong: dict[str, int]) -> None:
    rig.canary.put_up()
    with pytest.raises(Refused, match="weights"):
        rig.route.set_weights(wrong)
    assert rig.route.weights() == {"stable": 1000, "canary": 0}


def test_all_else_in_the_route_stays_as_the_team_has_it(rig: Rig) -> None:
    rig.canary.put_up()
    spec = rig.spec()
    rig.route.set_weights({"stable": 900, "canary": 100})
    changed = rig.spec()
    for rules in ("rules", "http"):
        for one, other in zip(spec.pop(rules, []), changed.pop(rules, []), strict=True):
            for backends in ("backendRefs", "route"):
                one.pop(backends, None)
                other.pop(backends, None)
            assert one == other
    assert spec == changed


def test_an_edit_of_somebody_else_is_reported_and_stays(town: Town, control_plane: ControlPlane) -> None:
    rig = Rig(town, Cluster(str(control_plane.kubeconfig)), RouteKind.HTTP_ROUTE)
    rig.canary.put_up()
    edited = [{"backendRefs": [{"name": NAME, "port": 8000}, {"name": "vision-v2", "port": 8000}]}]
    town.api.merge(rig.path, {"spec": {"rules": edited}})
    with pytest.raises(Refused, match="somebody else changed HTTPRoute vision"):
        rig.route.set_weights({"stable": 500, "canary": 500})
    assert [b["name"] for b in rig.spec()["rules"][0]["backendRefs"]] == [NAME, "vision-v2"]
    rig.canary.take_down()
    assert [b["name"] for b in rig.spec()["rules"][0]["backendRefs"]] == [NAME, "vision-v2"]
    town.api.merge(rig.path, {"spec": ROUTE["spec"]})


def test_two_who_change_a_route_at_once_lose_nothing(town: Town, control_plane: ControlPlane) -> None:
    rig = Rig(town, Cluster(str(control_plane.kubeconfig)), RouteKind.HTTP_ROUTE)
    rig.canary.put_up()
    for number in range(20):
        town.api.merge(rig.path, {"metadata": {"annotations": {"team": str(number)}}})
        rig.route.set_weights({"stable": 1000 - number, "canary": number})
    assert town.api.get(rig.path)["metadata"]["annotations"]["team"] == "19"
    rig.canary.take_down()


def test_our_changes_are_made_under_our_name(town: Town, control_plane: ControlPlane) -> None:
    rig = Rig(town, Cluster(str(control_plane.kubeconfig)), RouteKind.HTTP_ROUTE)
    rig.canary.put_up()
    managers = {entry["manager"] for entry in town.api.get(rig.path)["metadata"]["managedFields"]}
    assert "autotuner" in managers
    rig.canary.take_down()


def test_the_schema_itself_refuses_a_weight_that_is_none(town: Town) -> None:
    rules = [{"backendRefs": [{"name": NAME, "port": 8000, "weight": -1}]}]
    with pytest.raises(ApiError, match="weight"):
        town.api.merge(f"{ROUTES}/{NAME}", {"spec": {"rules": rules}})
