"""The scheduler's process: one of several leads, wakes when a night is due, and delivers notices.

Cron expressions are read and woken for by APScheduler, whose jobs are kept in PostgreSQL. They only wake: what is to
be done is decided by the night watch from the schedules themselves, so a job that is lost, late or rung twice does no
harm.
Who leads is decided by a lock that dies with its holder; the others ask for it every two seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from autotuner.certifying import CertificateWatch
from autotuner.courier import Courier
from autotuner.domain.calendar import Night, Schedule, night_of, zone
from autotuner.errors import InvalidInput, Unavailable
from autotuner.nightly import NightWatch
from autotuner.ports import Clock, Leadership, ReceivedSpans

log = logging.getLogger(__name__)

STANDBY = timedelta(seconds=2)
"""How often the lead is asked for, or looked after."""

LOOK = timedelta(seconds=15)
"""How often the night watch looks without being woken: nights that wait, and studies that have ended."""

RESOLUTION = timedelta(microseconds=1)
JOBS_TABLE = "scheduler_jobs"
CRON_ALLOWED = "five fields: minute, hour, day of month, month, day of week, such as 30 2 * * *"


@lru_cache(1_000)
def trigger(cron: str, time_zone: str) -> Any:
    """Return APScheduler's trigger. Raises InvalidInput for what is no cron expression or never fires."""
    try:
        made = CronTrigger.from_crontab(cron, timezone=zone(time_zone))
    except (ValueError, TypeError) as error:
        raise InvalidInput("schedule.cron", cron, CRON_ALLOWED) from error
    return made


def firings(schedule: Schedule, after: datetime, until: datetime) -> Iterator[Night]:
    """Yield the nights that are due after one instant and up to another, in order, each once.

    A time that a jump of the clock leaves out is due when the clock has jumped; one that occurs twice is one night.
    """
    cron = trigger(schedule.cron, schedule.time_zone)
    last = night_of(schedule.target, after, schedule.time_zone).name
    asked = after.astimezone(UTC) + RESOLUTION
    while True:
        fires = cron.get_next_fire_time(None, asked)
        if fires is None or fires.astimezone(UTC) > until:
            return
        # In UTC: within the hour that occurs twice, the schedule's own clock cannot tell earlier from later.
        due = max(fires.astimezone(UTC), asked)
        night = night_of(schedule.target, due, schedule.time_zone)
        if night.name != last:
            yield night
        last, asked = night.name, due + RESOLUTION


AHEAD = timedelta(days=4 * 366)
"""How far ahead the next night is looked for: once a leap year is the rarest there is."""


def check_comes(schedule: Schedule, now: datetime) -> None:
    """Raise InvalidInput for a cron expression that is none, or that no day fits: 30 February never comes."""
    trigger(schedule.cron, schedule.time_zone)
    if next(firings(schedule, now, now + AHEAD), None) is None:
        raise InvalidInput("schedule.cron", schedule.cron, "times that come within four years")


def next_start(schedule: Schedule, now: datetime) -> datetime | None:
    """Return when the next night starts, its jitter included; None while it is paused or never comes."""
    if schedule.paused:
        return None
    night = _next_night(schedule, now)
    return None if night is None else night.starts_at(schedule)


_COMING: dict[Schedule, tuple[datetime, Night]] = {}
"""The next night of a schedule, with an instant it was found at: it is the next one from then until it is due."""

MOST_COMING = 1_000


def _next_night(schedule: Schedule, now: datetime) -> Night | None:
    known = _COMING.get(schedule)
    if known is not None and known[0] <= now < known[1].due_at:
        return known[1]
    night = next(firings(schedule, now, now + AHEAD), None)
    if night is not None:
        if len(_COMING) >= MOST_COMING:
            _COMING.clear()
        _COMING[schedule] = (now, night)
    return night


class Alarm(Protocol):
    """Wakes whoever leads."""

    def start(self) -> None:
        """Begin to wake."""

    def stop(self) -> None:
        """Wake no more."""

    def set(self, schedules: Sequence[Schedule]) -> None:
        """Wake for these schedules and for no others."""


_BELL = threading.Event()
"""Rung by jobs; APScheduler finds them by their name, so they can reach nothing but what the module holds."""


