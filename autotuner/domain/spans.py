"""Where the time of one request went, by the spans that its gateway and its Triton recorded of it.

Only lengths are compared between services, never instants: their clocks differ, lengths do not. All parts of a
request add up to what its outermost span lasted; what no span accounts for is named as what it lies between, and is
never counted as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

CLOCK_TOLERANCE_SECONDS = 0.005
"""Clocks of two services that differ by less are not worth a word."""

ROUNDING_SECONDS = 0.0005
"""A span may seem to outlast the one around it by so much, where a store keeps whole microseconds and both are read."""


class Part(StrEnum):
    """A part of a request's way, from outside in."""

    GATEWAY = "gateway"
    """In the gateway: before it passed the request on, and after it had the answer."""
    NETWORK = "network"
    """Between the gateway passing it on and Triton taking it, and back."""
    PASSAGE = "gateway_or_network"
    """Both, where the gateway records no span of passing on."""
    BEHIND = "behind_gateway"
    """Between the gateway passing it on and its answer, where Triton's spans are missing."""
    TRITON = "triton"
    """In Triton beside the model: reading the request, handing it over, writing the answer."""
    QUEUE = "queue"
    INPUT = "compute_input"
    INFER = "compute_infer"
    OUTPUT = "compute_output"


INFERENCE = frozenset({Part.INPUT, Part.INFER, Part.OUTPUT})
"""Parts in which the model's backend has the request."""

