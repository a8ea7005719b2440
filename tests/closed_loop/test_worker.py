"""The loop around the controller: a database that is away, and several workers on one target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autotuner.adapters.memory_store import MemoryLeases
from autotuner.controller import Controller, Tick
from autotuner.domain.study import Outcome, Phase, Study, TrialKind
from autotuner.errors import Conflict, Unavailable
from autotuner.operations import replay
from autotuner.tenure import LEASE_TTL
from autotuner.worker import GRACE, Worker
from tests.closed_loop.endings import a_loop, at, check_ending, reached, trials
from tests.closed_loop.loop import Loop

SECOND = timedelta(seconds=1)


class FlakyStore:
    """A store that does not answer until some moment."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.back_at: datetime | None = None

    def __getattr__(self, name: str) -> Any:
        if self.back_at is not None and self._loop.clock.now() < self.back_at:
            raise Unavailable("postgres", "connection refused")
        return getattr(self._loop.store, name)


class FastClock:
    """A clock that goes ahead of another."""

    def __init__(self, loop: Loop, ahead: timedelta) -> None:
        self._loop, self._ahead = loop, ahead

    def now(self) -> datetime:
        """The other's present and the head start."""
        return self._loop.clock.now() + self._ahead


def a_controller(
    loop: Loop, holder: str, store: Any = None, clock: Any = None, lease_ttl: timedelta = LEASE_TTL
) -> Controller:
    """A controller of a process of its own."""
    outside = replace(
        loop.new_controller()._outside,
        store=store or loop.store,
        leases=MemoryLeases(loop.store, clock or loop.clock),
    )
    return Controller(outside, holder, lease_ttl)


def a_worker(loop: Loop, holder: str = "worker-1", store: Any = None, clock: Any = None) -> Worker:
    """A worker of a process of its own."""
    controller = a_controller(loop, holder, store, clock)
    leases = MemoryLeases(loop.store, clock or loop.clock)
    return Worker(store or loop.store, leases, controller, loop.clock)


def work(
    loop: Loop, *workers: Worker, until: Callable[[Study], bool] = lambda study: study.phase is Phase.ENDED
) -> None:
    """Let the workers take turns until `until` holds."""
    for _ in range(6000):
        pause = min([worker.turn() for worker in workers])
        if until(loop.study):
            return
        loop.clock.advance(max(pause, timedelta(milliseconds=20)))
    raise AssertionError(f"nothing came of it; phase {loop.study.phase}")


def test_a_worker_carries_a_study_to_its_end_and_has_nothing_left() -> None:
    loop = a_loop()
    told: list[Tick] = []
    worker = a_worker(loop)
    worker.told = lambda study_id, tick: told.append(tick)
    work(loop, worker)
    assert check_ending(loop).outcome is Outcome.PROMOTED
    assert told[-1].ended
    assert worker.turn() == SECOND
    assert loop.store.unfinished() == ()


@pytest.mark.parametrize("away", [8, 40])
def test_while_the_database_is_away_production_gets_its_traffic_back_and_the_study_goes_on_later(
    away: int,
) -> None:
    loop = a_loop()
    store = FlakyStore(loop)
    worker = a_worker(loop, store=store)
    work(loop, worker, until=at(TrialKind.CANDIDATE))
    assert loop.target.route.weights()["canary"] > 0
    lost = loop.clock.now()
    store.back_at = lost + away * SECOND
    while loop.target.route.weights()["canary"]:
        loop.clock.advance(max(worker.turn(), timedelta(milliseconds=20)))
    assert loop.clock.now() - lost <= GRACE + 2 * SECOND
    assert dict(loop.target.route.weights()) == {"stable-0": 500, "stable-1": 500, "canary": 0}
    work(loop, worker)
    study = check_ending(loop)
    assert study.outcome is Outcome.PROMOTED
    assert trials(study, TrialKind.CANDIDATE)[0].voids == 1


def test_a_blink_of_the_database_takes_no_traffic_away() -> None:
    loop = a_loop()
    store = FlakyStore(loop)
    worker = a_worker(loop, store=store)
    work(loop, worker, until=at(TrialKind.CANDIDATE))
    store.back_at = loop.clock.now() + SECOND
    work(loop, worker)
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids == 0


