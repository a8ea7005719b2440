"""A clock that is set forward or back changes no verdict for the better, and leaves nobody exposed unwatched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from autotuner.adapters.memory_store import MemoryLeases
from autotuner.controller import Controller
from autotuner.domain.measurement import Sample
from autotuner.domain.study import Outcome, TrialKind, TrialState
from autotuner.ports import Clock, World
from autotuner.tenure import Tenure
from autotuner.worker import Worker
from tests.builders import ManualClock, a_budget, a_target
from tests.closed_loop.endings import BETTER, TERRIBLE, at, check_ending, trials
from tests.closed_loop.loop import Loop, QuickStore, ScriptedProposer, a_short_plan

JUMPS = [timedelta(hours=-1), timedelta(seconds=-20), timedelta(seconds=20), timedelta(hours=1)]

MOMENTS = {
    "production": at(TrialKind.PRODUCTION),
    "baseline": at(TrialKind.BASELINE, level=1),
    "warming up": at(TrialKind.CANDIDATE, TrialState.WARMING),
    "candidate": at(TrialKind.CANDIDATE, level=1),
    "confirmation": at(TrialKind.CONFIRMATION),
    "a stage": at(TrialKind.STAGE),
    "the watch": at(TrialKind.WATCH),
}


@dataclass
class WrongClock:
    """What a worker's machine believes, while the world goes on as it does."""

    true: Clock
    off_by: timedelta = timedelta(0)

    def now(self) -> datetime:
        """Return the time as this machine has it."""
        return self.true.now() + self.off_by


@dataclass
class WrongClockLoop(Loop):
    """A loop whose worker's clock can be set."""

    wrong: WrongClock = field(init=False)

    def new_controller(self, holder: str = "worker-1") -> Controller:
        """Return a controller that goes by the wrong clock."""
        self.wrong = WrongClock(self.clock)
        controller, inner = super().new_controller(holder), self.target.world

        class Metrics:
            def sample(_self) -> Sample:  # noqa: N805 - the loop is `self`
                return replace(inner.metrics.sample(), at=self.wrong.now())

        world = World(inner.serving, inner.route, Metrics())
        outside = replace(controller._outside, clock=self.wrong, worlds=lambda _: world)
        return Controller(outside, holder)


def a_loop(*proposed: object) -> WrongClockLoop:
    plan = a_short_plan(max_trials=len(proposed), pace={"study_limit": timedelta(hours=6)})
    return WrongClockLoop(plan, seed=1, proposer=ScriptedProposer(*proposed), store=QuickStore())  # type: ignore[arg-type]


@pytest.mark.parametrize("jump", JUMPS, ids=str)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_clock_that_jumps_spoils_no_more_than_a_window(moment: str, jump: timedelta) -> None:
    loop = a_loop(BETTER)
    loop.run(until=MOMENTS[moment])
    loop.wrong.off_by = jump
    loop.run()
    study = check_ending(loop)
    assert study.outcome in (Outcome.PROMOTED, Outcome.KEPT, Outcome.INCONCLUSIVE, Outcome.ABORTED)
    if jump < -loop.plan.pace.look_interval and moment in ("candidate", "confirmation"):
        assert any("the clock was set back" in trial.reason or trial.voids for trial in study.trials)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_no_jump_makes_a_terrible_configuration_good(jump: timedelta) -> None:
    loop = a_loop(TERRIBLE)
    loop.run(until=at(TrialKind.CANDIDATE, TrialState.WARMING))
    loop.wrong.off_by = jump
    loop.run()
    study = check_ending(loop, over_budget_by=500)
    assert study.outcome is not Outcome.PROMOTED
    assert not any(trial.accepted for trial in trials(study, TrialKind.CANDIDATE))


def test_a_worker_whose_clock_is_set_back_ticks_on_at_once() -> None:
    loop = WrongClockLoop(a_short_plan(), seed=1, proposer=ScriptedProposer(BETTER), store=QuickStore())
    leases = MemoryLeases(loop.store, loop.clock)
    worker = Worker(loop.store, leases, loop.controller, loop.wrong)
    for _ in range(30):
        loop.clock.advance(max(worker.turn(), timedelta(milliseconds=100)))
    before = loop.store.next_sequence(loop.study_id)
    loop.wrong.off_by = timedelta(hours=-3)
    for _ in range(30):
        loop.clock.advance(max(worker.turn(), timedelta(milliseconds=100)))
    assert loop.store.next_sequence(loop.study_id) > before + 5


def test_a_lease_is_not_trusted_once_the_clock_was_set_back() -> None:
    true, store = ManualClock(), QuickStore()
    store.save_target(a_target(), a_budget(), "anna", "", true.now())
    wrong = WrongClock(true)
    mine = Tenure(MemoryLeases(store, true), wrong, "mine")
    other = Tenure(MemoryLeases(store, true), true, "other")
    assert mine.grant("vision") is not None
    true.turn(20)
    assert other.grant("vision") is not None
    wrong.off_by = timedelta(seconds=-21)
    assert mine.grant("vision") is None
