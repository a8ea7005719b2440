"""What tuning a replica in production would be worth: the frontier, today's place on it, and the best with its bands.

Every setting is simulated under the most trusted explanation of the window; those that are named are simulated under
all explanations, and how far these lie apart is the larger part of the band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.batching.arrivals import draw
from autotuner.batching.ensemble import Member
from autotuner.batching.frontier import (
    Climb,
    Looker,
    Point,
    Question,
    Replica,
    best,
    climbs,
    frontier,
    knee,
)
from autotuner.batching.production import Observed, Understood, understand
from autotuner.batching.simulator import simulate
from autotuner.batching.trials import Aim, Floats, Setting

P99_MISFIT = 0.10
"""Standard deviation of the logarithm of a right explanation's error."""

P99_SPREAD, CAPACITY_SPREAD = 0.30, 0.08
"""The same beside one measured window, its chance included: what the benchmark of predictions shows."""

BAND = 1.645
"""Standard deviations to each side of a band that holds nine of ten."""

CARRIED_OVER = 0.4
"""Share of today's deviation from its prediction that other settings are taken to have too (`correction.COMMON`)."""

REPLAYS = 12
"""Windows that today's is simulated as, to see how much p99 differs by chance."""

ENOUGH_FOR_P99 = 500
"""Requests from which a measured p99 says more than its prediction: five of them are slower."""


@dataclass(frozen=True)
class Band:
    """A predicted figure, and the limits between which it lies in nine cases of ten."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Expected:
    """A setting. p99_seconds: at today's rate. capacity: requests per second; None where the ceiling never holds."""

    setting: Setting
    p99_seconds: Band
    capacity: Band | None
    mean_batch: float
    busy_seconds: float


@dataclass(frozen=True)
class Prospect:
    """The whole prediction. best: None where no setting holds the ceiling at today's rate."""

    observed: Observed
    understood: Understood
    question: Question
    climbs: tuple[Climb, ...]
    frontier: tuple[Point, ...]
    knee: Point | None
    today: Expected
    best: Expected | None


@dataclass(frozen=True)
class Asked:
    """What is asked. settings: those to be compared. tie: differences below this share count as none."""

    settings: tuple[Setting, ...]
    ceiling_seconds: float
    aim: Aim
    tie: float
    seed: int = 0


def prospect(seen: Observed, asked: Asked) -> Prospect:
    """Return what the settings would do. The window must be `production.enough`."""
    understood = understand(seen, asked.seed)
    question = question_of(seen, asked, understood, understood.members[0])
    found = tuple(climbs(question))
    points = frontier(question, found)
    today = expected(seen, asked, understood, seen.setting)
    return Prospect(
        seen,
        understood,
        question,
        found,
        points,
        knee(points, asked.ceiling_seconds),
        today,
        _chosen(seen, asked, understood, question, found),
    )


def _chosen(
    seen: Observed, asked: Asked, understood: Understood, question: Question, found: Sequence[Climb]
) -> Expected | None:
    """The best setting; one with more instances than today's only if that is surely better, as far as bands go."""
    known = [climb for climb in found if climb.setting.instances <= seen.setting.instances]
    told = [
        expected(seen, asked, understood, climb.setting)
        for among in (known, found)
        if (climb := best(question, among, asked.aim, question.rate_per_second)) is not None
    ]
    if len(told) < 2 or told[0].setting == told[-1].setting:
        return told[-1] if told else None
    return told[1] if _surely_better(told[1], told[0], asked.aim) else told[0]


def _surely_better(one: Expected, other: Expected, aim: Aim) -> bool:
    if aim is Aim.EFFICIENCY:
        return one.busy_seconds < (1.0 - P99_MISFIT) * other.busy_seconds
    if other.capacity is None or one.capacity is None:
        return one.capacity is not None
    return one.capacity.low > other.capacity.value


