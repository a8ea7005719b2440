"""Blame: by shares, with patience while the control is small."""

from __future__ import annotations

import pytest

from autotuner.stats.comparison import Share, log_odds_shared

ALLOWED = 0.01
HEALTHY = Share(10, 5000)


def test_a_healthy_control_beside_a_bad_canary_speaks_against_a_shared_cause() -> None:
    assert log_odds_shared(Share(14, 512), Share(1, 498), HEALTHY, ALLOWED) < -4


def test_a_control_as_bad_as_the_canary_speaks_for_a_shared_cause() -> None:
    assert log_odds_shared(Share(14, 512), Share(14, 498), HEALTHY, ALLOWED) > 4


def test_a_canary_far_worse_than_a_slightly_moved_control_is_not_excused() -> None:
    assert log_odds_shared(Share(150, 500), Share(8, 500), HEALTHY, ALLOWED) < -20


def test_a_control_that_was_always_as_bad_does_not_excuse_a_canary() -> None:
    always = log_odds_shared(Share(60, 500), Share(8, 500), Share(80, 5000), ALLOWED)
    moved = log_odds_shared(Share(60, 500), Share(8, 500), HEALTHY, ALLOWED)
    assert always < moved
    assert always < -4


def test_a_control_without_requests_decides_nothing() -> None:
    assert log_odds_shared(Share(14, 512), Share(0, 0), HEALTHY, ALLOWED) == pytest.approx(0.0, abs=1e-9)


def test_more_bad_requests_of_the_control_always_speak_more_for_a_shared_cause() -> None:
    odds = [log_odds_shared(Share(30, 1000), Share(bad, 1000), HEALTHY, ALLOWED) for bad in range(31)]
    assert odds == sorted(odds)


@pytest.mark.parametrize("factor", [2.0, 5.0])
def test_over_dispersed_counts_decide_less(factor: float) -> None:
    canary, control = Share(20, 500), Share(0, 500)
    plain = log_odds_shared(canary, control, HEALTHY, ALLOWED)
    scaled = [one.scaled(factor) for one in (canary, control, HEALTHY)]
    divided = log_odds_shared(scaled[0], scaled[1], scaled[2], ALLOWED)
    assert plain < divided < 0
