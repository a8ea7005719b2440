"""When a target's studies may start and their winners be promoted: schedules, freezes, blackout dates, and the line.

Three things keep production as it is. A *freeze* keeps every study from starting, every candidate from being tried and
every winner out of production, for one target or for all. A *blackout date* is a freeze of a scheduled target for a
whole day. *Stopping the line* ends every study safely and lets none start until it is released. All three are looked
up at every tick.

Instants are aware; dates are those of the schedule's own time zone, whose clock may jump twice a year.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from autotuner.errors import InvalidInput

LONGEST_WINDOW = timedelta(hours=24)


@dataclass(frozen=True)
class Schedule:
    """When a target is tuned without anybody asking.

    cron: minute, hour, day of month, month, day of week. time_zone: an IANA name. window: how long after its time a
    night may still start. jitter: nights of different targets start spread over so long. Raises InvalidInput.
    """

    target: str
    cron: str
    time_zone: str = "UTC"
    window: timedelta = timedelta(hours=4)
    jitter: timedelta = timedelta(0)
    blackout_dates: tuple[date, ...] = ()
    paused: bool = False
    set_by: str = ""
    set_at: datetime | None = None

    def __post_init__(self) -> None:
        zone(self.time_zone)
        if not timedelta(minutes=1) <= self.window <= LONGEST_WINDOW:
            raise InvalidInput("schedule.window", str(self.window), "a duration from 1 minute to 24 hours")
        if not timedelta(0) <= self.jitter < self.window:
            raise InvalidInput(
                "schedule.jitter", str(self.jitter), "a duration from 0 to less than the window"
            )
        object.__setattr__(self, "blackout_dates", tuple(sorted(set(self.blackout_dates))))


@dataclass(frozen=True)
class Night:
    """One time at which a schedule fires, named by its own clock: `2026-03-29T02:30`.

    Where the clock is set back an hour occurs twice: both are the same night, which starts once.
    """

    target: str
    name: str
    due_at: datetime

    def starts_at(self, schedule: Schedule) -> datetime:
        """Return when it starts: due, and later by its share of the jitter."""
        return self.due_at + offset(self.target, self.name, schedule.jitter)

    def ends_at(self, schedule: Schedule) -> datetime:
        """Return when it is too late to start."""
        return self.due_at + schedule.window


@dataclass(frozen=True)
class Freeze:
    """A time in which nothing starts and nothing is promoted. target: None for all. number: 0 until it is recorded."""

    begins_at: datetime
    ends_at: datetime
    reason: str
    target: str | None = None
    number: int = 0

    def __post_init__(self) -> None:
        if self.begins_at.tzinfo is None or self.ends_at.tzinfo is None:
            raise InvalidInput(
                "freeze", f"{self.begins_at} to {self.ends_at}", "instants with their time zone"
            )
        if self.ends_at <= self.begins_at:
            raise InvalidInput("freeze.until", self.ends_at.isoformat(), "an instant after the freeze begins")
        if not self.reason.strip():
            raise InvalidInput("freeze.reason", self.reason, "a sentence that says why")

    def covers(self, target: str, at: datetime) -> bool:
        """Say whether it holds for a target at an instant; its end is no longer part of it."""
        return self.target in (None, target) and self.begins_at <= at < self.ends_at


@dataclass(frozen=True)
class Line:
    """The switch that stops everything. stopped_at: since when; None while the line runs."""

    stopped_at: datetime | None = None
    reason: str = ""
    actor: str = ""


@dataclass(frozen=True)
class Clearance:
    """What is not allowed at an instant, each with the reason; empty texts where nothing stands against it."""

    start: str = ""
    promotion: str = ""
    end: str = ""
    """Why a study must end; empty while it may go on."""


CLEAR = Clearance()


@dataclass(frozen=True)
class Standing:
    """Everything that keeps production as it is: the line, freezes, and the blackout dates of scheduled targets.

    blackouts: for each target its time zone and dates.
    """

    line: Line = Line()
    freezes: tuple[Freeze, ...] = ()
    blackouts: Mapping[str, tuple[str, tuple[date, ...]]] = field(default_factory=dict)

    def clearance(self, target: str, at: datetime) -> Clearance:
        """Return what is not allowed for a target at an instant."""
        if self.line.stopped_at is not None:
            why = f"the line is stopped: {self.line.reason}"
            return Clearance(why, why, why)
        for freeze in self.freezes:
            if freeze.covers(target, at):
                why = f"frozen until {freeze.ends_at:%Y-%m-%d %H:%M %Z}: {freeze.reason}"
                return Clearance(why, why)
        name, dates = self.blackouts.get(target, ("UTC", ()))
        today = at.astimezone(zone(name)).date()
        if today in dates:
            why = f"{today.isoformat()} is a blackout date"
            return Clearance(why, why)
        return CLEAR


RUNNING = Standing()
"""Nothing stands against anything."""


@cache
def zone(name: str) -> ZoneInfo:
    """Return the time zone of that name. Raises InvalidInput."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            "schedule.time_zone", name, "an IANA time zone, such as Europe/Berlin or UTC"
        ) from error


def night_of(target: str, due_at: datetime, time_zone: str) -> Night:
    """Return the night that begins at `due_at`, named by the clock of its schedule."""
    local = due_at.astimezone(zone(time_zone))
    return Night(target, f"{local:%Y-%m-%dT%H:%M}", due_at)


def offset(target: str, night: str, jitter: timedelta) -> timedelta:
    """Return a night's share of the jitter: the same whenever it is asked for, and spread evenly over targets."""
    drawn = int.from_bytes(hashlib.sha256(f"{target} {night}".encode()).digest()[:8], "big") / 2**64
    return timedelta(seconds=int(drawn * jitter.total_seconds()))
