"""What a study would find is said series by series, with the line of configuration that would mend it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from autotuner.domain.measurement import Sample
from autotuner.domain.needs import EDGE, Answer, Check, requests_to_accept
from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.inspection import Inspection, Looks, inspect
from autotuner.instruments.triton import Backlog
from tests.builders import REPLICAS, a_budget, a_pace, a_plan, a_sample, a_target, at, changed

MEASURED_BY = Instrumentation(PrometheusServer("http://10.0.0.20:9090"))
READY = dict.fromkeys(REPLICAS, 2000)


def inspected(
    last: Sample | None = None, every: dict[str, float] | None = None, **plan: object
) -> Inspection:
    looks = Looks(a_sample(0), last or a_sample(10, READY), at(12), every or {})
    return inspect(a_plan(**{"target": a_target(metrics=MEASURED_BY), **plan}), looks)


def finding(found: Inspection, what: str) -> Check:
    return next(each for each in found.findings if each.what == what)


def test_everything_there_is_usable_and_told_with_its_rate_and_age() -> None:
    found = inspected()
    assert found.usable
    assert found.rates == dict.fromkeys(("stable-0", "stable-1", "canary"), 100.0)
    assert "2.0 s old" in finding(found, "gateway canary").detail
    assert finding(found, EDGE).detail == "13 edges, one of them at 100 ms"
    assert found.source == "Prometheus at http://10.0.0.20:9090, preset envoy"


def test_an_edge_beside_the_ceiling_is_told_with_the_line_to_add() -> None:
    buckets = finding(inspected(slo=a_budget(p99_ceiling_seconds=0.12)), EDGE)
    assert buckets.answer is Answer.DOUBTFUL
    assert "accepted by 100 ms and rejected by 150 ms" in buckets.detail
    assert "upstream_rq_time" in buckets.advice
    assert "115]" in buckets.advice


def test_a_ceiling_that_envoy_cannot_say_gets_an_edge_on_both_sides() -> None:
    buckets = finding(inspected(slo=a_budget(p99_ceiling_seconds=0.125)), EDGE)
    assert "115, 125]" in buckets.advice


def test_no_edge_above_the_ceiling_is_missing() -> None:
    buckets = finding(inspected(slo=a_budget(p99_ceiling_seconds=50.0)), EDGE)
    assert buckets.answer is Answer.NO
    assert buckets.advice


def test_what_is_absent_is_missing_with_the_reason_and_the_scrape_to_add() -> None:
    found = inspected(a_sample(10, READY, faults={"canary": "nothing scrapes it"}))
    assert not found.usable
    assert found.reached
    server = finding(found, "server canary")
    assert (server.answer, server.detail) == (Answer.NO, "nothing scrapes it")
    assert 'targets: ["127.0.0.1:9022"]' in server.advice
    assert finding(found, "gateway canary").answer is Answer.NO


def test_nothing_at_all_was_not_reached() -> None:
    faults = dict.fromkeys(("gateway", *REPLICAS), "no connection")
    found = inspected(a_sample(10, names=(), faults=faults))
    assert not found.reached
    assert "/stats/prometheus" in finding(found, "gateway").advice


def test_a_pace_quicker_than_the_scrapes_is_told_with_the_lines_to_add() -> None:
    found = finding(inspected(every={"gateway": 15.0, "servers": 30.0}, pace=a_pace()), "scrape interval")
    assert found.answer is Answer.DOUBTFUL
    for line in ("look_interval: 30s", "flush_interval: 60s", "no_data_limit: 120s"):
        assert line in found.advice


def test_a_pace_that_allows_for_the_scrapes_is_good() -> None:
    pace = a_pace(
        look_interval=timedelta(seconds=5),
        flush_interval=timedelta(seconds=10),
        no_data_limit=timedelta(seconds=30),
    )
    assert finding(inspected(every={"gateway": 5.0}, pace=pace), "scrape interval").answer is Answer.YES


def test_no_traffic_is_told() -> None:
    found = inspected(a_sample(10))
    assert "nothing can be judged" in finding(found, "traffic").detail
    assert all(cost.duration is None for cost in found.verdicts)


def test_counters_that_began_anew_are_told() -> None:
    found = inspected(a_sample(10, dict.fromkeys(REPLICAS, 1)))
    assert "began anew" in finding(found, "traffic").detail


def test_missing_memory_is_told_for_each_device() -> None:
    sample = a_sample(10, READY)
    bare = {n: changed(c, memory_used_bytes=None, memory_total_bytes=None) for n, c in sample.servers.items()}
    last = changed(sample, servers=bare)
    advice = finding(inspected(last), "memory canary").advice
    assert "device: dcgm" in advice
    dcgm = a_target(metrics=dataclasses.replace(MEASURED_BY, device="dcgm"))
    assert "pod" in finding(inspected(last, target=dcgm), "memory canary").advice
    none = a_target(metrics=dataclasses.replace(MEASURED_BY, device="none"))
    assert finding(inspected(last, target=none), "memory canary").answer is Answer.YES


def test_a_verdict_costs_what_the_evidence_takes() -> None:
    assert requests_to_accept(0.0, 0.01) == pytest.approx(580, abs=5)
    assert requests_to_accept(0.0025, 0.01) > requests_to_accept(0.0, 0.01)  # type: ignore[operator]
    assert requests_to_accept(0.02, 0.01) is None
    screening = next(cost for cost in inspected().verdicts if not cost.strict and cost.slow_share == 0.0)
    assert screening.requests is not None
    assert screening.duration == max(a_pace().step_minimum, timedelta(seconds=screening.requests / 100))


def with_backlogs(waited: dict[str, Backlog], waits: dict[str, Backlog]) -> Inspection:
    looks = Looks(a_sample(0), a_sample(10, READY), at(12), {}, waited, waits)
    return inspect(a_plan(target=a_target(metrics=MEASURED_BY)), looks)


def test_requests_that_wait_and_failures_by_reason_are_told_for_each_server() -> None:
    before = {"canary": Backlog(0, {"REJECTED": 2, "OTHER": 0})}
    now = {"canary": Backlog(7, {"REJECTED": 5, "OTHER": 0}), "stable-0": Backlog(0, {"OTHER": 0})}
    found = with_backlogs(before, now)
    assert finding(found, "pending canary").detail == "7 requests wait for execution"
    failures = finding(found, "failures canary")
    assert failures.answer is Answer.DOUBTFUL
    assert failures.detail == (
        "5 REJECTED (the queue was full, or the request waited longer than its policy allows), "
        "3 of them while it was looked at"
    )
    assert finding(found, "failures stable-0").detail == "none since it started"
    assert not any(each.what == "failures stable-1" for each in found.findings)


def test_failures_of_long_ago_are_told_and_are_no_fault_of_today() -> None:
    old = {"canary": Backlog(0, {"BACKEND": 9, "": 1})}
    failures = finding(with_backlogs(old, old), "failures canary")
    assert failures.answer is Answer.YES
    assert "9 BACKEND (the model itself failed)" in failures.detail
    assert "1 without a reason (this server tells no reasons)" in failures.detail
    assert "while it was looked at" not in failures.detail


def test_a_server_that_does_not_tell_what_waits_gets_the_line_to_look_for() -> None:
    found = with_backlogs({}, {"canary": Backlog(None, {})})
    pending = finding(found, "pending canary")
    assert pending.answer is Answer.DOUBTFUL
    assert "nv_inference_pending_request_count" in pending.advice
    assert found.usable
