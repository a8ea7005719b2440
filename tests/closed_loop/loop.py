"""A whole loop in memory: the real controller on a simulated target, with a clock that only the test turns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.memory_store import MemoryLeases, MemoryStore
from autotuner.adapters.optuna_proposer import OptunaProposer
from autotuner.adapters.simulated import SimulatedProfile, SimulatedWorld, small_vision
from autotuner.controller import Controller, Outside, Tick
from autotuner.domain.study import Study, StudyPlan
from autotuner.operations import register_target, start_study
from autotuner.ports import Proposer
from tests.builders import START, a_budget, a_pace, a_plan


class InlineExecutor(Executor):
    """Runs what it is given at once, so that a test is the same every time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` now and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a future carries whatever was raised
            future.set_exception(error)
        return future


def a_brisk_plan(**changes: Any) -> StudyPlan:
    """A plan that ends within minutes of simulated time."""
    fields: dict[str, Any] = {
        "slo": a_budget(harm_budget_requests=3000),
        "pace": a_pace(
            warm_up=timedelta(seconds=3),
            settle=timedelta(seconds=1),
            step_minimum=timedelta(seconds=3),
            production_window=timedelta(seconds=12),
            step_limit=timedelta(seconds=60),
            no_data_limit=timedelta(seconds=5),
            load_limit=timedelta(seconds=20),
            stage_limit=timedelta(seconds=60),
            bake=timedelta(seconds=20),
            restore_limit=timedelta(seconds=60),
        ),
        "max_trials": 4,
        "max_dispersion": 6.0,
        "ramp_steps": 5,
    }
    return a_plan(**{**fields, **changes})


def proposers(plan: StudyPlan) -> Proposer:
    """The shipped proposer for a plan."""
    return OptunaProposer(plan.sampler)


@dataclass
class Loop:
    """One study on one simulated target."""

    plan: StudyPlan = field(default_factory=a_brisk_plan)
    profile: SimulatedProfile = field(default_factory=small_vision)
    seed: int = 1

    def __post_init__(self) -> None:
        self.clock = ManualClock(START)
        self.store = MemoryStore()
        self.leases = MemoryLeases(self.store, self.clock)
        self.target = SimulatedWorld(self.plan.target, self.clock, self.profile, self.seed)
        self.said: list[str] = []
        self.controller = self.new_controller()
        self.clock.advance(timedelta(seconds=5))
        register_target(self.store, self.clock, self.plan.target, self.plan.slo, "tester", "")
        self.study_id = start_study(self.store, self.clock, self.plan, "tester").id

    def new_controller(self, holder: str = "worker-1") -> Controller:
        """Return a controller that knows nothing: what a restarted worker is."""
        outside = Outside(
            store=self.store,
            leases=self.leases,
            clock=self.clock,
            worlds=lambda target: self.target.world,
            proposers=proposers,
            background=InlineExecutor(),
        )
        return Controller(outside, holder)

    @property
    def study(self) -> Study:
        """The study as stored."""
        return self.store.study(self.study_id)

    def tick(self) -> Tick:
        """Carry the study one step forward and turn the clock to its next look."""
        tick = self.controller.tick(self.study_id, self.plan.target.name)
        if not self.said or self.said[-1] != tick.reason:
            self.said.append(tick.reason)
        self.clock.advance(max(tick.look_after, timedelta(milliseconds=20)))
        return tick

    def run(self, most_ticks: int = 5000, until: Callable[[Study], bool] = lambda study: False) -> Study:
        """Tick until the study ends or `until` holds; fails when it does neither."""
        for _ in range(most_ticks):
            if self.tick().ended or until(self.study):
                return self.study
        raise AssertionError(f"the study did not end in {most_ticks} ticks; last: {self.said[-5:]}")
