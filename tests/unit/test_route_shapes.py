"""What is changed in each kind of route: our own numbers alone, and only on what was read."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from autotuner.domain.route_shapes import (
    WEIGHT,
    WEIGHT_TOTAL,
    Operation,
    Place,
    canary_ingress,
    ingress_weights,
    labelling,
    shared_weights,
)
from autotuner.domain.serving_shapes import SHAPES, as_workload
from autotuner.domain.workload import RouteKind, RouteReference, WorkloadKind
from autotuner.errors import Refused, Unavailable
from tests.closed_loop.pooled import a_workload
from tests.cluster_objects import an_http_route

OURS = {"autotuner/target": "vision", "autotuner/role": "canary"}
PLACE = Place("vision", "vision-canary", 1000, OURS)


def a_virtual_service() -> dict[str, Any]:
    routes = [{"destination": {"host": "vision.prod.svc.cluster.local", "port": {"number": 8000}}}]
    return {
        "metadata": {"name": "vision"},
        "spec": {"hosts": ["vision"], "http": [{"route": routes, "timeout": "2s"}]},
    }


def a_seldon_deployment() -> dict[str, Any]:
    predictor = {"name": "vision", "replicas": 3, "graph": {"name": "triton"}, "labels": {"team": "search"}}
    return {"metadata": {"name": "vision"}, "spec": {"predictors": [predictor]}}


def an_experiment() -> dict[str, Any]:
    return {
        "metadata": {"name": "vision"},
        "spec": {"default": "vision", "candidates": [{"name": "vision", "weight": 100}]},
    }


def an_inference_service(**predictor: Any) -> dict[str, Any]:
    said = {"model": {"storageUri": "pvc://models"}, "minReplicas": 2, **predictor}
    return {"metadata": {"name": "vision"}, "spec": {"predictor": said}}


ROUTES = [
    (RouteKind.SELDON_DEPLOYMENT, a_seldon_deployment()),
    (RouteKind.EXPERIMENT, an_experiment()),
    (RouteKind.INFERENCE_SERVICE, an_inference_service()),
    (RouteKind.INFERENCE_SERVICE, an_inference_service(labels={"team": "search"}, canaryTrafficPercent=100)),
    (RouteKind.HTTP_ROUTE, an_http_route()),
    (RouteKind.GRPC_ROUTE, an_http_route()),
    (RouteKind.VIRTUAL_SERVICE, a_virtual_service()),
]
EVERY_KIND = pytest.mark.parametrize(("kind", "route"), ROUTES, ids=[kind for kind, _ in ROUTES])


def patched(manifest: dict[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """The object after a JSON patch, as the API server would make it; a failed test is an AssertionError."""
    made = copy.deepcopy(manifest)
    for operation in operations:
        *path, last = operation["path"].strip("/").split("/")
        place: Any = made
        for key in path:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if operation["op"] == "test":
            assert place[last] == operation["value"]
        else:
            place[last] = copy.deepcopy(operation["value"])
    return made


@EVERY_KIND
def test_a_canary_is_admitted_without_traffic_weighed_and_dismissed_without_a_trace(
    kind: RouteKind, route: dict[str, Any]
) -> None:
    shape, workload = SHAPES[kind], a_workload(route=RouteReference(kind, "vision"))
    before = shape.before(route, workload, PLACE)
    admitted = patched(route, shape.admit(route, workload, PLACE))
    assert shape.weights(admitted, workload, PLACE) == {"stable": 1000, "canary": 0}
    weighed = patched(admitted, shape.weigh(admitted, workload, PLACE, {"stable": 700, "canary": 300}))
    assert shape.weights(weighed, workload, PLACE) == {"stable": 700, "canary": 300}
    dismissed = patched(weighed, shape.dismiss(weighed, workload, PLACE, before))
    assert patched(dismissed, shape.finish(dismissed, workload, PLACE, before)) == route
    assert shape.finish(route, workload, PLACE, before) == []


@EVERY_KIND
def test_what_is_done_already_is_not_done_again(kind: RouteKind, route: dict[str, Any]) -> None:
    shape, workload = SHAPES[kind], a_workload(route=RouteReference(kind, "vision"))
    admitted = patched(route, shape.admit(route, workload, PLACE))
    assert shape.admit(admitted, workload, PLACE) == []
    assert shape.weigh(admitted, workload, PLACE, {"stable": 1000, "canary": 0}) == []
    assert shape.dismiss(route, workload, PLACE, "{}") == []


@EVERY_KIND
def test_every_change_tests_first_that_the_list_is_still_the_one_that_was_read(
    kind: RouteKind, route: dict[str, Any]
) -> None:
    shape, workload = SHAPES[kind], a_workload(route=RouteReference(kind, "vision"))
    admitted = patched(route, shape.admit(route, workload, PLACE))
    changes = [
        shape.admit(route, workload, PLACE),
        shape.weigh(admitted, workload, PLACE, {"stable": 1, "canary": 999}),
        shape.dismiss(admitted, workload, PLACE, shape.before(route, workload, PLACE)),
    ]
    assert all(change[0]["op"] == "test" for change in changes)


def test_a_route_that_goes_elsewhere_is_refused_and_named() -> None:
    shape, workload = SHAPES[RouteKind.HTTP_ROUTE], a_workload()
    other = an_http_route({"name": "vision", "weight": 1}, {"name": "vision-v2", "weight": 1})
    for ask in (shape.admit, shape.before):
        with pytest.raises(Refused, match="vision, vision-v2"):
            ask(other, workload, PLACE)
    with pytest.raises(Refused, match="somebody else changed HTTPRoute vision"):
        shape.weigh(other, workload, PLACE, {"stable": 1, "canary": 999})


def test_a_rule_that_is_not_there_is_refused() -> None:
    workload = a_workload(route=RouteReference(RouteKind.HTTP_ROUTE, "vision", 3))
    with pytest.raises(Refused, match="has no rule 3"):
        SHAPES[RouteKind.HTTP_ROUTE].weights(an_http_route(), workload, PLACE)


def test_where_somebody_edited_the_list_only_our_backend_is_taken_out() -> None:
    edited = an_http_route(
        {"name": "vision", "weight": 9}, {"name": "vision-v2"}, {"name": "vision-canary", "weight": 5}
    )
    shape, before = SHAPES[RouteKind.HTTP_ROUTE], json.dumps([{"name": "vision"}])
    after = patched(edited, shape.dismiss(edited, a_workload(), PLACE, before))
    assert after["spec"]["rules"][0]["backendRefs"] == [
        {"name": "vision", "weight": 9},
        {"name": "vision-v2"},
    ]


def an_ingress() -> dict[str, Any]:
    backend = {"service": {"name": "vision", "port": {"number": 8000}}}
    paths = [{"path": "/v2", "pathType": "Prefix", "backend": backend}]
    rules = [{"host": "vision.example", "http": {"paths": paths}}]
    return {"metadata": {"name": "vision"}, "spec": {"ingressClassName": "nginx", "rules": rules}}


def test_ingress_nginx_gets_an_ingress_of_ours_beside_the_teams() -> None:
    metadata = {"name": "vision-canary", "annotations": {"autotuner/expires-at": "later"}}
    made = canary_ingress(an_ingress(), PLACE, metadata, 300)
    assert (
        made["metadata"]["annotations"] | {WEIGHT: "300", WEIGHT_TOTAL: "1000"}
        == made["metadata"]["annotations"]
    )
    path = made["spec"]["rules"][0]["http"]["paths"][0]
    assert path["backend"]["service"] == {"name": "vision-canary", "port": {"number": 8000}}
    assert ingress_weights(made, PLACE) == {"stable": 700, "canary": 300}
    assert ingress_weights(None, PLACE) == {"stable": 1000}


def test_an_ingress_that_goes_elsewhere_is_refused() -> None:
    other = an_ingress()
    other["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = "else"
    with pytest.raises(Refused, match="goes to else"):
        canary_ingress(other, PLACE, {"annotations": {}}, 1)


@EVERY_KIND
def test_where_it_is_not_known_what_was_before_our_backend_alone_is_taken_out(
    kind: RouteKind, route: dict[str, Any]
) -> None:
    shape, workload = SHAPES[kind], a_workload(route=RouteReference(kind, "vision"))
    admitted = patched(route, shape.admit(route, workload, PLACE))
    left = patched(admitted, shape.dismiss(admitted, workload, PLACE, ""))
    assert shape.weights(left, workload, PLACE) == {"stable": 1000}
    assert shape.dismiss(left, workload, PLACE, "") == []
    assert shape.dismiss({"spec": {}}, workload, PLACE, "") == []


def test_seldons_canary_keeps_one_replica_whatever_scales_production() -> None:
    route = a_seldon_deployment()
    spec = {"containers": [{"name": "triton"}]}
    route["spec"]["predictors"][0]["componentSpecs"] = [
        {"spec": spec, "replicas": 3, "hpaSpec": {"maxReplicas": 9}}
    ]
    shape, workload = SHAPES[RouteKind.SELDON_DEPLOYMENT], a_workload()
    canary = patched(route, shape.admit(route, workload, PLACE))["spec"]["predictors"][1]
    assert (canary["replicas"], canary["labels"]) == (1, {"team": "search", **OURS})
    assert canary["componentSpecs"] == [{"spec": spec}]
    assert "hpaSpec" in route["spec"]["predictors"][0]["componentSpecs"][0]


def test_a_predictor_is_called_what_the_target_calls_it() -> None:
    workload = a_workload(route=RouteReference(RouteKind.SELDON_DEPLOYMENT, "vision", backend="main"))
    assert workload.backend == "main"
    assert a_workload().backend == "vision"


def test_a_revision_of_kserve_that_somebody_rolls_out_is_no_place_for_a_canary() -> None:
    shape, workload = SHAPES[RouteKind.INFERENCE_SERVICE], a_workload()
    with pytest.raises(Refused, match="a rollout is under way"):
        shape.before(an_inference_service(canaryTrafficPercent=20), workload, PLACE)
    with pytest.raises(Refused, match="has no revision for vision-canary"):
        shape.weigh(an_inference_service(), workload, PLACE, {"stable": 70, "canary": 30})


def test_kserves_percentage_stays_until_the_revision_that_replaces_the_canarys_is_ready() -> None:
    route, place = an_inference_service(), Place("vision", "vision-canary", 100, OURS)
    shape, workload = SHAPES[RouteKind.INFERENCE_SERVICE], a_workload()
    before = shape.before(route, workload, place)
    admitted = patched(route, shape.admit(route, workload, place))
    assert (
        admitted["spec"]["predictor"] | {"labels": OURS, "canaryTrafficPercent": 0, "maxReplicas": 1}
        == (admitted["spec"]["predictor"])
    )
    dismissed = patched(admitted, shape.dismiss(admitted, workload, place, before))
    assert dismissed["spec"]["predictor"] == {**route["spec"]["predictor"], "canaryTrafficPercent": 0}
    predictor = {"latestCreatedRevision": "v-3", "latestReadyRevision": "v-2"}
    dismissed["status"] = {"components": {"predictor": predictor}}
    with pytest.raises(Unavailable, match="v-3 is not ready yet, v-2 is"):
        shape.finish(dismissed, workload, place, before)
    predictor["latestReadyRevision"] = "v-3"
    assert patched(dismissed, shape.finish(dismissed, workload, place, before))["spec"] == route["spec"]


def test_an_inference_service_is_a_workload_whose_template_no_canary_changes() -> None:
    workload = a_workload(kind=WorkloadKind.INFERENCE_SERVICE)
    route, shape = an_inference_service(labels={"team": "search"}), SHAPES[RouteKind.INFERENCE_SERVICE]
    seen = as_workload(workload, "vision", route)
    assert seen["spec"]["selector"]["matchLabels"] == {
        "serving.kserve.io/inferenceservice": "vision",
        "component": "predictor",
    }
    labels = {"app.kubernetes.io/managed-by": "autotuner", **OURS}
    place = Place("vision", "vision-canary", 100, labels)
    admitted = patched(route, shape.admit(route, workload, place))
    assert as_workload(workload, "vision", admitted)["spec"] == seen["spec"]
    assert as_workload(a_workload(), "vision", route) is route


def test_a_service_without_weights_gives_each_pod_as_much_as_any_other() -> None:
    assert shared_weights(2, 0, 1000) == {"stable": 1000, "canary": 0}
    assert shared_weights(2, 1, 1000) == {"stable": 667, "canary": 333}


def test_a_pod_is_put_behind_a_service_by_its_labels_and_taken_away_again() -> None:
    pod: dict[str, Any] = {"metadata": {"labels": {"app": "canary", "x": "y"}}}
    selector = {"app": "vision", "team/name": "search"}
    behind = labelling(pod, selector, behind=True)
    assert [each["path"] for each in behind] == ["/metadata/labels/app", "/metadata/labels/team~1name"]
    pod["metadata"]["labels"] |= selector
    assert labelling(pod, selector, behind=True) == []
    away = labelling(pod, selector, behind=False)
    assert [each["op"] for each in away] == ["test", "remove", "test", "remove"]
    assert labelling({"metadata": {}}, selector, behind=False) == []
