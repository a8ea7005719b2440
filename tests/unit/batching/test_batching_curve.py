"""The batch curve that is fitted to realised batch times, and the correction that trials make to predictions."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.batching.correction import LEAST_MISFIT, PRIOR_MISFIT, fit
from autotuner.batching.curve import Points, fit_curve
from autotuner.batching.trials import Floats

SIZES = np.arange(1.0, 33.0)


def points(seconds: Floats, sizes: Floats = SIZES, executions: float = 200.0, noise: float = 0.0) -> Points:
    rng = np.random.default_rng(3)
    return Points(
        sizes, seconds * np.exp(noise * rng.standard_normal(len(sizes))), np.full(len(sizes), executions)
    )


def line(sizes: Floats) -> Floats:
    return 0.004 + 0.0003 * sizes


def steps(sizes: Floats) -> Floats:
    return 0.004 + 0.0003 * 2.0 ** np.ceil(np.log2(sizes))


def bent(sizes: Floats) -> Floats:
    return 0.004 + 0.0003 * sizes * (1.0 + 0.5 * sizes / 32.0)


@pytest.mark.parametrize("shape", [line, steps, bent])
def test_a_curve_that_was_seen_at_every_size_is_found(shape: object) -> None:
    assert callable(shape)
    curve = fit_curve(points(shape(SIZES)), 32)

    assert curve.seconds[1:] == pytest.approx(shape(SIZES), rel=0.02)
    assert curve.known == 32


def test_a_line_is_carried_on_beyond_what_was_seen() -> None:
    few = SIZES[:6]

    curve = fit_curve(points(line(few), few), 32)

    assert curve.known == 6
    assert curve.seconds[1:] == pytest.approx(line(SIZES), rel=0.05)


def test_a_line_is_found_through_noise() -> None:
    curve = fit_curve(points(line(SIZES), noise=0.03), 32)

    assert curve.seconds[1:] == pytest.approx(line(SIZES), rel=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_no_larger_batch_is_ever_faster(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.choice(SIZES, 9, replace=False))
    seconds = line(sizes) * np.exp(0.3 * rng.standard_normal(9))

    curve = fit_curve(Points(sizes, seconds, rng.integers(1, 500, 9).astype(np.float64)), 32)

    assert (np.diff(curve.seconds) >= 0.0).all()
    assert (curve.seconds > 0.0).all()
    assert curve.seconds.shape == (33,)


def test_a_size_that_hardly_ran_moves_the_curve_less() -> None:
    seconds = line(SIZES)
    seconds[15] *= 1.3
    often, rarely = np.full(32, 200.0), np.full(32, 200.0)
    rarely[15] = 2.0

    moved = [
        fit_curve(Points(SIZES, seconds, weight), 32).seconds[16] / line(SIZES)[15]
        for weight in (often, rarely)
    ]

    assert moved[0] > 1.06
    assert moved[1] < 1.03


def test_one_size_is_enough_for_a_curve() -> None:
    curve = fit_curve(Points(np.array([4.0]), np.array([0.01]), np.array([100.0])), 8)

    assert curve.seconds[4] == pytest.approx(0.01, rel=0.02)
    assert curve.known == 4


# -- correction


def features(*rows: float) -> Floats:
    return np.array([[row, 0.0, 0.0, 0.0, 0.0] for row in rows])


def test_without_trials_nothing_is_corrected_and_the_prior_stays() -> None:
    mean, variance = fit(np.zeros((0, 5)), np.zeros(0), np.zeros(0)).at(features(0.0, 3.0))

    assert mean.tolist() == [0.0, 0.0]
    assert np.sqrt(variance) == pytest.approx([PRIOR_MISFIT] * 2)


def test_a_deviation_is_carried_over_to_its_likes_and_in_part_to_all() -> None:
    correction = fit(features(0.0, 0.1), np.array([0.2, 0.2]), np.array([1e-4, 1e-4]))

    mean, variance = correction.at(features(0.05, 1.0, 20.0))

    assert mean[0] == pytest.approx(0.2, abs=0.02)
    assert mean[0] > mean[1] > mean[2] > 0.05
    assert variance[0] < variance[1] < variance[2]


def test_what_the_windows_chance_explains_is_no_misfit() -> None:
    residuals = np.array([0.06, -0.05, 0.04, -0.06])
    noisy = fit(features(0.0, 1.0, 2.0, 3.0), residuals, np.full(4, 0.06**2))
    exact = fit(features(0.0, 1.0, 2.0, 3.0), residuals, np.full(4, 1e-6))

    assert LEAST_MISFIT**2 <= noisy.variance < 0.5 * exact.variance
    assert np.abs(noisy.at(features(0.0))[0][0]) < 0.03
    assert exact.at(features(0.0))[0][0] == pytest.approx(0.06, abs=0.01)
