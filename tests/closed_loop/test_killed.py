"""Killed anywhere, the study goes on from its records: no trial lost or counted twice, nothing left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotuner.adapters.simulated import small_vision
from autotuner.controller import Tick
from autotuner.domain.configuration import read_configuration
from autotuner.domain.study import Outcome, Study
from autotuner.operations import replay
from autotuner.ports import World
from tests.closed_loop.loop import Loop, QuickStore, a_short_plan, proposers


class Killed(BaseException):
    """The process ends here, as by `kill -9`."""


RARE, OFTEN = 0.04, 0.4
"""Chance to die at a call: those made at every tick, and those that change the world."""


class Fuse:
    """Kills at calls chosen at random, before or after they took effect."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.killed = 0
        self.places: set[str] = set()

    def guard(self, inner: Any, *names: str, chance: float) -> Any:
        """Return `inner` with the calls `names` going through the fuse."""
        return _Guarded(inner, self, names, chance)

    def burn(self, place: str, chance: float, call: Callable[[], Any]) -> Any:
        if self._random.random() > chance:
            return call()
        self.killed += 1
        if self._random.random() < 0.5:
            call()
            place += " (after)"
        self.places.add(place)
        raise Killed(place)


class _Guarded:
    def __init__(self, inner: Any, fuse: Fuse, names: tuple[str, ...], chance: float) -> None:
        self._inner, self._fuse, self._names, self._chance = inner, fuse, names, chance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._names:
            return found
        return lambda *a, **k: self._fuse.burn(name, self._chance, lambda: found(*a, **k))


class DyingLoop(Loop):
    """A loop whose worker is killed every few calls and started again."""

    def with_fuse(self, fuse: Fuse) -> DyingLoop:
        self.fuse = fuse
        self.store_of_worker = fuse.guard(self.store, "append", "study", "wish", chance=RARE)
        inner = self.target.world
        self.world_of_worker = World(
            fuse.guard(inner.serving, "load", chance=OFTEN),
            fuse.guard(inner.route, "set_weights", chance=OFTEN),
            inner.metrics,
        )
        self.renew()
        return self

    def renew(self) -> None:
        controller = self.new_controller()
        outside = replace(
            controller._outside,
            store=self.store_of_worker,
            worlds=lambda target: self.world_of_worker,
        )
        controller._outside = outside
        controller._store = outside.store
        self.controller = controller

    def tick(self) -> Tick:
        while True:
            try:
                return super().tick()
            except Killed:
                self.renew()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_study_whose_worker_dies_all_the_time_ends_with_evidence_for_all_it_did(seed: int) -> None:
    fuse = Fuse(seed)
    loop = DyingLoop(plan=a_short_plan(max_trials=2), profile=small_vision(), seed=seed, store=QuickStore())
    loop.with_fuse(fuse)
    study = loop.run(most_ticks=20_000)
    assert fuse.killed >= 20
    assert {"append", "append (after)", "set_weights", "set_weights (after)"} <= fuse.places
    assert study.outcome in (Outcome.PROMOTED, Outcome.KEPT)
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    assert replay(loop.store, loop.study_id, proposers).differences == ()
    _ends_right(loop, study)


def _ends_right(loop: Loop, study: Study) -> None:
    assert study.incumbent is not None
    promoted = study.outcome is Outcome.PROMOTED and study.winner is not None
    wanted = study.trials[study.winner or 0].configuration if promoted else study.incumbent.configuration
    for replica in study.plan.target.replicas:
        assert read_configuration(loop.target.serving.model_config(replica.name)) == wanted
    assert dict(loop.target.route.weights()) == dict(study.incumbent.weights)


def test_a_new_worker_at_every_single_tick_changes_nothing() -> None:
    plan = a_short_plan()
    undisturbed = Loop(plan=plan, seed=5, store=QuickStore())
    undisturbed.run()
    restarted = Loop(plan=plan, seed=5, store=QuickStore())
    for _ in range(5000):
        restarted.controller = restarted.new_controller()
        if restarted.tick().ended:
            break
    ours = [(t.kind, t.configuration, t.verdict, len(t.steps)) for t in restarted.study.trials]
    theirs = [(t.kind, t.configuration, t.verdict, len(t.steps)) for t in undisturbed.study.trials]
    assert ours == theirs
    assert restarted.study.outcome is undisturbed.study.outcome
