"""Optuna's stock samplers as contestants: rebuilt from the history at each proposal, as the product does it."""

from __future__ import annotations

from collections.abc import Callable

import optuna
from optuna.distributions import IntDistribution

from autotuner.batching.trials import History, Problem, Setting
from autotuner.benchmark.history import Axes, dice_of, value, violation

START_UPS = 5
"""Trials before the sampler trusts its model; the incumbent is one of them."""

MAX_ASKS = 8
"""Suggestions asked for before the nearest setting of the pool is taken."""

_CONSTRAINT = "log_bad_share_over_allowed"

Pool = tuple[Setting, ...]

optuna.logging.set_verbosity(optuna.logging.ERROR)


def tpe(problem: Problem, history: History, pool: Pool) -> tuple[Setting, str]:
    """Return what the tree-structured Parzen estimator suggests."""
    return _suggested(
        problem, history, pool, lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=START_UPS)
    )


def gp(problem: Problem, history: History, pool: Pool) -> tuple[Setting, str]:
    """Return what Optuna's Gaussian process suggests; needs torch."""
    return _suggested(
        problem, history, pool, lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=START_UPS)
    )


def _suggested(
    problem: Problem, history: History, pool: Pool, sampler: Callable[[int], optuna.samplers.BaseSampler]
) -> tuple[Setting, str]:
    """The first suggestion that is in the pool, else the setting of the pool nearest to the first suggestion."""
    axes = Axes.of(problem)
    seed = int(dice_of(problem, history).integers(2**32))
    distributions = {name: IntDistribution(0, length - 1) for name, length in axes.lengths.items()}
    study = optuna.create_study(sampler=sampler(seed), direction="maximize")
    for tried in history:
        study.add_trial(
            optuna.trial.create_trial(
                value=value(problem, tried),
                params=axes.point(tried.setting),
                distributions=dict(distributions),
                constraints={_CONSTRAINT: violation(tried)},
            )
        )
    points = {setting: axes.point(setting) for setting in pool}
    by_point = {tuple(point.values()): setting for setting, point in points.items()}
    asked: list[dict[str, int]] = []
    for _ in range(MAX_ASKS):
        suggested = study.ask(dict(distributions)).params
        asked.append({name: int(suggested[name]) for name in axes.lengths})
        found = by_point.get(tuple(asked[-1].values()))
        if found is not None:
            return found, f"suggested after {len(history)} trials"
    nearest = min(pool, key=lambda setting: (axes.distance(points[setting], asked[0]), setting))
    return nearest, f"the nearest to what was suggested {MAX_ASKS} times in vain"
