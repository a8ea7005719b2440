"""Spans that a real Envoy 1.40 and a real tritonserver 2.51 sent, and the same as Jaeger and Tempo would answer them.

Sent by OTLP over HTTP, Envoy's as protobuf, Triton's as JSON: three plain requests, one that Envoy's fault filter
held back for 150 ms, sixteen at once on one instance (so that they queue), one that Triton could not read, one whose
caller had a trace of its own, and one over gRPC straight to Triton. Batches take 20 ms and more.

Jaeger's form is that of its query service's JSON (`GET /api/traces`), as in the fixtures of its repository
(cmd/jaeger/internal/extension/jaegerquery/internal/fixture/otlp2jaeger-out.json, v2); Tempo's that of its HTTP API
(grafana.com/docs/tempo/latest/api_docs: Search, Query), whose ids protobuf's JSON mapping writes in base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from autotuner.adapters.tracing.otlp import spans_of_json, spans_of_protobuf
from autotuner.domain.spans import Services, Span

FIXTURES = Path(__file__).parent / "fixtures" / "spans"
SERVICES = Services("gateway", "triton")
CANARY = ({"upstream_cluster.name": "canary"},)


def real_spans() -> list[Span]:
    """Every span, as it was sent."""
    envoy = spans_of_protobuf((FIXTURES / "envoy-1.40.pb").read_bytes())
    return [*envoy, *spans_of_json(json.loads((FIXTURES / "triton-2.51.json").read_text()))]


def by_trace(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of each trace."""
    ordered = sorted(spans, key=lambda span: (span.trace_id, span.started_ns))
    return [list(each) for _, each in groupby(ordered, key=lambda span: span.trace_id)]


def as_jaeger(traces: Sequence[Sequence[Span]]) -> dict[str, Any]:
    """Traces as Jaeger answers them."""
    return {"data": [_jaeger_trace(spans) for spans in traces], "total": 0, "limit": 0, "errors": None}


def _jaeger_trace(spans: Sequence[Span]) -> dict[str, Any]:
    services = sorted({span.service for span in spans})
    return {
        "traceID": spans[0].trace_id,
        "spans": [_jaeger_span(span, f"p{services.index(span.service)}") for span in spans],
        "processes": {f"p{n}": {"serviceName": name, "tags": []} for n, name in enumerate(services)},
        "warnings": None,
    }


def _jaeger_span(span: Span, process: str) -> dict[str, Any]:
    parent = {"refType": "CHILD_OF", "traceID": span.trace_id, "spanID": span.parent_id}
    return {
        "traceID": span.trace_id,
        "spanID": span.span_id,
        "operationName": span.name,
        "references": [parent] if span.parent_id else [],
        "startTime": span.started_ns // 1000,
        "duration": span.ended_ns // 1000 - span.started_ns // 1000,
        "tags": [{"key": k, "type": "string", "value": v} for k, v in span.attributes.items()],
        "logs": [
            {"timestamp": ns // 1000, "fields": [{"key": "event", "type": "string", "value": name}]}
            for name, ns in span.events.items()
        ],
        "processID": process,
        "warnings": None,
    }


def as_tempo(spans: Sequence[Span]) -> dict[str, Any]:
    """One trace as Tempo answers it."""
    return {
        "batches": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": span.service}}]},
                "scopeSpans": [{"spans": [_tempo_span(span)]}],
            }
            for span in spans
        ]
    }


def _tempo_span(span: Span) -> dict[str, Any]:
    return {
        "traceId": _base64(span.trace_id),
        "spanId": _base64(span.span_id),
        **({"parentSpanId": _base64(span.parent_id)} if span.parent_id else {}),
        "name": span.name,
        "startTimeUnixNano": str(span.started_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in span.attributes.items()],
        "events": [{"name": name, "timeUnixNano": str(ns)} for name, ns in span.events.items()],
    }


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()
