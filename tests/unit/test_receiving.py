"""Spans that are sent here: of targets that listen, of slow requests, within bounds; and what is made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autotuner.adapters.memory_store import MemorySpans, MemoryStore
from autotuner.adapters.tracing import SentTraces, spans_of_export
from autotuner.domain.slow_requests import Question
from autotuner.domain.sources import TraceStore
from autotuner.domain.spans import INFERENCE, Part, Span
from autotuner.domain.target import Target
from autotuner.instruments.readings import Unreadable
from autotuner.receiving import MOST_WAITING, TOGETHER_AFTER, Receiver
from tests.builders import START, ManualClock, a_budget, a_plan, a_study, a_target, at
from tests.request_spans import FIXTURES, by_trace, real_spans

SENT_HERE = TraceStore("otlp", gateway="gateway", triton="triton")
TARGET = a_target(traces=SENT_HERE)
ENVOY = (FIXTURES / "envoy-1.40.pb").read_bytes()
TRITON = (FIXTURES / "triton-2.51.json").read_bytes()
SENT_AT = datetime.fromtimestamp(max(span.ended_ns for span in real_spans()) / 1e9, START.tzinfo)
MINUTE = timedelta(minutes=1)
NONE_AS_JSON = b'{"resourceSpans": []}'


class Place:
    """A receiver over a store in memory, with a study of a target that listens."""

    def __init__(self, target: Target = TARGET, *, running: bool = True) -> None:
        self.clock = ManualClock(SENT_AT)
        store = MemoryStore()
        slo = store.save_target(target, a_budget(), "operator", "first", START)
        if running:
            store.create_study(a_study(plan=a_plan(target=target, slo=slo)))
        self.received = MemorySpans(store.memory)
        self.receiver = Receiver(self.received, self.clock, spans_of_export)

    def settle(self) -> None:
        """Let what is waiting become whole."""
        self.clock.advance(TOGETHER_AFTER)
        self.receiver.take(NONE_AS_JSON, as_json=True)

    def kept(self) -> list[tuple[Span, ...]]:
        found = self.received.slow(TARGET.name, SENT_AT - MINUTE, SENT_AT + MINUTE)
        return [trace.spans for trace in found]


def asked(began: datetime = SENT_AT - MINUTE) -> Question:
    return Question(began, SENT_AT + MINUTE, 0.1, ("canary",))


def export(*spans: Span) -> bytes:
    """Spans as OTLP's JSON."""
    sent = [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": span.service}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": span.trace_id,
                            "spanId": span.span_id,
                            "parentSpanId": span.parent_id,
                            "name": span.name,
                            "startTimeUnixNano": str(span.started_ns),
                            "endTimeUnixNano": str(span.ended_ns),
                            "attributes": [
                                {"key": key, "value": {"stringValue": value}}
                                for key, value in span.attributes.items()
                            ],
                        }
                    ]
                }
            ],
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": sent}).encode()


def test_what_envoy_and_triton_sent_explains_the_slow_requests() -> None:
    place = Place()
    assert place.receiver.take(ENVOY, as_json=False) == 0
    assert place.receiver.take(TRITON, as_json=True) == 0
    assert not place.kept(), "it may not be whole yet"
    place.settle()

    found = SentTraces(TARGET, place.received).slow_requests(asked())

    assert (found.requests, found.fault) == (9, "")
    assert {each.part: each.longest_in for each in found.parts if each.longest_in} == {
        Part.GATEWAY: 1,
        Part.QUEUE: 8,
    }


def test_what_triton_alone_sent_explains_them_where_no_gateway_is_traced() -> None:
    target = a_target(traces=TraceStore("otlp", triton="triton"))
    place = Place(target)
    assert place.receiver.take(TRITON, as_json=True) == 0
    place.settle()

    found = SentTraces(target, place.received).slow_requests(asked())

    assert (found.requests, found.fault) == (8, "")
    assert {each.part for each in found.parts} == {Part.TRITON, Part.QUEUE, *INFERENCE}


def test_what_is_together_is_judged_though_nothing_else_comes() -> None:
    place = Place()
    place.receiver.settle()
    place.receiver.take(ENVOY, as_json=False)
    place.receiver.settle()
    assert not place.kept(), "it may not be whole yet"
    place.clock.advance(TOGETHER_AFTER)
    place.receiver.settle()
    assert len(place.kept()) == 9


def test_only_slow_requests_are_kept_and_only_what_is_computed_from() -> None:
    place = Place()
    place.receiver.take(ENVOY, as_json=False)
    place.receiver.take(TRITON, as_json=True)
    place.settle()
    kept = place.kept()
    assert len(kept) == 9
    assert {key for spans in kept for span in spans for key in span.attributes} == {"upstream_cluster.name"}


@pytest.mark.parametrize(
    ("store", "running"),
    [
        (SENT_HERE, False),
        (replace(SENT_HERE, kind="jaeger", url="http://127.0.0.1:1"), True),
        (replace(SENT_HERE, gateway="other", triton="another"), True),
        (replace(SENT_HERE, replica=(("k8s.pod.name", "{name}"),)), True),
    ],
    ids=["no study runs", "another store", "other services", "other replicas"],
)
def test_spans_that_are_nobody_s_are_forgotten(store: TraceStore, running: bool) -> None:
    place = Place(a_target(traces=store), running=running)
    place.receiver.take(ENVOY, as_json=False)
    place.settle()
    assert not place.kept()


def test_spans_of_another_time_are_nobody_s() -> None:
    place = Place()
    (slow, *_) = max(by_trace(real_spans()), key=lambda trace: trace[0].seconds)
    far = replace(slow, started_ns=0, ended_ns=2**63 - 1)
    assert place.receiver.take(export(far), as_json=True) == 1
    place.settle()
    assert not place.kept()


def test_more_than_may_wait_is_judged_at_once() -> None:
    place = Place()
    end_ns = int(SENT_AT.timestamp() * 1e9)
    mark = {"upstream_cluster.name": "canary"}
    many = [
        Span(f"{n:032x}", "b" * 16, "", "gateway", "x", end_ns - 10**9, end_ns, mark)
        for n in range(MOST_WAITING + 2)
    ]
    place.receiver.take(export(*many), as_json=True)
    assert len(place.kept()) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"[" * 100_000,
        b'{"resourceSpans": 7}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}',
        export(real_spans()[0]).replace(b'traceId": "', b'traceId": "zz'),
        export(real_spans()[0])[:-20],
        export(real_spans()[0]).replace(b'"startTimeUnixNano": "', b'"startTimeUnixNano": "1e999'),
    ],
)
def test_what_is_no_json_of_otlp_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        Place().receiver.take(body, as_json=True)


def test_what_is_no_protobuf_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        Place().receiver.take(ENVOY[:-7], as_json=False)


def test_where_there_is_no_database_it_is_said() -> None:
    assert "no database" in SentTraces(TARGET, None).slow_requests(asked()).fault


def test_requests_outside_the_window_are_not_told_of() -> None:
    place = Place()
    place.receiver.take(ENVOY, as_json=False)
    place.settle()
    assert SentTraces(TARGET, place.received).slow_requests(asked(at(0) + (SENT_AT - START) + MINUTE)).fault


def a_text(**changes: Any) -> Span:
    (slow, *_) = max(by_trace(real_spans()), key=lambda trace: trace[0].seconds)
    return replace(slow, **changes)


def test_texts_that_no_database_takes_are_made_plain() -> None:
    place = Place()
    place.receiver.take(export(a_text(name="x\x00y")), as_json=True)
    place.settle()
    assert place.kept()[0][0].name == "xy"
