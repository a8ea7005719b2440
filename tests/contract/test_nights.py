"""What is promised of schedules, freezes, the line, nights and notices, in memory and in PostgreSQL alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta

import pytest

from autotuner.bookkeeping.nightly import NO_SCHEDULE, schedule_mark
from autotuner.domain.access import Said
from autotuner.domain.calendar import Freeze, Line, Night, Schedule
from autotuner.domain.notices import NoticeKind
from autotuner.domain.study import Outcome, Phase, Study
from autotuner.errors import Conflict, InvalidInput, NotFound, Outdated
from autotuner.ports import MessageState, NightRecord, NightState
from tests.builders import START, a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.contract.stored import audited, created, granted, registered
from tests.studies import append, decided, ended

SAID = Said("anna", "agreed", START)
HOUR = timedelta(hours=1)


def a_schedule(**changes: object) -> Schedule:
    """Every night at half past two in Berlin."""
    made = Schedule("vision", "30 2 * * *", "Europe/Berlin", 3 * HOUR, HOUR, (date(2026, 12, 24),))
    return replace(made, **changes)  # type: ignore[arg-type]


def a_night(day: int = 5, target: str = "vision") -> Night:
    return Night(target, f"2026-01-{day:02}T02:30", at((day - 5) * 86_400))


def a_nightly_study(backend: Backend, day: int = 5, target: str = "vision") -> Study:
    """A study for a night, not recorded yet."""
    plan = a_plan(target=a_target(name=target), slo=registered(backend, target))
    return a_study(id=f"{target}-{day}", plan=plan, created_at=at((day - 5) * 86_400 + 1))


def run_night(backend: Backend, day: int, outcome: Outcome) -> None:
    """A night whose study ended with `outcome`."""
    study = a_nightly_study(backend, day)
    assert backend.nights.start_night(a_night(day), study, SAID)
    append(backend.store, study, replace(ended(study), outcome=outcome), granted(backend))


# -- schedules ---------------------------------------------------------------------------------------------


def test_a_schedule_comes_back_as_it_was_set_with_who_and_when(backend: Backend) -> None:
    registered(backend)

    kept = backend.nights.set_schedule(a_schedule(), SAID)

    assert kept == a_schedule(set_by="anna", set_at=START)
    assert backend.nights.schedules() == (kept,)
    assert backend.nights.schedules(["other", "vision"]) == (kept,)
    assert backend.nights.schedules(["other"]) == ()
    assert (audited(backend)[-1].action, audited(backend)[-1].subject) == ("schedule_set", "vision")


def test_setting_a_schedule_again_replaces_it(backend: Backend) -> None:
    registered(backend)
    backend.nights.set_schedule(a_schedule(), SAID)

    backend.nights.set_schedule(a_schedule(paused=True), replace(SAID, at=at(60)))

    (kept,) = backend.nights.schedules()
    assert (kept.paused, kept.set_at) == (True, at(60))


def test_a_schedule_of_an_unknown_target_is_not_found(backend: Backend) -> None:
    with pytest.raises(NotFound, match="vision"):
        backend.nights.set_schedule(a_schedule(), SAID)
    with pytest.raises(NotFound):
        backend.nights.remove_schedule("vision", SAID)
    assert audited(backend) == []


def test_a_removed_schedule_is_gone_and_its_nights_stay(backend: Backend) -> None:
    registered(backend)
    backend.nights.set_schedule(a_schedule(), SAID)
    backend.nights.miss_night(a_night(), SAID)

    backend.nights.remove_schedule("vision", SAID)

    assert backend.nights.schedules() == ()
    assert len(backend.nights.nights("vision")) == 1


# -- what keeps production as it is ------------------------------------------------------------------------


def test_freezes_are_numbered_and_stand_until_they_are_over(backend: Backend) -> None:
    registered(backend)
    every = backend.nights.add_freeze(Freeze(START, START + HOUR, "sale"), SAID)
    one = backend.nights.add_freeze(Freeze(START, START + 2 * HOUR, "move", "vision"), SAID)

    assert backend.nights.standing(START).freezes == (every, one)
    assert backend.store.standing(START + HOUR).freezes == (one,)
    assert every.number != one.number

    backend.nights.remove_freeze(one.number, SAID)
    assert backend.nights.standing(START).freezes == (every,)
    with pytest.raises(NotFound):
        backend.nights.remove_freeze(one.number, SAID)
    actions = [record.action for record in audited(backend)]
    assert actions[-3:] == ["freeze_set", "freeze_set", "freeze_removed"]


def test_a_freeze_of_an_unknown_target_is_not_found(backend: Backend) -> None:
    with pytest.raises(NotFound, match="nobody"):
        backend.nights.add_freeze(Freeze(START, START + HOUR, "sale", "nobody"), SAID)


def test_the_line_stops_with_a_reason_and_runs_again(backend: Backend) -> None:
    assert backend.nights.standing(START).line == Line()
    with pytest.raises(InvalidInput):
        backend.nights.stop_line(replace(SAID, reason=" "))

    stopped = backend.nights.stop_line(SAID)
    again = backend.nights.stop_line(Said("bob", "me too", at(60)))

    assert stopped == again == Line(START, "agreed", "anna")
    assert backend.store.standing(START).line == stopped
    assert backend.nights.release_line(SAID) == Line()
    assert backend.nights.standing(START).line == Line()
    assert [record.action for record in audited(backend)] == ["line_stopped", "line_released"]


def test_blackout_dates_stand_with_the_clock_of_their_schedule(backend: Backend) -> None:
    registered(backend)
    registered(backend, "speech")
    backend.nights.set_schedule(a_schedule(), SAID)
    backend.nights.set_schedule(a_schedule(target="speech", blackout_dates=()), SAID)

    assert backend.nights.standing(START).blackouts == {"vision": ("Europe/Berlin", (date(2026, 12, 24),))}


# -- nights ------------------------------------------------------------------------------------------------


def test_a_night_starts_once(backend: Backend) -> None:
    study = a_nightly_study(backend)

    assert backend.nights.start_night(a_night(), study, SAID)
    assert not backend.nights.start_night(a_night(), replace(study, id="another"), SAID)

    (record,) = backend.nights.nights()
    assert (record.night, record.state, record.study_id) == (a_night(), NightState.STARTED, study.id)
    assert [each.id for each in backend.store.studies()] == [study.id]
    assert [r.action for r in audited(backend)][-2:] == ["study_started", "night_started"]


def test_of_many_that_start_a_night_at_once_one_does_and_one_study_is_recorded(backend: Backend) -> None:
    study = a_nightly_study(backend)

    def start(number: int) -> bool:
        try:
            return backend.nights.start_night(a_night(), replace(study, id=f"study-{number}"), SAID)
        except Conflict:
            return False

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(start, range(6))) == 1

    assert len(backend.store.studies()) == 1
    assert len(backend.nights.nights()) == 1
    assert backend.store.first_broken_audit() is None


def test_a_night_whose_study_is_refused_is_not_started(backend: Backend) -> None:
    created(backend)
    study = a_nightly_study(backend)

    with pytest.raises(Conflict):
        backend.nights.start_night(a_night(), study, SAID)

    assert backend.nights.nights() == ()


def test_a_missed_night_is_recorded_audited_and_told_once(backend: Backend) -> None:
    registered(backend)
    why = replace(SAID, reason="frozen")

    assert backend.nights.miss_night(a_night(), why)
    assert not backend.nights.miss_night(a_night(), why)
    assert not backend.nights.start_night(a_night(), a_nightly_study(backend), SAID)

    (record,) = backend.nights.nights("vision")
    assert (record.state, record.reason, record.study_id) == (NightState.MISSED, "frozen", None)
    assert [r.action for r in audited(backend)].count("night_missed") == 1
    (message,) = backend.outbox.messages()
    assert message.notice.kind is NoticeKind.NIGHT_MISSED
    assert message.notice.text == "vision: the night 2026-01-05T02:30 was missed: frozen"


def test_nights_are_listed_newest_first_and_the_newest_of_each_target_is_known(backend: Backend) -> None:
    registered(backend)
    registered(backend, "speech")
    for day, target in ((5, "vision"), (7, "vision"), (6, "speech")):
        backend.nights.miss_night(a_night(day, target), SAID)

    assert [record.night.due_at for record in backend.nights.nights()] == [at(2 * 86400), at(86400), at(0)]
    assert len(backend.nights.nights("vision", 1)) == 1
    assert backend.nights.settled_until() == {"vision": at(2 * 86400), "speech": at(86400)}


def test_a_night_takes_the_outcome_of_its_study_once_that_has_ended(backend: Backend) -> None:
    study = a_nightly_study(backend)
    backend.nights.start_night(a_night(), study, SAID)

    assert backend.nights.close_nights(3, at(10)) == 0
    append(backend.store, study, ended(study), granted(backend))

    assert backend.nights.close_nights(3, at(20)) == 1
    assert backend.nights.close_nights(3, at(20)) == 0
    (record,) = backend.nights.nights()
    assert (record.state, record.outcome) == (NightState.ENDED, ended(study).outcome)


def test_inconclusive_nights_in_a_row_are_told_once_they_are_so_many(backend: Backend) -> None:
    outcomes = [Outcome.INCONCLUSIVE, Outcome.KEPT, *[Outcome.INCONCLUSIVE] * 4]
    told = []
    for day, outcome in enumerate(outcomes, start=5):
        run_night(backend, day, outcome)
        backend.nights.close_nights(3, at(day))
        told.append(len(backend.outbox.messages()))

    assert told == [0, 0, 0, 0, 1, 1]
    (message,) = backend.outbox.messages()
    assert message.notice.kind is NoticeKind.NIGHTS_INCONCLUSIVE
    assert message.notice.details == {"nights": 3}


# -- notices -----------------------------------------------------------------------------------------------


def test_the_end_of_a_promoted_study_is_told_with_the_entry_that_ends_it(backend: Backend) -> None:
    study = created(backend)
    over = replace(
        ended(study), outcome=Outcome.PROMOTED, promoted=("stable-0", "stable-1"), reason="it holds"
    )

    append(backend.store, study, over, granted(backend))

    (message,) = backend.outbox.messages()
    assert (message.notice.kind, message.notice.subject) == (NoticeKind.PROMOTED, study.id)
    assert message.notice.text == "vision: it holds"
    assert (message.state, message.attempts) == (MessageState.PENDING, 0)


def test_a_refused_entry_tells_nothing(backend: Backend) -> None:
    study = created(backend)
    grant = granted(backend)
    over = replace(ended(study), outcome=Outcome.PROMOTED)

    with pytest.raises(Conflict):
        append(backend.store, study, over, replace(grant, token=grant.token + 1))

    assert backend.outbox.messages() == ()


def test_a_rolled_back_promotion_and_a_spent_harm_budget_are_told(backend: Backend) -> None:
    study = created(backend)
    going_back = replace(
        decided(study),
        phase=Phase.RESTORATION,
        promoted=("stable-0",),
        intended=Outcome.ABORTED,
        reason="rolled back: too slow",
    )

    append(backend.store, study, going_back, granted(backend))

    assert [m.notice.kind for m in backend.outbox.messages()] == [NoticeKind.ROLLED_BACK]


def test_messages_are_due_in_order_and_stay_until_they_are_settled(backend: Backend) -> None:
    registered(backend)
    for day in (5, 6, 7):
        backend.nights.miss_night(a_night(day), replace(SAID, at=at(day)))

    assert backend.outbox.due(at(4), 10) == ()
    first, second = backend.outbox.due(at(100), 2)
    assert (first.notice.at, second.notice.at) == (at(5), at(6))

    backend.outbox.settle(replace(first, state=MessageState.DELIVERED, attempts=1, delivered_to=("a",)))
    backend.outbox.settle(replace(second, attempts=1, next_attempt_at=at(200), error="no answer"))

    assert [each.notice.at for each in backend.outbox.due(at(100), 10)] == [at(7)]
    assert [each.attempts for each in backend.outbox.due(at(200), 10)] == [0, 1]
    (delivered,) = backend.outbox.messages(MessageState.DELIVERED)
    assert delivered.delivered_to == ("a",)


def test_a_message_that_was_settled_is_settled_no_more(backend: Backend) -> None:
    registered(backend)
    backend.nights.miss_night(a_night(), SAID)
    (message,) = backend.outbox.due(at(100), 1)
    backend.outbox.settle(replace(message, state=MessageState.DELIVERED))

    backend.outbox.settle(replace(message, state=MessageState.DEAD))

    assert backend.outbox.messages()[0].state is MessageState.DELIVERED


def test_a_dead_message_is_seen_and_may_be_tried_again(backend: Backend) -> None:
    registered(backend)
    backend.nights.miss_night(a_night(), SAID)
    (message,) = backend.outbox.due(at(100), 1)
    with pytest.raises(Conflict, match="pending"):
        backend.outbox.retry(message.number, at(100))
    backend.outbox.settle(replace(message, state=MessageState.DEAD, attempts=12, error="gone"))

    (dead,) = backend.outbox.messages(MessageState.DEAD)
    assert (dead.attempts, dead.error) == (12, "gone")
    again = backend.outbox.retry(message.number, at(300))

    assert (again.state, again.attempts, again.next_attempt_at) == (MessageState.PENDING, 0, at(300))
    assert backend.outbox.due(at(300), 1) == (again,)
    with pytest.raises(NotFound):
        backend.outbox.retry(10_000, START)


# -- who leads ---------------------------------------------------------------------------------------------


def test_one_leads_until_it_resigns(backend: Backend) -> None:
    first, second = backend.leadership(), backend.leadership()

    assert [first.leads(), second.leads(), first.leads()] == [True, False, True]
    first.resign()
    assert [second.leads(), first.leads()] == [True, False]
    second.resign()


def test_a_schedule_is_changed_only_under_the_mark_it_has(backend: Backend) -> None:
    registered(backend)
    first = backend.nights.set_schedule(a_schedule(), SAID, NO_SCHEDULE)
    with pytest.raises(Conflict, match="set a moment ago"):
        backend.nights.set_schedule(a_schedule(), SAID, NO_SCHEDULE)
    second = backend.nights.set_schedule(a_schedule(paused=True), SAID, schedule_mark(first))
    with pytest.raises(Outdated, match="changed since"):
        backend.nights.set_schedule(a_schedule(), SAID, schedule_mark(first))
    with pytest.raises(Outdated):
        backend.nights.remove_schedule("vision", SAID, schedule_mark(first))

    assert backend.nights.schedules() == (second,)
    backend.nights.remove_schedule("vision", SAID, schedule_mark(second))
    with pytest.raises(Outdated, match="found none"):
        backend.nights.set_schedule(a_schedule(), SAID, schedule_mark(second))
    assert [record.action for record in audited(backend)][-3:] == [
        "schedule_set",
        "schedule_set",
        "schedule_removed",
    ]


def test_of_two_that_set_the_first_schedule_at_once_one_is_told(backend: Backend) -> None:
    registered(backend)

    def attempt(hour: int) -> bool:
        try:
            backend.nights.set_schedule(a_schedule(cron=f"30 {hour} * * *"), SAID, NO_SCHEDULE)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(attempt, range(4))) == [False, False, False, True]


def test_nights_are_walked_page_by_page(backend: Backend) -> None:
    for name in ("vision", "speech"):
        registered(backend, name)
        for day in (5, 6, 7):
            backend.nights.miss_night(a_night(day, name), SAID)
    whole = backend.nights.nights()
    walked: list[NightRecord] = []
    while page := backend.nights.nights(
        None, 2, (walked[-1].night.due_at, walked[-1].night.target) if walked else None
    ):
        walked += page

    assert walked == list(whole)
    assert [record.night.target for record in whole[:2]] == ["speech", "vision"]
