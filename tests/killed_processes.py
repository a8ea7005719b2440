"""Schedulers and workers as processes of their own on a real PostgreSQL, killed by the operating system at any moment.

What survives is what does in production: the database, and the targets, which a further process keeps. The clock is
shared memory that the test turns: quickly while studies run, in leaps while none does. A kill is SIGKILL, so a
transaction, a request to a target and a lease are left however far they were.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from multiprocessing.managers import BaseManager
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine

from autotuner.adapters.postgres import (
    PostgresLeadership,
    PostgresLeases,
    PostgresNights,
    PostgresRegistry,
    PostgresStore,
    open_engine,
    upgrade,
)
from autotuner.adapters.postgres.outbox import PostgresOutbox
from autotuner.controller import Controller, Outside, Pools
from autotuner.courier import Courier
from autotuner.domain.access import Said
from autotuner.domain.calendar import Schedule
from autotuner.domain.registration import StudyDefaults, Wanted
from autotuner.domain.study import Phase, Study
from autotuner.nightly import NightWatch
from autotuner.operations import replay
from autotuner.ports import NightRecord, NightState, World
from autotuner.scheduler import Scheduler, firings
from autotuner.worker import Terms, Worker
from tests.arithmetic_target import ArithmeticTarget, InTurn
from tests.builders import a_budget, a_target
from tests.closed_loop.background import Inline
from tests.closed_loop.nights import BEGAN, PACE
from tests.postgres_server import rows

FORK = multiprocessing.get_context("fork")
"""A child begins in milliseconds, with everything imported; nothing that lives in a thread is in the parent."""

LEASE = timedelta(seconds=1.5)
"""Leases and presence, by the database's own clock: it is not turned."""

TURN_SECONDS = 0.01
"""How long, in real time, the clock stands between two turns."""

BUSY, IDLE = timedelta(seconds=1), timedelta(minutes=10)
"""How far one turn goes, while studies run and while none does."""

EVENING = 20
"""The hour, UTC, at which a run ends: the night before is over, the next one is not due."""

KILL_CHANCE = 1 / 25
"""Of a kill at each turn while studies run: when time is turned quickly, so is death."""

LIMIT_SECONDS = 400.0
ASKED_EVERY = 4
"""Turns between two looks whether studies run: each is a connection of its own."""

DOORS = ("model_config", "provenance", "is_ready", "load", "weights", "set_weights", "sample")


class SharedClock:
    """The time that every process sees."""

    def __init__(self, began: datetime) -> None:
        self._seconds = FORK.Value("d", began.timestamp())

    def now(self) -> datetime:
        """Return the instant it was last turned to."""
        return datetime.fromtimestamp(self._seconds.value, UTC)

    def turn(self, by: timedelta) -> None:
        """Turn it on."""
        self._seconds.value += by.total_seconds()


class Keeper(BaseManager):
    """Keeps the targets in a process that nobody kills."""


@dataclass
class Night:
    """What a process is given. address, key: where the keeper of the targets listens."""

    url: str
    clock: SharedClock
    address: Any
    key: bytes

    def world(self, name: str) -> World:
        """The doors to a target that is kept elsewhere."""
        keeper = Keeper(self.address, self.key)
        keeper.connect()
        door: Any = keeper.target(name)  # type: ignore[attr-defined]
        return World(door, door, door)


def work(night: Night, holder: str) -> None:
    """A worker's process."""
    engine = open_engine(night.url, pool_size=2)
    store, leases = PostgresStore(engine), PostgresLeases(engine)
    outside = Outside(
        store=store,
        leases=leases,
        clock=night.clock,
        worlds=lambda target: night.world(target.name),
        proposers=lambda _plan: InTurn(),
        pools=Pools.all_in(Inline()),
    )
    worker = Worker(store, leases, Controller(outside, holder, LEASE), night.clock, Terms(present_for=LEASE))
    while True:
        worker.turn()
        time.sleep(TURN_SECONDS)


def schedule(night: Night, _holder: str) -> None:
    """A scheduler's process."""
    engine = open_engine(night.url, pool_size=2)
    nights, store = PostgresNights(engine), PostgresStore(engine)
    watch = NightWatch(store, nights, PostgresRegistry(engine), night.clock, firings)
    courier = Courier(PostgresOutbox(engine), (), night.clock)
    scheduler = Scheduler(PostgresLeadership(night.url), watch, courier, night.clock)
    while True:
        scheduler.turn()
        time.sleep(2 * TURN_SECONDS)


KINDS = {"scheduler": schedule, "worker": work}


