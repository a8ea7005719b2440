"""Envoy's counters are read as what they mean: sent, ended, failed, and a histogram with honest edges."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import unquote

import pytest

from autotuner.domain.measurement import GatewayCounters
from autotuner.instruments.envoy import (
    WANTED,
    bin_below,
    edge_label_ms,
    edge_seconds,
    read_edges,
    read_gateway,
    representable,
    statistics_path,
)
from autotuner.instruments.exposition import Page
from autotuner.instruments.readings import Unreadable
from autotuner.sandbox.envoy import bucket_edges_ms

ANSWERED = {"upstream_rq_total": 1, "buckets": (1, 1, 1)}
SLOW = {"upstream_rq_total": 1, "buckets": (0, 0, 1)}
ERROR = {**ANSWERED, "5": 1}
TIMED_OUT = {
    "upstream_rq_total": 1,
    "5": 1,
    "upstream_rq_timeout": 1,
    "upstream_cx_destroy_with_active_rq": 1,
    "upstream_cx_destroy_local_with_active_rq": 1,
}
RESET = {"upstream_rq_total": 1, "5": 1, "upstream_cx_destroy_with_active_rq": 1}
CUT_IN_BODY = {
    "upstream_rq_total": 1,
    "2": 1,
    "upstream_cx_protocol_error": 1,
    "upstream_cx_destroy_with_active_rq": 1,
}
GARBAGE = {
    "upstream_rq_total": 1,
    "5": 1,
    "upstream_cx_protocol_error": 1,
    "upstream_cx_destroy_with_active_rq": 1,
    "upstream_cx_destroy_local_with_active_rq": 1,
}
GIVEN_UP = {
    "upstream_rq_total": 1,
    "upstream_cx_destroy_with_active_rq": 1,
    "upstream_cx_destroy_local_with_active_rq": 1,
}
REFUSED_CONNECTION = {"5": 1, "upstream_rq_pending_failure_eject": 1}
OVERFLOW = {"5": 1, "upstream_rq_pending_overflow": 1}
WAITING = {"upstream_rq_total": 1, "upstream_rq_active": 1}
EDGES = ("99.5", "105", "+Inf")


def lines(name: str, *events: Mapping[str, object]) -> str:
    """The page's part about one cluster to which these things happened."""
    counters = dict.fromkeys(("upstream_rq_total", "upstream_rq_active", "upstream_rq_timeout"), 0)
    codes: dict[str, int] = {}
    buckets = [0, 0, 0]
    for event in events:
        for key, change in event.items():
            if isinstance(change, tuple):
                buckets = [old + new for old, new in zip(buckets, change, strict=True)]
            elif isinstance(change, int):
                into = codes if key.isdigit() else counters
                into[key] = into.get(key, 0) + change
    label = f'envoy_cluster_name="{name}"'
    text = [f"envoy_cluster_{counter}{{{label}}} {value}" for counter, value in counters.items()]
    for code, value in codes.items():
        text.append(f'envoy_cluster_upstream_rq_xx{{envoy_response_code_class="{code}",{label}}} {value}')
    if buckets[-1]:
        for edge, value in zip(EDGES, buckets, strict=True):
            text.append(f'envoy_cluster_upstream_rq_time_bucket{{{label},le="{edge}"}} {value}')
        text.append(f"envoy_cluster_upstream_rq_time_sum{{{label}}} {50 * buckets[-1]}")
    return "\n".join(text) + "\n"


def read(
    text: str, name: str = "canary", edges: tuple[float, ...] = (0.1, 0.11, math.inf)
) -> GatewayCounters:
    return read_gateway(Page(text, WANTED), name, edges)


@pytest.mark.parametrize(
    ("event", "ended", "failed", "unmeasured"),
    [
        (ANSWERED, 1, 0, 0),
        (SLOW, 1, 0, 0),
        (ERROR, 1, 1, 0),
        ({**ANSWERED, "4": 1}, 1, 1, 0),
        (TIMED_OUT, 1, 1, 1),
        (RESET, 1, 1, 1),
        (CUT_IN_BODY, 1, 1, 1),
        (GARBAGE, 1, 3, 1),
        (GIVEN_UP, 1, 1, 1),
        (REFUSED_CONNECTION, 1, 1, 1),
        (OVERFLOW, 1, 1, 1),
        (WAITING, 0, 0, 0),
    ],
)
def test_each_end_of_a_request_is_counted_once(
    event: Mapping[str, object], ended: int, failed: int, unmeasured: int
) -> None:
    counted = read(lines("canary", *[event] * 3))
    assert (counted.sent, counted.ended) == (3, 3 * ended)
    assert (counted.failed, counted.failed_unmeasured) == (3 * failed, 3 * unmeasured)
    assert counted.buckets[-1] == 3 * (ended - unmeasured)


