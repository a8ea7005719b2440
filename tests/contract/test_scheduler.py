"""The scheduler on a real PostgreSQL: APScheduler's jobs, and a lead that changes hands when its holder is cut off."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, select, update

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import PostgresLeadership, PostgresNights, open_engine
from autotuner.adapters.postgres.tables import scheduler_jobs
from autotuner.courier import Courier
from autotuner.domain.access import Said
from autotuner.domain.calendar import Schedule
from autotuner.errors import Unavailable
from autotuner.nightly import NightWatch
from autotuner.ports import NightState
from autotuner.scheduler import CronAlarm, Scheduler, firings
from tests.contract.conftest import Backend
from tests.contract.stored import registered
from tests.postgres_server import rows

LIMIT_SECONDS = 20.0
NOW = SystemClock().now()
CUT_OFF = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = open_engine(database_url)
    yield made
    made.dispose()


def scheduled(backend: Backend, target: str, **changes: object) -> Schedule:
    """A registered target that is due every minute, set an hour ago."""
    registered(backend, target)
    schedule = replace(Schedule(target, "* * * * *"), **changes)  # type: ignore[arg-type]
    return backend.nights.set_schedule(schedule, Said("anna", "", NOW - timedelta(hours=1)))


def a_scheduler(backend: Backend, engine: Engine, url: str) -> Scheduler:
    """A scheduler of a process of its own."""
    clock = SystemClock()
    watch = NightWatch(backend.store, PostgresNights(engine), backend.registry, clock, firings)
    courier = Courier(backend.outbox, (), clock)
    return Scheduler(PostgresLeadership(url), watch, courier, clock, CronAlarm(engine))


def test_a_lead_goes_over_when_its_connection_is_cut(postgres: Backend, database_url: str) -> None:
    first, second = PostgresLeadership(database_url), PostgresLeadership(database_url)
    assert (first.leads(), second.leads()) == (True, False)

    assert rows(database_url, CUT_OFF) == [(1,)]

    with pytest.raises(Unavailable):
        first.leads()
    assert (second.leads(), first.leads()) == (True, False)
    second.resign()


def test_jobs_are_those_of_the_schedules_and_survive_the_process(
    postgres: Backend, engine: Engine, database_url: str
) -> None:
    daily = scheduled(postgres, "vision", cron="30 2 * * *", time_zone="Europe/Berlin")
    paused = scheduled(postgres, "speech", paused=True)
    alarm = CronAlarm(engine)
    alarm.start()
    alarm.set([daily, paused])
    alarm.stop()
    assert rows(database_url, "SELECT id FROM scheduler_jobs") == [("vision",)]

    alarm = CronAlarm(engine)
    alarm.start()
    alarm.set([replace(daily, target="speech")])
    alarm.set([replace(daily, target="speech")])
    alarm.stop()

    ((name, due),) = rows(database_url, "SELECT id, next_run_time FROM scheduler_jobs")
    night = next(firings(daily, NOW, NOW + timedelta(hours=25)))
    assert name == "speech"
    assert datetime.fromtimestamp(float(str(due)), UTC) == night.due_at


def test_what_was_due_meanwhile_wakes_once(postgres: Backend, engine: Engine, database_url: str) -> None:
    schedule = scheduled(postgres, "vision")
    alarm = CronAlarm(engine)
    alarm.start()
    alarm.set([schedule])
    alarm.stop()
    with engine.begin() as connection:
        state = pickle.loads(connection.execute(select(scheduler_jobs.c.job_state)).scalar_one())
        due = NOW - timedelta(minutes=30)
        changed = {
            "job_state": pickle.dumps(state | {"next_run_time": due}),
            "next_run_time": due.timestamp(),
        }
        connection.execute(update(scheduler_jobs).values(changed))
    scheduler = a_scheduler(postgres, engine, database_url)
    bell = scheduler._bell
    bell.clear()

    scheduler.alarm.start()  # type: ignore[union-attr]
    rung = bell.wait(LIMIT_SECONDS)
    scheduler.alarm.stop()  # type: ignore[union-attr]

    assert rung


def test_two_schedulers_start_each_night_once_and_the_second_takes_over(
    postgres: Backend, engine: Engine, database_url: str
) -> None:
    for target in ("vision", "speech"):
        scheduled(postgres, target)
    first, second = a_scheduler(postgres, engine, database_url), a_scheduler(postgres, engine, database_url)
    first.turn()
    second.turn()
    assert (first.leading, second.leading) == (True, False)
    started = [r for r in postgres.nights.nights(limit=500) if r.state is NightState.STARTED]
    assert sorted(record.night.target for record in started) == ["speech", "vision"]

    rows(database_url, CUT_OFF)
    second.turn()
    first.turn()

    assert (first.leading, second.leading) == (False, True)
    assert len(postgres.store.studies()) == 2
    stop = threading.Event()
    stop.set()
    for scheduler in (first, second):
        scheduler.run(stop)
    assert postgres.store.first_broken_audit() is None
