"""Native histograms put into buckets whose edges stay, so that everything after reads them as it reads classic ones.

A server tells only the buckets that have requests in them. Where there are none between two edges, the count below any
latency in between is known all the same; inside a bucket with requests it is not. So the edges are those of the
histogram's own scale within the latencies that a ceiling can have, less those inside such a bucket: none is made up,
and a change of scale is a change of edges, which voids a window (guards rule 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotuner.instruments.readings import Unreadable

FINEST_SCHEMA = 3
"""Eight edges for each doubling, 9 % apart. Those of a finer scale are left out: each is a number in every sample."""

COARSEST_SCHEMA = -4
LOWEST_SECONDS, HIGHEST_SECONDS = 2.0**-10, 2.0**6
"""Edges are put from about 1 ms to about a minute."""

SAME = 1e-9
"""Two edges are one when they differ by less than this share: servers write them as text."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Native:
    """One sample. buckets: left and right end, and requests between them; only those that have any."""

    count: float
    total: float
    buckets: tuple[tuple[float, float, float], ...]


def read_native(told: Mapping[str, Any]) -> Native:
    """Return a sample as the query API tells it. Raises KeyError, ValueError, TypeError, Unreadable."""
    buckets = tuple(
        (float(left), float(right), float(count)) for _, left, right, count in told.get("buckets") or ()
    )
    if any(not left < right or right <= 0.0 for left, right, _ in buckets):
        raise Unreadable("a native histogram with buckets that no latency has")
    return Native(float(told["count"]), float(told["sum"]), tuple(each for each in buckets if each[2]))


def edges_of(every: Sequence[Native], unit_seconds: float) -> tuple[float, ...]:
    """Return the edges at which all samples tell a count, in the histogram's unit, ascending.

    The unlimited one is left out. Empty while none has a request in it.
    """
    populated = {(left, right) for each in every for left, right, _ in each.buckets}
    if not populated:
        return ()
    schemas = [_schema(left, right) for left, right in populated if left > 0.0 and right < math.inf]
    told = [schema for schema in schemas if schema is not None]
    if len(told) < len(schemas):
        wanted = {end for bucket in populated for end in bucket if 0.0 < end < math.inf}
    else:
        wanted = set(_scale(min((FINEST_SCHEMA, *told)), unit_seconds))
    return tuple(sorted(edge for edge in wanted if not any(_inside(edge, *bucket) for bucket in populated)))


def below(sample: Native, edges: Sequence[float]) -> list[float]:
    """Return how many requests a sample has at or below each edge."""
    return [
        sum(count for _, right, count in sample.buckets if right <= edge * (1.0 + SAME)) for edge in edges
    ]


def as_classic(
    labels: Mapping[str, str], samples: Sequence[tuple[float, Native]], edges: Sequence[float]
) -> Iterable[tuple[dict[str, str], Points]]:
    """Yield the series that a classic histogram with these edges would have had."""
    family = labels["__name__"]
    counted = [below(sample, edges) for _, sample in samples]
    for number, edge in enumerate(edges):
        points = [(at, counts[number]) for (at, _), counts in zip(samples, counted, strict=True)]
        yield {**labels, "__name__": f"{family}_bucket", "le": repr(edge)}, points
    count = [(at, sample.count) for at, sample in samples]
    if edges:
        yield {**labels, "__name__": f"{family}_bucket", "le": "+Inf"}, list(count)
    yield {**labels, "__name__": f"{family}_count"}, count
    yield {**labels, "__name__": f"{family}_sum"}, [(at, sample.total) for at, sample in samples]


def _schema(left: float, right: float) -> int | None:
    """The scale that a bucket belongs to: 2^schema edges for each doubling; None for a bucket of somebody's choice."""
    schema = -math.log2(math.log2(right / left))
    whole = round(schema)
    place = math.log2(right) * 2.0**whole
    if not whole >= COARSEST_SCHEMA or abs(schema - whole) > 1e-4 or abs(place - round(place)) > 1e-6:
        return None
    return whole


def _scale(schema: int, unit_seconds: float) -> Iterable[float]:
    step = 2.0**-schema
    first = math.ceil(math.log2(LOWEST_SECONDS / unit_seconds) / step)
    last = math.floor(math.log2(HIGHEST_SECONDS / unit_seconds) / step)
    return (2.0 ** (number * step) for number in range(first, last + 1))


def _inside(edge: float, left: float, right: float) -> bool:
    return left * (1.0 + SAME) < edge < right * (1.0 - SAME)
