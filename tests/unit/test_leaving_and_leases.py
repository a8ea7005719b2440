"""Nobody is exposed to what nobody watches, and nothing is done under a lease that may be somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autotuner.adapters.memory_store import MemoryLeases
from autotuner.controller import Controller
from autotuner.domain.judgement import Verdict
from autotuner.domain.routing import parked_weights, unwatched_weights
from autotuner.domain.study import Outcome, Phase, Study, TrialKind, TrialState
from autotuner.errors import Conflict, Unavailable
from autotuner.ports import Grant
from autotuner.tenure import LEASE_TTL
from autotuner.worker import GRACE, Worker
from tests.closed_loop.endings import a_loop, at, check_ending, trials
from tests.closed_loop.loop import Loop
from tests.sightings import WEIGHTS, a_stage, an_incumbent, begun, under_way

SECOND = timedelta(seconds=1)


class Between:
    """A store during one of whose calls something happens."""

    def __init__(self, inner: Any, name: str, happens: Callable[[], None]) -> None:
        self._inner, self._name, self._happens = inner, name, happens

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._name:
            return found

        def called(*arguments: Any) -> Any:
            self._happens()
            return found(*arguments)

        return called


class SkewedLeases(MemoryLeases):
    """Leases of a database whose clock goes ahead of the worker's."""

    renewals = 0

    def acquire(self, target: str, holder: str, ttl: timedelta) -> Grant | None:
        """Take or renew; what the database says of the time is an hour ahead."""
        self.renewals += 1
        grant = super().acquire(target, holder, ttl)
        return None if grant is None else replace(grant, expires_at=grant.expires_at + timedelta(hours=1))


def a_controller(loop: Loop, holder: str = "worker-1", **changes: Any) -> Controller:
    """A controller of a process of its own."""
    outside = replace(loop.new_controller()._outside, leases=MemoryLeases(loop.store, loop.clock), **changes)
    return Controller(outside, holder)


# -- leases ----------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_by_the_workers_own_clock_whatever_the_databases_says() -> None:
    loop = a_loop()
    leases = SkewedLeases(loop.store, loop.clock)
    loop.controller = Controller(replace(loop.new_controller()._outside, leases=leases), "worker-1")
    began = loop.clock.now()
    loop.run(until=at(TrialKind.BASELINE))
    assert leases.renewals >= (loop.clock.now() - began) / LEASE_TTL
    assert MemoryLeases(loop.store, loop.clock).acquire("vision", "worker-2", LEASE_TTL) is None


def test_nothing_is_done_when_the_lease_went_to_somebody_else_within_a_tick() -> None:
    """An action is pending; reading the study takes longer than the lease lasts, and another worker takes over."""
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, TrialState.APPLIED))
    set_weights, given = loop.target.route.set_weights, list[object]()

    def cut_off(_weights: object) -> None:
        raise KeyboardInterrupt

    loop.target.route.set_weights = cut_off  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt):
        loop.tick()
    loop.target.route.set_weights = given.append  # type: ignore[assignment,method-assign]
    assert loop.study.pending is not None

    def taken_over() -> None:
        loop.clock.advance(20 * SECOND)
        assert MemoryLeases(loop.store, loop.clock).acquire("vision", "worker-2", LEASE_TTL) is not None

    slow = a_controller(loop, store=Between(loop.store, "study", taken_over))
    with pytest.raises(Conflict, match="worker-1 lost it within a tick"):
        slow.tick(loop.study_id, "vision")
    assert given == []
    loop.target.route.set_weights = set_weights  # type: ignore[method-assign]
    loop.controller = a_controller(loop, "worker-2")
    loop.run()
    assert trials(check_ending(loop), TrialKind.CANDIDATE)[0].verdict is Verdict.ACCEPT