def test_a_retreat_that_the_gateway_does_not_hear_is_repeated() -> None:
    loop = a_loop()
    store = FlakyStore(loop)
    worker = a_worker(loop, store=store)
    work(loop, worker, until=at(TrialKind.CANDIDATE))
    store.back_at = loop.clock.now() + 60 * SECOND
    loop.target.faults.gateway_down()
    loop.target.faults.gateway_restart(after=12 * SECOND)
    loop.target.faults.foreign_weights({"stable-0": 300, "stable-1": 300, "canary": 400}, after=12 * SECOND)
    for _ in range(40):
        loop.clock.advance(max(worker.turn(), timedelta(milliseconds=20)))
    assert loop.target.route.weights()["canary"] == 0


def test_two_workers_side_by_side_do_the_work_of_one() -> None:
    loop = a_loop()
    first, second = a_worker(loop, "worker-1"), a_worker(loop, "worker-2")
    work(loop, first, second)
    study = check_ending(loop)
    assert study.outcome is Outcome.PROMOTED
    assert {entry.actor for entry in loop.store.journal(loop.study_id)} == {"worker-1"}


def test_another_worker_takes_over_when_one_stops() -> None:
    loop = a_loop()
    work(loop, a_worker(loop, "worker-1"), until=at(TrialKind.CANDIDATE))
    work(loop, a_worker(loop, "worker-2"))
    assert check_ending(loop).outcome is Outcome.PROMOTED
    actors = [entry.actor for entry in loop.store.journal(loop.study_id)]
    assert actors == sorted(actors)
    assert set(actors) == {"worker-1", "worker-2"}


def test_a_worker_whose_lease_was_taken_writes_nothing_and_stands_back() -> None:
    loop = a_loop()
    loop.controller = a_controller(loop, "worker-1", lease_ttl=timedelta(hours=1))
    loop.run(until=at(TrialKind.CANDIDATE))
    thief = MemoryLeases(loop.store, FastClock(loop, timedelta(hours=2)))
    assert thief.acquire("vision", "worker-2", 15 * SECOND) is not None
    before = loop.store.next_sequence(loop.study_id)
    with pytest.raises(Conflict, match="worker-2"):
        loop.tick()
    assert loop.store.next_sequence(loop.study_id) == before


def test_a_worker_that_was_replaced_takes_no_traffic_from_its_successor() -> None:
    loop = a_loop()
    store = FlakyStore(loop)
    replaced, successor = a_worker(loop, "worker-1", store), a_worker(loop, "worker-2")
    work(loop, replaced, until=at(TrialKind.BASELINE))
    loop.clock.advance(20 * SECOND)
    work(loop, successor, replaced, until=at(TrialKind.CANDIDATE))
    store.back_at = loop.clock.now() + 60 * SECOND
    work(loop, successor, replaced)
    assert [trial.voids for trial in trials(check_ending(loop), TrialKind.CANDIDATE)] == [0]


def test_workers_that_steal_the_lease_from_one_another_still_end_the_study_right() -> None:
    loop = a_loop()
    first = a_worker(loop, "worker-1")
    second = a_worker(loop, "worker-2", clock=FastClock(loop, timedelta(seconds=12)))
    work(loop, first, second)
    check_ending(loop)
    assert len({entry.actor for entry in loop.store.journal(loop.study_id)}) == 2


def test_an_error_nobody_expected_is_survived() -> None:
    loop = a_loop()
    worker = a_worker(loop)
    work(loop, worker, until=at(TrialKind.CANDIDATE))
    sample = loop.target.metrics.sample
    broken_until = loop.clock.now() + 6 * SECOND

    def broken() -> Any:
        if loop.clock.now() < broken_until:
            raise ZeroDivisionError("a defect")
        return sample()

    loop.target.metrics.sample = broken  # type: ignore[method-assign]
    work(loop, worker)
    assert check_ending(loop).outcome is Outcome.PROMOTED


def test_ended_studies_are_left_alone() -> None:
    loop = a_loop(pace={"study_limit": 20 * SECOND})
    work(loop, a_worker(loop), until=reached(Phase.ENDED))
    entries = len(loop.store.journal(loop.study_id))
    tick = a_controller(loop, "worker-9").tick(loop.study_id, "vision")
    assert tick.ended
    assert len(loop.store.journal(loop.study_id)) == entries
    assert replay(loop.store, loop.study_id, loop.proposers).differences == ()
