"""Spans in OTLP, as protobuf and as JSON, read with suspicion: what is no span is left out, whatever sent it.

In OTLP's JSON ids are hexadecimal; Tempo writes them as protobuf's own JSON does, in base64. Lengths tell them apart.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ExportedSpan

from autotuner.domain.spans import Span, hexadecimal, instant_ns
from autotuner.instruments.readings import Unreadable

TRACE_DIGITS, SPAN_DIGITS = 32, 16
SERVICE = "service.name"


def spans_of_protobuf(body: bytes) -> list[Span]:
    """Return the spans of an export request, or of a trace as Tempo sends it. Raises Unreadable."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise Unreadable("something that is no OTLP") from error
    try:
        return [span for each in request.resource_spans for span in _of_resource(each)]
    except (ValueError, OverflowError) as error:
        raise Unreadable("something that is no OTLP") from error


def _of_resource(found: ResourceSpans) -> Iterator[Span]:
    resource = _texts(found.resource.attributes)
    for scope in found.scope_spans:
        for span in scope.spans:
            if _has_ids(span):
                yield Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    service=resource.get(SERVICE, ""),
                    name=span.name,
                    started_ns=instant_ns(span.start_time_unix_nano),
                    ended_ns=instant_ns(span.end_time_unix_nano),
                    attributes={**resource, **_texts(span.attributes)},
                    events={event.name: instant_ns(event.time_unix_nano) for event in span.events},
                )


def _has_ids(span: ExportedSpan) -> bool:
    """Whether a span's ids are as long as they must be; one without a parent has none."""
    own = len(span.trace_id) * 2 == TRACE_DIGITS and len(span.span_id) * 2 == SPAN_DIGITS
    return own and len(span.parent_span_id) * 2 in (0, SPAN_DIGITS)


def _texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {each.key: _text(each.value) for each in attributes}


def _text(value: AnyValue) -> str:
    """A plain value as text; what is no plain value is nobody's mark."""
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    return str(getattr(value, kind)) if kind in ("string_value", "int_value", "double_value") else ""


def spans_of_export(body: bytes, as_json: bool) -> list[Span]:
    """Return the spans of an export request. Raises Unreadable."""
    if not as_json:
        return spans_of_protobuf(body)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable("something that is no JSON") from error
    return spans_of_json(content)


def spans_of_json(content: Any) -> list[Span]:
    """Return the spans of an export request, or of a trace as Tempo answers it, in parsed JSON. Raises Unreadable."""
    try:
        return list(_of_json(content))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise Unreadable("something that is no OTLP") from error


def _of_json(content: Any) -> Iterator[Span]:
    trace = content.get("trace", content)
    for each in trace.get("resourceSpans") or trace.get("batches") or ():
        resource = _plain(each.get("resource", {}).get("attributes", ()))
        for scope in each.get("scopeSpans") or each.get("instrumentationLibrarySpans") or ():
            for span in scope.get("spans", ()):
                yield _span(span, resource)


def _span(span: Mapping[str, Any], resource: Mapping[str, str]) -> Span:
    return Span(
        trace_id=_digits(span["traceId"], TRACE_DIGITS),
        span_id=_digits(span["spanId"], SPAN_DIGITS),
        parent_id=_digits(span.get("parentSpanId") or "", SPAN_DIGITS),
        service=resource.get(SERVICE, ""),
        name=str(span.get("name", "")),
        started_ns=instant_ns(int(span["startTimeUnixNano"])),
        ended_ns=instant_ns(int(span["endTimeUnixNano"])),
        attributes={**resource, **_plain(span.get("attributes", ()))},
        events={
            str(event["name"]): instant_ns(int(event["timeUnixNano"])) for event in span.get("events") or ()
        },
    )


def _digits(text: str, length: int) -> str:
    """An id in hexadecimal digits, from those or from base64. Raises ValueError."""
    if not text:
        return ""
    found = hexadecimal(text) if len(text) == length else base64.b64decode(text, validate=True).hex()
    if len(found) != length:
        raise ValueError("no id")
    return found


def _plain(attributes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {str(each["key"]): _plain_value(each.get("value") or {}) for each in attributes}


def _plain_value(value: Mapping[str, Any]) -> str:
    if "boolValue" in value:
        return "true" if value["boolValue"] else "false"
    for kind in ("stringValue", "intValue", "doubleValue"):
        if kind in value:
            return str(value[kind])
    return ""