def test_a_tick_that_hangs_longer_than_the_grace_gives_the_traffic_back_at_once() -> None:
    loop = a_loop()
    hangs = False

    def hang() -> None:
        if hangs:
            loop.clock.advance(GRACE + SECOND)
            raise Unavailable("postgres", "no answer")

    store = Between(loop.store, "append", hang)
    leases = MemoryLeases(loop.store, loop.clock)
    worker = Worker(loop.store, leases, a_controller(loop, store=store), loop.clock)
    while not at(TrialKind.CANDIDATE)(loop.study):
        loop.clock.advance(max(worker.turn(), timedelta(milliseconds=20)))
    assert loop.target.route.weights()["canary"] > 0
    hangs = True
    loop.clock.advance(SECOND)
    worker.turn()
    assert loop.target.route.weights()["canary"] == 0


# -- leaving ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [TrialState.WARMING, TrialState.MEASURING])
def test_a_worker_that_leaves_gives_production_its_traffic_and_the_next_one_measures_again(
    state: TrialState,
) -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, state))
    assert loop.target.route.weights()["canary"] > 0
    loop.controller.leave()
    assert dict(loop.target.route.weights()) == WEIGHTS
    loop.controller = a_controller(loop, "worker-2")
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.PROMOTED
    assert trials(study, TrialKind.CANDIDATE)[0].voids == 1


@pytest.mark.parametrize("kind", [TrialKind.PRODUCTION, TrialKind.WATCH])
def test_leaving_while_production_is_watched_spoils_nothing(kind: TrialKind) -> None:
    loop = a_loop()
    loop.run(until=at(kind))
    loop.controller.leave()
    loop.controller = a_controller(loop, "worker-2")
    loop.run()
    assert [trial.voids for trial in trials(check_ending(loop), kind)] == [0]


def test_a_worker_that_was_replaced_leaves_its_successors_traffic_alone() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.BASELINE))
    replaced = loop.controller
    loop.clock.advance(20 * SECOND)
    loop.controller = a_controller(loop, "worker-2")
    loop.run(until=at(TrialKind.CANDIDATE))
    before = dict(loop.target.route.weights())
    replaced.leave()
    assert dict(loop.target.route.weights()) == before
    assert before["canary"] > 0


def test_leaving_without_the_database_gives_the_traffic_back_all_the_same() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE))

    def gone(*_: object) -> None:
        raise Unavailable("postgres", "connection refused")

    loop.leases.acquire = gone  # type: ignore[assignment,method-assign]
    loop.leases.release = gone  # type: ignore[assignment,method-assign]
    loop.clock.advance(10 * SECOND)
    with pytest.raises(Unavailable):
        loop.controller.leave()
    assert dict(loop.target.route.weights()) == WEIGHTS


def test_leaving_after_the_end_touches_nothing() -> None:
    loop = a_loop(pace={"study_limit": 20 * SECOND})
    loop.run()
    changed = {"stable-0": 300, "stable-1": 300, "canary": 400}
    loop.target.faults.foreign_weights(changed)
    loop.controller.leave()
    assert dict(loop.target.route.weights()) == changed


# -- which weights may stay unwatched --------------------------------------------------------------------------


def on_canary(study: Study) -> list[int]:
    """The canary's weight in each set of weights that may stay unwatched."""
    return [weights["canary"] for weights in unwatched_weights(study)]


def test_a_canary_that_has_traffic_in_production_gets_none_while_it_may_serve_a_candidate() -> None:
    third = replace(an_incumbent(), weights={"stable-0": 334, "stable-1": 333, "canary": 333})
    assert on_canary(under_way(begun(), incumbent=third)) == [0]
    assert on_canary(under_way(begun(TrialKind.PRODUCTION), incumbent=third)) == [333, 0]


def test_a_stage_that_was_not_accepted_is_not_given_its_traffic_back_unwatched() -> None:
    rejected = a_stage(state=TrialState.JUDGED, verdict=Verdict.REJECT)
    study = under_way(rejected, phase=Phase.RESTORATION)
    assert parked_weights(study, rejected) in unwatched_weights(study)
    assert parked_weights(study, rejected)["stable-0"] == 0
