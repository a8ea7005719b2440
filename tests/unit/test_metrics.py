"""Metrics move with what happens, and a worker's page shows them to whoever scrapes it."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from autotuner.controller import Controller
from autotuner.courier import Courier
from autotuner.domain.study import Outcome, TrialKind, TrialState
from autotuner.errors import Unavailable
from autotuner.telemetry.metrics import CARRIED, CERTIFIED, COVERAGE, METRICS, Instruments, serve_page
from autotuner.telemetry.studies import Watched, canary_share
from autotuner.worker import Worker
from tests.builders import at as instant
from tests.closed_loop.endings import TERRIBLE, a_loop, at
from tests.closed_loop.loop import Loop
from tests.closed_loop.test_rollback import asked_back, promoted
from tests.sightings import a_window, begun, under_way
from tests.unit.test_nightly import HOUR
from tests.unit.test_nightly import Scene as Night
from tests.unit.test_notices import Receiver
from tests.unit.test_notices import Scene as Post

OF_TARGETS = (CERTIFIED, CARRIED, COVERAGE)
"""The only ones that name targets, of which a limited number is shown."""


def shown(instruments: Instruments) -> dict[str, float]:
    """Every sample of the page that is not zero, by its name and labels."""
    page = instruments.page().decode()
    found = re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", page, re.MULTILINE)
    return {name: float(value) for name, value in found if float(value) and "_created" not in name}


def counted(loop: Loop) -> Instruments:
    """Instruments that the loop's controller writes to."""
    instruments = Instruments()
    outside = replace(loop.controller._outside, watched=Watched(instruments))
    loop.controller = Controller(outside, "worker-1")
    return instruments


def test_a_promotion_is_counted_with_its_verdicts_and_its_harm() -> None:
    loop = a_loop()
    instruments = counted(loop)
    loop.run()

    page = shown(instruments)
    assert page['autotuner_studies_ended_total{outcome="promoted"}'] == 1
    assert page['autotuner_production_changes_total{change="promotion"}'] == 1
    assert page['autotuner_verdicts_total{kind="candidate",verdict="accept"}'] == 1
    assert page['autotuner_verdicts_total{kind="stage",verdict="accept"}'] == 2
    assert page.get("autotuner_harm_requests_total", 0.0) == pytest.approx(loop.study.harm_requests, rel=0.03)
    assert page["autotuner_harm_budget_used_ratio_count"] == 1
    assert "autotuner_canary_share_ratio" not in page


def test_a_terrible_candidate_shows_as_harm() -> None:
    loop = a_loop(TERRIBLE)
    instruments = counted(loop)
    loop.run()
    assert shown(instruments)["autotuner_harm_requests_total"] >= loop.study.harm_requests > 1
    assert shown(instruments)['autotuner_verdicts_total{kind="candidate",verdict="reject"}'] == 1


def test_what_is_known_beforehand_is_shown_at_zero_so_that_its_first_event_is_an_increase() -> None:
    page = Instruments().page().decode()
    for sample in (
        'autotuner_studies_ended_total{outcome="kept"}',
        'autotuner_verdicts_total{kind="candidate",verdict="reject"}',
        'autotuner_ticks_total{result="taken over"}',
        'autotuner_nights_total{state="missed"}',
        'autotuner_notices_total{result="given up"}',
        'autotuner_production_changes_total{change="rollback"}',
    ):
        assert f"{sample} 0.0\n" in page


def test_each_time_that_a_window_goes_blind_is_counted_once() -> None:
    seeing, blind = (
        under_way(begun(state=TrialState.MEASURING, window=a_window(blind_since=since)))
        for since in (None, instant(3))
    )
    instruments = Instruments()
    watched = Watched(instruments)
    for before, after in pairwise((seeing, blind, blind, seeing, blind)):
        watched.stepped(before, after)
    assert shown(instruments)["autotuner_blind_windows_total"] == 2


