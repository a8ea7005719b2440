"""Targets on Kubernetes in target files: no addresses, one backend for all stable pods, and nothing said twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.addresses import AllowList, check_addresses
from autotuner.domain.registration import StudyDefaults
from autotuner.domain.target import Objective, Replica, Target
from autotuner.domain.workload import Ports, RouteKind, RouteReference, WorkloadKind
from autotuner.errors import InvalidInput
from autotuner.records import from_record, to_record
from autotuner.target_file import TargetFile, load_target_file, parse_target_file, sections_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "target-kubernetes.yaml"
REPLICA = {"name": "a", "url": "http://a:8000", "metrics": "http://a:8002"}


def content(**changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    said["kubernetes"] |= changes.pop("kubernetes", {})
    return said | changes


def refusal(said: dict[str, Any]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse_target_file(said)
    return caught.value


def test_the_example_names_every_field_of_its_section() -> None:
    example = load_target_file(EXAMPLE).kubernetes
    assert example is not None
    text = EXAMPLE.read_text("utf-8")
    sections = (example, example.route, example.ports)
    assert [f for s in sections for f in type(s).model_fields if f"{f}:" not in text] == []


def test_a_workload_becomes_stable_pods_behind_one_backend_and_a_canary() -> None:
    target = load_target_file(EXAMPLE).target()
    assert target.stable == (Replica("stable-0", "", "", "stable"), Replica("stable-1", "", "", "stable"))
    assert target.backends(target.stable_names) == ("stable",)
    assert target.behind("stable") == ("stable-0", "stable-1")
    assert target.canary.at_gateway == "canary"
    assert [target.gateway.cluster(name) for name in ("stable", "canary")] == [
        "vision",
        "vision-canary-vision",
    ]
    workload = target.workload
    assert workload is not None
    assert (workload.kind, workload.route) == (
        WorkloadKind.DEPLOYMENT,
        RouteReference(RouteKind.HTTP_ROUTE, "vision"),
    )
    assert (workload.ports, workload.ttl) == (Ports(8000, 8001, 8002), timedelta(hours=24))


def test_what_is_registered_reads_back_as_the_file_that_said_it() -> None:
    target = load_target_file(EXAMPLE).target()
    again = {**sections_of(target, StudyDefaults()), "slo": {"p99_ms": 100}}
    assert TargetFile.model_validate(again).target() == target
    assert from_record(Target, to_record(target)) == target


def test_pods_have_no_address_to_check_but_the_gateway_has() -> None:
    target = load_target_file(EXAMPLE).target()
    check_addresses(target, AllowList.read("envoy-admin.gateway"))
    with pytest.raises(InvalidInput, match=r"gateway\.admin"):
        check_addresses(target, AllowList.read("10.0.0.0/8"))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("stable", {"stable": [REPLICA]}),
        ("canary", {"canary": REPLICA}),
        ("gateway.runtime_prefix", {"gateway": {"admin": "http://e:1", "runtime_prefix": "x"}}),
        ("kubernetes.replicas", {"kubernetes": {"replicas": 0}}),
        ("kubernetes.route.kind", {"kubernetes": {"route": {"kind": "Gateway", "name": "x"}}}),
        ("kubernetes.namespace", {"kubernetes": {"namespace": "Prod"}}),
        ("kubernetes.config_key", {"kubernetes": {"config_key": "../x"}}),
        ("kubernetes.ports.http", {"kubernetes": {"ports": {"http": 70000}}}),
        ("kubernetes.canary_ttl", {"kubernetes": {"canary_ttl": "forever"}}),
    ],
)
def test_what_cannot_be_used_is_named(field: str, change: dict[str, Any]) -> None:
    assert refusal(content(**change)).field == field


def test_static_endpoints_have_no_clusters() -> None:
    said = content(
        stable=[REPLICA], canary={**REPLICA, "name": "b", "url": "http://b:1", "metrics": "http://b:2"}
    )
    del said["kubernetes"]
    said["gateway"] = {"admin": "http://e:1", "runtime_prefix": "x", "clusters": {"stable": "y"}}
    assert refusal(said).field == "gateway.clusters"


def test_a_canary_may_not_be_removed_while_its_study_may_still_need_it() -> None:
    found = refusal(content(kubernetes={"canary_ttl": "17h"}))
    assert (found.field, found.value) == ("kubernetes.canary_ttl", "17h")
    assert found.allowed == "at least study.pace.study_limit and approval_limit together, 18h"
    parse_target_file(content(kubernetes={"canary_ttl": "18h"}))


@pytest.mark.parametrize("key", [".", "..", "..data", "a/b", ""])
def test_a_key_that_no_config_map_can_have_is_refused(key: str) -> None:
    assert refusal(content(kubernetes={"config_key": key})).field == "kubernetes.config_key"


@pytest.mark.parametrize("key", ["config.pbtxt", ".config", "c"])
def test_a_key_that_a_config_map_can_have_is_taken(key: str) -> None:
    parse_target_file(content(kubernetes={"config_key": key}))


METRICS = {"prometheus": {"url": "http://p:9090"}, "preset": "istio", "server": {"pod": "{pod}"}}


@pytest.mark.parametrize("kind", ["InferenceService", "SeldonDeployment"])
def test_the_weights_of_a_route_in_percent_add_up_to_a_hundred(kind: str) -> None:
    workload = {"kind": kind, "name": "vision"} if kind == "InferenceService" else {}
    said = content(kubernetes={**workload, "route": {"kind": kind, "name": "vision"}})
    assert refusal(said).field == "gateway.total_weight"
    del said["gateway"]["total_weight"]
    target = parse_target_file(said).target()
    assert target.gateway.total_weight == 100
    again = {**sections_of(target, StudyDefaults()), "slo": {"p99_ms": 100}}
    assert TargetFile.model_validate(again).target() == target


def test_a_service_without_weights_tunes_for_efficiency_and_is_measured_by_pods() -> None:
    said = content(kubernetes={"route": {"kind": "Service", "name": "vision"}})
    assert refusal(said).field == "metrics"
    target = parse_target_file({**said, "metrics": METRICS}).target()
    assert target.objective is Objective.EFFICIENCY
    assert target.only_share == pytest.approx(1 / 3)
    assert refusal({**said, "metrics": METRICS, "objective": "capacity"}).field == "objective"


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("kubernetes.route", {"kind": "InferenceService"}),
        ("kubernetes.route", {"route": {"kind": "InferenceService", "name": "vision"}}),
        (
            "kubernetes.route",
            {"kind": "InferenceService", "route": {"kind": "InferenceService", "name": "other"}},
        ),
        ("kubernetes.route.name", {"route": {"kind": "Service", "name": "other"}}),
    ],
)
def test_a_workload_and_a_route_that_are_one_object_say_so(field: str, change: dict[str, Any]) -> None:
    assert refusal(content(kubernetes=change)).field == field


def test_a_metrics_server_may_count_pods_and_only_pods_by_name() -> None:
    target = parse_target_file(content(metrics=METRICS)).target()
    assert target.metrics is not None
    assert target.metrics.server == (("pod", "{pod}"),)
    said = content(
        stable=[REPLICA],
        canary={**REPLICA, "name": "b", "url": "http://b:1", "metrics": "http://b:2"},
        gateway={"admin": "http://e:1", "runtime_prefix": "x"},
        metrics=METRICS,
    )
    del said["kubernetes"]
    assert refusal(said).field == "metrics.server"
