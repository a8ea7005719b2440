"""A promotion that is taken back: production ends as it was before, exactly, wherever the worker is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autotuner.adapters.memory_store import MemoryCatalogue, MemoryRegistry
from autotuner.catalogue import Window
from autotuner.controller import Orders, Tick
from autotuner.domain.calendar import RUNNING, Freeze, Line
from autotuner.domain.configuration import fingerprint
from autotuner.domain.judgement import Verdict
from autotuner.domain.sharing import admitted
from autotuner.domain.study import (
    Incumbent,
    Level,
    Outcome,
    Phase,
    Study,
    Trial,
    TrialKind,
    TrialState,
    Wish,
)
from autotuner.errors import Conflict, InvalidInput, Refused
from autotuner.operations import ask, replay, start_study
from autotuner.ports import World
from autotuner.promotions import Desk, Rollback, followed_by, proof_of, roll_back
from tests.builders import a_configuration
from tests.closed_loop.endings import BETTER, a_loop, check_ending, reached, served
from tests.closed_loop.loop import Loop
from tests.studies import a_step

OTHER = a_configuration(max_queue_delay_microseconds=3000)
WHY = "the p99 of the search page has doubled"


def desk(loop: Loop) -> Desk:
    """What the use cases need, over the loop's store."""
    memory = loop.store.memory
    return Desk(
        loop.store,
        MemoryRegistry(memory),
        MemoryCatalogue(memory),
        loop.clock,
        lambda _: loop.target.world,
    )


def promoted(**changes: Any) -> Loop:
    """A loop whose study has promoted `BETTER`: recorded so, and served so, without the hours that lead there."""
    loop = a_loop(**changes)
    target, study = loop.target, loop.study
    names = [replica.name for replica in study.plan.target.replicas]
    configs = {name: target.serving.model_config(name) for name in names}
    before = Incumbent(
        configuration=served(loop, "stable-0"),
        configs={name: json.dumps(config, sort_keys=True) for name, config in configs.items()},
        fingerprints={name: fingerprint(config) for name, config in configs.items()},
        weights=dict(target.route.weights()),
    )
    level, at = Level(0, 1.0), loop.clock.now()
    winner = Trial(0, TrialKind.CANDIDATE, ("canary",), BETTER, (level,), TrialState.JUDGED, at)
    for name in names:
        target.faults.foreign_configuration(name, BETTER)
    loop.store.memory.studies[study.id].study = replace(
        study,
        phase=Phase.ENDED,
        outcome=Outcome.PROMOTED,
        incumbent=before,
        trials=(replace(winner, verdict=Verdict.ACCEPT, ended_at=at),),
        winner=0,
        promoted=study.plan.target.stable_names,
        ended_at=at,
        reason="it holds in production",
    )
    loop.clock.advance(timedelta(seconds=5))
    return loop


def asked_back(loop: Loop) -> Rollback:
    """Ask for the promotion to be taken back, and carry that study from now on."""
    found = roll_back(desk(loop), loop.study_id, "anna", WHY)
    loop.study_id = found.study_id
    return found


def check_restored(loop: Loop) -> Study:
    """Assert that production, canary and gateway are what they were before the promotion."""
    study = loop.study
    reverses = study.plan.reverses
    assert study.phase is Phase.ENDED
    assert reverses is not None
    for replica in study.plan.target.replicas:
        found = loop.target.serving.model_config(replica.name)
        assert json.dumps(found, sort_keys=True) == reverses.before.configs[replica.name]
    assert dict(loop.target.route.weights()) == dict(reverses.before.weights)
    assert replay(loop.store, study.id, loop.proposers).differences == ()
    return study


def test_a_promotion_that_was_made_by_a_whole_study_can_be_taken_back() -> None:
    loop = a_loop()
    promotion = loop.run()
    assert promotion.outcome is Outcome.PROMOTED
    assert proof_of(desk(loop), promotion.id).lapsed == ""

    asked_back(loop)
    loop.run()

    study = check_restored(loop)
    assert (study.outcome, study.actor) == (Outcome.ROLLED_BACK, "anna")
    assert WHY in study.reason
    assert study.trials == ()
    assert "rolled back by study" in proof_of(desk(loop), promotion.id).lapsed
    (line,) = desk(loop).catalogue.ledger(None, Window()).items
    assert (line.study_id, line.rolled_back_by) == (promotion.id, study.id)


def test_replicas_are_restored_one_at_a_time_while_the_canary_stands_in() -> None:
    loop = promoted()
    asked_back(loop)
    carried: list[tuple[str, int]] = []
    load = loop.target.serving.load

    def watched(replica: str, config: Any, limit: timedelta) -> None:
        carried.append((replica, loop.target.route.weights()[replica]))
        load(replica, config, limit)

    loop.target.serving.load = watched  # type: ignore[method-assign]
    loop.run()

    check_restored(loop)
    assert [name for name, _ in carried] == ["stable-0", "stable-1", "canary"]
    assert [weight for _, weight in carried] == [0, 0, 0]


