"""One trial as the product would make it: load levels one after the other, each read look by look and judged.

A level is watched for its whole window, because what is counted there is what proposers learn from; it is left at the
first look at which the evidence says REJECT, so a bad setting costs a second or two of slow requests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotuner.batching.trials import BatchCount, Measured, Setting, Tried
from autotuner.benchmark.system import DAY_SECONDS, System
from autotuner.benchmark.traffic import draw
from autotuner.benchmark.truth import Outcome, Traffic, run
from autotuner.domain.judgement import SCREENING, SLOW_SHARE_OF_ALPHA, STRICT, Counts, Levels, Verdict, judge
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.study import Pace
from autotuner.stats.eprocess import log_e_above, log_e_below
from autotuner.stats.overdispersion import Series, estimate_dispersion

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_REQUESTS = 10_000
LEAST_SECONDS = 45.0
"""A window is as long as both need."""

LOOK_SECONDS = 1.0

CONFIRMATION = 0xC0F
"""Sets the chance of a confirmation apart from that of the trials: its data are fresh."""

MOST_DISPERSION = 3.0
"""Limit on the dispersion factor: a rehearsal's. Production has none and looks longer; here windows have a length."""

EDGE_SHARES = (1.0, 0.8, 0.6, 0.4)
"""Edges of the gateway's histogram, as shares of the ceiling: at the ceiling, and those below it."""

MISCOUNTED_EDGE = 0.97
"""Where the ceiling's edge really is in a miscounted histogram."""

MISBOOKED = 0.10
MISTIMED_SIGMA = 0.05

_NOBODY = Counts(0, 0, 0, 0)


@dataclass(frozen=True)
class Trial:
    """One trial and what it cost. number: the incumbent's is 1.

    harm_requests: slow ones above 1 % of all, summed over the levels; requests that were still under way when a level
    was left count. harm_today_requests: the part of it at the lowest level. requests: all that were sent.
    window_requests: sent in one whole window at today's rate.
    """

    number: int
    tried: Tried
    harm_requests: float
    harm_today_requests: float
    requests: int
    window_requests: float


@dataclass(frozen=True)
class _Looks:
    """Cumulative counts at every look of a window: requests that ended and slow ones, each of shape (looks,)."""

    at: Floats
    total: Ints
    bad: Ints


def window_seconds(rate: float) -> float:
    """Return how long a level is watched at a rate."""
    return float(math.ceil(max(LEAST_SECONDS, LEAST_REQUESTS / rate)))


def trial(
    system: System, setting: Setting, rates: tuple[float, ...], dispersion: float, number: int, seed: int
) -> Trial:
    """Return what the setting's trial measures: its levels up to the first that is not accepted.

    rates: planned levels; dispersion: factor that counts are divided by; number: of the trial in its study, which
    drives a drift. The same arguments give the same trial.
    """
    measured: list[Measured] = []
    harm: list[float] = []
    requests = 0
    growth = system.rate_at(number) / system.rate
    for level, planned in enumerate(rates):
        chance = np.random.SeedSequence([seed, number, level])
        one, slow, sent = _level(system, setting, planned * growth, dispersion, chance)
        measured.append(one)
        harm.append(max(0.0, slow - ALLOWED_BAD_SHARE * sent))
        requests += sent
        if not one.accepted:
            break
    window = system.rate * window_seconds(system.rate)
    return Trial(number, Tried(setting, tuple(measured)), sum(harm), harm[0], requests, window)


def confirmation(
    system: System, setting: Setting, dispersion: float, number: int, seed: int
) -> tuple[bool, float]:
    """Return whether the setting is accepted again at today's rate, strictly and on fresh data, and what that cost.

    It is watched until the verdict, as long as the product watches a level at most. number: as of the trial that it
    would be. The cost: slow requests above 1 % of those sent.
    """
    rate, seconds = system.rate_at(number), Pace().step_limit.total_seconds()
    chance = np.random.SeedSequence([seed, CONFIRMATION, number])
    traffic, outcome = _watched(system, setting, rate, chance, seconds)
    done = traffic.arrivals + outcome.latency
    looks = _counted(done, outcome.latency > _edge_seconds(system), seconds)
    last, accepted = _confirmed(looks, dispersion)
    sent = traffic.arrivals <= float(looks.at[last])
    slow = int(np.count_nonzero(outcome.latency[sent] > system.ceiling_seconds))
    return accepted, max(0.0, slow - ALLOWED_BAD_SHARE * int(np.count_nonzero(sent)))


def _confirmed(looks: _Looks, dispersion: float) -> tuple[int, bool]:
    """Return the look at which it is over, and whether it was accepted; one that is never decided is not."""
    above, below = _telling_looks(looks, dispersion, STRICT)
    soonest = Pace().step_minimum.total_seconds()
    for look in sorted({*above[:1].tolist(), *below[looks.at[below] >= soonest][:1].tolist()}):
        verdict = _verdict(looks, look, dispersion, STRICT)
        if verdict is not None:
            return look, verdict is Verdict.ACCEPT
    return looks.at.size - 1, False


def baseline_dispersion(system: System, seed: int) -> float:
    """Return the factor that counts are divided by, learnt as the product learns it: from the incumbent's window."""
    seconds = window_seconds(system.rate)
    traffic, outcome = _watched(
        system, system.incumbent, system.rate, np.random.SeedSequence([seed, 1, 0]), seconds
    )
    done = traffic.arrivals + outcome.latency
    edges = [
        _counted(done, outcome.latency > share * system.ceiling_seconds, seconds) for share in EDGE_SHARES
    ]
    series = Series(
        np.diff(edges[0].total, prepend=0), np.stack([np.diff(edge.bad, prepend=0) for edge in edges])
    )
    return min(estimate_dispersion([series]).factor, MOST_DISPERSION)


