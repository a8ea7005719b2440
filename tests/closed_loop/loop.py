"""A whole loop in memory: the real controller on a simulated target, with a clock that only the test turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.memory_store import MemoryLeases, MemoryStore
from autotuner.adapters.optuna_proposer import OptunaProposer
from autotuner.adapters.simulated import SimulatedProfile, SimulatedWorld, small_vision
from autotuner.bookkeeping.rules import check_grant, check_not_overtaken, check_sequence
from autotuner.controller import Controller, Outside, Pools, Tick
from autotuner.domain.configuration import Configuration
from autotuner.domain.study import Proposal, SearchOver, Study, StudyPlan, TrialKind
from autotuner.domain.target import Target
from autotuner.operations import register_target, start_study
from autotuner.ports import Grant, JournalEntry, Proposer, World
from tests.builders import START, a_budget, a_pace, a_plan


class QuickStore(MemoryStore):
    """The store in memory without the round trip through JSON text: tests of the loop look at other things.

    What survives being stored is checked by the contract suite and by the studies that keep to `MemoryStore`.
    """

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome under the same rules, keeping the very objects."""
        row = self.memory.studies[after.id]
        name = row.study.plan.target.name
        lease = self.memory.leases[name]
        check_grant(grant, name, lease.holder, lease.token)
        check_sequence(after.id, row.sequence, entry.sequence)
        check_not_overtaken(before, after, entry, row.wish)
        row.study, row.sequence = after, entry.sequence
        row.journal.append(entry)


class ScriptedProposer:
    """Proposes the given configurations one after another, and then nothing."""

    def __init__(self, *configurations: Configuration) -> None:
        self._configurations = configurations

    def propose(self, study: Study) -> Proposal | SearchOver:
        """Return the configuration that follows those already tried."""
        tried = len([trial for trial in study.trials if trial.kind is TrialKind.CANDIDATE])
        if tried >= len(self._configurations):
            return SearchOver("the test has no more")
        return Proposal(self._configurations[tried], "the test says so", "scripted")


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


def a_short_plan(**changes: Any) -> StudyPlan:
    """One trial on three levels, under little dispersion: a whole study in two minutes of simulated time."""
    slo = a_budget(harm_budget_requests=3000, max_canary_share=0.75)
    pace = changes.pop("pace", {})
    fields: dict[str, Any] = {
        "slo": slo,
        "pace": replace(
            a_brisk_plan().pace,
            **{
                "production_window": timedelta(seconds=8),
                "step_limit": timedelta(seconds=20),
                "bake": timedelta(seconds=8),
                "load_limit": timedelta(seconds=10),
                "stage_limit": timedelta(seconds=20),
                "study_limit": timedelta(minutes=20),
                **pace,
            },
        ),
        "max_trials": 1,
        "max_dispersion": 2.0,
        "ramp_steps": 3,
    }
    return a_brisk_plan(**{**fields, **changes})


def proposers(plan: StudyPlan) -> Proposer:
    """The shipped proposer for a plan."""
    return OptunaProposer(plan.sampler)


@dataclass
class Loop:
    """One study on one simulated target."""

    plan: StudyPlan = field(default_factory=a_brisk_plan)
    profile: SimulatedProfile = field(default_factory=small_vision)
    seed: int = 1
    proposer: Proposer | None = None
    """What proposes in place of the shipped proposer."""
    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.clock = ManualClock(START)
        self.leases = MemoryLeases(self.store, self.clock)
        self.target = SimulatedWorld(self.simulated_target(), self.clock, self.profile, self.seed)
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
            worlds=lambda target: self.world(),
            proposers=self.proposers,
            pools=Pools.all_in(self.target.background),
        )
        return Controller(outside, holder)

    def simulated_target(self) -> Target:
        """The target as it is simulated."""
        return self.plan.target

    def world(self) -> World:
        """The doors that the controller goes through."""
        return self.target.world

    def proposers(self, plan: StudyPlan) -> Proposer:
        """The proposer of this loop."""
        return self.proposer or proposers(plan)

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
