"""Slow requests from a Tempo: a TraceQL search a replica, then each trace that it found by its id."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotuner.adapters.tracing.asking import Asker, Asking
from autotuner.adapters.tracing.otlp import spans_of_json
from autotuner.domain.slow_requests import MOST_TRACES, Question, SlowRequests, slow_requests, unread
from autotuner.domain.spans import Span
from autotuner.instruments.readings import Unreadable

SOURCE = "Tempo"
MOST_READ = 20
"""Traces that are read by their ids, one question each."""

TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}")


class TempoTraces(Asker):
    """What a Tempo has of a target's slow requests."""

    def slow_requests(self, question: Question) -> SlowRequests:
        """Return where slow requests spent their time; see `Traces`."""
        marks = self._target.marks(question.replicas)
        try:
            with self._asking() as store:
                ids = [found for mark in marks for found in self._found(store, question, mark)]
                traces, remarks = _read_all(store, list(dict.fromkeys(ids)))
        except Unreadable as fault:
            return unread(SOURCE, str(fault))
        return slow_requests(SOURCE, traces, self._services, question, marks, remarks)

    def _found(self, store: Asking, question: Question, mark: Mapping[str, str]) -> list[str]:
        parameters = {
            "q": traceql(self._services.gateway or self._services.triton, mark, question.ceiling_seconds),
            "start": str(int(question.began.timestamp())),
            "end": str(int(question.ended.timestamp()) + 1),
            "limit": str(MOST_TRACES),
        }
        return ids_of(store.json("/api/search", parameters))


def traceql(service: str, mark: Mapping[str, str], ceiling_seconds: float) -> str:
    """Return the search for a service's spans with these attributes that took longer; texts are quoted whole."""
    conditions = [f"resource.service.name = {json.dumps(service)}"]
    conditions += [f".{_name(name)} = {json.dumps(value)}" for name, value in mark.items()]
    return "{ " + " && ".join([*conditions, f"duration > {round(ceiling_seconds * 1e6)}us"]) + " }"


def _name(name: str) -> str:
    """An attribute's name as TraceQL takes it: in quotes where it has more than letters, digits, `.` and `_`."""
    return name if re.fullmatch(r"[A-Za-z0-9_.]+", name) else json.dumps(name)


def ids_of(answer: Any) -> list[str]:
    """Return the ids of the traces that a search found. Raises Unreadable."""
    try:
        ids = [str(each["traceID"]) for each in answer.get("traces") or ()]
    except (AttributeError, KeyError, TypeError) as error:
        raise Unreadable("an answer in an unknown form: no Tempo answers there") from error
    if not all(TRACE_ID.fullmatch(each) for each in ids):
        raise Unreadable("an answer with trace ids that are none")
    return ids


def _read_all(store: Asking, ids: Sequence[str]) -> tuple[list[list[Span]], tuple[str, ...]]:
    """The spans of each trace, and what was left out. Raises Unreadable when not even the first can be read."""
    traces: list[list[Span]] = []
    for trace_id in ids[:MOST_READ]:
        try:
            traces.append(spans_of_json(store.json(f"/api/traces/{trace_id}", {})))
        except Unreadable as fault:
            if not traces:
                raise
            return traces, (f"{len(traces)} of {len(ids)} traces were read ({fault})",)
    left = len(ids) - len(traces)
    return traces, (f"{left} of {len(ids)} traces were not read",) if left else ()