def test_the_share_of_a_canary_shows_while_it_has_it_and_as_long_as_this_worker_carries_it() -> None:
    loop = a_loop()
    instruments = counted(loop)
    loop.run(until=at(TrialKind.CANDIDATE, level=1))
    share = canary_share(loop.study)
    assert 0.3 < share <= loop.plan.slo.max_canary_share
    assert shown(instruments)["autotuner_canary_share_ratio"] == pytest.approx(share)

    loop.controller.forget(loop.study_id)
    assert "autotuner_canary_share_ratio" not in shown(instruments)


def test_a_rollback_is_counted_and_is_no_use_of_a_harm_budget() -> None:
    loop = promoted()
    asked_back(loop)
    instruments = counted(loop)
    assert loop.run().outcome is Outcome.ROLLED_BACK
    page = shown(instruments)
    assert page['autotuner_production_changes_total{change="rollback"}'] == 1
    assert "autotuner_harm_budget_used_ratio_count" not in page


def test_a_worker_counts_its_ticks_how_late_they_are_and_what_it_holds() -> None:
    loop = a_loop()
    instruments = Instruments()
    worker = Worker(loop.store, loop.leases, loop.controller, loop.clock, instruments=instruments)
    for _ in range(10):
        worker.turn()
        loop.clock.advance(timedelta(seconds=2))
    page = shown(instruments)
    ticks = page['autotuner_ticks_total{result="done"}']
    assert ticks >= 8
    assert (
        page["autotuner_tick_lateness_seconds_count"]
        == page["autotuner_tick_duration_seconds_count"]
        == ticks
    )
    assert page["autotuner_tick_lateness_seconds_sum"] > 1
    assert (page["autotuner_studies_carried"], page["autotuner_leases_held"]) == (1, 1)


def test_a_tick_that_fails_is_counted_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = a_loop()
    instruments = Instruments()

    def away(*_: object) -> None:
        raise Unavailable("postgres", "connection refused")

    monkeypatch.setattr(loop.controller, "tick", away)
    Worker(loop.store, loop.leases, loop.controller, loop.clock, instruments=instruments).turn()
    assert shown(instruments)['autotuner_ticks_total{result="failed"}'] == 1


def test_nights_are_counted_once_each() -> None:
    night, instruments = Night(), Instruments()
    night.watch.told = lambda state: instruments.nights.labels(state).inc()
    night.schedule()
    night.look_at(3)
    night.end_studies()
    night.look_at(3.5)
    night.look_at(12, day=2)
    page = shown(instruments)
    assert page['autotuner_nights_total{state="started"}'] == 1
    assert page['autotuner_nights_total{state="missed"}'] >= 1
    assert timedelta(hours=1) == HOUR


def test_notices_are_counted_by_what_became_of_them() -> None:
    post, instruments = Post(Receiver(failures=1)), Instruments()
    courier: Courier = replace(post.courier, told=lambda result: instruments.notices.labels(result).inc())
    courier.deliver()
    post.clock.turn(60)
    courier.deliver()
    page = shown(instruments)
    assert page['autotuner_notices_total{result="failed"}'] == 1
    assert page['autotuner_notices_total{result="delivered"}'] == 1


def test_a_process_that_serves_nothing_else_serves_its_metrics() -> None:
    instruments = Instruments()
    instruments.leads.set(1)
    port, stop = serve_page(instruments, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            serve_page(instruments, "127.0.0.1", port)
    finally:
        stop()
    assert "autotuner_scheduler_leads 1.0" in page


def test_every_metric_is_in_base_units_with_labels_of_few_values() -> None:
    for metric in METRICS:
        assert metric.name.startswith("autotuner_")
        assert not re.search(r"_(ms|milliseconds|percent|minutes|kb|mb)\b", metric.name)
        assert not set(metric.labels) & {"study", "trial", "actor", "address", "holder"}
        assert ("target" in metric.labels) is (metric in OF_TARGETS)
        counter = metric.kind.__name__ == "Counter"
        assert metric.name.endswith("_total") is counter, metric.name
