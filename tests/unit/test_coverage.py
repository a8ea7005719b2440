"""A certificate covers production until it carries more than the band in a day, less for a whole one, or is another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.domain.certificate import Band
from autotuner.domain.coverage import (
    UNCERTIFIED,
    Coverage,
    Covered,
    Day,
    best_of,
    covered,
    load_between,
)
from autotuner.telemetry.coverage import MOST_TARGETS, ShownCoverage
from autotuner.telemetry.metrics import Instruments
from tests.builders import START, a_sample, a_target

BAND = Band(40.0, 120.0, 3, at_least=False, requests=20_000, bad=30)
HOUR = timedelta(hours=1)


def a_day(*loads: float, since_hours: float = 0.0) -> Day:
    """A day with a window an hour, the last one now."""
    day = Day(START - since_hours * HOUR)
    for number, load in enumerate(loads):
        day = day.with_load(START - (len(loads) - 1 - number) * HOUR, load)
    return day


@pytest.mark.parametrize(
    ("day", "state"),
    [
        (a_day(), Coverage.UNREAD),
        (a_day(120.0), Coverage.COVERS),
        (a_day(120.1), Coverage.OUTSIDE),
        (a_day(130.0, 50.0), Coverage.OUTSIDE),
        (a_day(5.0), Coverage.COVERS),
        (a_day(5.0, 20.0, since_hours=23.9), Coverage.COVERS),
        (a_day(5.0, 20.0, since_hours=24), Coverage.OUTSIDE),
        (a_day(5.0, 40.0, since_hours=24), Coverage.COVERS),
    ],
)
def test_the_busiest_minutes_of_a_day_are_held_against_the_band(day: Day, state: Coverage) -> None:
    found = covered("s1", BAND, "", day, START)
    assert found.state is state
    assert bool(found.reason) is (state is not Coverage.COVERS)
    assert found.wants_another is (state is Coverage.OUTSIDE)


def test_a_part_of_production_that_is_not_read_is_never_covered() -> None:
    found = covered("s1", BAND, "", a_day(60.0), START, unread="stable-1 is unavailable")
    assert (found.state, found.reason, found.wants_another) == (
        Coverage.UNREAD,
        "stable-1 is unavailable",
        False,
    )
    assert covered("s1", BAND, "", a_day(130.0), START, unread="x").state is Coverage.OUTSIDE


def test_the_reason_has_the_load_and_the_band() -> None:
    found = covered("s1", BAND, "", a_day(130.04), START)
    assert found.reason == "a replica carried 130.0 requests a second, 40.0 to 120.0 are certified"


def test_what_is_known_against_a_certificate_counts_before_the_load() -> None:
    found = covered("s1", BAND, "stable-0 runs version 2 of the model instead of 1", a_day(500.0), START)
    assert (found.state, found.wants_another) == (Coverage.CHANGED, True)
    assert "version 2" in found.reason


def test_a_load_is_forgotten_after_a_day() -> None:
    day = a_day(130.0)
    assert day.with_load(START + 23 * HOUR, 50.0).busiest_per_second == 130.0
    later = day.with_load(START + 24 * HOUR, 50.0)
    assert (later.busiest_per_second, later.newest_per_second) == (50.0, 50.0)


def test_the_best_of_several_certificates_counts() -> None:
    wide = replace(BAND, highest_per_second=200.0)
    outside, wider = (
        Covered(Coverage.OUTSIDE, "x", study_id, band) for study_id, band in (("a", BAND), ("b", wide))
    )
    covers, changed = Covered(Coverage.COVERS, "", "c", BAND), Covered(Coverage.CHANGED, "y", "d", wide)
    assert best_of([changed, outside, covers]) is covers
    assert best_of([changed, outside, wider]) is wider
    assert best_of([]) is UNCERTIFIED
    assert UNCERTIFIED.wants_another


def test_what_cannot_be_read_asks_for_nothing() -> None:
    assert not Covered(Coverage.UNREAD, "connection refused").wants_another


def test_a_load_is_the_mean_of_the_stable_replicas_and_unknown_where_a_counter_is() -> None:
    target = a_target()
    first, last = a_sample(0, 100), a_sample(60, 700)
    assert load_between(target, first, last) == pytest.approx(10.0)
    assert load_between(target, last, first) is None
    assert load_between(target, first, replace(last, gateway={})) is None
    assert load_between(target, a_sample(0, 800), last) is None
    assert load_between(target, last, replace(last, at=last.at)) is None


def page(instruments: Instruments) -> list[str]:
    lines = instruments.page().decode().splitlines()
    return [line for line in lines if line.startswith(("autotuner_cert", "autotuner_replica"))]


def test_one_state_is_shown_of_each_target_with_its_band_and_its_load() -> None:
    instruments = Instruments()
    shown = ShownCoverage(instruments)
    shown.show("vision", covered("s1", BAND, "", a_day(90.0, 50.0), START), a_day(90.0, 50.0))
    lines = page(instruments)
    assert 'autotuner_certificate_state{state="covers",target="vision"} 1.0' in lines
    assert 'autotuner_certificate_state{state="outside",target="vision"} 0.0' in lines
    assert 'autotuner_certified_requests_per_second{end="highest",target="vision"} 120.0' in lines
    assert 'autotuner_replica_requests_per_second{of="now",target="vision"} 50.0' in lines
    assert 'autotuner_replica_requests_per_second{of="day",target="vision"} 90.0' in lines

    shown.show("vision", UNCERTIFIED, Day(START))
    assert not any("requests_per_second" in line for line in page(instruments))
    shown.keep(frozenset())
    assert page(instruments) == []


def test_no_more_targets_are_shown_than_a_scrape_can_carry() -> None:
    instruments = Instruments()
    shown = ShownCoverage(instruments)
    for number in range(MOST_TARGETS + 5):
        shown.show(f"t{number}", UNCERTIFIED, Day(START))
    assert len(page(instruments)) == MOST_TARGETS * len(Coverage)
    shown.keep(frozenset({"t1"}))
    shown.show(f"t{MOST_TARGETS}", UNCERTIFIED, Day(START))
    assert len(page(instruments)) == 2 * len(Coverage)
