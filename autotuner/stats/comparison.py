"""Whose fault it is: the environment moved, or the canary alone is bad.

A slow disk, a noisy neighbour or a burst hits the stable replicas too, and whoever looks at the canary alone blames
the configuration. Two explanations of the same window are weighed against each other, as a Bayes factor of
beta-binomial likelihoods (Kass & Raftery 1995, "Bayes factors", JASA 90):

- *shared*: canary and control have one and the same share of bad requests, raised above what is allowed;
- *canary alone*: the canary's share is raised, the control's is what its own baseline says.

A ratio of likelihoods weighs by shares on its own: a canary with 85 % of the requests is expected to have 85 % of the
bad ones if the cause is shared, and a control with few requests says little until it has had enough. The ratio is an
e-value both ways: when one explanation is true, the other ever reaching odds of x has a chance of at most 1/x
(Grünwald, de Heide & Koolen 2024). Between the two limits one keeps looking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

BASELINE_SHAPE = 0.5
BASELINE_MEAN = 0.5
"""Before its baseline is known the control is taken to be at half of what is allowed, with the weight of half a bad
request: Beta(½, 1/allowed − ½)."""

BASELINE_LIMIT_REQUESTS = 2000.0
"""A baseline never counts as more (effective) requests than this: the stable replicas may wander a little within a
study without the environment being said to have moved."""

RAISED_SHAPE = 0.1
RAISED_WEIGHT = 1.0
"""What "raised" means: Beta(0.1, 1) above the allowed share, nearly uniform in the logarithm of the share from there to
1: a shared cause may be a hiccup or an outage, and neither must be a surprise."""


@dataclass(frozen=True)
class Share:
    """Bad requests out of all; real numbers, because over-dispersed counts are divided by φ."""

    bad: float
    total: float

    def scaled(self, dispersion: float) -> Share:
        """The counts as independent requests would have given them."""
        return Share(self.bad / dispersion, self.total / dispersion)

    def limited(self, requests: float) -> Share:
        """The same share on at most `requests` requests."""
        return self if self.total <= requests else Share(self.bad * requests / self.total, requests)


def log_odds_shared(candidate: Share, control: Share, baseline: Share, allowed: float) -> float:
    """Log Bayes factor of *shared* against *canary alone*; positive speaks for the environment.

    candidate, control: the same window; baseline: the control in its own baseline window; all divided by φ already.
    allowed: allowed share of bad requests, in (0, 1).
    """
    known = baseline.limited(BASELINE_LIMIT_REQUESTS)
    shape = BASELINE_SHAPE + known.bad
    weight = BASELINE_SHAPE / (BASELINE_MEAN * allowed) - BASELINE_SHAPE + known.total - known.bad
    both = Share(candidate.bad + control.bad, candidate.total + control.total)
    healthy = special.betaln(shape + control.bad, weight + control.total - control.bad) - special.betaln(
        shape, weight
    )
    return _log_raised(both, allowed) - _log_raised(candidate, allowed) - float(healthy)


def _log_raised(share: Share, allowed: float) -> float:
    """Log likelihood of the counts when the share is raised, up to the same constant for all counts."""
    shape, weight = RAISED_SHAPE + share.bad, RAISED_WEIGHT + share.total - share.bad
    mass = float(special.betaincc(shape, weight, allowed))
    return float(special.betaln(shape, weight)) + math.log(max(mass, 1e-300))
