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
from autotuner.errors import Refused, Unavailable
from autotuner.target_file import parse_target_file
from tests.cluster.team import APPS, CANARY, CANARY_LABELS, LABELS, NAME, NAMESPACE, ROUTE, ROUTES
from tests.kubernetes.api import ApiError
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import Town, until

GROUPS = {
    RouteKind.HTTP_ROUTE: "apis/gateway.networking.k8s.io/v1",
    RouteKind.GRPC_ROUTE: "apis/gateway.networking.k8s.io/v1",
    RouteKind.VIRTUAL_SERVICE: "apis/networking.istio.io/v1",
    RouteKind.INGRESS: "apis/networking.k8s.io/v1",
    RouteKind.INFERENCE_SERVICE: "apis/serving.kserve.io/v1beta1",
    RouteKind.SELDON_DEPLOYMENT: "apis/machinelearning.seldon.io/v1",
    RouteKind.EXPERIMENT: "apis/mlops.seldon.io/v1alpha1",
    RouteKind.SERVICE: "api/v1",
}
PLURALS = {
    RouteKind.HTTP_ROUTE: "httproutes",
    RouteKind.GRPC_ROUTE: "grpcroutes",
    RouteKind.VIRTUAL_SERVICE: "virtualservices",
    RouteKind.INGRESS: "ingresses",
    RouteKind.INFERENCE_SERVICE: "inferenceservices",
    RouteKind.SELDON_DEPLOYMENT: "seldondeployments",
    RouteKind.EXPERIMENT: "experiments",
    RouteKind.SERVICE: "services",
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
    RouteKind.INFERENCE_SERVICE: {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": NAME},
        "spec": {
            "predictor": {
                "labels": {"team": "search"},
                "minReplicas": 2,
                "model": {"modelFormat": {"name": "triton"}, "storageUri": "pvc://models"},
            }
        },
    },
    RouteKind.SELDON_DEPLOYMENT: {
        "apiVersion": "machinelearning.seldon.io/v1",
        "kind": "SeldonDeployment",
        "metadata": {"name": NAME},
        "spec": {
            "predictors": [
                {
                    "name": NAME,
                    "replicas": 2,
                    "labels": {"team": "search"},
                    "graph": {
                        "name": "triton",
                        "implementation": "TRITON_SERVER",
                        "modelUri": "pvc://models",
                    },
                    "componentSpecs": [{"spec": {"containers": [{"name": "triton"}]}, "replicas": 2}],
                }
            ]
        },
    },
    RouteKind.EXPERIMENT: {
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Experiment",
        "metadata": {"name": NAME},
        "spec": {"default": NAME, "candidates": [{"name": NAME, "weight": 1000}]},
    },
}
POSSIBLE: dict[RouteKind, tuple[int, ...]] = {
    RouteKind.INFERENCE_SERVICE: (30, 30, 1, 100, 0),
    RouteKind.SELDON_DEPLOYMENT: (30, 30, 1, 100, 0),
    RouteKind.SERVICE: (333, 333, 0),
}
"""Weights that a kind of route can give the canary: whole percents, or the share of one pod among three."""


class Rig:
    """One kind of route in one town."""

    def __init__(self, town: Town, cluster: Cluster, kind: RouteKind) -> None:
        found = parse_target_file(town.target()).target()
        assert found.workload is not None
        workload = replace(found.workload, route=RouteReference(kind, NAME))
        self.total = 100 if kind.in_percent else 1000
        self.possible = POSSIBLE.get(kind, (300, 300, 1, 1000, 0))
        gateway = replace(found.gateway, total_weight=self.total)
        self.target: Target = replace(found, workload=workload, gateway=gateway)
        self.town, self.kind = town, kind
        self.path = f"/{GROUPS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}/{NAME}"
        self.route = KubernetesRoute(cluster, self.target)
        self.canary = KubernetesCanary(cluster, self.target, self.route, SystemClock())

    def spec(self) -> Any:
        return self.town.api.get(self.path)["spec"]

    def put_up(self) -> None:
        """Put the canary up; where it is labelled pods that divide the traffic, wait for its pod."""
        self.canary.put_up()
        if self.kind is RouteKind.SERVICE:
            until(lambda: len(self.town.ready(CANARY_LABELS)) == 1, "the canary's pod is ready", 30)

    def canary_pods(self) -> list[Any]:
        return self.town.ready({**LABELS, **CANARY_LABELS})

    def split(self, canary: int) -> dict[str, int]:
        """The weights in which the canary has this one."""
        return {"stable": self.total - canary, "canary": canary}


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
        rig.put_up()
        assert rig.route.weights() == rig.split(0)


