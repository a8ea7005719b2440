"""Who competes: proposers behind one small Protocol, by name, each with or without the product's safety filter."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from autotuner.batching import advisor
from autotuner.batching.trials import Advice, History, Problem, Setting
from autotuner.benchmark.history import dice_of, tried_settings
from autotuner.benchmark.safety import admissible
from autotuner.errors import InvalidInput

FILTERED = "+filter"
"""Behind a name: the contestant chooses among what the product's safety filter leaves."""


class Contestant(Protocol):
    """A proposer. Both methods are pure: the same problem and history give the same answer.

    Which trial wins in the end is not for it to say: the product chooses and confirms alike for all samplers.
    """

    def begin(self, problem: Problem) -> Advice:
        """Return how the first trial, the incumbent's, is measured."""
        ...

    def propose(self, problem: Problem, history: History) -> Advice:
        """Return the next setting to try, one of the problem's candidates, or none."""
        ...


@dataclass(frozen=True)
class Pooled:
    """A rival that picks from a pool of settings.

    pick: given the problem, the history and the pool (never empty), the setting and why, or none. filtered: whether
    the pool is what the safety filter leaves, for the first random picks too.
    """

    pick: Callable[[Problem, History, tuple[Setting, ...]], tuple[Setting | None, str]]
    filtered: bool

    def begin(self, problem: Problem) -> Advice:
        """Return the incumbent at every level."""
        return Advice(problem.incumbent, "the incumbent first")

    def propose(self, problem: Problem, history: History) -> Advice:
        """Return what is picked from the settings that have not been tried."""
        allowed = admissible(problem, history) if self.filtered else problem.candidates
        tried = tried_settings(history)
        pool = tuple(setting for setting in allowed if setting not in tried)
        if not pool:
            return Advice(None, "nothing is left to try")
        return Advice(*self.pick(problem, history, pool))


@dataclass(frozen=True)
class GreyBox:
    """The product's own proposer."""

    filtered: bool

    def begin(self, problem: Problem) -> Advice:
        """Return the incumbent at today's load: what it does above it is foreseen."""
        return advisor.advise(problem, ())

    def propose(self, problem: Problem, history: History) -> Advice:
        """Return what the grey-box model advises."""
        return advisor.advise(self._seen(problem, history), history)

    def _seen(self, problem: Problem, history: History) -> Problem:
        """The problem without what the filter excludes; what was tried stays."""
        if not self.filtered:
            return problem
        kept = {*admissible(problem, history), *tried_settings(history), problem.incumbent}
        return replace(problem, candidates=tuple(c for c in problem.candidates if c in kept))


def _random(problem: Problem, history: History, pool: tuple[Setting, ...]) -> tuple[Setting, str]:
    return pool[int(dice_of(problem, history).integers(len(pool)))], "drawn at random"


@dataclass(frozen=True)
class Entry:
    """A name that may be asked for. make: given whether it is filtered. needs: modules it cannot do without."""

    make: Callable[[bool], Contestant]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """The first of its modules that is not installed; empty when all are."""
        return next((name for name in self.needs if importlib.util.find_spec(name) is None), "")


def _pooled(module: str, name: str) -> Callable[[bool], Contestant]:
    def make(filtered: bool) -> Contestant:
        return Pooled(getattr(importlib.import_module(module), name), filtered)

    return make


ENTRIES: Mapping[str, Entry] = {
    "grey-box": Entry(GreyBox),
    "tpe": Entry(_pooled("autotuner.benchmark.optuna_rivals", "tpe"), ("optuna",)),
    "gp": Entry(_pooled("autotuner.benchmark.optuna_rivals", "gp"), ("optuna", "torch")),
    "gp-ei": Entry(_pooled("autotuner.benchmark.gaussian_rival", "constrained_improvement"), ("sklearn",)),
    "hill-climb": Entry(_pooled("autotuner.benchmark.climbing_rival", "climb")),
    "random": Entry(lambda filtered: Pooled(_random, filtered)),
}
"""Who may compete. The rivals' modules are imported when they are asked for: their libraries are large."""


def names() -> tuple[str, ...]:
    """Return every name, each plain and filtered."""
    return tuple(f"{name}{suffix}" for name in ENTRIES for suffix in ("", FILTERED))


def missing(name: str) -> str:
    """Return the module that a contestant lacks here, empty when it can compete. Raises InvalidInput."""
    return _entry(name).missing


def contestant(name: str) -> Contestant:
    """Return the contestant of a name. Raises InvalidInput for a name that is not known or lacks a module here."""
    entry = _entry(name)
    if entry.missing:
        raise InvalidInput("--samplers", name, f"{name} only where {entry.missing} is installed")
    return entry.make(name.endswith(FILTERED))


def _entry(name: str) -> Entry:
    entry = ENTRIES.get(name.removesuffix(FILTERED))
    if entry is None:
        raise InvalidInput(
            "--samplers", name, f"any of {', '.join(ENTRIES)}, each with {FILTERED} behind it or not"
        )
    return entry
