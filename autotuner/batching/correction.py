"""How far trials deviated from what was predicted for them, carried over to settings like them.

A Gaussian process on physical features of the logarithm of observed over predicted p99: one term common to all
settings and one for likeness, both scaled from the misfit that the noise of the windows does not explain (Kennedy and
O'Hagan 2001, J. R. Stat. Soc. B 63, of calibrating computer models).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from autotuner.batching.trials import Floats

PRIOR_MISFIT = 0.025
"""Standard deviation of log p99 that a prediction is assumed to be wrong by before any trial."""

PRIOR_WEIGHT = 2.0
COMMON = 0.4
"""Share of the misfit's variance that all settings have in common."""

MOST_MISFIT = 0.2
"""What a single level may say of the misfit at most: one unlucky window does not make the model useless."""

LEAST_MISFIT = 0.015


@dataclass(frozen=True)
class Correction:
    """A fitted correction: predicts mean and variance of log observed over predicted p99."""

    features: Floats
    solved: Floats
    factor: tuple[Floats, bool]
    variance: float

    def at(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance at features of shape (n, 5)."""
        if not len(self.features):
            return np.zeros(len(features)), np.full(len(features), self.variance)
        cross = _kernel(features, self.features, self.variance)
        mean = cross @ self.solved
        explained = np.einsum("ij,ji->i", cross, cho_solve(self.factor, cross.T))
        return mean, np.maximum(self.variance - explained, 0.0)


def fit(features: Floats, residuals: Floats, noise: Floats) -> Correction:
    """Return the correction from residuals (n,) at features (n, 5) with the windows' own variance `noise` (n,)."""
    excess = float(np.sum(np.clip(residuals**2 - noise, 0.0, MOST_MISFIT**2)))
    variance = (PRIOR_WEIGHT * PRIOR_MISFIT**2 + excess) / (PRIOR_WEIGHT + len(residuals))
    variance = max(variance, LEAST_MISFIT**2)
    if not len(residuals):
        return Correction(features, residuals, (np.zeros((0, 0)), True), variance)
    covariance = _kernel(features, features, variance) + np.diag(noise + 1e-6)
    factor = cho_factor(covariance, lower=True)
    return Correction(features, cho_solve(factor, residuals), factor, variance)


def _kernel(one: Floats, other: Floats, variance: float) -> Floats:
    apart = np.sum((one[:, None, :] - other[None, :, :]) ** 2, axis=2)
    return np.asarray(variance * (COMMON + (1.0 - COMMON) * np.exp(-0.5 * apart)))
