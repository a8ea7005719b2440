"""The `metrics` section: what it becomes, that it comes back, and what is refused with which words."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.addresses import AllowList, check_addresses
from autotuner.domain.registration import StudyDefaults
from autotuner.domain.sources import FailedWhere, Instrumentation, LatencyHistogram, PrometheusServer
from autotuner.domain.target import Target
from autotuner.errors import InvalidInput
from autotuner.records import from_record, to_record
from autotuner.target_file import TargetFile, load_target_file, parse_target_file, sections_of
from tests.builders import a_target

EXAMPLE = Path(__file__).parents[2] / "examples" / "target-prometheus.yaml"
URL = "http://10.0.0.20:9090"
FULL: dict[str, Any] = {
    "prometheus": {
        "url": URL + "/prometheus/",
        "deadline": "1.5s",
        "tenant": "team-a",
        "basic": {"user": "anna", "password": "prometheus"},
        "ca": "prometheus-ca",
    },
    "preset": "custom",
    "labels": {"cluster": "prod"},
    "gateway": {"backend": "{name}"},
    "server": {"pod": "{name}"},
    "gateway_pods": None,
    "device": "dcgm",
    "custom": {"histogram": "proxy_ms", "unit": "ms", "failed": [{"label": "code", "pattern": "[45].."}]},
}


def target_file(metrics: object) -> TargetFile:
    return parse_target_file(
        {
            "name": "vision",
            "model": "small_vision",
            "stable": [
                {"name": "stable-0", "url": "http://10.0.0.1:8000", "metrics": "http://10.0.0.1:8002"}
            ],
            "canary": {"name": "canary", "url": "http://10.0.0.2:8000", "metrics": "http://10.0.0.2:8002"},
            "gateway": {"admin": "http://10.0.0.3:9901", "runtime_prefix": "route.vision"},
            "slo": {"p99_ms": 100},
            "limits": {"instance_count": 4},
            "metrics": metrics,
        }
    )


def refusal(metrics: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        target_file(metrics)
    return str(caught.value)


def test_a_url_is_enough() -> None:
    found = target_file({"prometheus": {"url": URL}}).target().metrics
    assert found == Instrumentation(PrometheusServer(URL))


def test_all_fields_become_the_domains_words() -> None:
    assert target_file(FULL).target().metrics == Instrumentation(
        prometheus=PrometheusServer(
            url=URL + "/prometheus",
            deadline=timedelta(seconds=1.5),
            tenant="team-a",
            user="anna",
            password="prometheus",
            ca="prometheus-ca",
        ),
        preset="custom",
        labels=(("cluster", "prod"),),
        gateway=(("backend", "{name}"),),
        server=(("pod", "{name}"),),
        gateway_pods=None,
        device="dcgm",
        histogram=LatencyHistogram("proxy_ms", 0.001, (FailedWhere("code", "[45].."),)),
    )


@pytest.mark.parametrize("metrics", [{"prometheus": {"url": URL}}, FULL])
def test_what_is_stored_and_what_is_shown_come_back_the_same(metrics: object) -> None:
    target = target_file(metrics).target()
    assert from_record(Target, to_record(target)) == target
    shown = sections_of(target, StudyDefaults())["metrics"]
    assert target_file(shown).target().metrics == target.metrics


def test_a_target_without_the_section_is_stored_as_before() -> None:
    assert "metrics" not in to_record(a_target())


def test_the_example_loads_and_names_every_field() -> None:
    text = EXAMPLE.read_text("utf-8")
    example = load_target_file(EXAMPLE)
    assert example.metrics is not None
    sections = [example.metrics, example.metrics.prometheus]
    names = {name for section in sections for name in type(section).model_fields}
    assert {name for name in names if f"{name}:" not in text} == set()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prometheus": {}}, "metrics.prometheus.url"),
        ({"prometheus": {"url": "prometheus:9090"}}, "a URL with its host"),
        ({"prometheus": {"url": "http://me:secret@h"}}, "without user, password or query"),
        ({"prometheus": {"url": URL, "deadline": "10s"}}, "a duration from 100ms to 3s"),
        ({"prometheus": {"url": URL, "bearer": "../etc/passwd"}}, "the name of a secret"),
        (
            {"prometheus": {"url": URL, "bearer": "a", "basic": {"user": "b", "password": "c"}}},
            "nothing, since bearer",
        ),
        ({"prometheus": {"url": URL, "tenant": "a\r\nb"}}, "on one line"),
        (
            {"preset": "nginx"},
            "one of: contour, envoy, envoy-gateway, ingress-nginx, istio, kserve, traefik, custom",
        ),
        ({"labels": {"a-b": "c"}}, "label names"),
        ({"labels": {"__name__": "c"}}, "label names"),
        ({"labels": {"a": 1}}, "label names"),
        ({"gateway": {"envoy_cluster_name": "{host}"}}, "at least one label with {name}, "),
        ({"gateway": {"pod": "{name}"}}, "envoy_cluster_name"),
        ({"server": {"job": "triton"}}, "{name} or {host} or {address}"),
        ({"gateway_pods": 0}, "1 to 1000, or null"),
        ({"device": "amd"}, "one of: triton, dcgm, cpu, none"),
        ({"preset": "custom"}, "a section with histogram"),
        ({"preset": "custom", "custom": FULL["custom"]}, "labels that single out a replica"),
        ({"custom": FULL["custom"]}, "unless metrics.preset is custom"),
        (
            {**FULL, "custom": {"histogram": "a b", "failed": [{"label": "c", "pattern": "x"}]}},
            "without _bucket",
        ),
        ({**FULL, "custom": {"histogram": "a", "failed": []}}, "which requests failed"),
        (
            {**FULL, "custom": {"histogram": "a", "failed": [{"label": "c", "pattern": "(a+)+"}]}},
            "without repetition",
        ),
        (
            {**FULL, "custom": {"histogram": "a", "failed": [{"label": "c", "pattern": "("}]}},
            "without repetition",
        ),
        (
            {**FULL, "custom": {"histogram": "a", "failed": [{"label": "c", "pattern": "a[[b]"}]}},
            "without repetition",
        ),
        (
            {**FULL, "custom": {"histogram": "a", "failed": [{"label": "c", "pattern": "[a--z]"}]}},
            "without repetition",
        ),
        (
            {**FULL, "custom": {"histogram": "a", "failed": [{"label": "c", "pattern": "[a||b]"}]}},
            "without repetition",
        ),
        ({"interval": "5s"}, "one of the fields prometheus, preset"),
    ],
)
def test_what_cannot_be_used_is_refused_by_field_and_what_is_allowed(
    change: dict[str, Any], words: str
) -> None:
    sentence = refusal({"prometheus": {"url": URL}, **change})
    assert words in sentence
    assert sentence.startswith("metrics.")


def test_the_servers_address_must_be_allowed_like_every_other() -> None:
    target = target_file({"prometheus": {"url": "http://169.254.169.254"}}).target()
    with pytest.raises(InvalidInput, match=r"metrics\.prometheus\.url"):
        check_addresses(target, AllowList.read("10.0.0.0/8"))
    check_addresses(target_file({"prometheus": {"url": URL}}).target(), AllowList.read("10.0.0.0/8"))
