"""Each night starts once, in its window, or is missed with the reason; clock changes and downtime included."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from autotuner.adapters.memory_store import (
    MemoryLeadership,
    MemoryNights,
    MemoryOutbox,
    MemoryRegistry,
    MemorySpans,
)
from autotuner.courier import Courier
from autotuner.domain.access import Said
from autotuner.domain.calendar import Freeze, Line, Schedule, offset
from autotuner.domain.study import Outcome, Phase
from autotuner.errors import InvalidInput, Unavailable
from autotuner.nightly import OVERTAKEN, UNATTENDED, NightWatch
from autotuner.ports import NightState, SlowTrace
from autotuner.scheduler import Scheduler, firings, trigger
from tests.builders import ManualClock, a_budget, a_target
from tests.closed_loop.loop import QuickStore

HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
SAID = Said("anna", "agreed", MIDNIGHT)


def a_schedule(**changes: object) -> Schedule:
    """Every night at half past two, UTC, with two hours to start."""
    return replace(Schedule("vision", "30 2 * * *", window=2 * HOUR), **changes)  # type: ignore[arg-type]


class Scene:
    """Two targets, a watch, and a clock that stands at midnight."""

    def __init__(self, places: int = 100) -> None:
        self.clock = ManualClock(MIDNIGHT)
        self.store = QuickStore()
        self.nights = MemoryNights(self.store)
        for name in ("vision", "speech"):
            self.store.save_target(a_target(name=name), a_budget(), "anna", "", MIDNIGHT)
        self.watch = self.a_watch(places)

    def a_watch(self, places: int = 100) -> NightWatch:
        registry = MemoryRegistry(self.store.memory)
        return NightWatch(self.store, self.nights, registry, self.clock, firings, places)

    def schedule(self, **changes: object) -> Schedule:
        return self.nights.set_schedule(a_schedule(**changes), replace(SAID, at=self.clock.now()))

    def look_at(self, hours: float, day: int = 0) -> None:
        """Turn the clock to so many hours after midnight and look."""
        self.clock.advance(MIDNIGHT + timedelta(days=day, hours=hours) - self.clock.now())
        self.watch.look()

    def end_studies(self, outcome: Outcome = Outcome.KEPT) -> None:
        for row in self.store.memory.studies.values():
            if row.study.phase is not Phase.ENDED:
                row.study = replace(row.study, phase=Phase.ENDED, outcome=outcome)

    @property
    def states(self) -> list[tuple[str, str, str]]:
        """Every settled night, oldest first: name, state and reason."""
        found = reversed(self.nights.nights())
        return [(record.night.name, record.state.value, record.reason) for record in found]


# -- cron --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cron", ["", "30 2 * *", "61 2 * * *", "x 2 * * *", "30 2 * * * *", "@daily"])
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        trigger(cron, "UTC")
    assert refused.value.field == "schedule.cron"


def test_nights_are_due_after_one_instant_and_up_to_another() -> None:
    due = MIDNIGHT + 2.5 * HOUR

    assert [n.due_at for n in firings(a_schedule(), MIDNIGHT, due)] == [due]
    assert list(firings(a_schedule(), due, due + 23 * HOUR)) == []
    assert list(firings(a_schedule(), MIDNIGHT, due - timedelta(seconds=1))) == []


def test_the_clock_that_is_set_forward_leaves_no_night_out() -> None:
    schedule = a_schedule(time_zone="Europe/Berlin")
    nights = list(firings(schedule, datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)))

    assert [night.due_at for night in nights] == [
        datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ]


def test_the_hour_that_occurs_twice_is_one_night() -> None:
    schedule = a_schedule(time_zone="Europe/Berlin")
    began, over = datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 27, tzinfo=UTC)
    nights = list(firings(schedule, began, over))

    assert [night.name for night in nights] == ["2026-10-24T02:30", "2026-10-25T02:30", "2026-10-26T02:30"]
    assert list(firings(schedule, nights[1].due_at, nights[1].due_at + 2 * HOUR)) == []


def test_a_year_has_a_night_for_every_date_in_any_time_zone() -> None:
    for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo"):
        schedule = a_schedule(time_zone=zone, cron="15 2 * * *")
        began = datetime(2026, 1, 1, tzinfo=UTC)
        nights = list(firings(schedule, began, began + timedelta(days=365)))
        assert len({night.name for night in nights}) == len(nights) == 365
        gaps = {b.due_at - a.due_at for a, b in pairwise(nights)}
        assert max(gaps) <= 25 * HOUR


# -- starting ----------------------------------------------------------------------------------------------


def test_a_night_starts_when_it_is_due_and_only_once() -> None:
    scene = Scene()
    scene.schedule()
    scene.look_at(2.49)
    assert scene.states == []

    for hours in (2.5, 2.6, 3):
        scene.look_at(hours)

    assert scene.states == [("2026-01-05T02:30", "started", "")]
    (study,) = scene.store.studies()
    assert (study.target, scene.store.study(study.id).actor) == ("vision", "scheduler")


def test_a_night_starts_later_by_its_share_of_the_jitter() -> None:
    scene = Scene()
    scene.schedule(jitter=HOUR)
    by = offset("vision", "2026-01-05T02:30", HOUR) / HOUR
    assert 0 < by < 1

    scene.look_at(2.5 + by - 0.01)
    assert scene.states == []
    scene.look_at(2.5 + by)
    assert [state for _, state, _ in scene.states] == ["started"]


def test_each_night_has_another_seed() -> None:
    scene = Scene()
    scene.schedule()
    for day in range(3):
        scene.look_at(2.5, day)
        scene.end_studies()

    seeds = {scene.store.study(each.id).plan.seed for each in scene.store.studies()}
    assert len(seeds) == 3


def test_a_paused_schedule_starts_nothing_and_misses_nothing() -> None:
    scene = Scene()
    schedule = scene.schedule(paused=True)
    scene.look_at(12, 3)
    scene.nights.set_schedule(replace(schedule, paused=False), replace(SAID, at=scene.clock.now()))
    scene.look_at(13, 3)

    assert scene.states == []


# -- waiting and missing -----------------------------------------------------------------------------------


def test_a_night_waits_for_an_earlier_study_and_starts_when_that_has_ended() -> None:
    scene = Scene()
    scene.schedule()
    scene.look_at(2.5)
    scene.look_at(2.5, 1)
    assert len(scene.states) == 1

    scene.end_studies()
    scene.look_at(3.5, 1)

    assert [state for _, state, _ in scene.states] == ["ended", "started"]


def test_a_night_that_could_not_start_in_its_window_is_missed_with_the_reason() -> None:
    scene = Scene()
    scene.schedule()
    scene.look_at(2.5)
    (first,) = scene.store.studies()
    scene.look_at(2.5, 1)
    scene.look_at(4.5, 1)

    assert scene.states[1:] == [("2026-01-06T02:30", "missed", f"study {first.id} has not ended")]
    (message,) = MemoryOutbox(scene.store.memory).messages()
    assert message.notice.subject == "vision/2026-01-06T02:30"


def test_nothing_starts_in_a_freeze() -> None:
    scene = Scene()
    scene.schedule()
    scene.nights.add_freeze(Freeze(MIDNIGHT, MIDNIGHT + 3 * HOUR, "sale"), SAID)
    scene.look_at(2.5)
    assert scene.states == []

    scene.look_at(3)
    assert [state for _, state, _ in scene.states] == ["started"]


def test_nothing_starts_while_the_line_is_stopped_or_on_a_blackout_date() -> None:
    scene = Scene()
    scene.schedule(blackout_dates=(date(2026, 1, 6),))
    scene.store.memory.line = Line(MIDNIGHT, "incident", "anna")
    for day in (0, 1, 2):
        for hours in (2.5, 4.5):
            if day == 1:
                scene.store.memory.line = Line()
            scene.look_at(hours, day)

    assert scene.states == [
        ("2026-01-05T02:30", "missed", "the line is stopped: incident"),
        ("2026-01-06T02:30", "missed", "2026-01-06 is a blackout date"),
        ("2026-01-07T02:30", "started", ""),
    ]


def test_nights_beyond_the_places_of_a_site_wait() -> None:
    scene = Scene(places=1)
    scene.schedule()
    scene.schedule(target="speech")
    scene.look_at(2.5)
    assert len(scene.states) == 1

    scene.end_studies()
    scene.look_at(3)
    assert len(scene.states) == 2


def test_a_retired_target_is_missed_and_says_so() -> None:
    scene = Scene()
    scene.schedule()
    MemoryRegistry(scene.store.memory).retire("vision", None, SAID)
    scene.look_at(2.5)
    scene.look_at(4.5)

    ((_, state, reason),) = scene.states
    assert state == "missed"
    assert "retired" in reason


# -- downtime ----------------------------------------------------------------------------------------------


def test_what_was_due_while_nobody_looked_is_caught_up_once() -> None:
    scene = Scene()
    scene.schedule()
    scene.look_at(3, 3)

    assert scene.states == [
        ("2026-01-05T02:30", "missed", OVERTAKEN),
        ("2026-01-06T02:30", "missed", OVERTAKEN),
        ("2026-01-07T02:30", "missed", OVERTAKEN),
        ("2026-01-08T02:30", "started", ""),
    ]


def test_a_night_whose_window_passed_unattended_is_missed() -> None:
    scene = Scene()
    scene.schedule()
    scene.look_at(10)

    assert scene.states == [("2026-01-05T02:30", "missed", UNATTENDED)]


def test_another_watch_that_remembers_less_starts_no_night_again() -> None:
    scene = Scene()
    scene.schedule()
    first, second = scene.watch, scene.a_watch()
    second.look()
    scene.look_at(2.5)
    scene.end_studies()
    second.look()
    first.look()
    scene.a_watch().look()

    assert [state for _, state, _ in scene.states] == ["ended"]
    assert len(scene.store.studies()) == 1


# -- who leads ---------------------------------------------------------------------------------------------


class FlakyLeadership(MemoryLeadership):
    """Loses its connection when told."""

    away = False

    def leads(self) -> bool:
        if self.away:
            raise Unavailable("postgres", "connection refused")
        return super().leads()


def a_scheduler(scene: Scene) -> Scheduler:
    courier = Courier(MemoryOutbox(scene.store.memory), (), scene.clock)
    return Scheduler(FlakyLeadership(scene.store.memory), scene.a_watch(), courier, scene.clock)


def test_one_scheduler_leads_and_another_takes_over_when_it_leaves() -> None:
    scene = Scene()
    scene.schedule()
    first, second = a_scheduler(scene), a_scheduler(scene)
    first.turn()
    second.turn()
    assert (first.leading, second.leading) == (True, False)

    first.leave()
    scene.clock.advance(2.5 * HOUR)
    second.turn()

    assert second.leading
    assert [state for _, state, _ in scene.states] == ["started"]


def test_whoever_leads_forgets_spans_after_their_hour_though_no_others_come() -> None:
    scene = Scene()
    spans = MemorySpans(scene.store.memory)
    now = scene.clock.now()
    spans.keep([SlowTrace("vision", "a" * 32, now, ())], now)
    scheduler = replace(a_scheduler(scene), received=spans)
    scheduler.turn()
    assert spans.slow("vision", now, now)

    scene.clock.advance(HOUR)
    scheduler.turn()

    assert not spans.slow("vision", now, now)


def test_a_scheduler_that_loses_its_connection_stands_by_until_it_is_back() -> None:
    scene = Scene()
    scene.schedule()
    scheduler = a_scheduler(scene)
    scheduler.turn()
    scheduler.leadership.away = True  # type: ignore[attr-defined]
    scene.clock.advance(2.5 * HOUR)
    scheduler.turn()
    assert (scheduler.leading, scene.states) == (False, [])

    scheduler.leadership.away = False  # type: ignore[attr-defined]
    scheduler.turn()
    assert [state for _, state, _ in scene.states] == ["started"]


def test_a_defect_in_one_turn_does_not_end_the_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.schedule()
    scheduler = a_scheduler(scene)
    look = scheduler.watch.look

    def broken() -> None:
        raise ZeroDivisionError("a defect")

    scheduler.watch.look = broken  # type: ignore[method-assign]
    scheduler.turn()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "scheduler_failed"
    ]
    scheduler.watch.look = look  # type: ignore[method-assign]
    scene.clock.advance(2.5 * HOUR)
    scheduler.turn()

    assert scene.nights.nights()[0].state is NightState.STARTED
