"""Evidence that may be looked at after every request: the truncated-Beta-mixture e-process for a share of bad requests.

The verdict is asked for once a second and acted upon at once. A fixed-size test looked at that often is wrong far more
often than it says; an e-process is not. Under its null hypothesis it is a non-negative supermartingale that starts at
1, so the chance that it *ever* reaches 1/α is at most α, however often and for whatever reason one looks (Ville 1939,
Étude critique de la notion de collectif; Robbins 1970, "Statistical methods related to the law of the iterated
logarithm", Ann. Math. Statist. 41; Howard, Ramdas, McAuliffe & Sekhon 2021, "Time-uniform, nonparametric,
nonasymptotic confidence sequences", Ann. Statist. 49; as betting: Shafer 2021, "Testing by betting", JRSS A 184;
Grünwald, de Heide & Koolen 2024, "Safe testing", JRSS B 86).

For k bad of n requests and the boundary c, the likelihood ratio of share q against c is

    L(q) = (q/c)^k · ((1−q)/(1−c))^(n−k).

Each single L(q) with q < c has expectation ≤ 1 under every share ≥ c (the expectation of one factor is linear in the
true share, is 1 at c and falls from there), hence so has every mixture over q < c; likewise for q > c under every
share ≤ c. With a Beta(a, b) density truncated to one side of c the mixture has a closed form,

    E = B(a+k, b+n−k) · P_post / (B(a, b) · P_prior) / (c^k (1−c)^(n−k)),

where P_post and P_prior are the masses that Beta(a+k, b+n−k) and Beta(a, b) put on that side of c.

Counts may be fractions: over-dispersed counts are divided by φ before they come here (see `overdispersion`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats: TypeAlias = NDArray[np.float64]

BELOW_SHAPE = 1.0
BELOW_WEIGHT = 2.0
"""Bets on shares below c: Beta(1, 2/c), an exponential-like fall with mean c/2. Against c = 1 % and α = 1 % it needs
580 requests without a bad one (the best single bet, on 0, needs 459) and a median of about 1,070 at a true 0.25 %."""

ABOVE_SHAPE = 1.0
ABOVE_WEIGHT = 0.2
"""Bets on shares above c: Beta(1, 0.2/c), about 5·c beyond it on average: a small multiple of what is allowed is the
usual way of being wrong, and the first bad request alone is worth no more than a factor of about six."""

LEAST_LOG_MASS = -600.0
"""The log of the least mass that is believed: below it digits are lost, and the value comes from the edge."""

AMPLE_MASS = math.exp(LEAST_LOG_MASS + 1.0)


def log_e_below(bad: ArrayLike, total: ArrayLike, boundary: float) -> Floats:
    """Log evidence that the share of bad requests is below `boundary`; reject "share ≥ boundary" at log(1/α).

    bad, total: cumulative counts since the window's first request, any broadcastable shapes, 0 ≤ bad ≤ total.
    boundary: in (0, 1). Evidence of several disjoint windows adds up only if each stands on fresh data.
    """
    return _log_mixture(bad, total, boundary, below=True)


def log_e_above(bad: ArrayLike, total: ArrayLike, boundary: float) -> Floats:
    """Log evidence that the share of bad requests is above `boundary`; reject "share ≤ boundary" at log(1/α).

    Arguments as in `log_e_below`.
    """
    return _log_mixture(bad, total, boundary, below=False)


def _log_mixture(bad: ArrayLike, total: ArrayLike, boundary: float, *, below: bool) -> Floats:
    k = np.asarray(bad, dtype=np.float64)
    good = np.asarray(total, dtype=np.float64) - k
    bet = _bet(boundary, below)
    a, b = bet.shape + k, bet.weight + good
    mass = bet.side(a, b, boundary)
    if (
        mass.ndim == 0 and mass > AMPLE_MASS
    ):  # a verdict asks for one value, and hardly ever for one so far out
        return np.asarray(_exact(bet, (k, good), (a, b), np.log(mass)) - bet.log_prior)
    with np.errstate(divide="ignore"):  # a mass that underflows is replaced below
        log_mass = np.log(mass)
    exact = _exact(bet, (k, good), (a, b), log_mass)
    edge = _log_edge(a, b, boundary, (bet.shape, bet.weight))
    return np.asarray(np.where(log_mass > LEAST_LOG_MASS, exact, edge) - bet.log_prior)


def _exact(bet: _Bet, counts: tuple[Floats, Floats], beta: tuple[Floats, Floats], log_mass: Floats) -> Floats:
    return np.asarray(
        special.betaln(*beta) + log_mass - counts[0] * bet.log_boundary - counts[1] * bet.log_rest
    )


@dataclass(frozen=True)
class _Bet:
    """What depends on the boundary alone. side: gives the mass on the side that is bet on."""

    side: Callable[..., Floats]
    shape: float
    weight: float
    log_prior: float
    log_boundary: float
    log_rest: float


@lru_cache(maxsize=256)
def _bet(boundary: float, below: bool) -> _Bet:
    a, b = (BELOW_SHAPE, BELOW_WEIGHT / boundary) if below else (ABOVE_SHAPE, ABOVE_WEIGHT / boundary)
    side = special.betainc if below else special.betaincc
    log_prior = special.betaln(a, b) + np.log(side(a, b, boundary))
    return _Bet(side, a, b, log_prior, np.log(boundary), np.log1p(-boundary))


def _log_edge(shape: Floats, weight: Floats, boundary: float, prior: tuple[float, float]) -> Floats:
    """Log of the unnormalised mixture when the data lie so far on the other side that the mass underflows.

    The integrand then falls off exponentially from the boundary, where L = 1: it is the prior density there divided
    by the slope of the log integrand (Laplace's method at an end point).
    """
    slope = np.abs((shape - 1.0) / boundary - (weight - 1.0) / (1.0 - boundary))
    log_density = (prior[0] - 1.0) * np.log(boundary) + (prior[1] - 1.0) * np.log1p(-boundary)
    return np.asarray(log_density - np.log(np.maximum(slope, 1.0)))