def test_weights_are_read_back_as_set_and_may_be_set_twice(rig: Rig) -> None:
    rig.put_up()
    for canary in rig.possible:
        rig.route.set_weights(rig.split(canary))
        assert rig.route.weights() == rig.split(canary)


def test_afterwards_the_route_is_what_it_was(rig: Rig) -> None:
    found = rig.spec()
    rig.put_up()
    rig.route.set_weights(rig.split(rig.possible[0]))
    rig.canary.take_down()
    rig.canary.take_down()
    assert rig.spec() == found
    assert set(rig.route.weights()) == {"stable"}


@pytest.mark.parametrize(
    "wrong", [{"stable": 1000}, {"stable": 1100, "canary": -100}, {"stable": 1, "canary": 1}]
)
def test_weights_that_are_no_split_of_the_traffic_are_refused(rig: Rig, wrong: dict[str, int]) -> None:
    rig.put_up()
    with pytest.raises(Refused, match="weights"):
        rig.route.set_weights(wrong)
    assert rig.route.weights() == rig.split(0)


def test_all_else_in_the_route_stays_as_the_team_has_it(rig: Rig) -> None:
    rig.put_up()
    spec = rig.spec()
    rig.route.set_weights(rig.split(rig.possible[0]))
    assert unweighed(rig.spec()) == unweighed(spec)


def unweighed(content: Any) -> Any:
    """The content of an object without any weight."""
    if isinstance(content, list):
        return [unweighed(each) for each in content]
    if not isinstance(content, dict):
        return content
    weights = ("weight", "traffic", "canaryTrafficPercent")
    return {key: unweighed(value) for key, value in content.items() if key not in weights}


def test_a_service_without_weights_says_what_share_it_can_give(
    town: Town, control_plane: ControlPlane
) -> None:
    rig = Rig(town, Cluster(str(control_plane.kubeconfig)), RouteKind.SERVICE)
    rig.put_up()
    with pytest.raises(Refused, match="it gives 0 or 333 of 1000, not 500"):
        rig.route.set_weights(rig.split(500))
    rig.route.set_weights(rig.split(333))
    assert len(town.ready()) == 3
    assert len(rig.canary_pods()) == 1
    rig.canary.take_down()
    until(lambda: len(town.ready()) == 2, "production's pods alone are behind the Service", 30)


def test_a_revision_of_kserve_is_given_back_before_its_percentage(
    town: Town, control_plane: ControlPlane
) -> None:
    """The test plays KServe's controller: it says in the status which revisions there are."""
    rig = Rig(town, Cluster(str(control_plane.kubeconfig)), RouteKind.INFERENCE_SERVICE)
    found = rig.spec()
    rig.put_up()
    rig.route.set_weights(rig.split(30))

    def reported(created: str, ready: str) -> None:
        component = {"latestCreatedRevision": created, "latestReadyRevision": ready}
        town.api.merge(f"{rig.path}/status", {"status": {"components": {"predictor": component}}})

    reported("vision-predictor-00003", "vision-predictor-00002")
    with pytest.raises(Unavailable, match="vision-predictor-00003 is not ready yet"):
        rig.canary.take_down()
    assert rig.spec()["predictor"] == {**found["predictor"], "canaryTrafficPercent": 0}
    reported("vision-predictor-00003", "vision-predictor-00003")
    rig.canary.take_down()
    assert rig.spec() == found


def test_seldons_canary_is_one_replica_with_labels_of_its_own(
    town: Town, control_plane: ControlPlane
) -> None:
    rig = Rig(town, Cluster(str(control_plane.kubeconfig)), RouteKind.SELDON_DEPLOYMENT)
    rig.put_up()
    stable, canary = rig.spec()["predictors"]
    assert (stable["traffic"], stable["replicas"], stable["labels"]) == (100, 2, {"team": "search"})
    assert (canary["name"], canary["traffic"], canary["replicas"]) == (CANARY, 0, 1)
    assert canary["labels"] == {
        "team": "search",
        **CANARY_LABELS,
        "app.kubernetes.io/managed-by": "autotuner",
    }
    assert "replicas" not in canary["componentSpecs"][0]
    assert town.api.find(f"{APPS}/deployments/{CANARY}") is None
    rig.canary.take_down()


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
