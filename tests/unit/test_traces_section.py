"""The `traces` section: what it becomes, that it comes back, and what is refused with which words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from autotuner.addresses import AllowList, check_addresses
from autotuner.domain.registration import StudyDefaults
from autotuner.domain.sources import TraceStore
from autotuner.domain.target import Gateway, Target
from autotuner.errors import InvalidInput
from autotuner.records import from_record, to_record
from autotuner.target_file import TargetFile, parse_target_file, sections_of
from tests.builders import a_replica, a_target

FULL: dict[str, Any] = {
    "source": "tempo",
    "url": "https://10.0.0.30:3200/tempo/",
    "gateway": "envoy",
    "triton": "triton",
    "replica": {"k8s.pod.name": "{name}"},
    "arrival": "30s",
    "deadline": "2s",
    "tenant": "team-a",
    "basic": {"user": "anna", "password": "tempo"},
    "ca": "tempo-ca",
}


def target_file(traces: object) -> TargetFile:
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
            "traces": traces,
        }
    )


def refusal(traces: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        target_file(traces)
    return str(caught.value)


def test_every_field_becomes_what_it_says() -> None:
    assert target_file(FULL).target().traces == TraceStore(
        "tempo",
        "https://10.0.0.30:3200/tempo",
        gateway="envoy",
        triton="triton",
        replica=(("k8s.pod.name", "{name}"),),
        arrival=timedelta(seconds=30),
        deadline=timedelta(seconds=2),
        tenant="team-a",
        user="anna",
        password="tempo",
        ca="tempo-ca",
    )


def test_a_section_comes_back_as_it_was_written() -> None:
    target = target_file(FULL).target()
    again = target_file(sections_of(target, StudyDefaults())["traces"]).target()
    assert again.traces == target.traces
    assert from_record(Target, to_record(target)) == target


def test_a_target_without_traces_is_recorded_as_before() -> None:
    assert "traces" not in to_record(a_target())
    assert sections_of(a_target(), StudyDefaults())["traces"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "zipkin"}, "one of: jaeger, tempo, otlp"),
        ({"url": None}, "the URL of the tempo that has the spans (required)"),
        ({"source": "otlp"}, "left out with source otlp"),
        ({"bearer": "tempo"}, "nothing, since bearer is given"),
        ({"replica": {"pod": "canary"}}, "at least one with {name}"),
        ({"replica": {"a b": "{name}"}}, "at least one with {name}"),
        ({"replica": {"pod": "{name}\n"}}, "at least one with {name}"),
        ({"deadline": "1m"}, "a duration from 100ms to 30s"),
        ({"arrival": "6m"}, "a duration up to 5m"),
        ({"gateway": "a\nb"}, "a service.name of at most 200 characters"),
        ({"trace": 1}, "one of the fields source"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_can(changes: dict[str, Any], words: str) -> None:
    assert words in refusal({**FULL, **changes})


def test_the_store_s_address_must_be_allowed_like_every_other() -> None:
    with pytest.raises(InvalidInput, match=r"traces\.url"):
        check_addresses(target_file(FULL).target(), AllowList.read("10.0.0.0/29"))


def test_a_replica_is_singled_out_by_what_the_gateway_calls_it() -> None:
    target = a_target(
        gateway=Gateway("http://127.0.0.1:9900", "route.vision", clusters={"canary": "models/canary"}),
        traces=TraceStore("jaeger", "http://127.0.0.1:1", gateway="envoy"),
    )
    assert target.marks(("canary", "stable-0")) == (
        {"upstream_cluster.name": "models/canary"},
        {"upstream_cluster.name": "stable-0"},
    )


def test_where_only_triton_is_traced_a_replica_is_singled_out_by_what_it_calls_itself() -> None:
    target = a_target(traces=TraceStore("jaeger", "http://127.0.0.1:1"), canary=a_replica("canary"))
    assert target.marks(("canary",)) == ({"service.instance.id": "canary"},)