MODEL_EVENTS = {
    Part.QUEUE: ("QUEUE_START", "COMPUTE_START"),
    Part.INPUT: ("COMPUTE_START", "COMPUTE_INPUT_END"),
    Part.INFER: ("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
    Part.OUTPUT: ("COMPUTE_OUTPUT_START", "COMPUTE_END"),
}
"""Triton's own time stamps between which each part lies."""


LATEST_NS = 2**63
"""No clock tells a later instant, and no earlier one than 0."""

LONGEST_ID = 32


def instant_ns(nanoseconds: int) -> int:
    """Return an instant that a clock can tell, in nanoseconds since 1970. Raises ValueError for any other number."""
    if not 0 <= nanoseconds < LATEST_NS:
        raise ValueError("no instant")
    return nanoseconds


def hexadecimal(text: str) -> str:
    """Return the digits of an id in lower case. Raises ValueError for what is no id."""
    if len(text) > LONGEST_ID or not set(text) <= set("0123456789abcdefABCDEF"):
        raise ValueError("no id")
    return text.lower()


@dataclass(frozen=True)
class Span:
    """One span. attributes: its own and its resource's; events: when each happened, in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    service: str
    name: str
    started_ns: int
    ended_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return max(0, self.ended_ns - self.started_ns) / 1e9


@dataclass(frozen=True)
class Services:
    """What the services of a request call themselves. gateway: empty where only Triton records spans."""

    gateway: str
    triton: str


@dataclass(frozen=True)
class Breakdown:
    """One request: its parts in seconds, which add up to the whole.

    clocks_differ_seconds: by how much the clocks of gateway and Triton differ at least. odd: whether a span inside
    outlasted the one around it, so that a part had to be taken as nothing and the others shortened alike.
    """

    trace_id: str
    seconds: float
    parts: Mapping[Part, float]
    clocks_differ_seconds: float = 0.0
    odd: bool = False


def breakdowns(
    spans: Iterable[Span], services: Services, marks: Sequence[Mapping[str, str]]
) -> list[Breakdown]:
    """Return where the time of each request of one trace went; none where its outermost span is missing.

    marks: attributes that single out each replica under test; requests that went to others are left out.
    """
    by_id = {span.span_id: span for span in spans}
    if not services.gateway:
        own = [
            root for root in _roots(by_id, services.triton) if _marked([root, *_below(root, by_id)], marks)
        ]
        return [
            Breakdown(root.trace_id, root.seconds, _fitted(_inside(root, by_id), root.seconds))
            for root in own
        ]
    entries = _roots(by_id, services.gateway)
    found = []
    for entry in entries:
        triton = _triton_of(entry, by_id, services, alone=len(entries) == 1)
        answered = [entry, *_below(entry, by_id), *([triton] if triton is not None else [])]
        if _marked(answered, marks):
            found.append(_through_gateway(entry, triton, by_id, services.gateway))
    return found


def _marked(spans: Iterable[Span], marks: Sequence[Mapping[str, str]]) -> bool:
    return any(mark.items() <= span.attributes.items() for span in spans for mark in marks)


def _triton_of(entry: Span, by_id: Mapping[str, Span], services: Services, *, alone: bool) -> Span | None:
    """Triton's outermost span of a request. alone: the trace has no other request whose span it could be."""
    roots = _roots(by_id, services.triton)
    below = [root for root in roots if entry in _ancestors(root, by_id)]
    orphans = [root for root in roots if root.parent_id not in by_id] if alone else []
    return max(below or orphans, key=lambda span: span.seconds, default=None)


def _through_gateway(entry: Span, triton: Span | None, by_id: Mapping[str, Span], gateway: str) -> Breakdown:
    exit_span = _exit(entry, triton, by_id, gateway)
    outside = exit_span or entry
    parts: dict[Part, float] = {}
    if exit_span is not None:
        parts[Part.GATEWAY] = entry.seconds - exit_span.seconds
    if triton is None:
        parts[Part.BEHIND] = outside.seconds
    else:
        parts[Part.NETWORK if exit_span is not None else Part.PASSAGE] = outside.seconds - triton.seconds
        parts |= _inside(triton, by_id)
    return Breakdown(
        entry.trace_id,
        entry.seconds,
        _fitted(parts, entry.seconds),
        _clocks_differ(outside, triton) if triton is not None else 0.0,
        odd=any(seconds < -ROUNDING_SECONDS for seconds in parts.values()),
    )


def _fitted(parts: Mapping[Part, float], whole: float) -> dict[Part, float]:
    """The parts without negative ones, shortened alike where the others then come to more than the whole."""
    kept = {part: max(0.0, seconds) for part, seconds in parts.items()}
    excess = max(1.0, sum(kept.values()) / whole) if whole > 0.0 else 1.0
    return {part: seconds / excess for part, seconds in kept.items()}


def _exit(entry: Span, triton: Span | None, by_id: Mapping[str, Span], gateway: str) -> Span | None:
    """The gateway's span of passing the request on: the one around Triton's, else its longest."""
    if triton is not None:
        around = [up for up in _ancestors(triton, by_id) if up.service == gateway]
        return around[0] if around and around[0] is not entry else None
    inner = [span for span in _below(entry, by_id) if span.service == gateway]
    return max(inner, key=lambda span: span.seconds, default=None)


def _roots(by_id: Mapping[str, Span], service: str) -> list[Span]:
    """The spans of a service that no other span of it is around."""
    own = [span for span in by_id.values() if span.service == service]
    return [span for span in own if not any(up.service == service for up in _ancestors(span, by_id))]


def _below(span: Span, by_id: Mapping[str, Span]) -> list[Span]:
    return [each for each in by_id.values() if span in _ancestors(each, by_id)]


def _ancestors(span: Span, by_id: Mapping[str, Span]) -> list[Span]:
    """The spans around one, as far as they are known; a circle ends where it began."""
    found: list[Span] = []
    seen = {span.span_id}
    while span.parent_id in by_id and span.parent_id not in seen:
        span = by_id[span.parent_id]
        seen.add(span.span_id)
        found.append(span)
    return found


def _inside(triton: Span, by_id: Mapping[str, Span]) -> dict[Part, float]:
    """What Triton did with a request: each model's time stamps, and the rest of its span."""
    parts: dict[Part, float] = {}
    for stamps in _models(triton, by_id):
        for part, (begin, end) in MODEL_EVENTS.items():
            if begin in stamps and end in stamps:
                seconds = max(0, stamps[end] - stamps[begin]) / 1e9
                parts[part] = parts.get(part, 0.0) + seconds
    return {Part.TRITON: max(0.0, triton.seconds - sum(parts.values())), **parts}


def _models(triton: Span, by_id: Mapping[str, Span]) -> Iterator[dict[str, int]]:
    """The time stamps of each model that a request went through: in its span, and in those of its computations."""
    inner = [triton, *_below(triton, by_id)]
    for span in inner:
        if "QUEUE_START" in span.events:
            below = [
                each.events
                for each in inner
                if each.parent_id == span.span_id and "QUEUE_START" not in each.events
            ]
            yield _merged((span.events, *below))


def _merged(events: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in events:
        found |= each
    return found


def _clocks_differ(around: Span, inside: Span) -> float:
    """By how much the inner span sticks out of the one around it: with one clock it could not."""
    early, late = around.started_ns - inside.started_ns, inside.ended_ns - around.ended_ns
    seconds = max(early, late, 0) / 1e9
    return seconds if seconds >= CLOCK_TOLERANCE_SECONDS else 0.0
