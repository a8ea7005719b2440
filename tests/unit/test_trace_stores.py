"""Jaeger and Tempo asked over HTTP: what is asked, what is made of it, and answers that are wrong in every way."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.tracing import JaegerTraces, TempoTraces
from autotuner.adapters.tracing.tempo import traceql
from autotuner.domain.slow_requests import Question, SlowRequests
from autotuner.domain.sources import TraceStore
from autotuner.domain.spans import Part
from autotuner.secret_shelf import SecretShelf
from tests.builders import a_target, at
from tests.request_spans import as_jaeger, as_tempo, by_trace, real_spans
from tests.stub_server import Planned, StubServer

QUESTION = Question(at(0), at(60.5), 0.1, ("canary",))
TRACES = [trace for trace in by_trace(real_spans()) if trace[0].service == "gateway"]
KINDS: dict[str, type[JaegerTraces | TempoTraces]] = {"jaeger": JaegerTraces, "tempo": TempoTraces}
PATHS = {"jaeger": "/api/traces", "tempo": "/api/search"}


def ask(url: str, kind: str, secrets: SecretShelf | None = None, **changes: Any) -> SlowRequests:
    fields: dict[str, Any] = {"gateway": "gateway", "triton": "triton", "deadline": timedelta(seconds=30)}
    target = a_target(traces=TraceStore(kind, url, **{**fields, **changes}))
    return KINDS[kind](target, secrets or SecretShelf(), SystemClock()).slow_requests(QUESTION)


def asked(server: StubServer, number: int = 0) -> dict[str, str]:
    query = urlsplit(server.requests[number].partition(" ")[2]).query
    return {name: values[0] for name, values in parse_qs(query).items()}


def a_jaeger() -> StubServer:
    return StubServer({"/api/traces": Planned(json.dumps(as_jaeger(TRACES)))})


def a_tempo() -> StubServer:
    found = {"traces": [{"traceID": trace[0].trace_id.lstrip("0")} for trace in TRACES]}
    answers: dict[str, Planned | Callable[[str], Planned]] = {"/api/search": Planned(json.dumps(found))}
    for trace in TRACES:
        answers[f"/api/traces/{trace[0].trace_id.lstrip('0')}"] = Planned(json.dumps(as_tempo(trace)))
    return StubServer(answers)


def test_a_jaeger_is_asked_for_slow_requests_of_the_canary_in_the_window() -> None:
    with a_jaeger() as server:
        found = ask(server.url, "jaeger")
        (_,) = server.requests
        assert asked(server) == {
            "service": "gateway",
            "start": str(round(at(0).timestamp() * 1e6)),
            "end": str(round(at(60.5).timestamp() * 1e6)),
            "minDuration": "100000us",
            "limit": "50",
            "tags": '{"upstream_cluster.name": "canary"}',
        }
    assert (found.source, found.requests, found.fault) == ("Jaeger", 9, "")
    assert found.mean_seconds == pytest.approx(sum(each.mean_seconds for each in found.parts), abs=1e-5)
    assert {each.part for each in found.parts} >= {Part.GATEWAY, Part.NETWORK, Part.QUEUE, Part.INFER}


def test_a_tempo_is_searched_and_each_trace_read() -> None:
    with a_tempo() as server:
        found = ask(server.url, "tempo")
        assert asked(server)["q"] == (
            '{ resource.service.name = "gateway" && .upstream_cluster.name = "canary" && duration > 100000us }'
        )
        assert len(server.requests) == 1 + 20
    assert (found.source, found.fault) == ("Tempo", "")
    assert found.requests > 0
    assert "2 of 22 traces were not read" in found.remarks


def test_both_stores_tell_the_same_of_the_same_spans() -> None:
    few = [trace for trace in TRACES if trace[0].seconds > 0.1]
    with a_jaeger() as jaeger, a_tempo() as tempo:
        jaeger.answers["/api/traces"] = Planned(json.dumps(as_jaeger(few)))
        tempo.answers["/api/search"] = Planned(
            json.dumps({"traces": [{"traceID": each[0].trace_id.lstrip("0")} for each in few]})
        )
        one, other = ask(jaeger.url, "jaeger"), ask(tempo.url, "tempo")
    assert [each.part for each in one.parts] == [each.part for each in other.parts]
    for mine, its in zip(one.parts, other.parts, strict=True):
        assert mine.mean_seconds == pytest.approx(its.mean_seconds, abs=2e-5), "Jaeger keeps microseconds"
        assert mine.longest_in == its.longest_in


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("planned", "fault"),
    [
        (Planned("<!doctype html><html>sign in</html>"), "something that is not JSON"),
        (Planned("<html>bad gateway</html>", 502), "HTTP 502: a web page"),
        (Planned("no such tenant", 401), "HTTP 401: no such tenant"),
        (Planned("", 503), "HTTP 503: no text"),
        (Planned("", 302, {"location": "http://127.0.0.1:1/"}), "HTTP 302, a redirect"),
        (Planned('{"data": [{"spans"', promised=4_000), "no answer ("),
        (Planned('{"data": [{"spans"'), "something that is not JSON"),
        (Planned("[" * 100_000), "JSON that is nested too deeply"),
        (Planned("[]"), "an answer in an unknown form"),
        (Planned('{"traces": 7, "data": 7}'), "an answer in an unknown form"),
        (Planned('{"traces": [{}], "data": [{}]}'), "an answer in an unknown form"),
        (Planned('{"traces": [{"traceID": "../x"}], "data": null, "errors": [{"msg": "no"}]}'), "an "),
        (Planned("x" * 20_000_001), "more than 20 MB"),
        (Planned('{"traces": null, "data": []}'), "no trace of a slow request was found"),
    ],
)
def test_a_wrong_answer_is_said_and_never_raised(kind: str, planned: Planned, fault: str) -> None:
    with StubServer({PATHS[kind]: planned}) as server:
        found = ask(server.url, kind)
    assert found.fault.startswith(fault)
    assert (found.requests, found.mean_seconds, found.parts) == (0, None, ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_hangs_or_is_away_is_given_up(kind: str) -> None:
    with StubServer({PATHS[kind]: Planned(hang=True)}) as server:
        assert ask(server.url, kind, deadline=timedelta(seconds=0.2)).fault == "no answer within 0.2 s"
        url = server.url
    assert ask(url, kind).fault.startswith("no answer (")


@pytest.mark.parametrize(
    "change",
    [
        lambda trace: trace["spans"][0].pop("startTime"),
        lambda trace: trace["spans"][0].update(duration="long"),
        lambda trace: trace["spans"][0].update(processID="p9"),
        lambda trace: trace["spans"][0].update(duration=10**400),
        lambda trace: trace["spans"][0].update(startTime=-1),
        lambda trace: trace.update(traceID="x" * 32),
        lambda trace: trace.update(traceID="a" * 1000),
        lambda trace: trace.update(processes=None),
    ],
)
def test_a_jaeger_trace_in_another_form_is_refused(change: Callable[[Any], object]) -> None:
    answer = as_jaeger(TRACES[:1])
    change(answer["data"][0])
    with StubServer({"/api/traces": Planned(json.dumps(answer))}) as server:
        assert ask(server.url, "jaeger").fault.startswith("an answer in an unknown form")


def test_a_tempo_that_stops_answering_half_way_tells_of_what_was_read() -> None:
    with a_tempo() as server:
        lost = f"/api/traces/{TRACES[5][0].trace_id.lstrip('0')}"
        server.answers[lost] = Planned("trace not found", 404)
        found = ask(server.url, "tempo")
    assert "5 of 22 traces were read (HTTP 404: trace not found)" in found.remarks


def test_what_identifies_us_is_sent_and_never_shown() -> None:
    secrets = SecretShelf({"traces": "s3cret"})
    with a_jaeger() as server:
        ask(server.url, "jaeger", secrets, bearer="traces", tenant="team-a")
        ask(server.url, "jaeger", secrets, user="anna", password="traces")
        headers = server.sent_headers
    assert headers[0]["authorization"] == "Bearer s3cret"
    assert headers[0]["x-scope-orgid"] == "team-a"
    assert headers[1]["authorization"].startswith("Basic ")
    assert "s3cret" not in str(ask(server.url, "jaeger", bearer="nothing"))


def test_a_secret_that_there_is_none_of_is_said() -> None:
    assert "secret" in ask("http://127.0.0.1:1", "tempo", bearer="nothing").fault


def test_nothing_in_a_target_can_be_more_than_a_text_in_a_search() -> None:
    query = traceql('x" } || { true', {"up-stream": 'y" }'}, 0.1)
    assert query == (
        '{ resource.service.name = "x\\" } || { true" && ."up-stream" = "y\\" }" && duration > 100000us }'
    )
