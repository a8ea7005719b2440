"""Spans that gateways and servers send here by OTLP: of our targets only, of slow requests only, within a bound.

Which requests are slow is known when their spans are together, and a gateway and a Triton send theirs at different
moments. So spans wait a few seconds in this process; then the whole trace is kept or forgotten. What two processes are
sent of one trace each judges alone: send all of it to one of them, as a collector that balances by trace id does.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from autotuner.domain.slow_requests import MOST_SPANS
from autotuner.domain.sources import TraceStore
from autotuner.domain.spans import MODEL_EVENTS, Span
from autotuner.errors import Unavailable
from autotuner.ports import Clock, Listening, ReceivedSpans, SlowTrace

TOGETHER_AFTER = timedelta(seconds=6)
"""Without another span for so long, a trace is whole: Envoy sends what it has every 5 s, Triton sooner."""

MOST_WAITING = 20_000
"""Spans that wait at a time; when there are more, the oldest traces are judged as they are."""

KNOWN_FOR = timedelta(seconds=5)
"""How long the targets that listen are taken to be the same."""

CLOCKS_APART = timedelta(minutes=10)
"""Spans from further in the past or future are nobody's: no window is asked about that it could belong to."""

EVENTS = frozenset(name for pair in MODEL_EVENTS.values() for name in pair)
LONGEST_NAME = 100


@dataclass
class _Waiting:
    """A trace that may not be whole yet."""

    last_at: datetime
    spans: list[Span] = field(default_factory=list)


class Receiver:
    """Takes spans in. Safe to share between threads."""

    def __init__(
        self, received: ReceivedSpans, clock: Clock, read: Callable[[bytes, bool], list[Span]]
    ) -> None:
        self._received = received
        self._clock = clock
        self._read = read
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._held = 0
        self._listening: Sequence[Listening] = ()
        self._asked_at: datetime | None = None
        self._fault: Unavailable | None = None

    def take(self, body: bytes, *, as_json: bool) -> int:
        """Take in an export request; returns how many of its spans were of interest to nobody.

        Raises Unreadable for what is no OTLP, Unavailable when what is to be kept cannot be.
        """
        spans = self._read(body, as_json)
        now = self._clock.now()
        with self._lock:
            listening = self._targets(now)
            ours = [span for span in spans if _concerns(span, listening, now)]
            self._add(ours, listening, now)
            traces = self._together(now)
        self._judge(traces, listening, now)
        return len(spans) - len(ours)

    def settle(self) -> None:
        """Judge the traces that are whole by now, also when no other span comes.

        Raises Unavailable when what is to be kept cannot be.
        """
        now = self._clock.now()
        with self._lock:
            if not self._waiting:
                return
            listening = self._targets(now)
            traces = self._together(now)
        self._judge(traces, listening, now)

    def _judge(self, traces: Iterable[Sequence[Span]], listening: Sequence[Listening], now: datetime) -> None:
        kept = [found for trace in traces for found in _slow(trace, listening)]
        if kept:
            self._received.keep(kept, now)

    def _targets(self, now: datetime) -> Sequence[Listening]:
        """Who listens, asked anew every few seconds; a failure is told to all until then: nobody waits in line."""
        if self._asked_at is None or not timedelta(0) <= now - self._asked_at < KNOWN_FOR:
            self._asked_at, self._fault = now, None
            try:
                self._listening = self._received.listening()
            except Unavailable as error:
                self._fault = error
        if self._fault is not None:
            raise Unavailable(self._fault.system, self._fault.detail) from self._fault
        return self._listening

    def _add(self, spans: Iterable[Span], listening: Sequence[Listening], now: datetime) -> None:
        names = frozenset(name for each in listening for name, _ in _store(each).marks)
        for span in spans:
            waiting = self._waiting.setdefault(span.trace_id, _Waiting(now))
            waiting.last_at = now
            if len(waiting.spans) < MOST_SPANS:
                waiting.spans.append(_needed(span, names))
                self._held += 1

    def _together(self, now: datetime) -> list[list[Span]]:
        """Take out the traces that are whole, and the oldest while there are too many."""
        whole = [key for key, each in self._waiting.items() if now - each.last_at >= TOGETHER_AFTER]
        taken = [self._waiting.pop(key).spans for key in whole]
        self._held -= sum(map(len, taken))
        while self._held > MOST_WAITING:
            _, oldest = self._waiting.popitem(last=False)
            self._held -= len(oldest.spans)
            taken.append(oldest.spans)
        return taken


def _store(listening: Listening) -> TraceStore:
    assert listening.target.traces is not None
    return listening.target.traces


def _concerns(span: Span, listening: Sequence[Listening], now: datetime) -> bool:
    """Whether a span is of a service of one of the targets, and of about now."""
    services = {name for each in listening for name in (_store(each).gateway, _store(each).triton) if name}
    return span.service in services and abs(_ago(span, now)) <= CLOCKS_APART


def _ago(span: Span, now: datetime) -> timedelta:
    seconds = now.timestamp() - span.ended_ns / 1e9
    return timedelta(seconds=max(-1e9, min(1e9, seconds)))


def _needed(span: Span, names: frozenset[str]) -> Span:
    """The span without what nothing is computed from: addresses, users and whatever else it tells of a request."""
    return replace(
        span,
        name=_plain(span.name),
        service=span.service,
        attributes={key: _plain(value) for key, value in span.attributes.items() if key in names},
        events={name: at for name, at in span.events.items() if name in EVENTS},
    )


def _plain(text: str) -> str:
    return "".join(each for each in text[:LONGEST_NAME] if each.isprintable())


def _slow(spans: Sequence[Span], listening: Sequence[Listening]) -> Iterable[SlowTrace]:
    """The trace for each target that it is a slow request of, as far as can be told."""
    for each in listening:
        store = _store(each)
        own = tuple(span for span in spans if span.service in (store.gateway, store.triton))
        if not any(span.seconds > each.ceiling_seconds for span in own):
            continue
        if _addressed(own, each, store):
            ended_ns = max(span.ended_ns for span in own)
            ended_at = datetime.fromtimestamp(ended_ns / 1e9, UTC)
            yield SlowTrace(each.target.name, own[0].trace_id, ended_at, own)


def _addressed(spans: Sequence[Span], listening: Listening, store: TraceStore) -> bool:
    """Whether the request went to the target; without the spans that could tell, it may have."""
    outer = store.gateway or store.triton
    if not any(span.service == outer for span in spans):
        return True
    marks = listening.target.marks(replica.name for replica in listening.target.replicas)
    return any(mark.items() <= span.attributes.items() for span in spans for mark in marks)
