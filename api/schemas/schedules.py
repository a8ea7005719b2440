"""Nightly tuning on the wire: schedules, freezes, the line, and what became of nights."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated

from pydantic import Field

from api.parameters import Instant
from api.schemas.wire import Answer
from autotuner.domain.calendar import Freeze, Line, Schedule
from autotuner.ports import NightRecord, NightState
from autotuner.section_values import Duration, duration_text
from autotuner.sections import NAME_PATTERN, Section

EXAMPLE_SCHEDULE = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "window": "4h", "jitter": "30m"}
EXAMPLE_FREEZE = {
    "begins_at": "2026-12-20T18:00:00+01:00",
    "ends_at": "2026-12-27T06:00:00+01:00",
    "reason": "the holidays",
}
Why = Annotated[str, Field(max_length=1000, description="a text of at most 1000 characters: why")]


class SetSchedule(Section):
    """When a target is to be tuned without anybody asking."""

    cron: str = Field(
        min_length=1,
        max_length=200,
        description="minute hour day-of-month month day-of-week, such as 30 2 * * *",
    )
    time_zone: str = Field(
        default="UTC",
        max_length=100,
        description="an IANA time zone, such as Europe/Berlin: whose clock the cron means",
    )
    window: Duration = Field(
        default=timedelta(hours=4),
        description="a duration from 1m to 24h: how long after its time a night may still start",
    )
    jitter: Duration | None = Field(
        default=None,
        description="a duration below the window, over which starts of different targets spread; left out: none",
    )
    blackout_dates: tuple[Annotated[date, Field(strict=False)], ...] = Field(
        default=(),
        max_length=400,
        strict=False,
        description="a list of dates, such as 2026-12-24, on which nothing starts or is promoted",
    )
    paused: bool = Field(default=False, description="true or false; true: no night starts")
    reason: Why = ""


class ScheduleAnswer(Answer):
    """When a target is tuned without anybody asking."""

    target: str = Field(description="The target.", examples=["small-vision"])
    cron: str = Field(description="Minute, hour, day of month, month, day of week.", examples=["30 2 * * *"])
    time_zone: str = Field(
        description="Whose clock the cron means: an IANA name.", examples=["Europe/Berlin"]
    )
    window: str = Field(
        description="How long after its time a night may still start, with its unit.", examples=["4h"]
    )
    jitter: str | None = Field(
        description="Over how long starts of different targets spread, with its unit; null for none.",
        examples=["30m"],
    )
    blackout_dates: list[date] = Field(
        description="Dates, by that clock, on which nothing starts or is promoted.", examples=[["2026-12-24"]]
    )
    paused: bool = Field(description="Whether no night starts.")
    set_by: str = Field(description="Who set it.", examples=["anna"])
    set_at: datetime | None = Field(description="When it was set.", examples=["2026-01-05T02:00:00Z"])
    next_start: datetime | None = Field(
        description="When the next night starts, jitter included; null while it is paused or never comes.",
        examples=["2026-01-06T01:37:12Z"],
    )


class AddFreeze(Section):
    """A time in which nothing starts and nothing is promoted."""

    begins_at: Instant = Field(
        strict=False, description="an instant with its zone, such as 2026-12-20T18:00:00+01:00"
    )
    ends_at: Instant = Field(strict=False, description="an instant with its zone, after it begins")
    target: str | None = Field(
        default=None, pattern=NAME_PATTERN, description="a registered target's name; left out: every target"
    )
    reason: str = Field(
        min_length=1, max_length=1000, description="a text of 1 to 1000 characters, shown by whatever waits"
    )


class FreezeAnswer(Answer):
    """A time in which nothing starts and nothing is promoted."""

    number: int = Field(description="Its number, to end it by.", examples=[3])
    target: str | None = Field(
        description="The target it is for; null for every target.", examples=["small-vision"]
    )
    begins_at: datetime = Field(description="When it begins.", examples=["2026-12-20T17:00:00Z"])
    ends_at: datetime = Field(description="When it ends.", examples=["2026-12-27T05:00:00Z"])
    reason: str = Field(description="Why.", examples=["the holidays"])


class LineAnswer(Answer):
    """The switch that stops everything."""

    stopped_at: datetime | None = Field(
        description="Since when the line is stopped; null while it runs.", examples=["2026-01-05T02:00:00Z"]
    )
    reason: str = Field(description="Why it is stopped; empty while it runs.", examples=["incident 4711"])
    actor: str = Field(description="Who stopped it; empty while it runs.", examples=["anna"])


class StandingAnswer(Answer):
    """Everything that keeps production as it is."""

    line: LineAnswer = Field(description="The line.")
    freezes: list[FreezeAnswer] = Field(description="Freezes that are not over.")


class NightAnswer(Answer):
    """What became of a night."""

    target: str = Field(description="The target.", examples=["small-vision"])
    night: str = Field(
        description="The night, named by its schedule's own clock.", examples=["2026-03-29T02:30"]
    )
    due_at: datetime = Field(description="When it was due.", examples=["2026-03-29T01:30:00Z"])
    state: NightState = Field(description="Whether it started, ended or was missed.", examples=["ended"])
    study: str | None = Field(description="Its study; null when it was missed.", examples=["small-vision-1"])
    outcome: str | None = Field(description="How its study ended; null before.", examples=["kept"])
    reason: str = Field(description="Why it was missed, or ended so.", examples=["frozen: the holidays"])


def schedule_answer(schedule: Schedule, next_start: datetime | None) -> ScheduleAnswer:
    """Return a schedule, and when its next night starts."""
    return ScheduleAnswer(
        target=schedule.target,
        cron=schedule.cron,
        time_zone=schedule.time_zone,
        window=duration_text(schedule.window),
        jitter=duration_text(schedule.jitter) if schedule.jitter else None,
        blackout_dates=list(schedule.blackout_dates),
        paused=schedule.paused,
        set_by=schedule.set_by,
        set_at=schedule.set_at,
        next_start=next_start,
    )


def freeze_answer(freeze: Freeze) -> FreezeAnswer:
    """Return a recorded freeze."""
    return FreezeAnswer(**vars(freeze))


def line_answer(line: Line) -> LineAnswer:
    """Return whether the line is stopped."""
    return LineAnswer(**vars(line))


def night_answer(record: NightRecord) -> NightAnswer:
    """Return what became of a night."""
    return NightAnswer(
        target=record.night.target,
        night=record.night.name,
        due_at=record.night.due_at,
        state=record.state,
        study=record.study_id,
        outcome=record.outcome,
        reason=record.reason,
    )
