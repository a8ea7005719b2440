"""OpenTelemetry's side of `traces`: spans are made by its SDK and sent by OTLP over HTTP.

Only the SDK and one exporter are used, in a provider of our own: nothing global is set, so an application that embeds
ours keeps its own tracing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from autotuner import __version__
from autotuner.errors import InvalidInput
from autotuner.telemetry.logs import starred
from autotuner.telemetry.traces import Course, Span, Value

PREFIX = "autotuner."
"""How the names of our attributes begin."""

EXPORT_SECONDS = 5.0
"""How long one export may take; a collector that is away costs spans, never a tick."""

_FORCED: ContextVar[Course | None] = ContextVar("autotuner_forced_span", default=None)


class _Ids(RandomIdGenerator):
    """Random ids, except for the root span of a course."""

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        forced = _FORCED.get()
        return super().generate_span_id() if forced is None else int(forced.span_id, 16)

    def generate_trace_id(self) -> int:
        """Return the id of the next trace."""
        forced = _FORCED.get()
        return super().generate_trace_id() if forced is None else int(forced.trace_id, 16)


class _Open:
    """A span of the SDK as `traces` has it."""

    def __init__(self, inner: otel.Span) -> None:
        self._inner = inner

    def note(self, **values: Value) -> None:
        """Add attributes."""
        self._inner.set_attributes(_named(values))

    def leads_to(self, course: Course) -> None:
        """Link the span to a trace that it leads to."""
        self._inner.add_link(_context(course, sampled=True))

    def rename(self, name: str) -> None:
        """Give the span another name."""
        self._inner.update_name(name)


class OtelRecorder:
    """Makes spans with the SDK and gives them to a processor. share: the part of all traces that is recorded."""

    def __init__(self, processor: SpanProcessor, share: float, holder: str) -> None:
        resource = Resource.create(
            {"service.name": "autotuner", "service.version": __version__, "service.instance.id": holder}
        )
        self._ratio = TraceIdRatioBased(share)
        self._provider = TracerProvider(
            sampler=ParentBased(self._ratio),
            resource=resource,
            id_generator=_Ids(),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("autotuner", __version__)

    @contextmanager
    def span(self, name: str, values: dict[str, Value]) -> Iterator[Span]:
        """Open a span inside the one that is open, or else a trace of its own."""
        with self._open(name, values, None, otel.SpanKind.INTERNAL) as made:
            yield made

    def inside(self) -> bool:
        """Say whether a span that is recorded is open."""
        return otel.get_current_span().is_recording()

    @contextmanager
    def within(self, course: Course, name: str, values: dict[str, Value]) -> Iterator[Span]:
        """Open a span of a course."""
        parent = otel.NonRecordingSpan(_context(course, sampled=self._is_kept(course)))
        with self._open(
            name, values, otel.set_span_in_context(parent, _nowhere()), otel.SpanKind.INTERNAL
        ) as made:
            yield made

    @contextmanager
    def request(self, name: str, traceparent: str) -> Iterator[Span]:
        """Open the span of a request."""
        carrier = {"traceparent": traceparent} if traceparent else {}
        parent = TraceContextTextMapPropagator().extract(carrier, _nowhere())
        with self._open(name, {}, parent, otel.SpanKind.SERVER) as made:
            yield made

    def finished(
        self, course: Course, name: str, times: tuple[datetime, datetime], values: dict[str, Value]
    ) -> None:
        """Record the root span of a course."""
        token = _FORCED.set(course)
        try:
            root = self._tracer.start_span(
                name, _nowhere(), attributes=_named(values), start_time=_nanoseconds(times[0])
            )
        finally:
            _FORCED.reset(token)
        root.end(_nanoseconds(times[1]))

    def stop(self) -> None:
        """Send what is left, and record nothing more."""
        self._provider.shutdown()

    @contextmanager
    def _open(
        self, name: str, values: dict[str, Value], parent: Context | None, kind: otel.SpanKind
    ) -> Iterator[Span]:
        opened = self._tracer.start_as_current_span(
            name,
            parent,
            kind,
            _named(values),
            record_exception=False,
            set_status_on_exception=False,
        )
        with opened as made:
            try:
                yield _Open(made)
            except BaseException as error:
                # The SDK would keep the traceback, and whatever secret an error's text quotes.
                made.set_status(otel.StatusCode.ERROR, starred(f"{type(error).__name__}: {error}"))
                raise

    def _is_kept(self, course: Course) -> bool:
        return (int(course.trace_id, 16) & self._ratio.TRACE_ID_LIMIT) < self._ratio.bound


def otlp_recorder(endpoint: str, headers: str, share: float, holder: str) -> OtelRecorder:
    """Return a recorder that sends spans to `endpoint`/v1/traces. Raises InvalidInput for headers that are none."""
    url = f"{endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=url, headers=read_headers(headers), timeout=EXPORT_SECONDS)
    processor = BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_SECONDS * 1e3)
    return OtelRecorder(processor, share, holder)


def read_headers(text: str) -> dict[str, str]:
    """Return headers from `name=value` pairs separated by commas. Raises InvalidInput, without showing a value."""
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidInput("otlp_headers", "(not shown)", "name=value, separated by commas")
        found[name.strip()] = value.strip()
    return found


def _context(course: Course, *, sampled: bool) -> otel.SpanContext:
    flags = otel.TraceFlags(otel.TraceFlags.SAMPLED if sampled else otel.TraceFlags.DEFAULT)
    return otel.SpanContext(
        int(course.trace_id, 16), int(course.span_id, 16), is_remote=True, trace_flags=flags
    )


def _nowhere() -> Context:
    """A context in which no span is open."""
    return Context()


def _named(values: dict[str, Value]) -> dict[str, Value]:
    return {
        PREFIX + name: starred(value) if isinstance(value, str) else value for name, value in values.items()
    }


def _nanoseconds(at: datetime) -> int:
    return round(at.timestamp() * 1e6) * 1000
