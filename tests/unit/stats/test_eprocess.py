"""The evidence: its closed form, the martingale behind it, and that more bad requests never speak for a canary."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from autotuner.stats import eprocess
from autotuner.stats.eprocess import log_e_above, log_e_below

BOUNDARY = 0.01


def _integrated(bad: float, total: float, *, below: bool) -> float:
    shape, weight = (
        (eprocess.BELOW_SHAPE, eprocess.BELOW_WEIGHT)
        if below
        else (eprocess.ABOVE_SHAPE, eprocess.ABOVE_WEIGHT)
    )
    prior = stats.beta(shape, weight / BOUNDARY)
    low, high = (0.0, BOUNDARY) if below else (BOUNDARY, 1.0)

    def weighed(share: float) -> float:
        good = total - bad
        ratio = bad * math.log(share / BOUNDARY) + good * (math.log1p(-share) - math.log1p(-BOUNDARY))
        return math.exp(ratio) * float(prior.pdf(share))

    points = [p for p in (0.012, 0.02, 0.03, 0.05, 0.1, 0.3) if low < p < high] or None
    area, _ = integrate.quad(weighed, low, high, points=points, limit=400, epsabs=0, epsrel=1e-10)
    return math.log(area / float(prior.cdf(high) - prior.cdf(low)))


@pytest.mark.parametrize(
    ("bad", "total"), [(0, 1), (1, 1), (0, 580), (3, 1000), (14, 512), (2.5, 300.25), (40, 40)]
)
def test_the_closed_form_equals_the_integral(bad: float, total: float) -> None:
    assert float(log_e_below(bad, total, BOUNDARY)) == pytest.approx(
        _integrated(bad, total, below=True), abs=1e-6
    )
    assert float(log_e_above(bad, total, BOUNDARY)) == pytest.approx(
        _integrated(bad, total, below=False), abs=1e-6
    )


@pytest.mark.parametrize("share", [BOUNDARY, 0.02, 0.2])
def test_evidence_for_below_gains_nothing_in_expectation_when_the_share_is_not_below(share: float) -> None:
    for total in range(8):
        for bad in range(total + 1):
            now = math.exp(float(log_e_below(bad, total, BOUNDARY)))
            then = share * math.exp(float(log_e_below(bad + 1, total + 1, BOUNDARY)))
            then += (1 - share) * math.exp(float(log_e_below(bad, total + 1, BOUNDARY)))
            assert then <= now * (1 + 1e-9)
            if share == BOUNDARY:
                assert then == pytest.approx(now, rel=1e-9)


@pytest.mark.parametrize("share", [BOUNDARY, 0.005, 0.0])
def test_evidence_for_above_has_expectation_of_at_most_one_when_the_share_is_not_above(share: float) -> None:
    for total in (1, 5, 12):
        expected = sum(
            float(stats.binom.pmf(bad, total, share)) * math.exp(float(log_e_above(bad, total, BOUNDARY)))
            for bad in range(total + 1)
        )
        assert expected <= 1 + 1e-9
        if share == BOUNDARY:
            assert expected == pytest.approx(1.0)


def test_no_request_is_no_evidence() -> None:
    assert float(log_e_below(0, 0, BOUNDARY)) == pytest.approx(0.0, abs=1e-12)
    assert float(log_e_above(0, 0, BOUNDARY)) == pytest.approx(0.0, abs=1e-12)


def test_requests_without_a_bad_one_needed_to_accept() -> None:
    needed = [int(np.argmax(log_e_below(0, np.arange(3000), BOUNDARY) >= -math.log(a))) for a in (0.01, 0.10)]
    assert needed == [580, 309]


@given(total=st.integers(1, 5000), bad=st.integers(0, 200))
def test_one_more_bad_request_never_speaks_for_the_canary(total: int, bad: int) -> None:
    bad = min(bad, total - 1)
    assert float(log_e_below(bad + 1, total, BOUNDARY)) < float(log_e_below(bad, total, BOUNDARY))
    assert float(log_e_above(bad + 1, total, BOUNDARY)) > float(log_e_above(bad, total, BOUNDARY))


@given(
    total=st.integers(0, 1_000_000),
    share=st.floats(0, 1),
    boundary=st.sampled_from([0.0001, 0.001, 0.01, 0.05]),
)
def test_evidence_is_a_finite_number_for_any_counts(total: int, share: float, boundary: float) -> None:
    bad = round(total * share)
    assert math.isfinite(float(log_e_below(bad, total, boundary)))
    assert math.isfinite(float(log_e_above(bad, total, boundary)))


def test_evidence_stays_smooth_where_the_mass_underflows() -> None:
    bad = np.arange(150, 400, 5)
    steps = np.diff(log_e_below(bad, 400, BOUNDARY))
    assert np.all(steps < 0)
    assert all(abs(b - a) < 0.05 for a, b in pairwise(steps.tolist()))


@pytest.mark.parametrize("log_e", [log_e_below, log_e_above])
@pytest.mark.parametrize("boundary", [0.001, BOUNDARY, 0.5])
def test_one_value_is_to_the_last_digit_what_it_is_among_many(
    log_e: Callable[..., eprocess.Floats], boundary: float
) -> None:
    totals = np.array([0, 1, 12, 512, 1000.5, 60_000, 1e6])
    bads = np.array([0, 1, 0.75, 14, 3, 59_999, 1e6])

    many = log_e(bads, totals, boundary)

    assert [
        float(log_e(bad, total, boundary)) for bad, total in zip(bads, totals, strict=True)
    ] == many.tolist()
