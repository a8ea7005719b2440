"""Freezes, blackout dates and the line; and that every tick obeys them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from autotuner.domain.calendar import CLEAR, Freeze, Line, Schedule, Standing, night_of, offset
from autotuner.domain.study import Outcome, Phase, TrialKind, TrialState
from autotuner.errors import InvalidInput
from autotuner.operations import replay
from tests.builders import START
from tests.closed_loop.endings import a_loop, check_ending, reached, trials
from tests.closed_loop.endings import at as in_trial
from tests.closed_loop.loop import Loop

HOUR = timedelta(hours=1)


def a_freeze(**changes: object) -> Freeze:
    """Frozen for the first hour, for every target."""
    return replace(Freeze(START, START + HOUR, "sale"), **changes)  # type: ignore[arg-type]


# -- what stands against what ------------------------------------------------------------------------------


def test_nothing_stands_against_anything_by_itself() -> None:
    assert Standing().clearance("vision", START) == CLEAR


def test_a_freeze_holds_from_its_beginning_to_before_its_end() -> None:
    standing = Standing(freezes=(a_freeze(),))

    assert standing.clearance("vision", START - timedelta(seconds=1)) == CLEAR
    assert "sale" in standing.clearance("vision", START).start
    assert standing.clearance("vision", START + HOUR) == CLEAR


def test_a_freeze_of_one_target_leaves_the_others_alone() -> None:
    standing = Standing(freezes=(a_freeze(target="vision"),))

    assert standing.clearance("speech", START) == CLEAR
    assert standing.clearance("vision", START).promotion


def test_a_freeze_ends_no_study_and_a_stopped_line_ends_all() -> None:
    assert Standing(freezes=(a_freeze(),)).clearance("vision", START).end == ""
    stopped = Standing(Line(START, "incident 7", "anna")).clearance("vision", START)
    assert stopped.end == stopped.start == stopped.promotion == "the line is stopped: incident 7"


def test_a_blackout_date_is_a_day_of_the_schedules_own_clock() -> None:
    standing = Standing(blackouts={"vision": ("Asia/Tokyo", (date(2026, 1, 6),))})
    midnight_in_tokyo = datetime(2026, 1, 5, 15, 0, tzinfo=UTC)

    assert standing.clearance("vision", midnight_in_tokyo - timedelta(seconds=1)) == CLEAR
    assert "2026-01-06" in standing.clearance("vision", midnight_in_tokyo).start
    assert standing.clearance("vision", midnight_in_tokyo + 24 * HOUR) == CLEAR


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time_zone": "Mars/Olympus"}, "schedule.time_zone"),
        ({"time_zone": "../etc/passwd"}, "schedule.time_zone"),
        ({"window": timedelta(0)}, "schedule.window"),
        ({"window": timedelta(days=2)}, "schedule.window"),
        ({"jitter": timedelta(hours=4)}, "schedule.jitter"),
        ({"jitter": timedelta(seconds=-1)}, "schedule.jitter"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(Schedule("vision", "30 2 * * *"), **changes)  # type: ignore[arg-type]

    assert refused.value.field == field


@pytest.mark.parametrize(
    "changes",
    [{"ends_at": START}, {"reason": " "}, {"begins_at": datetime(2026, 1, 5)}],  # noqa: DTZ001
)
def test_a_freeze_that_says_nothing_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        a_freeze(**changes)


# -- jitter ------------------------------------------------------------------------------------------------


def test_jitter_is_the_same_whenever_it_is_asked_for_and_spreads_targets_evenly() -> None:
    offsets = [offset(f"target-{number}", "2026-01-05T02:30", HOUR) for number in range(2000)]

    assert offsets == [offset(f"target-{number}", "2026-01-05T02:30", HOUR) for number in range(2000)]
    assert all(timedelta(0) <= each < HOUR for each in offsets)
    quarters = [sum(int(each / (HOUR / 4)) == quarter for each in offsets) for quarter in range(4)]
    assert min(quarters) > 430
    assert offset("vision", "2026-01-05T02:30", HOUR) != offset("vision", "2026-01-06T02:30", HOUR)
    assert offset("vision", "2026-01-05T02:30", timedelta(0)) == timedelta(0)


def test_a_night_is_named_by_its_own_clock() -> None:
    assert night_of("vision", START, "Europe/Berlin").name == "2026-01-05T03:00"


# -- ticks -------------------------------------------------------------------------------------------------


def freeze(loop: Loop, lasting: timedelta, begins: float = 0) -> None:
    now = loop.clock.now() + timedelta(seconds=begins)
    loop.store.memory.freezes[1] = Freeze(now, now + lasting, "sale", number=1)


def stop_line(loop: Loop) -> None:
    loop.store.memory.line = Line(loop.clock.now(), "incident", "anna")


def test_a_study_touches_nothing_before_a_freeze_is_over() -> None:
    loop = a_loop()
    before = dict(loop.target.route.weights())
    freeze(loop, timedelta(minutes=3))
    frozen_until = loop.clock.now() + timedelta(minutes=3)
    while loop.clock.now() < frozen_until - timedelta(seconds=2):
        assert loop.tick().reason.startswith("waiting: frozen until")
        assert dict(loop.target.route.weights()) == before
    assert loop.study.phase is Phase.CREATED
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED


def test_no_further_candidate_is_tried_in_a_freeze() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.SEARCH))
    freeze(loop, timedelta(minutes=2))
    while loop.clock.now() < START + timedelta(seconds=5) + timedelta(minutes=1):
        loop.tick()
    assert trials(loop.study, TrialKind.CANDIDATE) == []
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED


def test_a_promotion_waits_until_the_freeze_is_over() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.CONFIRMATION))
    freeze(loop, timedelta(minutes=15))
    loop.run(until=reached(Phase.PROMOTION))
    waited_from = loop.clock.now()
    loop.run(until=in_trial(TrialKind.STAGE, TrialState.PROPOSED))
    assert loop.clock.now() - waited_from > timedelta(minutes=5)
    assert any(said.startswith("waiting to promote: frozen") for said in loop.said)
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED


def test_a_winner_that_is_kept_out_too_long_is_given_up() -> None:
    loop = a_loop(pace={"approval_limit": timedelta(minutes=5)})
    loop.run(until=reached(Phase.CONFIRMATION))
    freeze(loop, timedelta(hours=10))
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.KEPT
    assert study.reason.startswith("the winner was kept out of production: frozen until")


def test_a_freeze_that_begins_within_a_promotion_takes_it_back() -> None:
    loop = a_loop()
    loop.run(until=in_trial(TrialKind.STAGE))
    freeze(loop, timedelta(hours=1))
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert study.reason.startswith("promotion stopped: frozen until")


@pytest.mark.parametrize(
    "phase", [Phase.BASELINE, Phase.SEARCH, Phase.CONFIRMATION, Phase.PROMOTION, Phase.WATCH]
)
def test_stopping_the_line_ends_every_study_safely_wherever_it_is(phase: Phase) -> None:
    loop = a_loop()
    loop.run(until=reached(phase))
    stop_line(loop)
    stopped_at = loop.clock.now()
    loop.run()
    study = check_ending(loop)
    assert (study.outcome, study.reason) == (Outcome.ABORTED, "the line is stopped: incident")
    assert loop.clock.now() - stopped_at < timedelta(minutes=5)
    assert replay(loop.store, study.id, loop.proposers).differences == ()


def test_what_stood_against_a_step_is_in_the_journal() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.SEARCH))
    stop_line(loop)
    loop.run()

    journal = loop.store.journal(loop.study_id)
    ends = [e for e in journal if e.kind == "decision" and e.observed["clearance"]["end"]]
    assert ends[0].reason == "the line is stopped: incident"