def question_of(
    seen: Observed, asked: Asked, understood: Understood, member: Member, rate_per_second: float | None = None
) -> Question:
    """Return the question under one explanation, at today's rate or at another."""
    noise, curve = member.noise, member.device.curve_seconds
    replica = Replica(
        curve,
        np.full(len(curve), member.device.strength),
        member.overhead_seconds,
        noise.spread,
        noise.tail_share,
        noise.tail_factor,
        member.device.law,
    )
    return Question(
        tuple(dict.fromkeys((seen.setting, *asked.settings))),
        seen.setting,
        replica,
        understood.intensity,
        rate_per_second or seen.rate_per_second,
        asked.ceiling_seconds,
        asked.aim,
        asked.tie,
        asked.seed,
    )


def expected(
    seen: Observed,
    asked: Asked,
    understood: Understood,
    setting: Setting,
    rate_per_second: float | None = None,
) -> Expected:
    """Return a setting's figures under all explanations, moved by what today's deviated from its own.

    rate_per_second: that p99 is asked at; None for today's.
    """
    questions = [question_of(seen, asked, understood, one, rate_per_second) for one in understood.members]
    views = [_view(question, setting) for question in questions]
    weights = np.array([one.weight for one in understood.members])
    deviation, believed = _deviation(seen, asked, understood)
    shift = deviation * (1.0 if setting == seen.setting else CARRIED_OVER * believed)
    p99 = _band([view.p99_seconds for view in views], weights, P99_SPREAD, shift)
    held = [(view.capacity, weight) for view, weight in zip(views, weights, strict=True) if view.capacity]
    share_held = sum(weight for _, weight in held) / float(weights.sum())
    capacity = None
    if share_held >= 0.5:
        capacity = _band(
            [one for one, _ in held], np.array([weight for _, weight in held]), CAPACITY_SPREAD, 0.0
        )
    return Expected(setting, p99, capacity, views[0].mean_batch, views[0].busy_seconds)


@dataclass(frozen=True)
class _View:
    """A setting under one explanation."""

    p99_seconds: float
    capacity: float | None
    mean_batch: float
    busy_seconds: float


def _view(question: Question, setting: Setting) -> _View:
    looker = Looker(question)
    climb = looker.climb(setting)
    reading = climb.at(question.rate_per_second)
    assert reading is not None, "every setting is looked at up to today's rate and beyond"
    return _View(
        reading.p99_seconds,
        looker.capacity(climb, since=question.rates[0]),
        reading.mean_batch,
        reading.busy_seconds,
    )


def _deviation(seen: Observed, asked: Asked, understood: Understood) -> tuple[float, float]:
    """Logarithm of today's measured p99 over its prediction, and how much of it is not the chance of one window.

    The window is simulated again and again: near saturation p99 of two equal windows may differ by half, and then a
    deviation says nothing of other settings (both variances weigh as in any shrinkage).
    """
    if seen.p99_seconds is None or seen.requests < ENOUGH_FOR_P99:
        return 0.0, 0.0
    member = understood.members[0]
    question = question_of(seen, asked, understood, member)
    logs = []
    for replay in range(REPLAYS):
        rng = np.random.default_rng((asked.seed, 41, replay))
        arrivals = draw(understood.intensity, seen.rate_per_second, seen.requests, rng)
        run = simulate(arrivals, seen.setting, member.device, question.factors)
        logs.append(float(np.log(np.quantile(run.latency_seconds, 0.99) + member.overhead_seconds)))
    chance = float(np.var(logs, ddof=1)) * (1.0 + 1.0 / REPLAYS)
    believed = P99_MISFIT**2 / (P99_MISFIT**2 + chance)
    return float(np.log(seen.p99_seconds) - np.mean(logs)), believed


def _band(values: Sequence[float], weights: Floats, misfit: float, shift: float) -> Band:
    """Weighted mean of the logarithms with what they differ by and what a right explanation is wrong by."""
    logs = np.log(values)
    shares = weights / weights.sum()
    centre = float(np.sum(shares * logs))
    between = float(np.sum(shares * (logs - centre) ** 2))
    width = BAND * float(np.sqrt(between + misfit**2))
    moved = centre + shift
    return Band(float(np.exp(moved)), float(np.exp(moved - width)), float(np.exp(moved + width)))