def _watched(
    system: System, setting: Setting, rate: float, chance: np.random.SeedSequence, seconds: float
) -> tuple[Traffic, Outcome]:
    traffic_seed, device_seed = (int(word) for word in chance.generate_state(2))
    traffic = draw(system.process, rate, seconds, traffic_seed, DAY_SECONDS)
    return traffic, run(system.device(seconds, device_seed), setting, traffic)


def _level(
    system: System, setting: Setting, rate: float, dispersion: float, chance: np.random.SeedSequence
) -> tuple[Measured, int, int]:
    """One level, and how many requests it made slow of how many it sent."""
    seconds = window_seconds(rate)
    traffic, outcome = _watched(system, setting, rate, chance, seconds)
    done = traffic.arrivals + outcome.latency
    looks = _counted(done, outcome.latency > _edge_seconds(system), seconds)
    last, accepted = _judged(looks, dispersion)
    until = float(looks.at[last])
    sent = traffic.arrivals <= until
    slow = int(np.count_nonzero(outcome.latency[sent] > system.ceiling_seconds))
    ended = done <= until
    batches = outcome.ended <= until
    inferences = int(outcome.size[batches].sum())
    p50, p95, p99 = _quantiles(outcome.latency[ended])
    measured = Measured(
        rate_per_second=rate,
        arrivals=traffic.arrivals[sent],
        total=int(looks.total[last]),
        bad=int(looks.bad[last]),
        accepted=accepted,
        p50_seconds=p50,
        p95_seconds=p95,
        p99_seconds=p99,
        queue_seconds=float(outcome.queued[ended].mean()) if ended.any() else None,
        busy_seconds_per_inference=outcome.busy_seconds(until) / inferences if inferences else None,
        batches=_batch_counts(system, outcome, batches, chance),
    )
    return measured, slow, int(np.count_nonzero(sent))


def _edge_seconds(system: System) -> float:
    """The latency from which the gateway counts a request as slow."""
    return system.ceiling_seconds * (MISCOUNTED_EDGE if system.changes.miscounted else 1.0)


def _counted(done: Floats, slow: NDArray[np.bool_], seconds: float) -> _Looks:
    at = np.arange(1.0, seconds + 0.5) * LOOK_SECONDS
    total = np.searchsorted(np.sort(done), at, side="right")
    bad = np.searchsorted(np.sort(done[slow]), at, side="right")
    return _Looks(at, total.astype(np.int64), bad.astype(np.int64))


def _judged(looks: _Looks, dispersion: float) -> tuple[int, bool]:
    """Return the look at which the level is left, and whether it was accepted by then.

    The product's own `judge` is asked at the looks at which some evidence has reached what it needs; at all others it
    says "keep looking". What was accepted and is rejected afterwards in the same window is not accepted.
    """
    above, below = _telling_looks(looks, dispersion, SCREENING)
    accepted = False
    for look in sorted({*below[:1].tolist(), *above[:1].tolist()}):
        verdict = _verdict(looks, look, dispersion, SCREENING)
        if verdict is Verdict.REJECT:
            return look, False
        accepted = accepted or verdict is Verdict.ACCEPT
    return looks.at.size - 1, accepted


def _telling_looks(looks: _Looks, dispersion: float, levels: Levels) -> tuple[Ints, Ints]:
    """Looks at which the evidence for too many slow requests has reached what it needs, and that for few enough."""
    total, bad = looks.total / dispersion, looks.bad / dispersion
    above = log_e_above(bad, total, ALLOWED_BAD_SHARE) >= -math.log(levels.reject_alpha * SLOW_SHARE_OF_ALPHA)
    below = log_e_below(bad, total, ALLOWED_BAD_SHARE) >= -math.log(levels.accept_alpha)
    return np.flatnonzero(above), np.flatnonzero(below)


def _verdict(looks: _Looks, look: int, dispersion: float, levels: Levels) -> Verdict | None:
    bad = int(looks.bad[look])
    judgement = judge(
        Counts(int(looks.total[look]), bad, bad, 0),
        None,
        _NOBODY,
        allowed=ALLOWED_BAD_SHARE,
        error_ceiling=0.001,
        levels=levels,
        dispersion=dispersion,
        exhausted=False,
    )
    return judgement.verdict if judgement else None


def _quantiles(latency: Floats) -> tuple[float | None, float | None, float | None]:
    if not latency.size:
        return None, None, None
    p50, p95, p99 = (float(q) for q in np.quantile(latency, (0.50, 0.95, 0.99)))
    return p50, p95, p99


def _batch_counts(
    system: System, outcome: Outcome, done: NDArray[np.bool_], chance: np.random.SeedSequence
) -> tuple[BatchCount, ...]:
    size, seconds = outcome.size[done], (outcome.ended - outcome.began)[done]
    if system.changes.miscounted:
        dice = np.random.default_rng(chance.spawn(1)[0])
        wrong = np.where(dice.uniform(size=size.size) < MISBOOKED, dice.choice([-1, 1], size=size.size), 0)
        size = np.clip(size + wrong, 1, system.workload.max_batch_size)
        seconds = seconds * math.exp(MISTIMED_SIGMA * dice.standard_normal())
    executions = np.bincount(size)
    summed = np.bincount(size, weights=seconds)
    sizes = np.flatnonzero(executions)
    return tuple(BatchCount(int(n), int(executions[n]), float(summed[n])) for n in sizes)
