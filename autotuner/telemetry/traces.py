"""Traces: what led to what, across processes. Off, and then free, unless an OTLP endpoint is set.

Everything that belongs to one trial is one trace: its id is made from the study's id and the trial's number, so the
ticks of several workers, before and after a crash, come together without anybody passing anything on. What a study does
between trials is a trace of the study. A request of the API is a trace of its own, and links to the study it leads to.

This is the door: nobody but `spans` knows OpenTelemetry, and `spans` is imported only when tracing starts.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Value = str | int | float | bool
"""What an attribute of a span may be."""


@dataclass(frozen=True)
class Course:
    """What spans of many processes belong to. trace_id: 32 hexadecimal digits; span_id: 16, of its root span."""

    trace_id: str
    span_id: str


def course_of_trial(study_id: str, number: int) -> Course:
    """Return the trace of a trial."""
    return _course(f"trial {number} of study {study_id}")


def course_of_study(study_id: str) -> Course:
    """Return the trace of what a study does between its trials."""
    return _course(f"study {study_id}")


def _course(subject: str) -> Course:
    digest = hashlib.sha256(subject.encode()).hexdigest()
    return Course(digest[:32], digest[32:48])


def trace_url(template: str, trace_id: str) -> str | None:
    """Return where a trace can be looked at; None without a template (`{trace_id}` stands for the id)."""
    return template.replace("{trace_id}", trace_id) if template else None


class Span(Protocol):
    """A span that is open."""

    def note(self, **values: Value) -> None:
        """Add attributes."""

    def leads_to(self, course: Course) -> None:
        """Link the span to a trace that it leads to."""

    def rename(self, name: str) -> None:
        """Give the span the name it would have had, had it been known before."""


class Recorder(Protocol):
    """Makes spans and sends them somewhere."""

    def span(self, name: str, values: dict[str, Value]) -> AbstractContextManager[Span]:
        """Open a span inside the one that is open, or else a trace of its own."""

    def inside(self) -> bool:
        """Say whether a span that is recorded is open."""

    def within(self, course: Course, name: str, values: dict[str, Value]) -> AbstractContextManager[Span]:
        """Open a span of a course."""

    def request(self, name: str, traceparent: str) -> AbstractContextManager[Span]:
        """Open the span of a request. traceparent: that of its caller (W3C), empty for none."""

    def finished(
        self, course: Course, name: str, times: tuple[datetime, datetime], values: dict[str, Value]
    ) -> None:
        """Record the root span of a course, from when to when it lasted."""

    def stop(self) -> None:
        """Send what is left, and record nothing more."""


class _Nothing:
    """The span that is open while nothing is recorded."""

    def note(self, **values: Value) -> None: ...

    def leads_to(self, course: Course) -> None: ...

    def rename(self, name: str) -> None: ...

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None: ...


NOTHING = _Nothing()
"""The span that is open while nothing is recorded: entering it costs nothing."""


class _State:
    """What this process records with; None while tracing is off."""

    recorder: Recorder | None = None


def recording() -> bool:
    """Say whether tracing is on."""
    return _State.recorder is not None


def start_tracing(endpoint: str, headers: str, share: float, holder: str) -> None:
    """Send spans to an OTLP endpoint (HTTP) from now on; nothing happens when it is empty.

    headers: `name=value`, separated by commas. share: the part of all traces, 0 to 1, that is recorded: the same ones
    by every process. Raises InvalidInput for headers that are none.
    """
    if endpoint:
        from autotuner.telemetry.spans import otlp_recorder  # noqa: PLC0415 - the SDK, only where it is used

        _State.recorder = otlp_recorder(endpoint, headers, share, holder)


def stop_tracing() -> None:
    """Send what is left, and record nothing more."""
    recorder, _State.recorder = _State.recorder, None
    if recorder is not None:
        recorder.stop()


@contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
    """Record with `recorder` inside the block."""
    before, _State.recorder = _State.recorder, recorder
    try:
        yield
    finally:
        _State.recorder = before


def span(name: str, **values: Value) -> AbstractContextManager[Span]:
    """Open a span inside the one that is open, or else a trace of its own."""
    recorder = _State.recorder
    return NOTHING if recorder is None else recorder.span(name, values)


def within(course: Course, name: str, **values: Value) -> AbstractContextManager[Span]:
    """Open a span of a course, such as a tick of a trial."""
    recorder = _State.recorder
    return NOTHING if recorder is None else recorder.within(course, name, values)


def request(name: str, traceparent: str) -> AbstractContextManager[Span]:
    """Open the span of a request. traceparent: that of its caller (W3C), empty for none."""
    recorder = _State.recorder
    return NOTHING if recorder is None else recorder.request(name, traceparent)


def finished(course: Course, name: str, times: tuple[datetime, datetime], **values: Value) -> None:
    """Record the root span of a course once it is over."""
    recorder = _State.recorder
    if recorder is not None:
        recorder.finished(course, name, times, values)


def operation(made: Callable[P, R]) -> Callable[P, R]:
    """Return a use case that is a span of its own, named like the function."""

    @functools.wraps(made)
    def spanned(*args: P.args, **kwargs: P.kwargs) -> R:
        with span(made.__name__):
            return made(*args, **kwargs)

    return spanned


def traced(inner: T, system: str) -> T:
    """Return an adapter whose calls are spans named `system.method`, inside whatever calls it.

    While tracing is off this is the adapter itself. Calls outside any span, such as a worker's look around each second,
    make no trace of their own.
    """
    return cast("T", _Traced(inner, system)) if recording() else inner


class _Traced:
    """Passes everything on to an adapter."""

    def __init__(self, inner: object, system: str) -> None:
        self._inner = inner
        self._system = system

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name.startswith("_"):
            return found
        made = self._call(f"{self._system}.{name}", found)
        setattr(self, name, made)
        return made

    @staticmethod
    def _call(name: str, found: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            recorder = _State.recorder
            if recorder is None or not recorder.inside():
                return found(*args, **kwargs)
            with recorder.span(name, {"subject": args[0]} if args and isinstance(args[0], str) else {}):
                return found(*args, **kwargs)

        return call
