"""The interval beside a verdict: it contains the estimate, narrows, and covers at every look together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.stats.interval import anytime_interval


def test_without_requests_everything_is_possible() -> None:
    assert anytime_interval(0, 0) == (0.0, 1.0)


@given(total=st.integers(1, 100_000), share=st.floats(0, 1))
def test_the_interval_contains_the_estimate(total: int, share: float) -> None:
    bad = round(total * share)
    low, high = anytime_interval(bad, total)
    assert 0.0 <= low <= bad / total <= high <= 1.0


def test_more_requests_narrow_the_interval() -> None:
    widths = [high - low for low, high in (anytime_interval(n // 50, n) for n in (100, 1000, 10_000))]
    assert widths == sorted(widths, reverse=True)


def test_it_is_wider_than_the_interval_for_a_single_look() -> None:
    low, high = anytime_interval(14, 512)
    assert low < 0.0150  # Clopper and Pearson: 1.50 % to 4.54 %
    assert 0.0454 < high < 0.07


def test_all_looks_together_miss_the_truth_in_at_most_one_window_of_twenty() -> None:
    rng = np.random.default_rng(6)
    missed = 0
    for _ in range(300):
        bad = rng.binomial(50, 0.01, 40).cumsum()
        limits = [anytime_interval(int(b), 50 * (i + 1)) for i, b in enumerate(bad)]
        missed += any(not low <= 0.01 <= high for low, high in limits)
    assert missed / 300 == pytest.approx(0.025, abs=0.025)
