"""What Envoy's own counters mean: requests sent, ended, failed, and its latency histogram with honest edges.

Pinned down by experiment (see the tests of the sandbox's Envoy): only a complete answer of the replica, whatever
its status, enters the histogram. A refused connection is answered by Envoy without ever being sent; a reset, a
route timeout and a client that gives up end a request that was sent and destroy its connection.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote

from autotuner.domain.measurement import GatewayCounters
from autotuner.instruments.readings import Readings, Unreadable, bucket_edge, sensible

CLUSTER = "envoy_cluster_"
NEVER_SENT = (
    "upstream_rq_pending_failure_eject",
    "upstream_rq_pending_overflow",
    "upstream_rq_cancelled",
    "upstream_cx_none_healthy",
)
BROKEN_OFF = ("upstream_cx_destroy_with_active_rq", "upstream_rq_rx_reset", "upstream_rq_tx_reset")
"""On HTTP/1.1 a destroyed connection is one broken-off request; HTTP/2 resets streams instead."""

WITHOUT_ERROR_ANSWER = (
    "upstream_cx_destroy_local_with_active_rq",
    "upstream_cx_protocol_error",
    "upstream_rq_rx_reset",
    "upstream_rq_tx_reset",
)
"""Given up by the client, or broken off in the middle of the answer: not among the error answers."""

TIMEOUTS = ("upstream_rq_timeout", "upstream_rq_per_try_timeout", "upstream_rq_per_try_idle_timeout")
"""Broken off by Envoy too, but answered with a 504, so already among the error answers."""

SENT, ACTIVE, CODES = "upstream_rq_total", "upstream_rq_active", "upstream_rq_xx"
BUCKET, SUM = "upstream_rq_time_bucket", "upstream_rq_time_sum"
WANTED = frozenset(
    CLUSTER + name
    for name in (
        *NEVER_SENT,
        *BROKEN_OFF,
        *WITHOUT_ERROR_ANSWER,
        *TIMEOUTS,
        SENT,
        ACTIVE,
        CODES,
        BUCKET,
        SUM,
    )
)


def statistics_path(names: Iterable[str]) -> str:
    """Return the admin path of the statistics needed for the clusters `names`, filtered to keep the page small."""
    clusters = "|".join(re.escape(name) for name in names)
    return f"/stats/prometheus?filter={quote(f'^cluster[.]({clusters})[.]upstream_(rq|cx_(destroy|none|protocol))')}"


def read_edges(page: Readings, names: Iterable[str]) -> tuple[float, ...]:
    """Return the histogram's edges in seconds, ascending, infinity last; empty while no request was measured.

    Raises Unreadable when two clusters have different edges: their histograms could not be pooled.
    """
    found = {edges for name in names if (edges := _edges(page, name))}
    if len(found) > 1:
        raise Unreadable("different histogram buckets for different replicas")
    return found.pop() if found else ()


def read_gateway(page: Readings, name: str, edges_seconds: tuple[float, ...]) -> GatewayCounters:
    """Return what the gateway has counted for the cluster `name`. Raises Unreadable.

    Requests still waiting for a connection are not in `sent` yet. Failed are error answers (4xx, 5xx), answers
    broken off, and clients that gave up: each once, except answers that are no HTTP and streams reset by an HTTP/2
    replica, which count more than once rather than not at all. So no window has more unmeasured failures than
    failures. Counters move at once, the histogram at Envoy's next flush; `ended` comes from a gauge read a moment
    after the counters, so it may be off by the requests of that moment.
    """
    never_sent = _sum(page, NEVER_SENT, name)
    sent = round(page.total(CLUSTER + SENT, envoy_cluster_name=name)) + never_sent
    ended = sent - round(page.total(CLUSTER + ACTIVE, envoy_cluster_name=name))
    unmeasured = never_sent + _sum(page, BROKEN_OFF, name)
    without_answer = _sum(page, WITHOUT_ERROR_ANSWER, name) - _sum(page, TIMEOUTS, name)
    return GatewayCounters(
        sent=sent,
        ended=max(0, ended),
        failed=_error_answers(page, name) + without_answer,
        failed_unmeasured=unmeasured,
        buckets=_buckets(page, name, edges_seconds),
        latency_sum_seconds=page.total_or_zero(CLUSTER + SUM, envoy_cluster_name=name) / 1000,
    )


def steadied(before: GatewayCounters | None, now: GatewayCounters) -> GatewayCounters:
    """Keep `ended` from falling by the few requests that were sent between the reading of counter and gauge."""
    if before is None or now.sent < before.sent or now.ended >= before.ended:
        return now
    return replace(now, ended=before.ended)


def edge_seconds(label_ms: float) -> float:
    """Return the latency in seconds below which Envoy counts a request into the bucket `le=label_ms`.

    Envoy records whole milliseconds, rounded down, in bins of two significant digits ([99, 100), [100, 110), …)
    and counts a whole bin into every edge inside it: `le="100"` holds all requests under 110 ms, `le="99.5"`
    those under 100 ms.
    """
    if not math.isfinite(label_ms):
        return math.inf
    width_ms = 10 ** (math.floor(math.log10(label_ms)) - 1) if label_ms >= 100 else 1
    return (math.floor(label_ms / width_ms) + 1) * width_ms / 1000


def bin_below(boundary_ms: float) -> float:
    """Width in ms of Envoy's histogram bin that ends at `boundary_ms`.

    Envoy records whole milliseconds (rounded down) and keeps two significant digits: [99, 100), [100, 110), …
    """
    if boundary_ms <= 100:
        return 1.0
    return float(10 ** (math.ceil(math.log10(boundary_ms)) - 2))


def representable(latency_ms: float, *, up: bool = False) -> float:
    """The nearest boundary of Envoy's bins at or below `latency_ms` (`up`: at or above), at least 1 ms."""
    rounding = math.ceil if up else math.floor
    if latency_ms <= 100:
        return float(max(1, rounding(round(latency_ms, 6))))
    width = bin_below(latency_ms)
    return float(rounding(round(latency_ms / width, 6)) * width)


