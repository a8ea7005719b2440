"""A target on Kubernetes is diagnosed where its pods are, read-only; a permission that is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from autotuner.bootstrap import Application, access_of, target_observer
from autotuner.cli.app import app
from autotuner.cli.exits import Exit
from autotuner.domain.access import Scope
from tests.cluster_objects import a_deployment, a_pod, an_http_route
from tests.diagnoses import MODEL
from tests.rest import serving
from tests.stub_server import Planned, StubServer
from tests.stub_triton import METRICS, a_triton, as_json, counting

pytestmark = pytest.mark.usefixtures("own_logging", "turned")

DEPLOYMENT = "/apis/apps/v1/namespaces/prod/deployments/vision"
PODS = "/api/v1/namespaces/prod/pods"
ROUTE = "/apis/gateway.networking.k8s.io/v1/namespaces/prod/httproutes/vision"


def forbidden(verb: str, resource: str) -> Planned:
    said = f'{resource} is forbidden: User "u" cannot {verb} resource "{resource}" in namespace "prod"'
    return Planned(json.dumps({"kind": "Status", "code": 403, "message": said}), 403)


def envoy_page(count: int) -> str:
    labels = 'envoy_cluster_name="vision"'
    return (
        f"envoy_cluster_upstream_rq_total{{{labels}}} {count}\n"
        f"envoy_cluster_upstream_rq_active{{{labels}}} 0\n"
        f'envoy_cluster_upstream_rq_time_bucket{{{labels},le="99.5"}} {count - count // 200}\n'
        f'envoy_cluster_upstream_rq_time_bucket{{{labels},le="+Inf"}} {count}\n'
        f"envoy_cluster_upstream_rq_time_sum{{{labels}}} {count * 25}\n"
    )


@pytest.fixture
def triton() -> Iterator[StubServer]:
    """The server in every pod, and the gateway's admin address too."""
    with a_triton() as server:
        server.answers["/stats/prometheus"] = counting(envoy_page, each=80)
        server.answers["/config_dump"] = as_json({})
        yield server


@pytest.fixture
def cluster(triton: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubServer]:
    """An API server with a Deployment of one ready pod and its route, and the kubeconfig that leads to it."""
    answers: dict[str, Planned | Callable[[str], Planned]] = {
        DEPLOYMENT: as_json(a_deployment()),
        PODS: as_json({"items": [a_pod(podIP="127.0.0.1")]}),
        ROUTE: as_json(an_http_route()),
    }
    with StubServer(answers) as server:
        path = tmp_path / "kubeconfig"
        config = {
            "clusters": [{"name": "x", "cluster": {"server": server.url}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("AUTOTUNER_KUBECONFIG", str(path))
        yield server


@pytest.fixture
def file(triton: StubServer, tmp_path: Path) -> Path:
    port = int(triton.url.rpartition(":")[2])
    workload = {
        "namespace": "prod",
        "name": "vision",
        "replicas": 2,
        "service": "vision",
        "route": {"kind": "HTTPRoute", "name": "vision"},
        "ports": {"http": port, "grpc": port, "metrics": port},
    }
    content = {
        "name": "vision",
        "model": MODEL,
        "kubernetes": workload,
        "gateway": {"admin": triton.url, "clusters": {"stable": "vision"}},
        "slo": {"p99_ms": 100},
        "limits": {"instance_count": 2},
    }
    path = tmp_path / "target.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(file: Path) -> Result:
    return CliRunner().invoke(app, ["diagnose", "--target", str(file), "--for", "3s", "--json"])


def answered(result: Result) -> dict[str, Any]:
    assert result.exit_code == Exit.DONE, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def sentence(result: Result) -> str:
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return line


def test_pods_are_found_and_looked_at_through_the_gateway(
    cluster: StubServer, triton: StubServer, file: Path
) -> None:
    found = answered(run(file))

    assert set(found["replicas"]) == {"vision-0"}
    assert found["breakdown_ms"]["before_triton"]["mean"] == pytest.approx(12.5)
    needs = {need["what"]: need for need in found["study_possible"]["needs"]}
    assert needs["a weighted route"]["answer"] == "yes"
    assert needs["a weighted route"]["detail"] == "HTTPRoute prod/vision, rule 0, with the weights stable 1"
    assert found["unread"] == []


def test_the_rest_api_finds_the_pods_too(cluster: StubServer, triton: StubServer, file: Path) -> None:
    def reaching(application: Application) -> Application:
        access = access_of(application.settings)
        return replace(
            application, observers=lambda target, clock: target_observer(target, clock, cluster=access)
        )

    with serving(move=reaching) as rest:
        made = rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=yaml.safe_load(file.read_text("utf-8")))
        assert made.status_code == 201, made.text
        told = rest.get("/v1/targets/vision/diagnosis?seconds=3")

    assert set(told["replicas"]) == {"vision-0"}
    assert told["unread"] == []


def test_only_questions_are_asked(cluster: StubServer, triton: StubServer, file: Path) -> None:
    answered(run(file))

    assert {request.split(" ")[0] for request in (*cluster.requests, *triton.requests)} == {"GET"}
    assert f"GET {METRICS}" in triton.requests


@pytest.mark.parametrize(
    ("path", "refusal", "needed"),
    [
        (DEPLOYMENT, forbidden("get", "deployments"), "get on deployments.apps in namespace prod"),
        (PODS, forbidden("list", "pods"), "list on pods in namespace prod"),
    ],
)
def test_a_permission_that_cannot_be_done_without_ends_it(
    cluster: StubServer, file: Path, path: str, refusal: Planned, needed: str
) -> None:
    cluster.answers[path] = refusal
    result = run(file)

    assert result.exit_code == Exit.REFUSED
    assert f"not permitted: {needed}" in sentence(result)


def test_a_route_that_may_not_be_read_costs_the_route_alone(cluster: StubServer, file: Path) -> None:
    cluster.answers[ROUTE] = forbidden("get", "httproutes")
    found = answered(run(file))

    (missing,) = found["unread"]
    assert "not permitted: get on httproutes.gateway.networking.k8s.io in namespace prod" in missing["why"]
    needs = {need["what"]: need["answer"] for need in found["study_possible"]["needs"]}
    assert needs["a weighted route"] == "unknown"


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (None, "there is no HTTPRoute prod/vision"),
        (an_http_route({"kind": "Service", "name": "other"}), "other"),
    ],
)
def test_a_route_that_leads_elsewhere_has_no_weights(
    cluster: StubServer, file: Path, route: dict[str, Any] | None, said: str
) -> None:
    cluster.answers[ROUTE] = Planned("{}", 404) if route is None else as_json(route)
    needs = {need["what"]: need for need in answered(run(file))["study_possible"]["needs"]}

    assert needs["a weighted route"]["answer"] == "no"
    assert said in needs["a weighted route"]["detail"]


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([], "no pod yet"),
        (
            [a_pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])],
            "not scheduled: Unschedulable",
        ),
    ],
)
def test_a_workload_without_a_ready_pod_says_what_it_waits_for(
    cluster: StubServer, file: Path, pods: list[dict[str, Any]], said: str
) -> None:
    cluster.answers[PODS] = as_json({"items": pods})
    result = run(file)

    assert result.exit_code == Exit.UNAVAILABLE
    assert f"has no ready pod: {said}" in sentence(result)


def test_no_such_workload_is_not_found(cluster: StubServer, file: Path) -> None:
    cluster.answers[DEPLOYMENT] = Planned("{}", 404)

    assert run(file).exit_code == Exit.NOT_FOUND
