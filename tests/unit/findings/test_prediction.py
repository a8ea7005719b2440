"""Predictions from one window: right where the window carries them, refused with what is missing where it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from autotuner.batching.arrivals import Intensity, draw, learn_counts
from autotuner.batching.production import Bursts, Observed, understand, with_bursts
from autotuner.batching.prospect import Asked, Prospect, prospect
from autotuner.batching.simulator import Device, Law, simulate
from autotuner.batching.trials import Aim, BatchCount, Setting
from autotuner.domain.findings.prediction import Prediction, Wish, candidates, predict, worth
from autotuner.domain.findings.reading import Quantiles
from tests.diagnoses import a_config, a_replica, a_scene, batcher, instances, some_work

INTERVAL = timedelta(milliseconds=250)
CURVE = np.array([0.0, *(0.010 + 0.0012 * size for size in range(1, 33))])
TODAY = Setting(0.0, (4, 8), 1, 32)
FREE = Setting(0.0, (), 1, 32)
RATE, SECONDS = 170.0, 60.0


CONSTANT = Intensity(1.0, np.ones(1))


def watched(
    setting: Setting = TODAY, rate: float = RATE, busy: float | None = None, intensity: Intensity = CONSTANT
) -> Observed:
    """What a diagnosis would see of a simulated replica, with Poisson arrivals or such as the intensity says."""
    rng = np.random.default_rng(3)
    count = round(rate * SECONDS)
    arrivals = draw(intensity, rate, count, rng)
    run = simulate(arrivals, setting, Device(CURVE, Law.EXCLUSIVE, 0.9), np.ones(1))
    counts, _ = np.histogram(arrivals, bins=240)
    p50, p95, p99 = (float(value) for value in np.quantile(run.latency_seconds, (0.5, 0.95, 0.99)))
    batches = tuple(
        BatchCount(size, int(executions), float(run.compute_seconds[size]))
        for size, executions in enumerate(run.executions)
        if executions
    )
    queue = run.queue_seconds / count
    return Observed(
        setting, tuple(int(n) for n in counts), SECONDS / 240, batches, p50, p95, p99, queue, busy
    )


def truth(setting: Setting, rate: float = RATE) -> float:
    """p99 seconds of a long simulated window."""
    arrivals = draw(CONSTANT, rate, 40_000, np.random.default_rng(11))
    run = simulate(arrivals, setting, Device(CURVE, Law.EXCLUSIVE, 0.9), np.ones(1))
    return float(np.quantile(run.latency_seconds, 0.99))


@pytest.fixture(scope="module")
def found() -> Prospect:
    asked = Asked((FREE, Setting(0.005, (), 1, 32), Setting(0.0, (16,), 1, 32)), 0.100, Aim.CAPACITY, 0.03)
    return prospect(watched(), asked)


def test_todays_p99_is_the_measured_one(found: Prospect) -> None:
    assert found.today.p99_seconds.value == pytest.approx(found.observed.p99_seconds, rel=0.02)


def test_a_configuration_that_never_ran_is_predicted(found: Prospect) -> None:
    assert found.best is not None
    assert found.best.setting == FREE
    assert found.best.p99_seconds.value == pytest.approx(truth(FREE), rel=0.15)
    assert found.best.p99_seconds.low < truth(FREE) < found.best.p99_seconds.high


def test_the_cap_costs_capacity_and_the_bands_do_not_overlap(found: Prospect) -> None:
    assert found.best is not None
    assert found.best.capacity is not None
    assert found.today.capacity is not None
    assert found.best.capacity.low > found.today.capacity.high


def test_the_frontier_has_a_knee_under_the_ceiling(found: Prospect) -> None:
    assert found.knee is not None
    assert found.knee.p99_seconds < 0.100
    assert [point.rate_per_second for point in found.frontier] == sorted(
        point.rate_per_second for point in found.frontier
    )


def test_the_busy_share_of_the_device_says_what_a_second_instance_would_do() -> None:
    seen = watched(FREE, rate=100.0)
    worked = sum(one.compute_seconds for one in seen.batches) / seen.seconds
    informed = understand(watched(FREE, rate=100.0, busy=0.9 * worked), seed=0).members[0].device
    blind = understand(seen, seed=0).members

    assert informed.law is Law.EXCLUSIVE
    assert informed.strength == pytest.approx(0.9, abs=0.02)
    assert len({member.device.law for member in blind}) == 3


def test_poisson_arrivals_show_no_bursts_between_looks() -> None:
    assert understand(watched(FREE), seed=0).bursts.sigma == 0.0


def test_a_rate_that_changes_slowly_shows_no_bursts_between_looks_either() -> None:
    slow = np.tile(np.repeat([1.75, 0.5, 0.5], 5), 20)  # in bins of 0.25 s: high for 1.25 s, low for 2.5 s
    seen = watched(Setting(0.0, (), 1, 64), rate=150.0, intensity=Intensity(0.25, slow / slow.mean()))

    assert seen.dispersion > 3.0
    assert {understand(seen, seed).bursts.sigma for seed in range(3)} <= {0.0, 0.2}


def test_bursts_between_looks_are_found() -> None:
    constant = learn_counts(np.ones(4), 0.25)
    seen = watched(FREE, intensity=with_bursts(constant, Bursts(0.6, 0.15), seed=5))

    assert understand(seen, seed=0).bursts.sigma >= 0.4


# -- what cannot be predicted


def refusal(*arguments: Any, **changes: Any) -> Prediction:
    found = predict(a_scene(*arguments, **changes), INTERVAL, Wish())
    assert found.prospect is None
    return found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"config": {}}, "configuration could not be read"),
        ({"config": a_config(dynamic_batching=None)}, "no dynamic_batching"),
        ({"config": a_config(sequence_batching={"direct": {}})}, "sequence"),
    ],
)
def test_what_has_no_batcher_to_predict_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(**changes).why_not


@pytest.mark.parametrize(
    ("replica", "said"),
    [
        (a_replica(some_work({})), "no request"),
        (a_replica(some_work({1: (30, 10.0)})), "too few"),
        (a_replica(some_work({8: (100, 18.0)}, requests=200)), "clients batch"),
        (a_replica(replace(some_work({1: (100, 10.0)}), batches=())), "batch size"),
        (a_replica(some_work({1: (100, 10.0)}, cache_hits=50)), "cache"),
        (a_replica(reloads=1), "loaded anew"),
    ],
)
def test_a_window_that_cannot_carry_a_prediction_says_what_would_have_to_be_measured(
    replica: Any, said: str
) -> None:
    found = refusal(replica)

    assert said in found.why_not
    assert found.needed
    assert found.needed[0] in worth(found)


def test_what_the_bands_do_not_hold_is_told() -> None:
    work = some_work({1: (300, 10.0), 2: (100, 11.0)})
    replica = a_replica(work, utilisation=None, quantiles={})
    doubts = predict(a_scene(replica), INTERVAL, Wish()).doubts

    assert any("no batch larger than 2" in doubt for doubt in doubts)
    assert any("no device utilisation" in doubt for doubt in doubts)
    assert any("no source tells p99" in doubt for doubt in doubts)


def test_money_is_told_only_where_a_price_was_given() -> None:
    scene = a_scene(a_replica(quantiles={"request": Quantiles(0.014, 0.03, 0.04)}))
    priced = predict(scene, INTERVAL, Wish(gpu_cost_per_hour=3.6)).cost

    assert predict(scene, INTERVAL, Wish()).cost is None
    assert priced is not None
    assert priced.at_todays_rate == pytest.approx(1000 / scene.window.rate_per_second)


def test_candidates_hold_the_ceiling_and_todays_configuration() -> None:
    config = a_config(dynamic_batching=batcher(3, 6), instance_group=instances(2))
    found = candidates(a_scene(config=config), Wish())

    assert any(one.preferred_batch_size == (6,) and one.max_queue_delay_microseconds == 3000 for one in found)
    assert max(one.instance_count for one in found) == 3
    assert all(one.queue_delay_seconds < 0.1 for one in found)