def test_who_and_why_are_in_the_audit_of_both_studies() -> None:
    loop = promoted()
    promotion = loop.study_id
    asked_back(loop)
    (told,) = [each for each in loop.store.audit(100, promotion) if each.action == "rollback_started"]
    (started,) = [each for each in loop.store.audit(100, loop.study_id) if each.action == "study_started"]
    assert (told.actor, told.reason, told.details["study"]) == ("anna", WHY, loop.study_id)
    assert (started.actor, started.reason) == ("anna", WHY)
    assert loop.store.first_broken_audit() is None


def test_asking_twice_is_asking_once() -> None:
    loop = promoted()
    promotion = loop.study_id
    first = asked_back(loop)
    again = roll_back(desk(loop), promotion, "bert", "the same")
    loop.run()
    after = roll_back(desk(loop), promotion, "bert", "the same")
    assert first.begun
    assert (again, after) == (Rollback(first.study_id, False), Rollback(first.study_id, False))


def test_a_reason_is_needed() -> None:
    with pytest.raises(InvalidInput, match="why production goes back"):
        roll_back(desk(loop := promoted()), loop.study_id, "anna", " ")


def test_what_was_not_promoted_cannot_be_taken_back() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.SEARCH))
    with pytest.raises(Refused, match="only a promotion can be rolled back"):
        roll_back(desk(loop), loop.study_id, "anna", WHY)


@pytest.mark.parametrize("phase", [Phase.PROMOTION, Phase.WATCH])
def test_a_promotion_under_way_is_stopped_and_restored_by_its_own_study(phase: Phase) -> None:
    loop = a_loop()
    loop.run(until=reached(phase))
    found = roll_back(desk(loop), loop.study_id, "anna", WHY)
    again = roll_back(desk(loop), loop.study_id, "anna", WHY)
    assert (found, again) == (Rollback(loop.study_id, True), Rollback(loop.study_id, False))
    loop.run()
    assert check_ending(loop).outcome is Outcome.ABORTED


def test_a_wish_that_the_last_tick_of_the_watch_did_not_see_is_obeyed_all_the_same() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.RESTORATION))
    assert loop.study.intended is Outcome.PROMOTED
    loop.store.memory.studies[loop.study_id].wish = Wish.CANCEL

    loop.run()

    assert check_ending(loop).outcome is Outcome.ABORTED
    assert "cancelled by an operator, after this" in loop.study.reason
    assert [served(loop, name) for name in ("stable-0", "stable-1")] == [a_configuration()] * 2
    assert desk(loop).catalogue.ledger(None, Window()).items == ()


def test_no_tick_ends_a_study_over_a_cancellation_that_it_did_not_know_of() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.RESTORATION))
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "anna", WHY)
    unknowing = Orders(Wish.RUN, RUNNING)
    while "cancelled meanwhile" not in (
        said := loop.controller.tick(loop.study_id, "vision", unknowing).reason
    ):
        assert loop.study.phase is Phase.RESTORATION, said

    loop.run()

    assert check_ending(loop).outcome is Outcome.ABORTED
    assert [served(loop, name) for name in ("stable-0", "stable-1")] == [a_configuration()] * 2
    assert desk(loop).catalogue.ledger(None, Window()).items == ()


def test_what_somebody_else_put_into_production_since_is_left_alone() -> None:
    loop = promoted()
    loop.target.faults.foreign_configuration("stable-1", OTHER)
    with pytest.raises(Refused, match=r"stable-1 serves neither .* no longer on the promoted configuration"):
        roll_back(desk(loop), loop.study_id, "anna", WHY)
    assert loop.store.unfinished() == ()


def test_a_change_between_the_request_and_the_tick_is_left_alone_too() -> None:
    loop = promoted()
    asked_back(loop)
    loop.target.faults.foreign_configuration("stable-0", OTHER)
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert "not rolled back: stable-0 serves neither" in study.reason
    assert (served(loop, "stable-0"), served(loop, "stable-1")) == (OTHER, BETTER)
    assert not [entry for entry in loop.store.journal(loop.study_id) if entry.action]


def test_a_newer_promotion_stands_in_the_way() -> None:
    loop = promoted()
    newer = replace(loop.study, id="newer", created_at=loop.clock.now(), ended_at=loop.clock.now())
    loop.store.create_study(replace(newer, phase=Phase.ENDED))
    assert followed_by(desk(loop).catalogue, loop.study) == "newer"
    with pytest.raises(Refused, match="study newer has promoted another configuration since"):
        roll_back(desk(loop), loop.study_id, "anna", WHY)
    assert "study newer has promoted" in proof_of(desk(loop), with_evidence(loop)).lapsed