def test_ends_of_all_kinds_together_are_each_counted_once() -> None:
    events: list[Mapping[str, object]] = [ANSWERED] * 7 + [
        SLOW,
        ERROR,
        TIMED_OUT,
        RESET,
        CUT_IN_BODY,
        GIVEN_UP,
        REFUSED_CONNECTION,
        WAITING,
    ]
    counted = read(lines("canary", *events))
    assert counted == GatewayCounters(
        sent=15, ended=14, failed=6, failed_unmeasured=5, buckets=(8, 8, 9), latency_sum_seconds=0.45
    )


def test_clusters_are_kept_apart() -> None:
    text = lines("stable", *[ANSWERED] * 5) + lines("canary", RESET, ANSWERED)
    assert read(text, "stable").sent == 5
    assert read(text, "canary").failed == 1


def test_edges_are_the_latencies_that_envoy_really_counts_below() -> None:
    assert read_edges(Page(lines("a", ANSWERED) + lines("b"), WANTED), ["a", "b"]) == (0.1, 0.11, math.inf)
    assert read_edges(Page(lines("a") + lines("b"), WANTED), ["a", "b"]) == ()


@pytest.mark.parametrize(
    ("label_ms", "seconds"),
    [
        (0.5, 0.001),
        (5, 0.006),
        (99.5, 0.1),
        (100, 0.11),
        (105, 0.11),
        (250, 0.26),
        (2500, 2.6),
        (math.inf, math.inf),
    ],
)
def test_an_edge_lies_where_envoys_bin_ends(label_ms: float, seconds: float) -> None:
    assert edge_seconds(label_ms) == pytest.approx(seconds)


@pytest.mark.parametrize("ceiling_ms", [7, 20, 50, 100, 125, 250, 1000])
def test_the_sandboxs_gateway_has_an_edge_exactly_at_the_ceiling(ceiling_ms: int) -> None:
    boundary = representable(ceiling_ms)
    assert edge_seconds(edge_label_ms(boundary)) == pytest.approx(boundary / 1000)
    edges = [edge_seconds(label) for label in bucket_edges_ms(timedelta(milliseconds=ceiling_ms))]
    assert boundary / 1000 in [pytest.approx(edge) for edge in edges]
    assert edges == sorted(set(edges))
    assert bin_below(boundary) > 0


def test_labels_that_mean_the_same_edge_are_one_edge() -> None:
    text = lines("canary", ANSWERED).replace('le="99.5"', 'le="101"')
    assert read_edges(Page(text, WANTED), ["canary"]) == (0.11, math.inf)
    assert read(text, edges=(0.11, math.inf)).buckets == (1, 1)


def test_edges_are_matched_as_numbers() -> None:
    text = lines("a", ANSWERED) + lines("b", ANSWERED).replace('le="105"', 'le="105.0"')
    assert len(read_edges(Page(text, WANTED), ["a", "b"])) == 3


def test_histograms_that_cannot_be_pooled_are_refused() -> None:
    text = lines("a", ANSWERED) + lines("b", ANSWERED).replace('le="105"', 'le="205"')
    with pytest.raises(Unreadable, match="different histogram buckets"):
        read_edges(Page(text, WANTED), ["a", "b"])


def test_a_replica_whose_requests_were_never_measured_has_an_empty_histogram() -> None:
    assert read(lines("canary")).buckets == (0, 0, 0)
    assert read(lines("canary", REFUSED_CONNECTION)).buckets == (0, 0, 0)


def test_before_the_first_measured_request_there_is_no_histogram_to_read() -> None:
    with pytest.raises(Unreadable, match="no latency histogram yet"):
        read(lines("canary", REFUSED_CONNECTION), edges=())


def test_a_cluster_the_gateway_does_not_know_is_not_zero() -> None:
    with pytest.raises(Unreadable, match="canary"):
        read(lines("stable", ANSWERED))


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (r"(upstream_rq_total\S+) 1\n", r"\1 NaN\n"),
        (r"(upstream_rq_total\S+) 1\n", r"\1 -1\n"),
        (r'(le="105"\}) 1\n', r"\1 NaN\n"),
        (r'(le="105"\}) 1\n', r"\1 0\n"),
        (r'(le=)"\+Inf"', r'\1"210"'),
        (r'(le=)"105"', r'\1"many"'),
        (r".*upstream_rq_active.*\n", ""),
    ],
)
def test_a_broken_number_makes_the_replica_unreadable_never_zero(found: str, wrong: str) -> None:
    text, changes = re.subn(found, wrong, lines("canary", ANSWERED))
    assert changes == 1
    with pytest.raises(Unreadable):
        read(text)


def test_the_request_for_statistics_asks_for_the_replicas_alone() -> None:
    pattern = unquote(statistics_path(["stable-0", "canary"]).partition("filter=")[2])
    assert re.search(pattern, "cluster.canary.upstream_rq_time")
    assert re.search(pattern, "cluster.stable-0.upstream_cx_destroy_with_active_rq")
    assert not re.search(pattern, "cluster.other.upstream_rq_time")
    assert not re.search(pattern, "cluster.canary.external.upstream_rq_time")
    assert not re.search(pattern, "cluster.canary.upstream_cx_length_ms")
