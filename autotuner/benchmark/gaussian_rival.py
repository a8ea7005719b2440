"""A textbook rival: two Gaussian processes and the expected improvement, weighted by the chance of being feasible.

After Gardner et al. 2014, "Bayesian optimization with inequality constraints" (ICML). It knows nothing of batching.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from autotuner.batching.trials import History, Problem, Setting
from autotuner.benchmark.history import dice_of, held, value

Floats = NDArray[np.float64]

START_UPS = 5
"""Trials drawn at random before the model is asked; the incumbent is one of them."""

_WORST = math.log(4.0)
"""A p99 further above the ceiling than four times tells the constraint's model no more than that."""


def constrained_improvement(
    problem: Problem, history: History, pool: tuple[Setting, ...]
) -> tuple[Setting, str]:
    """Return the setting with the largest expected improvement times the chance that its p99 is below the ceiling."""
    dice = dice_of(problem, history)
    if len(history) < START_UPS:
        return pool[int(dice.integers(len(pool)))], "start-up: drawn at random"
    seed = int(dice.integers(2**31))
    seen = _features(problem, tuple(tried.setting for tried in history))
    worth = np.log([max(value(problem, tried), 1e-9) for tried in history])
    over = np.array([_log_ratio(problem, history, index) for index in range(len(history))])
    asked = _features(problem, pool)
    mean, spread = _posterior(seen, worth, asked, seed)
    tail, tail_spread = _posterior(seen, over, asked, seed)
    feasible = norm.cdf(-tail / tail_spread)
    accepted = [w for w, tried in zip(worth, history, strict=True) if held(tried)]
    score = feasible
    if accepted:
        z = (mean - max(accepted)) / spread
        score = feasible * spread * (z * norm.cdf(z) + norm.pdf(z))
    best = int(np.argmax(score))
    return pool[best], f"largest expected improvement; feasible with probability {feasible[best]:.2f}"


def _log_ratio(problem: Problem, history: History, index: int) -> float:
    """Log of the measured p99 over the ceiling at the lowest level; the worst where nothing ended."""
    p99 = history[index].levels[0].p99_seconds
    return _WORST if p99 is None else min(_WORST, math.log(p99 / problem.ceiling_seconds))


def _features(problem: Problem, settings: tuple[Setting, ...]) -> Floats:
    """Delay over the ceiling, log2 of the cap and of the smallest preferred size, instances: each 0 to about 1."""
    most = problem.incumbent.max_batch_size
    instances = max(candidate.instances for candidate in problem.candidates)
    rows = [
        (
            setting.delay_seconds / problem.ceiling_seconds,
            math.log2(setting.cap) / math.log2(most),
            math.log2(min(setting.preferred, default=most)) / math.log2(most),
            setting.instances / instances,
        )
        for setting in settings
    ]
    return np.array(rows, dtype=np.float64)


def _posterior(seen: Floats, values: Floats, asked: Floats, seed: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation at the asked points."""
    kernel = ConstantKernel(1.0) * Matern(np.full(seen.shape[1], 0.5), (0.05, 10.0), nu=2.5)
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(1e-2, (1e-5, 0.3)), normalize_y=True, n_restarts_optimizer=2, random_state=seed
    )
    with warnings.catch_warnings():
        # With a handful of points a length scale often ends at its bound: that is an answer, not a fault.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(seen, values)
    mean, spread = process.predict(asked, return_std=True)
    return np.asarray(mean, dtype=np.float64), np.maximum(np.asarray(spread, dtype=np.float64), 1e-9)