def ring(target: str) -> None:
    """Wake the scheduler of this process because a night of `target` is due."""
    log.debug("night_due", extra={"target": target})
    _BELL.set()


class CronAlarm:
    """Wakes by APScheduler, from jobs in PostgreSQL. engine: the database's, as SQLAlchemy has it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._running: BackgroundScheduler | None = None
        self._known: dict[str, Schedule] = {}

    def start(self) -> None:
        """Begin to wake; what was due meanwhile wakes once."""
        store = SQLAlchemyJobStore(engine=self._engine, tablename=JOBS_TABLE)
        self._running = BackgroundScheduler(
            jobstores={"default": store},
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1},
            timezone="UTC",
        )
        self._known = {}
        self._running.start()

    def stop(self) -> None:
        """Wake no more."""
        running, self._running = self._running, None
        if running is not None:
            running.shutdown(wait=True)

    def set(self, schedules: Sequence[Schedule]) -> None:
        """Wake for these schedules and for no others."""
        assert self._running is not None
        wanted = {each.target: each for each in schedules if not each.paused}
        jobs = {job.id for job in self._running.get_jobs()} if not self._known else set(self._known)
        for gone in jobs - wanted.keys():
            try:
                self._running.remove_job(gone)
            except JobLookupError:
                log.debug("job_was_gone", extra={"target": gone})
        for target, schedule in wanted.items():
            if self._known.get(target) != schedule:
                self._running.add_job(
                    ring,
                    trigger(schedule.cron, schedule.time_zone),
                    args=[target],
                    id=target,
                    misfire_grace_time=int(schedule.window.total_seconds()),
                    replace_existing=True,
                )
        self._known = wanted


@dataclass
class Scheduler:
    """Leads, or waits to lead; call `turn` for as long as the process lives. alarm None: looks at every turn."""

    leadership: Leadership
    watch: NightWatch
    courier: Courier
    clock: Clock
    alarm: Alarm | None = None
    led: Callable[[bool], None] = lambda _: None
    """Told when this one begins to lead, and when it no longer does."""
    certificates: CertificateWatch | None = None
    """Holds production against its certificates; None for nobody."""
    received: ReceivedSpans | None = None
    """Where spans are to be forgotten after their time; None where none are kept."""
    leading: bool = False
    _look_due: datetime | None = None
    _bell: threading.Event = field(default_factory=lambda: _BELL)

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set, and then let another one lead."""
        try:
            while not stop.is_set():
                stop.wait(self.turn().total_seconds())
        finally:
            self.leave()

    def turn(self) -> timedelta:
        """Do what is due; return how long to wait before the next turn."""
        try:
            if not self.leadership.leads():
                self._stand_by()
                return STANDBY
            self._lead()
        except Unavailable as error:
            log.warning("database_unavailable", extra={"reason": str(error)})
            self._stand_by()
        except Exception as error:
            log.warning("scheduler_failed", extra={"reason": str(error)}, exc_info=error)
        return STANDBY

    def leave(self) -> None:
        """Let another one lead."""
        self._stand_by()
        self.leadership.resign()

    def _lead(self) -> None:
        if not self.leading:
            log.info("scheduler_leads")
            self.watch.begin()
            self._forget_certificates()
            if self.alarm is not None:
                self.alarm.start()
            self.leading, self._look_due = True, None
            self.led(True)
        now = self.clock.now()
        set_back = self._look_due is not None and self._look_due - now > LOOK
        if (
            self.alarm is None
            or self._bell.is_set()
            or not self._look_due
            or set_back
            or now >= self._look_due
        ):
            self._bell.clear()
            self._look_due = now + LOOK
            if self.alarm is not None:
                self.alarm.set(self.watch.nights.schedules())
            self.watch.look()
            if self.received is not None:
                self.received.forget(now)
        self.courier.deliver()
        if self.certificates is not None:
            self.certificates.look(self.watch.nights.schedules())

    def _forget_certificates(self) -> None:
        if self.certificates is not None:
            self.certificates.begin()

    def _stand_by(self) -> None:
        if self.leading:
            log.info("scheduler_stands_by")
            self.leading = False
            self.led(False)
            self._forget_certificates()
            if self.alarm is not None:
                self.alarm.stop()
