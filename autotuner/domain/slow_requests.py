"""What traces tell of the slow requests of one window: where their time went, and what could not be seen.

It explains a verdict and never makes one: nothing here is read by whatever decides (guards rule 1). Traces are samples,
kept or lost by whoever traces: their number is no count of slow requests, and a trace that is missing is said to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from autotuner.domain.spans import INFERENCE, Breakdown, Part, Services, Span, breakdowns

MOST_TRACES = 50
"""Traces of one window that are read at most."""

MOST_SPANS = 200
"""Spans of one trace that are looked at; a request through gateway and Triton has a dozen."""

SLOWEST = 3
"""Requests that are kept by name, to be looked at in a viewer."""


@dataclass(frozen=True)
class Question:
    """Which requests are asked about: those of `replicas` that took longer than the ceiling, within a window."""

    began: datetime
    ended: datetime
    ceiling_seconds: float
    replicas: tuple[str, ...]


@dataclass(frozen=True)
class PartTime:
    """One part over all slow requests that were seen. longest_in: in how many of them it was the longest part."""

    part: Part
    mean_seconds: float
    longest_in: int


@dataclass(frozen=True)
class SlowRequest:
    """One slow request. longest: the part in which it spent most of its time."""

    trace_id: str
    seconds: float
    longest: Part


@dataclass(frozen=True)
class SlowRequests:
    """What traces told of the slow requests of one window.

    source: who was asked. requests: how many slow ones were seen, whole. mean_seconds: their mean length; parts add up
    to it. slowest: a few of them. remarks: what was incomplete. fault: why nothing was told, empty when something was.
    """

    source: str
    requests: int = 0
    mean_seconds: float | None = None
    parts: tuple[PartTime, ...] = ()
    slowest: tuple[SlowRequest, ...] = ()
    remarks: tuple[str, ...] = ()
    fault: str = ""

    @property
    def outside_inference(self) -> float | None:
        """The share, 0 to 1, of their time that was not spent in the model's backend; None where none was seen."""
        if not self.mean_seconds:
            return None
        if not any(each.part in INFERENCE for each in self.parts):
            return None
        inside = sum(each.mean_seconds for each in self.parts if each.part in INFERENCE)
        return max(0.0, 1.0 - inside / self.mean_seconds)


def slow_requests(
    source: str,
    traces: Sequence[Sequence[Span]],
    services: Services,
    question: Question,
    marks: Sequence[Mapping[str, str]],
    remarks: Sequence[str] = (),
) -> SlowRequests:
    """Return what traces tell of the slow requests that are asked about.

    traces: the spans of each. marks: attributes that single out each replica under test. remarks: what the source left
    out.
    """
    read = traces[:MOST_TRACES]
    usable = [spans for spans in read if len(spans) <= MOST_SPANS]
    found = [breakdowns(spans, services, marks) for spans in usable]
    whole = [each for requests in found for each in requests]
    slow = [each for each in whole if each.seconds > question.ceiling_seconds]
    told = (
        *remarks,
        *_left_out(len(traces), len(read), len(usable), sum(not each for each in found)),
        *_oddities(len(whole), slow),
    )
    if not slow:
        return SlowRequests(source, remarks=told, fault="no trace of a slow request was found")
    slow.sort(key=lambda each: (-each.seconds, each.trace_id))
    return SlowRequests(
        source,
        requests=len(slow),
        mean_seconds=sum(each.seconds for each in slow) / len(slow),
        parts=tuple(_part_times(slow)),
        slowest=tuple(SlowRequest(each.trace_id, each.seconds, _longest(each)) for each in slow[:SLOWEST]),
        remarks=told,
    )


def unread(source: str, fault: str) -> SlowRequests:
    """Return that traces could not be read, and why."""
    return SlowRequests(source, fault=fault)


def _part_times(slow: Sequence[Breakdown]) -> Iterable[PartTime]:
    for part in Part:
        held = [each.parts[part] for each in slow if part in each.parts]
        if held:
            yield PartTime(part, sum(held) / len(slow), sum(_longest(each) is part for each in slow))


def _longest(request: Breakdown) -> Part:
    return max(request.parts, key=lambda part: request.parts[part])


def _left_out(given: int, read: int, usable: int, empty: int) -> Iterable[str]:
    """Which traces say nothing, a phrase each."""
    if given > read:
        yield f"{given - read} of {given} traces were not looked at"
    if read > usable:
        yield f"{read - usable} of {read} traces have more than {MOST_SPANS} spans"
    if empty:
        yield f"{empty} of {usable} traces without the span that a request of these replicas begins with"


def _oddities(whole: int, slow: Sequence[Breakdown]) -> Iterable[str]:
    """What of the requests was incomplete or odd, a phrase each."""
    if whole > len(slow):
        yield f"{whole - len(slow)} of {whole} requests not slower than the ceiling"
    unseen = sum(Part.BEHIND in each.parts for each in slow)
    if unseen:
        yield f"{unseen} of {len(slow)} without Triton's spans"
    apart = max((each.clocks_differ_seconds for each in slow), default=0.0)
    if apart:
        yield f"the clocks of gateway and Triton differ by {apart:.3g} s or more; only lengths are compared"
    odd = sum(each.odd for each in slow)
    if odd:
        yield f"{odd} of {len(slow)} with a span that outlasts the one around it"
