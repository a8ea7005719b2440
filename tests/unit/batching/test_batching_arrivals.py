"""What is learnt of recorded arrivals: Poisson stays Poisson, bursts stay bursts, and the mean rate is as asked."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.batching.arrivals import Intensity, draw, learn, learn_counts
from autotuner.batching.trials import Floats
from autotuner.benchmark.traffic import Pattern, Process
from autotuner.benchmark.traffic import draw as draw_truth


def dispersion(arrivals: Floats, bin_seconds: float) -> float:
    """Variance over mean of the counts in bins: 1 for Poisson arrivals, more for bursts."""
    counts = np.bincount((arrivals / bin_seconds).astype(np.int64))[:-1]
    return float(counts.var(ddof=1) / counts.mean())


def recorded(pattern: Pattern, rate: float = 300.0, seconds: float = 400.0, seed: int = 5) -> Floats:
    return draw_truth(Process(pattern, tails=False), rate, seconds, seed, 1200.0).arrivals


@pytest.mark.parametrize("bin_seconds", [0.05, 0.3, 1.0, 3.0])
def test_poisson_arrivals_come_out_as_poisson_arrivals(bin_seconds: float) -> None:
    learnt = learn(recorded(Pattern.POISSON))
    drawn = draw(learnt, 300.0, 100_000, np.random.default_rng(1))

    assert learnt.relative.std() < 0.06
    assert dispersion(drawn, bin_seconds) == pytest.approx(1.0, abs=0.35)


@pytest.mark.parametrize("bin_seconds", [0.1, 0.3, 1.0])
def test_bursts_keep_their_index_of_dispersion(bin_seconds: float) -> None:
    given = recorded(Pattern.BURSTY)

    drawn = draw(learn(given), 300.0, 120_000, np.random.default_rng(2))

    assert dispersion(given, bin_seconds) > 5.0 * bin_seconds * 10
    assert dispersion(drawn, bin_seconds) == pytest.approx(dispersion(given, bin_seconds), rel=0.2)


def test_bursts_last_as_long_in_seconds_at_another_rate() -> None:
    """The excess over Poisson grows with the rate, because the same users come, only more of them."""
    learnt = learn(recorded(Pattern.BURSTY))
    excess = {
        rate: (dispersion(draw(learnt, rate, int(400 * rate), np.random.default_rng(3)), 0.5) - 1.0) / rate
        for rate in (150.0, 600.0)
    }

    assert excess[600.0] == pytest.approx(excess[150.0], rel=0.15)


@pytest.mark.parametrize("pattern", [Pattern.POISSON, Pattern.BURSTY])
def test_the_mean_rate_is_the_one_asked_for(pattern: Pattern) -> None:
    learnt = learn(recorded(pattern))

    rates = [100_000 / draw(learnt, 200.0, 100_000, np.random.default_rng(seed))[-1] for seed in range(8)]

    assert learnt.relative.mean() == pytest.approx(1.0)
    assert np.mean(rates) == pytest.approx(200.0, rel=0.02)


def test_arrivals_ascend_are_as_many_as_asked_and_repeat_with_their_seed() -> None:
    learnt = learn(recorded(Pattern.BURSTY, seconds=60.0))

    first, again, other = (draw(learnt, 900.0, 5000, np.random.default_rng(seed)) for seed in (1, 1, 2))

    assert len(first) == 5000
    assert first[0] >= 0.0
    assert (np.diff(first) >= 0.0).all()
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize("arrivals", [[], [1.0], [1.0] * 30, list(range(10))])
def test_a_recording_that_says_nothing_means_a_constant_rate(arrivals: list[float]) -> None:
    assert learn(np.array(arrivals, dtype=np.float64)).relative.tolist() == [1.0]


def test_counts_in_bins_say_the_same_as_arrivals() -> None:
    rate = np.repeat([1.5, 0.5], 512)
    counts = np.random.default_rng(1).poisson(50.0 * rate).astype(np.float64)

    learnt = learn_counts(counts, 0.1)

    assert learnt.bin_seconds == 0.1
    assert learnt.relative == pytest.approx(rate, abs=0.25)
    assert learnt.relative[:512].mean() == pytest.approx(1.5, rel=0.02)


def test_a_constant_rate_draws_independent_gaps() -> None:
    gaps = np.diff(draw(Intensity(1.0, np.ones(1)), 100.0, 50_000, np.random.default_rng(4)))

    assert gaps.mean() == pytest.approx(0.01, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.02