@dataclass
class KilledProcesses:
    """Targets, schedulers and workers on one database. kills: how many of each kind were killed."""

    url: str
    seed: int
    targets: int = 3
    schedulers: int = 2
    workers: int = 5
    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    _night: Night = field(init=False)
    _living: list[tuple[str, Any]] = field(default_factory=list)
    _born: int = 0
    _turns: int = 0
    _busy: bool = False

    def run(self, nights: int = 0, seconds: float = 0.0) -> None:
        """Kill until so many nights and so long have passed, then go on to an evening when nothing is under way."""
        self._set_up()
        with ExitStack() as closing:
            self._night = closing.enter_context(self._kept())
            closing.callback(self._end_all)
            for kind, count in (("scheduler", self.schedulers), ("worker", self.workers)):
                for _ in range(count):
                    self._bear(kind)
            dice = random.Random(self.seed)
            over, began = time.monotonic() + seconds, time.monotonic()
            while self.nights <= nights or time.monotonic() < over:
                assert time.monotonic() < began + seconds + LIMIT_SECONDS, "the nights do not pass"
                self._turn()
                if self._busy and dice.random() < KILL_CHANCE:
                    self._kill(dice)
            self._to_an_evening(time.monotonic() + LIMIT_SECONDS)

    @property
    def nights(self) -> int:
        """How many nights have passed."""
        return (self._night.clock.now().date() - BEGAN.date()).days + 1

    @property
    def settled(self) -> list[NightRecord]:
        """Every night that was settled."""
        with self._engine() as engine:
            return list(PostgresNights(engine).nights(limit=100_000))

    def check(self) -> None:
        """Assert what must be true whatever was killed."""
        settled = self.settled
        names = {f"target-{number}" for number in range(self.targets)}
        assert [record for record in settled if record.state is not NightState.ENDED] == []
        found = {(record.night.target, record.night.name[:10]) for record in settled}
        days = [(BEGAN + timedelta(days=n)).date().isoformat() for n in range(self.nights)]
        assert found == {(name, day) for name in names for day in days}
        assert len(settled) == len(found)
        with self._engine() as engine:
            store = PostgresStore(engine)
            studies = [store.study(each.id) for each in store.studies(limit=100_000)]
            assert {record.study_id for record in settled} == {study.id for study in studies}
            for name in names:
                _check_one_after_another([s for s in studies if s.plan.target.name == name])
            for study in studies:
                self._check_study(store, study)
            assert store.first_broken_audit() is None

    def _check_study(self, store: PostgresStore, study: Study) -> None:
        assert study.phase is Phase.ENDED
        assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
        kept = rows(self.url, f"SELECT count(*) FROM trials WHERE study_id = '{study.id}'")
        assert kept == [(len(study.trials),)]
        entries = [entry.sequence for entry in store.journal(study.id)]
        assert entries == list(range(1, len(entries) + 1))
        assert replay(store, study.id, lambda _plan: InTurn()).differences == ()

    # -- processes -----------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        upgrade(self.url)
        with self._engine() as engine:
            registry, nights = PostgresRegistry(engine), PostgresNights(engine)
            said = Said("anna", "", BEGAN)
            for number in range(self.targets):
                defaults = StudyDefaults(max_trials=1, ramp_steps=2, pace=PACE)
                target, slo = a_target(name=f"target-{number}"), a_budget(harm_budget_requests=10**6)
                registry.register(Wanted(target, slo, defaults), None, said)
                cron, jitter = "30 2 * * *", timedelta(minutes=2)
                nights.set_schedule(Schedule(target.name, cron, "Europe/Berlin", jitter=jitter), said)

    @contextmanager
    def _kept(self) -> Iterator[Night]:
        """Start the keeper of the targets."""
        clock = SharedClock(BEGAN)
        made = {
            f"target-{n}": ArithmeticTarget(a_target(name=f"target-{n}"), clock) for n in range(self.targets)
        }
        Keeper.register("target", callable=made.__getitem__, exposed=DOORS)
        keeper = Keeper(authkey=os.urandom(16), ctx=FORK)
        keeper.start()
        try:
            yield Night(self.url, clock, keeper.address, bytes(keeper._authkey))  # type: ignore[attr-defined]
        finally:
            keeper.shutdown()

    def _bear(self, kind: str) -> None:
        self._born += 1
        process = FORK.Process(target=KINDS[kind], args=(self._night, f"{kind}-{self._born}"), daemon=True)
        process.start()
        self._living.append((kind, process))

    def _kill(self, dice: random.Random) -> None:
        wanted = "scheduler" if sum(self.kills.values()) % 3 == 2 else "worker"
        chosen = dice.choice([each for each in self._living if each[0] == wanted])
        self._living.remove(chosen)
        kind, process = chosen
        assert process.is_alive(), f"a {kind} ended by itself"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.kills[kind] += 1
        self._bear(kind)

    def _end_all(self) -> None:
        for _, process in self._living:
            process.kill()
            process.join()

    # -- time ----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._turns += 1
        if self._turns % ASKED_EVERY == 0:
            self._busy = bool(rows(self.url, "SELECT 1 FROM studies WHERE phase <> 'ended' LIMIT 1"))
        self._night.clock.turn(BUSY if self._busy else IDLE)
        time.sleep(TURN_SECONDS)

    def _to_an_evening(self, limit: float) -> None:
        """Turn the clock until it is evening and every night that was started is over."""
        open_nights = "SELECT 1 FROM nights WHERE state = 'started' LIMIT 1"
        while self._night.clock.now().hour != EVENING:
            assert time.monotonic() < limit, "the nights do not end"
            self._turn()
        while rows(self.url, open_nights):
            assert time.monotonic() < limit, "a night is not closed"
            time.sleep(TURN_SECONDS)
            self._night.clock.turn(timedelta(seconds=1))

    @contextmanager
    def _engine(self) -> Iterator[Engine]:
        """An engine that holds nothing between two calls: what is forked must share no connection."""
        engine = create_engine(self.url, poolclass=NullPool)
        try:
            yield engine
        finally:
            engine.dispose()


def _check_one_after_another(studies: list[Study]) -> None:
    for earlier, later in pairwise(sorted(studies, key=lambda study: study.created_at)):
        assert earlier.ended_at is not None
        assert earlier.ended_at <= later.created_at
