"""What a workload lacks for being tuned, and the patch that would add it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotuner.domain.needs import Answer
from autotuner.domain.preflight import Facts, blocking, git_owner, preflight
from autotuner.domain.serving_shapes import as_workload
from autotuner.domain.target import Target
from autotuner.domain.workload import RouteKind, RouteReference, WorkloadKind
from tests.closed_loop.pooled import a_pooled_target, a_workload
from tests.cluster_objects import LABELS, a_deployment, a_pod, a_service, an_http_route


def facts(**changes: Any) -> Facts:
    fields: dict[str, Any] = {
        "workload": a_deployment(),
        "pods": (a_pod(), a_pod("vision-1")),
        "service": a_service(),
        "route": an_http_route(),
        "config_map": {"metadata": {"name": "vision-config"}, "data": {"config.pbtxt": ""}},
    }
    return Facts(**{**fields, **changes})


def found(what: str, **changes: Any) -> list[str]:
    return [each.detail for each in preflight(a_pooled_target(), facts(**changes)) if each.what == what]


def test_a_workload_that_can_be_tuned_lacks_nothing() -> None:
    assert [each for each in preflight(a_pooled_target(), facts()) if each.answer is Answer.NO] == []
    assert blocking(a_pooled_target(), facts()) == ()


@pytest.mark.parametrize("args", [[], ["--model-repository=/models"]])
def test_without_explicit_model_control_the_patch_that_adds_it_is_shown(args: list[str]) -> None:
    stable = a_deployment()
    stable["spec"]["template"]["spec"]["containers"][0]["args"] = args
    finding = next(
        each for each in preflight(a_pooled_target(), facts(workload=stable)) if each.answer is Answer.NO
    )
    assert finding.what == "model control"
    command, _, patch = finding.advice.partition(" -p ")
    assert command == "kubectl -n prod patch deployment vision --type=json"
    assert "--model-control-mode=explicit" in json.loads(patch.strip("'"))[0]["value"]
    assert blocking(a_pooled_target(), facts(workload=stable))


@pytest.mark.parametrize(
    ("what", "changes", "says"),
    [
        ("replicas", {"pods": ()}, "0 ready pods, and the target has 2"),
        ("service", {"service": None}, "there is no Service vision"),
        ("service", {"service": a_service(selector={"app": "other"})}, "does not select the pods"),
        ("route", {"route": None}, "there is no HTTPRoute vision"),
        ("configuration", {"config_map": None}, "there is no ConfigMap vision-config"),
    ],
)
def test_what_is_missing_blocks_and_is_named(what: str, changes: dict[str, Any], says: str) -> None:
    wrong = [each for each in preflight(a_pooled_target(), facts(**changes)) if each.answer is Answer.NO]
    assert [each.what for each in wrong] == [what]
    assert says in wrong[0].detail


def test_several_containers_need_a_name() -> None:
    stable = a_deployment()
    stable["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"})
    assert "triton, sidecar" in found("container", workload=stable)[0]
    named = a_pooled_target(workload=a_workload(container="triton"))
    assert not [each for each in preflight(named, facts(workload=stable)) if each.answer is Answer.NO]


def test_an_autoscaler_and_a_disruption_budget_are_told_of() -> None:
    scaler = {
        "metadata": {"name": "vision"},
        "spec": {"scaleTargetRef": {"name": "vision"}, "minReplicas": 2, "maxReplicas": 6},
    }
    budget = {"metadata": {"name": "vision"}, "spec": {"selector": {"matchLabels": LABELS}}}
    assert "from 2 to 6" in found("autoscaler", scalers=(scaler,))[0]
    assert "the canary's pod is not in it" in found("disruption budget", budgets=(budget,))[0]


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "vision:/ConfigMap"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux"),
        ({"labels": {"app": "vision"}}, ""),
        ({}, ""),
    ],
)
def test_what_git_owns_is_recognised_by_its_marks(metadata: dict[str, Any], owner: str) -> None:
    assert git_owner({"metadata": metadata}).partition(" (")[0] == owner


def test_a_service_without_weights_says_what_the_canary_can_get() -> None:
    workload = a_workload(route=RouteReference(RouteKind.SERVICE, "vision"))
    target = a_pooled_target(workload=workload)
    said = [each for each in preflight(target, facts()) if each.what == "route"]
    assert [each.detail for each in said] == [
        "Service vision has no weights: the canary gets 33% of the requests, or none"
    ]


def an_inference_service(**changes: object) -> Target:
    route = RouteReference(RouteKind.INFERENCE_SERVICE, "vision")
    fields = {"kind": WorkloadKind.INFERENCE_SERVICE, "route": route, "container": "triton", **changes}
    return a_pooled_target(workload=a_workload(**fields))


def test_the_containers_of_an_inference_service_are_read_from_its_pods() -> None:
    target = an_inference_service()
    assert target.workload is not None
    stable = as_workload(target.workload, target.name, {"metadata": {}, "spec": {"predictor": {"model": {}}}})
    (said,) = blocking(target, facts(workload=stable, service=a_service(selector=None)))
    assert said.startswith("model control: tritonserver must be started with --model-control-mode=explicit")
    assert said.endswith("set it in the predictor or its runtime")


def test_an_inference_service_needs_a_config_map_because_its_pods_start_anew() -> None:
    target = an_inference_service(config_map="")
    assert any("set kubernetes.config_map" in each for each in blocking(target, facts()))
