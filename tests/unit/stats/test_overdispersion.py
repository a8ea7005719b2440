"""φ: one for independent requests, the cluster size for clusters, and a default when the baseline says nothing."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.stats.overdispersion import DEFAULT, UNKNOWN, Series, estimate_dispersion

RNG = np.random.default_rng


def _clustered(seed: int, size: int, looks: int = 2000, clusters_a_look: float = 0.4) -> Series:
    rng = RNG(seed)
    return Series(rng.poisson(100, looks), [size * rng.poisson(clusters_a_look, looks)])


def test_independent_requests_have_a_factor_near_one() -> None:
    rng = RNG(1)
    totals = rng.poisson(100, 400)
    found = estimate_dispersion([Series(totals, [rng.binomial(totals, 0.01)])])
    assert 1.0 <= found.factor < 1.6
    assert found.edge == 0


@pytest.mark.parametrize("size", [3, 8])
def test_clusters_of_one_size_have_that_factor(size: int) -> None:
    found = estimate_dispersion([_clustered(2, size)])
    assert found.estimate == pytest.approx(size, rel=0.15)
    assert found.factor > found.estimate


def test_clusters_longer_than_a_look_are_seen_in_longer_blocks() -> None:
    rng = RNG(3)
    stalls = np.repeat(rng.random(250) < 0.05, 8)
    totals = np.full(2000, 50)
    found = estimate_dispersion([Series(totals, [rng.binomial(totals, np.where(stalls, 0.2, 0.001))])])
    assert found.block_looks >= 4
    assert found.estimate > 20  # a look's own factor is about 9


def test_too_few_slow_requests_move_the_estimate_to_a_lower_edge() -> None:
    rng = RNG(4)
    totals = rng.poisson(100, 200)
    exceeding = [np.zeros(200), rng.binomial(totals, 0.0002), rng.binomial(totals, 0.05)]
    found = estimate_dispersion([Series(totals, exceeding)])
    assert found.edge == 2


@pytest.mark.parametrize(
    "series",
    [
        [],
        [Series([], [[]])],
        [Series([100] * 50, [[0] * 50])],
        [Series([100] * 5, [[20] * 5])],
        [Series([0] * 50, [[0] * 50])],
    ],
)
def test_a_baseline_that_says_too_little_gives_the_default(series: list[Series]) -> None:
    assert estimate_dispersion(series) == UNKNOWN
    assert UNKNOWN.factor == DEFAULT


def test_a_difference_between_replicas_is_no_cluster() -> None:
    rng = RNG(5)
    series = [Series(np.full(300, 100), [rng.binomial(100, share, 300)]) for share in (0.01, 0.10)]
    assert estimate_dispersion(series).factor < 1.6


def test_edges_of_other_length_than_the_looks_are_refused() -> None:
    with pytest.raises(ValueError, match="one count per look"):
        estimate_dispersion([Series([1, 2, 3], [[0, 0]])])
