"""Many nights of several targets, with schedulers and workers that are killed at any moment, on a clock that is turned.

A kill is what the operating system does: nothing is given back, and a write that was under way has happened or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.memory_store import (
    MemoryLeadership,
    MemoryLeases,
    MemoryNights,
    MemoryOutbox,
    MemoryRegistry,
)
from autotuner.bookkeeping.audit import step_lines
from autotuner.bookkeeping.rules import kept_entry
from autotuner.controller import Controller, Outside, Pools
from autotuner.courier import Courier
from autotuner.domain.access import Said
from autotuner.domain.calendar import Schedule
from autotuner.domain.notices import notices_of
from autotuner.domain.registration import StudyDefaults, Wanted
from autotuner.domain.study import Pace, Phase, Study
from autotuner.nightly import NightWatch
from autotuner.operations import replay
from autotuner.ports import Grant, JournalEntry, NightState
from autotuner.scheduler import Scheduler, firings
from autotuner.worker import Terms, Worker
from tests.arithmetic_target import ArithmeticTarget, InTurn
from tests.builders import a_budget, a_target
from tests.closed_loop.background import Inline
from tests.closed_loop.loop import QuickStore

BEGAN = datetime(2026, 3, 26, tzinfo=UTC)
"""Three nights before the clock is set forward in Berlin."""

WRITES = ("append", "start_night", "miss_night", "close_nights", "acquire")
"""Calls in whose middle a process may be killed: before they are made, or after they have been."""

PACE = Pace(
    warm_up=timedelta(seconds=2),
    settle=timedelta(seconds=1),
    look_interval=timedelta(seconds=1),
    flush_interval=timedelta(seconds=1),
    step_minimum=timedelta(seconds=3),
    production_window=timedelta(seconds=8),
    step_limit=timedelta(seconds=60),
)


class Killed(BaseException):
    """The process is gone; nobody catches this but whoever starts another one."""


class AuditedStore(QuickStore):
    """The quick store with the audit and the outbox of the whole one."""

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome under the same rules."""
        super().append(before, after, entry, grant)
        kept = kept_entry(entry)
        self.memory.tell(notices_of(before, after, kept.at))
        self.memory.note(step_lines(before, after, kept))


class Mortal:
    """Something that a process holds, in one of whose calls the process may be killed."""

    def __init__(self, inner: Any, dice: random.Random, chance: float) -> None:
        self._inner, self._dice, self._chance = inner, dice, chance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._deadly(found) if name in WRITES else found

    def _deadly(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            drawn = self._dice.random()
            if drawn < self._chance / 2:
                raise Killed
            made = call(*arguments)
            if drawn < self._chance:
                raise Killed
            return made

        return called


@dataclass
class Nights:
    """Targets, two schedulers and five workers. chance: of a kill in each call that writes."""

    seed: int
    targets: int = 2
    chance: float = 0.004
    schedulers: int = 2
    workers: int = 5
    kills: dict[str, int] = field(default_factory=lambda: {"scheduler": 0, "worker": 0})

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.clock = ManualClock(BEGAN)
        self.store = AuditedStore()
        self.memory = self.store.memory
        self.worlds: dict[str, ArithmeticTarget] = {}
        self._born = 0
        nights, registry = MemoryNights(self.store), MemoryRegistry(self.memory)
        said = Said("anna", "", BEGAN)
        for number in range(self.targets):
            target = a_target(name=f"target-{number}")
            defaults = StudyDefaults(max_trials=1, ramp_steps=2, pace=PACE)
            registry.register(Wanted(target, a_budget(harm_budget_requests=10**6), defaults), None, said)
            self.worlds[target.name] = ArithmeticTarget(target, self.clock)
            nights.set_schedule(
                Schedule(target.name, "30 2 * * *", "Europe/Berlin", jitter=timedelta(minutes=20)), said
            )
        self._schedulers = [self._scheduler() for _ in range(self.schedulers)]
        self._workers = [self._worker() for _ in range(self.workers)]

    def run(self, nights: int) -> None:
        """Let so many nights pass."""
        until = BEGAN + timedelta(days=nights)
        while self.clock.now() < until:
            for place, scheduler in enumerate(self._schedulers):
                if not self._survives(scheduler.turn, "scheduler"):
                    scheduler.leadership.resign()  # its connection dies with it
                    self._schedulers[place] = self._scheduler()
            for place, worker in enumerate(self._workers):
                if not self._survives(worker.turn, "worker"):
                    self._workers[place] = self._worker()
            busy = bool(self.store.unfinished())
            self.clock.advance(timedelta(seconds=1) if busy else timedelta(minutes=5))

    def check(self, nights: int) -> None:
        """Assert what must be true whatever was killed."""
        settled = MemoryNights(self.store).nights(limit=10_000)
        expected = self.targets * nights
        states = [record.state for record in settled]
        assert states == [NightState.ENDED] * expected, [
            r for r in settled if r.state is not NightState.ENDED
        ]
        started = [record.study_id for record in settled]
        assert len(set(started)) == len(started)
        assert set(started) == set(self.memory.studies)
        for name in self.worlds:
            self._check_one_after_another(name)
            assert dict(self.worlds[name].weights()) == {"stable-0": 500, "stable-1": 500, "canary": 0}
        for study_id in self.memory.studies:
            again = replay(self.store, study_id, lambda _plan: InTurn())
            assert again.differences == ()
            study = self.store.study(study_id)
            assert study.phase is Phase.ENDED
            assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
        assert self.store.first_broken_audit() is None

    def _check_one_after_another(self, target: str) -> None:
        found = [row.study for row in self.memory.studies.values() if row.study.plan.target.name == target]
        ordered = sorted(found, key=lambda study: study.created_at)
        for earlier, later in pairwise(ordered):
            assert earlier.ended_at is not None
            assert earlier.ended_at <= later.created_at

    def _survives(self, turn: Callable[[], object], kind: str) -> bool:
        try:
            turn()
        except Killed:
            self.kills[kind] += 1
            return False
        return True

    def _mortal(self, inner: Any) -> Any:
        return Mortal(inner, self.dice, self.chance)

    def _scheduler(self) -> Scheduler:
        watch = NightWatch(
            self.store,
            self._mortal(MemoryNights(self.store)),
            MemoryRegistry(self.memory),
            self.clock,
            firings,
        )
        courier = Courier(MemoryOutbox(self.memory), (), self.clock)
        return Scheduler(MemoryLeadership(self.memory), watch, courier, self.clock)

    def _worker(self) -> Worker:
        self._born += 1
        store = self._mortal(self.store)
        leases = self._mortal(MemoryLeases(self.store, self.clock))
        outside = Outside(
            store=store,
            leases=leases,
            clock=self.clock,
            worlds=lambda target: self.worlds[target.name].world(),
            proposers=lambda _plan: InTurn(),
            pools=Pools.all_in(Inline()),
        )
        return Worker(store, leases, Controller(outside, f"worker-{self._born}"), self.clock, Terms())
