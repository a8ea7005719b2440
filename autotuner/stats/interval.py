"""The interval shown beside every verdict; it holds at every look, like the verdict itself.

An ordinary 95 % interval recomputed each second and read when it looks decisive misses the truth far more often than
once in twenty. A confidence sequence does not: it is the set of shares that a mixture martingale has not refuted
(Robbins 1970; Howard, Ramdas, McAuliffe & Sekhon 2021). It is somewhat wider, which is the price of looking.
"""

from __future__ import annotations

import math

from scipy import special

SHAPE = 0.5
WEIGHT = 20.0
"""The mixture is Beta(½, 20): most informative for shares of a few per cent and below, valid for all."""


def anytime_interval(bad: float, total: float, miscoverage: float = 0.05) -> tuple[float, float]:
    """Lower and upper limit of the share of bad requests; all intervals of one window cover it together.

    bad, total: counts, already divided by the over-dispersion factor; without requests the answer is (0, 1).
    miscoverage: chance that any interval of the sequence misses the true share.
    """
    if total <= 0:
        return 0.0, 1.0
    from scipy import optimize  # noqa: PLC0415 - a third of a second of importing that only judging needs

    level = (
        special.betaln(SHAPE + bad, WEIGHT + total - bad)
        - special.betaln(SHAPE, WEIGHT)
        + math.log(miscoverage)
    )
    estimate = bad / total

    def surprise(share: float) -> float:
        """Positive where the martingale has not refuted `share`."""
        return float(special.xlogy(bad, share) + special.xlog1py(total - bad, -share) - level)

    low = 0.0 if surprise(0.0) >= 0 else float(optimize.brentq(surprise, 0.0, estimate, xtol=1e-12))
    high = 1.0 if surprise(1.0) >= 0 else float(optimize.brentq(surprise, estimate, 1.0, xtol=1e-12))
    return low, high
