"""Slow requests from a Jaeger's query service: one question a replica, whole traces in the answer.

Jaeger keeps microseconds. It compares the length of single spans of the service that is asked about, which is what is
wanted: the gateway's own view of a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autotuner.adapters.tracing.asking import Asker, Asking
from autotuner.domain.slow_requests import MOST_TRACES, Question, SlowRequests, slow_requests, unread
from autotuner.domain.spans import Span, hexadecimal, instant_ns
from autotuner.instruments.readings import Unreadable

SOURCE = "Jaeger"
EVENT_NAMES = ("event", "message", "name")
"""Under which of these a log of a span has an event's name: it depends on Jaeger's version."""


class JaegerTraces(Asker):
    """What a Jaeger has of a target's slow requests."""

    def slow_requests(self, question: Question) -> SlowRequests:
        """Return where slow requests spent their time; see `Traces`."""
        marks = self._target.marks(question.replicas)
        try:
            with self._asking() as store:
                traces = [trace for mark in marks for trace in self._asked(store, question, mark, len(marks))]
        except Unreadable as fault:
            return unread(SOURCE, str(fault))
        return slow_requests(SOURCE, traces, self._services, question, marks)

    def _asked(
        self, store: Asking, question: Question, mark: Mapping[str, str], replicas: int
    ) -> list[list[Span]]:
        parameters = {
            "service": self._services.gateway or self._services.triton,
            "start": str(round(question.began.timestamp() * 1e6)),
            "end": str(round(question.ended.timestamp() * 1e6)),
            "minDuration": f"{round(question.ceiling_seconds * 1e6)}us",
            "limit": str(max(1, MOST_TRACES // replicas)),
            "tags": json.dumps(mark),
        }
        return traces_of(store.json("/api/traces", parameters))


def traces_of(answer: Any) -> list[list[Span]]:
    """Return the spans of each trace in an answer. Raises Unreadable."""
    try:
        if answer.get("errors"):
            raise Unreadable(f"an error in place of an answer: {str(answer['errors'])[:200]}")
        return [list(_spans(trace)) for trace in answer["data"] or ()]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unreadable("an answer in an unknown form: no Jaeger answers there") from error


def _spans(trace: Mapping[str, Any]) -> Iterator[Span]:
    processes = {key: _process(each) for key, each in trace["processes"].items()}
    for span in trace["spans"]:
        service, resource = processes[span["processID"]]
        started = instant_ns(int(span["startTime"]) * 1000)
        yield Span(
            trace_id=hexadecimal(str(trace["traceID"])),
            span_id=hexadecimal(str(span["spanID"])),
            parent_id=_parent(span),
            service=service,
            name=str(span["operationName"]),
            started_ns=started,
            ended_ns=instant_ns(started + int(span["duration"]) * 1000),
            attributes={**resource, **_tags(span.get("tags") or ())},
            events=dict(_events(span.get("logs") or ())),
        )


def _process(process: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    return str(process["serviceName"]), _tags(process.get("tags") or ())


def _parent(span: Mapping[str, Any]) -> str:
    references = [each for each in span.get("references") or () if each["refType"] == "CHILD_OF"]
    return hexadecimal(str(references[0]["spanID"] if references else span.get("parentSpanID") or ""))


def _tags(tags: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {str(tag["key"]): _text(tag["value"]) for tag in tags}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _events(logs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for log in logs:
        fields = _tags(log["fields"])
        name = next((fields[key] for key in EVENT_NAMES if key in fields), None)
        if name is not None:
            yield name, instant_ns(int(log["timestamp"]) * 1000)
