"""The proposer: asks the sampler that a plan names, behind one safety filter.

The Optuna study is rebuilt in memory from the study's own trials at every ask, and the seed comes from the records
too: the records alone make the proposal, on any machine. Every suggestion, of whichever sampler, start-ups
included, passes the filter of `domain.space`.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import optuna

from autotuner.adapters.optuna_proposer.axes import Axes
from autotuner.adapters.optuna_proposer.told import searched, value, violation
from autotuner.domain.configuration import Configuration
from autotuner.domain.space import Examination, examine, why_done
from autotuner.domain.study import GREYBOX, Proposal, SearchOver, Study
from autotuner.errors import InvalidInput

if TYPE_CHECKING:
    from autotuner.adapters.optuna_proposer.greybox import GreyBoxSampler

FIRST_SAMPLED_TRIAL = 4
"""Trials on record before TPE or GP trust their model: the incumbent and up to three informative starts."""

MAX_ASKS = 8
"""Suggestions asked for before the nearest admissible candidate is taken instead."""

START_UP = "start-up"

_CONSTRAINT = "log_bad_share_over_allowed"
_SAMPLERS: Mapping[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST_SAMPLED_TRIAL),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=FIRST_SAMPLED_TRIAL),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


SAMPLERS = (GREYBOX, *_SAMPLERS)
"""Every sampler by name."""


class OptunaProposer:
    """The Proposer port over our own sampler `greybox` and Optuna's `tpe`, `gp` and `random`.

    sampler: its name; None takes the one each study's plan names. Raises InvalidInput for an unknown name, and
    for `gp` where torch is not installed: at once when given here, else at the first proposal.
    """

    def __init__(self, sampler: str | None = None) -> None:
        if sampler is not None:
            _check_sampler(sampler)
        self._sampler = sampler
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def propose(self, study: Study) -> Proposal | SearchOver:
        """Return the next configuration to try, or why nothing is worth a trial.

        Raises InvalidInput as the constructor does, and for a study that has not read its incumbent.
        """
        name = self._sampler or study.plan.sampler
        _check_sampler(name)
        examination = examine(study)
        over = why_done(study, examination)
        if over:
            return SearchOver(over)
        if name == GREYBOX:
            return _advised(study, examination)
        start = _start(study, examination)
        if start is not None:
            configuration, why = start
            return Proposal(configuration, f"{why}; {_remaining(examination)}", START_UP)
        configuration, why = _ask(study, examination, name)
        return Proposal(configuration, f"{why}; {_remaining(examination)}", name)


def _remaining(examination: Examination) -> str:
    return (
        f"{len(examination.admissible)} of {len(examination.space.candidates)} candidates remain "
        f"({examination.exclusions.describe()})"
    )


def _check_sampler(name: str) -> None:
    if name not in SAMPLERS:
        raise InvalidInput("sampler", name, f"one of {', '.join(SAMPLERS)}")
    if name == "gp" and importlib.util.find_spec("torch") is None:
        raise InvalidInput(
            "sampler", name, "gp only where torch is installed: pip install 'autotuner[gp]'; else greybox"
        )


def seed_of(study: Study) -> int:
    """Return the sampler's seed, 0 to 2**32 - 1: a digest of study id, plan seed and number of trials."""
    text = f"{study.id}\n{study.plan.seed}\n{len(study.trials)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


# ---- the grey-box sampler


def _advised(study: Study, examination: Examination) -> Proposal | SearchOver:
    """What the model of the batcher advises; where that is nothing new and admissible the search is over."""
    sampler = _greybox(study, examination)
    advice, configuration = sampler.advice, sampler.configuration
    if configuration not in set(examination.admissible):
        return SearchOver(advice.reason)
    axes = Axes.of(examination.space)
    rebuilt = _rebuild(study, axes, set(examination.space.candidates), sampler)
    asked = dict(rebuilt.ask(axes.distributions()).params)
    chosen = next(c for c in examination.admissible if axes.point(c) == asked)
    why = f"{advice.reason}; {_remaining(examination)}"
    return Proposal(chosen, why, GREYBOX, sampler.predicted, sampler.limit)


def _greybox(study: Study, examination: Examination) -> GreyBoxSampler:
    from autotuner.adapters.optuna_proposer.greybox import GreyBoxSampler  # noqa: PLC0415 - a second of importing

    return GreyBoxSampler(study, examination, seed_of(study))


# ---- informative starts


def _start(study: Study, examination: Examination) -> tuple[Configuration, str] | None:
    """The next start that is admissible, has not been tried and is not made pointless by the one before it."""
    if len(searched(study)) >= FIRST_SAMPLED_TRIAL:
        return None
    admissible, results = set(examination.admissible), {t.configuration: t for t in searched(study)}
    incumbent = examination.incumbent
    for configuration, why in _starts(incumbent):
        if configuration in admissible:
            return configuration, why
        tried = results.get(configuration)
        more = configuration.instance_count > incumbent.instance_count
        if more and tried is not None and (violation(tried) or 0.0) > 0.0:
            return None
    return None


def _starts(incumbent: Configuration) -> Iterable[tuple[Configuration, str]]:
    bare, count = replace(incumbent, preferred_batch_size=()), incumbent.instance_count
    yield bare, "start-up: the incumbent without preferred sizes shows what they cost as a cap on the batch"
    yield (
        replace(bare, instance_count=count + 1),
        "start-up: one more instance, no preferred sizes: shows how instances interfere",
    )
    yield (
        replace(bare, instance_count=count + 2),
        "start-up: two more instances, no preferred sizes: shows whether the gain goes on",
    )


def _ask(study: Study, examination: Examination, name: str) -> tuple[Configuration, str]:
    """The sampler's first admissible suggestion, else the admissible candidate nearest to what it wanted first."""
    axes = Axes.of(examination.space)
    rebuilt = _rebuild(study, axes, set(examination.space.candidates), _SAMPLERS[name](seed_of(study)))
    points = {candidate: axes.point(candidate) for candidate in examination.admissible}
    by_point = {tuple(sorted(point.items())): candidate for candidate, point in points.items()}
    told, first = len(rebuilt.trials), dict[str, int]()
    for _ in range(MAX_ASKS):
        wanted = dict(rebuilt.ask(axes.distributions()).params)
        first = first or wanted
        found = by_point.get(tuple(sorted(wanted.items())))
        if found is not None:
            return found, f"{name} suggests it from {told} measured trials"
    nearest = min(examination.admissible, key=lambda c: (axes.distance(points[c], first), c.complexity(), c))
    return nearest, f"the admissible candidate nearest to what {name} suggested {MAX_ASKS} times in vain"


def _rebuild(
    study: Study, axes: Axes, known: set[Configuration], sampler: optuna.samplers.BaseSampler
) -> optuna.Study:
    """An in-memory Optuna study that holds every trial that measured something, aborted ones included."""
    rebuilt = optuna.create_study(sampler=sampler, direction="maximize")
    for trial in searched(study):
        constraint = violation(trial)
        if constraint is None or trial.configuration not in known:
            continue
        rebuilt.add_trial(
            optuna.trial.create_trial(
                value=value(study, trial),
                params=axes.point(trial.configuration),
                distributions=axes.distributions(),
                constraints={_CONSTRAINT: constraint},
            )
        )
    return rebuilt