def edge_label_ms(boundary_ms: float) -> float:
    """The bucket edge (`le`, ms) whose count is exactly the requests that took less than `boundary_ms`.

    Envoy counts a whole bin into `le=E` as soon as the bin's lower end is at or below E: `le="100"` holds
    every request under 110 ms. So an edge is put in the middle of the bin that ends at the wanted boundary,
    which must be `representable`.
    """
    return boundary_ms - bin_below(boundary_ms) / 2


def edge_labels_ms(latency_seconds: float) -> tuple[float, ...]:
    """Return the bucket labels with edges at a latency, or on both sides of one that Envoy's bins cannot say."""
    milliseconds = latency_seconds * 1000
    boundaries = {representable(milliseconds), representable(milliseconds, up=True)}
    return tuple(edge_label_ms(boundary) for boundary in sorted(boundaries))


def _edges(page: Readings, name: str) -> tuple[float, ...]:
    samples = page.samples(CLUSTER + BUCKET, envoy_cluster_name=name)
    return tuple(sorted({edge_seconds(bucket_edge(labels.get("le", ""))) for labels, _ in samples}))


def _histogram(page: Readings, name: str) -> list[tuple[float, int]]:
    """Edges in seconds and cumulative counts, ascending; labels that mean the same edge are merged."""
    found: dict[float, int] = {}
    for labels, value in page.samples(CLUSTER + BUCKET, envoy_cluster_name=name):
        found[edge_seconds(bucket_edge(labels.get("le", "")))] = round(sensible(BUCKET, value))
    return sorted(found.items())


def _buckets(page: Readings, name: str, edges_seconds: tuple[float, ...]) -> tuple[int, ...]:
    if not edges_seconds:
        raise Unreadable("no latency histogram yet (it appears with the first measured request)")
    histogram = _histogram(page, name)
    if not histogram:
        return (0,) * len(
            edges_seconds
        )  # Envoy makes a cluster's histogram with the first answer it measures
    counts = tuple(count for _, count in histogram)
    falling = any(later < earlier for earlier, later in itertools.pairwise(counts))
    if falling or histogram[-1][0] != math.inf:
        raise Unreadable("a latency histogram that is incomplete")
    return counts


def _error_answers(page: Readings, name: str) -> int:
    samples = page.samples(CLUSTER + CODES, envoy_cluster_name=name)
    errors = [v for labels, v in samples if labels.get("envoy_response_code_class") in {"4", "5"}]
    return round(sum(sensible(CODES, value) for value in errors))


def _sum(page: Readings, counters: Iterable[str], name: str) -> int:
    return round(sum(page.total_or_zero(CLUSTER + counter, envoy_cluster_name=name) for counter in counters))