def with_evidence(loop: Loop) -> str:
    """Give the promotion a step to certify, and return its id."""
    row = loop.store.memory.studies[loop.study_id]
    row.study = replace(row.study, trials=(replace(row.study.trials[0], steps=(a_step(),)),))
    return loop.study_id


def test_another_study_of_the_target_has_to_end_first() -> None:
    loop = promoted()
    start_study(loop.store, loop.clock, loop.plan, "night")
    with pytest.raises(Conflict, match="has not ended"):
        roll_back(desk(loop), loop.study_id, "anna", WHY)


def test_neither_a_freeze_nor_a_stopped_line_holds_it_up() -> None:
    loop = promoted()
    now = loop.clock.now()
    freeze = Freeze(now, now + timedelta(days=9), "the holidays")
    loop.store.memory.freezes[1] = freeze
    loop.store.memory.line = Line(now, "incident", "bert")
    asked_back(loop)
    loop.run()
    assert check_restored(loop).outcome is Outcome.ROLLED_BACK


def test_one_replica_that_is_away_is_named_and_the_others_are_restored() -> None:
    loop = promoted()
    asked_back(loop)
    loop.target.faults.crash("stable-1")
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert "stable-1 could not be restored" in study.reason
    assert "a person must look" in study.reason
    assert study.plan.reverses is not None
    assert served(loop, "stable-0") == study.plan.reverses.before.configuration

    loop.target.faults.start("stable-1")
    second = roll_back(desk(loop), study.plan.reverses.study_id, "anna", "it is back")
    loop.study_id = second.study_id
    loop.run()
    assert second.begun
    assert check_restored(loop).outcome is Outcome.ROLLED_BACK


def test_a_canary_that_is_away_does_not_keep_production_from_going_back() -> None:
    loop = promoted()
    asked_back(loop)
    loop.target.faults.crash("canary")
    study = loop.run()
    assert study.outcome is Outcome.ROLLED_BACK
    assert "canary could not be restored" in study.reason
    assert [served(loop, name) for name in ("stable-0", "stable-1")] == [a_configuration()] * 2


def test_a_target_that_cannot_be_read_is_left_as_it_is() -> None:
    loop = promoted()
    asked_back(loop)
    loop.target.faults.gateway_down()
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert "the target could not be read: gateway" in study.reason


def test_it_can_be_cancelled_before_it_has_begun() -> None:
    loop = promoted()
    asked_back(loop)
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "anna", "wrong target")
    assert loop.run().outcome is Outcome.ABORTED
    assert served(loop, "stable-0") == BETTER


# -- killed ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here, as by `kill -9`."""


class KilledAt:
    """Kills at the call of one number, before or after it took effect."""

    def __init__(self, number: int, after: bool) -> None:
        self.left, self._after = number, after

    def __call__(self, inner: Any, *names: str) -> Any:
        fuse = self

        class Guarded:
            def __getattr__(self, name: str) -> Any:
                found = getattr(inner, name)
                return found if name not in names else lambda *a, **k: fuse.call(lambda: found(*a, **k))

        return Guarded()

    def call(self, made: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left != 0:
            return made()
        if self._after:
            made()
        raise Killed


def driven(loop: Loop, fuse: KilledAt) -> Study:
    """Carry the study to its end; the worker is killed once, and another begins without knowing anything."""
    world = loop.target.world
    guarded = World(fuse(world.serving, "load"), fuse(world.route, "set_weights"), world.metrics)
    store = fuse(loop.store, "append", "study", "next_sequence")

    def a_worker() -> None:
        controller = loop.new_controller()
        controller._outside = replace(controller._outside, store=store, worlds=lambda _: guarded)
        controller._store = store
        loop.controller = controller

    def tick() -> Tick:
        try:
            return loop.tick()
        except Killed:
            a_worker()
            return Tick("killed", timedelta(0))

    a_worker()
    for _ in range(500):
        if tick().ended:
            return loop.study
    raise AssertionError(loop.said)


def calls_of_a_rollback() -> int:
    """How many calls an undisturbed one makes."""
    fuse = KilledAt(-1, after=False)
    loop = promoted()
    asked_back(loop)
    driven(loop, fuse)
    return -1 - fuse.left


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_step_it_ends_the_same(after: bool) -> None:
    calls = calls_of_a_rollback()
    assert calls >= 12
    for number in range(1, calls + 1):
        loop = promoted()
        asked_back(loop)
        fuse = KilledAt(number, after)
        study = driven(loop, fuse)
        assert fuse.left <= 0, number
        check_restored(loop)
        assert study.outcome is Outcome.ROLLED_BACK, number


def test_a_rollback_needs_no_place_for_a_canary() -> None:
    loop = promoted()
    asked_back(loop)
    assert [each.study_id for each in admitted(loop.store.errands(), 0)] == [loop.study_id]
