"""A promotion that lives in servers' memory: put on again after a restart, and nothing else is ever touched."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autotuner.adapters.memory_store import MemoryCatalogue
from autotuner.domain.calendar import Freeze
from autotuner.domain.configuration import Configuration
from autotuner.domain.study import Outcome
from autotuner.operations import start_study
from autotuner.promotions import roll_back
from autotuner.upkeep import SLACK, Upkeep
from tests.builders import a_configuration
from tests.closed_loop.loop import a_brisk_plan
from tests.closed_loop.pooled import a_pooled_target, a_workload
from tests.closed_loop.test_pooled import PooledLoop
from tests.closed_loop.test_proposed import desk

PODS = ("stable-0", "stable-1")


def promoted(config_map: str = "") -> PooledLoop:
    """A loop whose study has promoted something, on a target with or without a ConfigMap."""
    target = a_pooled_target(workload=a_workload(config_map=config_map))
    loop = PooledLoop(a_brisk_plan(target=target), seed=2)
    study = loop.run()
    assert study.outcome is Outcome.PROMOTED, study.reason
    loop.clock.advance(timedelta(minutes=5))
    return loop


def upkeep(loop: PooledLoop) -> Upkeep:
    memory = loop.store.memory
    return Upkeep(
        loop.store,
        MemoryCatalogue(memory),
        loop.leases,
        loop.clock,
        lambda _: loop.world(),
        "worker-1 (upkeep)",
    )


def winner(loop: PooledLoop) -> Configuration:
    study = loop.study
    assert study.winner is not None
    return study.trials[study.winner].configuration


@pytest.fixture
def loop() -> PooledLoop:
    return promoted()


def restarted(loop: PooledLoop, name: str = "stable-0") -> Configuration:
    """Let a pod start anew; return what it comes up with."""
    loop.pooled.start_anew(name, loop.clock.now())
    loop.clock.advance(timedelta(seconds=10))
    assert loop.served(name) != winner(loop)
    return loop.served(name)


def test_a_pod_that_starts_anew_is_given_what_was_promoted_and_that_is_recorded(loop: PooledLoop) -> None:
    restarted(loop)
    assert upkeep(loop).look() == ("stable-0 of vision started anew and was given what was promoted",)
    assert [loop.served(name) for name in PODS] == [winner(loop)] * 2
    newest = loop.store.audit(1)[0]
    assert (newest.action, newest.subject) == ("replica_promoted", loop.study_id)
    assert newest.details == {"replica": "stable-0", "again": True}
    assert upkeep(loop).look() == ()


def test_while_nothing_starts_anew_nothing_is_done(loop: PooledLoop) -> None:
    loop.pooled.since = dict.fromkeys(PODS, loop.study.created_at)
    assert upkeep(loop).look() == ()


def test_what_a_person_puts_on_a_running_server_stays(loop: PooledLoop) -> None:
    foreign = a_configuration(max_queue_delay_microseconds=3000)
    loop.pooled.since = dict.fromkeys(PODS, loop.study.created_at)
    loop.target.faults.foreign_configuration("stable-0", foreign)
    assert upkeep(loop).look() == ()
    assert loop.served("stable-0") == foreign


def test_an_hour_after_its_start_a_server_serves_what_somebody_wants_it_to(loop: PooledLoop) -> None:
    found = restarted(loop)
    loop.clock.advance(timedelta(hours=1))
    assert upkeep(loop).look() == ()
    assert loop.served("stable-0") == found


def test_nothing_is_done_in_a_freeze_under_a_study_or_while_somebody_else_drives(loop: PooledLoop) -> None:
    found = restarted(loop)
    now = loop.clock.now()
    grant = loop.leases.acquire(loop.plan.target.name, "worker-2", SLACK)
    assert grant is not None
    assert upkeep(loop).look() == ()
    loop.leases.release(grant)

    freeze = Freeze(now, now + timedelta(minutes=1), "a sale", loop.plan.target.name, 1)
    loop.store.memory.freezes[1] = freeze
    assert upkeep(loop).look() == ()
    loop.store.memory.freezes.clear()

    start_study(loop.store, loop.clock, loop.plan, "tester")
    assert upkeep(loop).look() == ()
    assert loop.served("stable-0") == found


def test_a_promotion_that_was_taken_back_is_not_put_on_again(loop: PooledLoop) -> None:
    loop.study_id = roll_back(desk(loop), loop.study_id, "anna", "p99 doubled").study_id
    assert loop.run().outcome is Outcome.ROLLED_BACK
    loop.clock.advance(timedelta(minutes=5))
    loop.pooled.start_anew("stable-0", loop.clock.now())
    found = loop.served("stable-0")
    assert upkeep(loop).look() == ()
    assert loop.served("stable-0") == found


def test_where_a_config_map_has_it_pods_come_up_with_it_by_themselves() -> None:
    loop = promoted("vision-config")
    found = restarted(loop)
    assert upkeep(loop).look() == ()
    assert loop.served("stable-0") == found
