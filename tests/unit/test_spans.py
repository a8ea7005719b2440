"""Where one request's time went, by the spans of a real Envoy and a real Triton, and by spans that are odd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotuner.domain.spans import Breakdown, Part, Services, Span, breakdowns
from tests.request_spans import CANARY, SERVICES, by_trace, real_spans

MILLISECOND = 1_000_000
MODEL_PARTS = (Part.QUEUE, Part.INPUT, Part.INFER, Part.OUTPUT)


def a_span(
    span_id: str, parent_id: str, service: str, began_ms: float, ended_ms: float, **changes: object
) -> Span:
    fields: dict[str, object] = {
        "trace_id": "a" * 32,
        "span_id": span_id,
        "parent_id": parent_id,
        "service": service,
        "name": span_id,
        "started_ns": round(began_ms * MILLISECOND),
        "ended_ns": round(ended_ms * MILLISECOND),
    }
    return Span(**{**fields, **changes})  # type: ignore[arg-type]


def events(**milliseconds: float) -> dict[str, int]:
    return {name: round(ms * MILLISECOND) for name, ms in milliseconds.items()}


def a_request() -> list[Span]:
    """100 ms: 20 in the gateway, 10 on the network, 5 around the model, 30 queued, 1 + 33 + 1 computed."""
    mark = {"upstream_cluster.name": "canary"}
    return [
        a_span("entry", "", "gateway", 0, 100, attributes=mark),
        a_span("exit", "entry", "gateway", 15, 95, attributes=mark),
        a_span("request", "exit", "triton", 20, 90),
        a_span("model", "request", "triton", 22, 89, events=events(QUEUE_START=23)),
        a_span(
            "compute",
            "model",
            "triton",
            53,
            88,
            events=events(COMPUTE_START=53, COMPUTE_INPUT_END=54, COMPUTE_OUTPUT_START=87, COMPUTE_END=88),
        ),
    ]


def the(spans: Sequence[Span], services: Services = SERVICES) -> Breakdown:
    (found,) = breakdowns(spans, services, CANARY if services.gateway else ({},))
    return found


def in_ms(found: Breakdown) -> dict[Part, float]:
    return {part: round(seconds * 1e3, 6) for part, seconds in found.parts.items()}


def test_a_request_is_broken_down_from_outside_in() -> None:
    assert in_ms(the(a_request())) == {
        Part.GATEWAY: 20,
        Part.NETWORK: 10,
        Part.TRITON: 5,
        Part.QUEUE: 30,
        Part.INPUT: 1,
        Part.INFER: 33,
        Part.OUTPUT: 1,
    }


def test_real_spans_of_envoy_and_triton_are_joined_and_add_up_to_the_whole() -> None:
    found = [each for trace in by_trace(real_spans()) for each in breakdowns(trace, SERVICES, CANARY)]
    assert len(found) == 22
    for each in found:
        assert sum(each.parts.values()) == pytest.approx(each.seconds)
        assert not each.odd
        assert each.clocks_differ_seconds == 0.0
    whole = [each for each in found if Part.INFER in each.parts]
    assert len(whole) == 21, "all but the one that Triton could not read"
    assert all(0.019 < each.parts[Part.INFER] < 0.075 for each in whole)


def test_what_held_up_a_real_request_is_named() -> None:
    found = [each for trace in by_trace(real_spans()) for each in breakdowns(trace, SERVICES, CANARY)]
    slow = [each for each in found if each.seconds > 0.1]
    longest = [max(each.parts, key=lambda part: each.parts[part]) for each in slow]
    assert longest.count(Part.GATEWAY) == 1, "the one that the gateway held back"
    assert longest.count(Part.QUEUE) == 8, "those that came at once"
    held = max(each.parts[Part.GATEWAY] for each in slow)
    assert held == pytest.approx(0.150, abs=0.01)


def test_without_triton_s_spans_the_rest_is_behind_the_gateway_and_not_nothing() -> None:
    assert in_ms(the(a_request()[:2])) == {Part.GATEWAY: 20, Part.BEHIND: 80}


def test_without_a_span_of_passing_on_gateway_and_network_are_one_part() -> None:
    entry, _, request, *rest = a_request()
    found = in_ms(the([entry, replace(request, parent_id="entry"), *rest]))
    assert found[Part.PASSAGE] == 30
    assert Part.GATEWAY not in found


def test_a_span_whose_parent_is_missing_belongs_to_the_only_request_of_its_trace() -> None:
    found = in_ms(the([span for span in a_request() if span.span_id != "exit"]))
    assert found[Part.PASSAGE] == 30
    assert found[Part.QUEUE] == 30


def test_a_span_whose_parent_is_missing_belongs_to_none_of_two_requests() -> None:
    second = replace(a_request()[0], span_id="entry-2")
    spans = [*(span for span in a_request() if span.span_id != "exit"), second]
    assert [list(each.parts) for each in breakdowns(spans, SERVICES, CANARY)] == [[Part.BEHIND]] * 2


def test_a_trace_without_its_outermost_span_tells_of_no_request() -> None:
    assert breakdowns(a_request()[2:], SERVICES, CANARY) == []


def test_requests_to_other_replicas_are_left_out() -> None:
    assert breakdowns(a_request(), SERVICES, ({"upstream_cluster.name": "stable-0"},)) == []


def test_two_requests_of_one_trace_are_two() -> None:
    second = [
        replace(span, span_id=f"{span.span_id}-2", parent_id=f"{span.parent_id}-2" if span.parent_id else "")
        for span in a_request()
    ]
    first, other = breakdowns([*a_request(), *second], SERVICES, CANARY)
    assert first.parts == other.parts


def test_a_caller_s_own_spans_around_are_not_the_gateway_s() -> None:
    spans = [a_span("caller", "", "shop", 0, 500), *a_request()]
    spans[1] = replace(spans[1], parent_id="caller")
    assert the(spans).seconds == pytest.approx(0.1)


def test_clocks_that_differ_move_no_time_from_one_part_to_another() -> None:
    late = 5_000 * MILLISECOND
    skewed = [
        replace(
            span,
            started_ns=span.started_ns + late,
            ended_ns=span.ended_ns + late,
            events={name: ns + late for name, ns in span.events.items()},
        )
        if span.service == "triton"
        else span
        for span in a_request()
    ]
    found = the(skewed)
    assert found.parts == the(a_request()).parts
    assert found.clocks_differ_seconds == pytest.approx(4.995)


def test_a_span_that_outlasts_the_one_around_it_is_said_to() -> None:
    spans = a_request()
    spans[2] = replace(spans[2], started_ns=0, ended_ns=90 * MILLISECOND)
    found = the(spans)
    assert found.odd
    assert found.parts[Part.NETWORK] == 0.0
    assert sum(found.parts.values()) == pytest.approx(found.seconds)


def test_parents_in_a_circle_end() -> None:
    spans = [*a_request(), a_span("x", "y", "gateway", 0, 1), a_span("y", "x", "gateway", 0, 1)]
    assert the(spans).parts == the(a_request()).parts


def test_a_span_that_is_told_twice_counts_once() -> None:
    assert the([*a_request(), *a_request()]).parts == the(a_request()).parts


def test_triton_alone_tells_what_is_within_it() -> None:
    found = the(a_request(), Services("", "triton"))
    assert found.seconds == pytest.approx(0.07)
    assert in_ms(found) == {Part.TRITON: 5, Part.QUEUE: 30, Part.INPUT: 1, Part.INFER: 33, Part.OUTPUT: 1}


def test_the_models_of_an_ensemble_are_added_up() -> None:
    inner = [
        a_span("inner", "model", "triton", 22, 89, events=events(QUEUE_START=80, COMPUTE_START=81)),
    ]
    assert in_ms(the([*a_request(), *inner]))[Part.QUEUE] == 31


def test_time_stamps_that_are_missing_leave_their_part_out() -> None:
    spans = a_request()
    spans[4] = replace(spans[4], events=events(COMPUTE_START=53, COMPUTE_END=88))
    found = in_ms(the(spans))
    assert found[Part.QUEUE] == 30
    assert set(found).isdisjoint({Part.INPUT, Part.INFER, Part.OUTPUT})
    assert sum(found.values()) == pytest.approx(100)
