"""Traces: a trial is one trace over all workers, calls hang below the tick that made them, and off costs nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autotuner.bootstrap.doors import traced_world
from autotuner.controller import Controller
from autotuner.domain.access import Scope
from autotuner.domain.study import Outcome, TrialKind
from autotuner.errors import InvalidInput, Unavailable
from autotuner.telemetry import traces
from autotuner.telemetry.spans import OtelRecorder, read_headers
from autotuner.telemetry.threads import ContextThreads
from autotuner.telemetry.traces import course_of_study, course_of_trial, traced
from tests.closed_loop.endings import a_loop, at
from tests.closed_loop.loop import Loop
from tests.command_line import TARGET, Terminal
from tests.rest import serving


@pytest.fixture
def told() -> Iterator[InMemorySpanExporter]:
    """What is recorded while a test runs."""
    exporter = InMemorySpanExporter()
    recorder = OtelRecorder(SimpleSpanProcessor(exporter), 1.0, "here")
    with traces.recorded_by(recorder):
        yield exporter
    recorder.stop()


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def by_trace(told: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in told.get_finished_spans():
        found.setdefault(trace_of(span), []).append(span)
    return found


def with_traced_doors(loop: Loop, holder: str) -> Controller:
    """A controller as `bootstrap` makes it while tracing is on."""
    controller, inner = loop.new_controller(holder), loop.target.world
    world = traced_world(inner)
    store = traced(loop.store, "database")
    outside = replace(controller._outside, worlds=lambda _: world, store=store)
    return Controller(outside, holder)


# -- a study -----------------------------------------------------------------------------------------------


def test_a_trial_is_one_trace_whichever_workers_carry_it(told: InMemorySpanExporter) -> None:
    loop = a_loop()
    told.clear()
    loop.controller = with_traced_doors(loop, "worker-1")
    loop.run(until=at(TrialKind.CANDIDATE))
    loop.controller.lost(loop.plan.target.name)
    loop.controller = with_traced_doors(loop, "worker-1")
    study = loop.run()
    assert study.outcome is Outcome.PROMOTED

    found = by_trace(told)
    wanted = {course_of_trial(study.id, trial.number).trace_id for trial in study.trials}
    assert set(found) == wanted | {course_of_study(study.id).trace_id}
    (candidate,) = [trial for trial in study.trials if trial.kind is TrialKind.CANDIDATE]
    spans = found[course_of_trial(study.id, candidate.number).trace_id]
    (root,) = [span for span in spans if span.parent is None]
    assert root.name == "trial candidate"
    assert root.attributes is not None
    assert root.attributes["autotuner.verdict"] == "accept"
    assert root.start_time == round(candidate.proposed_at.timestamp() * 1e6) * 1000
    ticks = [span for span in spans if span.name == "tick"]
    assert len(ticks) > 10
    assert {span.parent.span_id for span in ticks if span.parent} == {root.context.span_id}
    assert all(span.attributes and span.attributes["autotuner.reason"] for span in ticks)


def test_every_call_of_an_adapter_hangs_below_the_tick_that_made_it(told: InMemorySpanExporter) -> None:
    loop = a_loop()
    loop.controller = with_traced_doors(loop, "worker-1")
    told.clear()
    loop.run(until=at(TrialKind.CANDIDATE))

    spans = {span.context.span_id: span for span in told.get_finished_spans() if span.context}
    calls = [span for span in spans.values() if "." in span.name]
    assert {span.name for span in calls} >= {
        "triton.model_config",
        "triton.load",
        "gateway.set_weights",
        "metrics.sample",
        "database.append",
    }
    assert {spans[span.parent.span_id].name for span in calls if span.parent} == {"tick"}


def test_work_in_another_thread_belongs_to_who_submitted_it(told: InMemorySpanExporter) -> None:
    with ContextThreads(1) as pool, traces.span("tick"):
        pool.submit(traced(_Echo(), "triton").load, "canary").result()

    call, tick = told.get_finished_spans()
    assert (call.name, tick.name) == ("triton.load", "tick")
    assert call.parent is not None
    assert tick.context is not None
    assert call.parent.span_id == tick.context.span_id
    assert call.attributes is not None
    assert call.attributes["autotuner.subject"] == "canary"


class _Echo:
    number = 3

    def load(self, replica: str) -> str:
        return replica

    def fail(self) -> None:
        raise Unavailable("postgres", "postgresql://me:s3cret@nowhere refused")


def test_a_call_that_fails_says_so_and_shows_no_password(told: InMemorySpanExporter) -> None:
    echo = traced(_Echo(), "database")
    assert echo.number == 3
    with pytest.raises(Unavailable), traces.span("tick"):
        echo.fail()

    for span in told.get_finished_spans():
        assert not span.status.is_ok
        assert "Unavailable" in (span.status.description or "")
        assert "s3cret" not in (span.status.description or "")
        assert span.events == ()


def test_calls_outside_a_span_make_no_trace(told: InMemorySpanExporter) -> None:
    assert traced(_Echo(), "triton").load("canary") == "canary"
    assert told.get_finished_spans() == ()


def test_a_trial_is_recorded_whole_or_not_at_all() -> None:
    exporter = InMemorySpanExporter()
    recorder = OtelRecorder(SimpleSpanProcessor(exporter), 0.3, "here")
    with traces.recorded_by(recorder):
        for number in range(200):
            course = course_of_trial("study-1", number)
            with traces.within(course, "tick"), traces.span("inside"):
                pass
    recorder.stop()

    found = by_trace(exporter)
    assert 30 < len(found) < 90
    assert {len(spans) for spans in found.values()} == {2}
    kept = {trace_id for trace_id in found if int(trace_id[16:], 16) < 0.3 * 2**64}
    assert kept == set(found)


# -- the API -----------------------------------------------------------------------------------------------

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_request_is_a_trace_that_leads_to_the_study_it_starts(told: InMemorySpanExporter) -> None:
    with serving() as rest:
        assert rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET).status_code == 201
        told.clear()
        answer = rest.ask(
            "POST", "/v1/studies", Scope.OPERATOR, json={"target": "vision"}, headers={"traceparent": PARENT}
        )

    spans = {span.name: span for span in told.get_finished_spans()}
    request, operation = spans["POST /v1/studies"], spans["start_study"]
    assert trace_of(request) == trace_of(operation) == PARENT.split("-")[1]
    assert request.attributes is not None
    assert (request.attributes["autotuner.status"], request.attributes["autotuner.actor"]) == (
        201,
        "operator",
    )
    (link,) = operation.links
    assert f"{link.context.trace_id:032x}" == course_of_study(answer.json()["id"]).trace_id


def test_a_trial_says_where_its_trace_is() -> None:
    template = "http://127.0.0.1:16686/trace/{trace_id}"
    loop = a_loop()
    loop.run(until=lambda study: len(study.trials) > 1)
    terminal = Terminal(store=loop.store)
    terminal.clock, terminal.target = loop.clock, loop.target
    with serving(terminal, trace_url=template) as rest:
        trial = rest.get(f"/v1/studies/{loop.study_id}/trials/1")
    trace_id = course_of_trial(loop.study_id, 1).trace_id
    assert (trial["trace_id"], trial["trace_url"]) == (trace_id, template.replace("{trace_id}", trace_id))


# -- off ---------------------------------------------------------------------------------------------------


def test_while_tracing_is_off_nothing_is_wrapped_and_nothing_made() -> None:
    inner = _Echo()
    assert not traces.recording()
    assert traced(inner, "triton") is inner
    assert traces.span("a") is traces.span("b") is traces.NOTHING
    assert traces.within(course_of_study("s"), "tick") is traces.NOTHING


def test_what_is_off_is_not_even_imported() -> None:
    program = (
        "import sys, autotuner.bootstrap, api.app; print(any('opentelemetry.sdk' in m for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_headers_are_read_and_shown_to_nobody() -> None:
    assert read_headers("authorization=Bearer s3cret, x-scope = a=b") == {
        "authorization": "Bearer s3cret",
        "x-scope": "a=b",
    }
    with pytest.raises(InvalidInput) as refused:
        read_headers("s3cret")
    assert "s3cret" not in str(refused.value)
