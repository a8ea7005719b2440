"""What is told of the slow requests of a window: parts that add up, and what could not be seen."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from autotuner.domain.slow_requests import (
    MOST_SPANS,
    MOST_TRACES,
    SLOWEST,
    Question,
    SlowRequests,
    slow_requests,
)
from autotuner.domain.spans import Part, Span
from tests.builders import at
from tests.request_spans import CANARY, SERVICES, by_trace, real_spans

QUESTION = Question(at(0), at(60), 0.1, ("canary",))


def told(traces: list[list[Span]]) -> SlowRequests:
    return slow_requests("Jaeger", traces, SERVICES, QUESTION, CANARY)


def test_parts_add_up_to_the_mean_of_the_slow_requests() -> None:
    found = told(by_trace(real_spans()))
    assert found.requests == 9
    assert found.mean_seconds == pytest.approx(sum(each.mean_seconds for each in found.parts))
    assert {each.part: each.longest_in for each in found.parts if each.longest_in} == {
        Part.GATEWAY: 1,
        Part.QUEUE: 8,
    }
    assert found.outside_inference == pytest.approx(0.62, abs=0.02)
    assert len(found.slowest) == SLOWEST
    assert found.slowest[0].longest is Part.GATEWAY
    assert found.remarks == (
        "1 of 23 traces without the span that a request of these replicas begins with",
        "13 of 22 requests not slower than the ceiling",
    )
    assert not found.fault


def test_no_trace_of_a_slow_request_is_said_and_is_no_zero() -> None:
    found = told([])
    assert found.fault == "no trace of a slow request was found"
    assert found.mean_seconds is None
    assert found.outside_inference is None
    assert found.parts == ()


def test_traces_without_triton_s_spans_are_counted() -> None:
    only_gateway = [[span for span in trace if span.service == "gateway"] for trace in by_trace(real_spans())]
    found = told(only_gateway)
    assert "9 of 9 without Triton's spans" in found.remarks
    assert found.outside_inference is None


def test_what_is_more_than_can_be_looked_at_is_left_out_and_said() -> None:
    (slow, *_) = [trace for trace in by_trace(real_spans()) if len(trace) == 5]
    many = [[replace(span, trace_id=f"{number:032x}") for span in slow] for number in range(MOST_TRACES + 10)]
    assert f"10 of {MOST_TRACES + 10} traces were not looked at" in told(many).remarks


def test_a_trace_of_ten_thousand_spans_is_passed_over_at_once() -> None:
    chain = [
        Span("b" * 32, f"{n}", f"{n - 1}" if n else "", "gateway", "hop", 0, 10**9) for n in range(10_000)
    ]
    began = time.monotonic()
    found = told([chain])
    assert time.monotonic() - began < 2
    assert found.remarks == (f"1 of 1 traces have more than {MOST_SPANS} spans",)
    assert found.fault
