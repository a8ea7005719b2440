"""Devices that would explain what trials measured, each with a weight: what is not known is kept open.

First what needs no law: from levels of a single instance the batch curve, how batch times vary, and what a request
spends outside queue and batch. Then, for each law of interference and each strength, the curve is worked out from the
batch times of several instances too, divided by the slowing that a simulation on the level's own arrivals shows; how
well the level comes out again weighs the explanation. Without a level of several instances nothing is known of
interference and all stay possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from autotuner.batching.curve import Curve, fit_curve
from autotuner.batching.evidence import Level, most_telling, points, slowing, usable
from autotuner.batching.simulator import Device, Law, Run, simulate
from autotuner.batching.trials import Floats, History

UNKNOWN = (
    (Law.DISPATCH, 0.2),
    (Law.DISPATCH, 0.5),
    (Law.DISPATCH, 0.85),
    (Law.SHARING, 0.5),
    (Law.SHARING, 0.85),
    (Law.EXCLUSIVE, 0.9),
)
"""Weak, middling and strong interference: what is possible before any level of several instances."""

STRENGTHS = {Law.DISPATCH: (0.1, 0.4, 0.8), Law.SHARING: (0.1, 0.4, 0.8), Law.EXCLUSIVE: (0.65, 0.9)}
"""Where the search for a law's strength begins."""

REFINEMENTS = (0.15, 0.07, 0.035)
"""Steps to both sides of a law's best strength so far, one after the other."""

FAR_OFF = 150.0
"""Misfit beyond the best one's at which a law is given up once its strength was refined a first time."""

SHARED_TRUST = 0.05
"""What a batch time from several instances counts against one from a single instance, which needs no correction."""

SPREADS = (0.03, 0.06, 0.12)
"""Standard deviations of the logarithm of a batch's time."""

TAILS = ((0.0, 1.0), (0.004, 3.0), (0.01, 1.6), (0.01, 2.2), (0.01, 3.0), (0.01, 4.0), (0.03, 2.0))
"""(share of batches, mean factor on their time)."""

TAIL_SPREAD = 0.2
"""Standard deviation of the logarithm of that factor: what holds a batch up does not always do so for as long."""

TAIL_DOUBT = 1.5
"""What a tail must explain better than none, as a misfit: one window shows a tail easily where there is none."""

LAW_LEVELS = 3
SEARCHED_LEVELS = 2
NOISE_LEVELS = 4
"""Levels that laws, their strengths at first, and noise are compared on: the most telling ones."""

ROUNDS = 2
"""How often curve and slowing are worked out from one another."""

CHECKED_LEVELS = 2
"""Levels of a single instance that an explanation of the others must not spoil."""

PROMISING_TAILS = 4
"""Tails that are compared on all those levels."""

MEMBERS = 6
LEAST_WEIGHT = 0.02
"""Members kept at most, and the weight below which one says nothing that is worth simulating it."""

FACTORS = 8192

_MEAN_ERROR = 0.02
_QUANTILE_ERROR = 0.05
"""Relative errors of a right explanation, from the chance of one window."""


class Chance:
    """What is drawn for factors, so that several noises may be compared on the same; each part is made once."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._normal = rng.standard_normal(FACTORS)
        self.uniform = rng.random(FACTORS)
        self._varied = rng.standard_normal(FACTORS)
        self._spread: dict[float, Floats] = {}

    def spread(self, spread: float) -> Floats:
        """Factors with this standard deviation of their logarithm; not to be changed."""
        if spread not in self._spread:
            self._spread[spread] = np.exp(spread * self._normal - 0.5 * spread**2)
        return self._spread[spread]

    @cached_property
    def varied(self) -> Floats:
        """What the factor of a batch in the tail is multiplied by."""
        return np.asarray(np.exp(TAIL_SPREAD * self._varied - 0.5 * TAIL_SPREAD**2))


@dataclass(frozen=True)
class Noise:
    """How a batch's time varies: spread of its logarithm, and a share of batches slower by a factor; mean factor 1."""

    spread: float
    tail_share: float
    tail_factor: float

    def factors(self, rng: np.random.Generator) -> Floats:
        """Draw factors of mean 1, shape (FACTORS,)."""
        return self.of(Chance(rng))

    def of(self, chance: Chance) -> Floats:
        """The factors that chance gives this noise, of mean 1, shape (FACTORS,)."""
        if self.tail_share == 0.0:
            return chance.spread(self.spread)
        drawn = chance.spread(self.spread).copy()
        tail = chance.uniform < self.tail_share
        drawn[tail] *= np.maximum(1.0, self.tail_factor * chance.varied[tail])
        return np.asarray(drawn / (1.0 + self.tail_share * (self.tail_factor - 1.0)))


@dataclass(frozen=True)
class Member:
    """One explanation: a device, how its times vary, and what every latency has on top, in seconds."""

    device: Device
    noise: Noise
    overhead_seconds: float
    weight: float
    known_size: int


@dataclass(frozen=True)
class _Found:
    """A device with the largest batch size seen and its misfit, half of which is minus its log weight."""

    device: Device
    known_size: int
    misfit: float


@dataclass(frozen=True)
class _Variation:
    noise: Noise
    overhead_seconds: float
    weight: float


def explain(history: History, seed: int) -> tuple[Member, ...]:
    """Return the best members, heaviest first, weights adding up to 1; none while no level was seen to batch."""
    levels = usable(history)
    if not levels:
        return ()
    single = [level for level in levels if level.setting.instances == 1]
    several = [level for level in levels if level.setting.instances > 1]
    basis = single or levels
    alone = fit_curve(points(basis, [None] * len(basis), 1.0), levels[0].setting.max_batch_size)
    first = Device(alone.seconds, Law.DISPATCH, 0.4)
    variations = _variations(most_telling(basis, NOISE_LEVELS), first, seed)
    if not several:
        devices = [
            _Found(Device(alone.seconds, law, strength), alone.known, 0.0) for law, strength in UNKNOWN
        ]
    else:
        devices = _devices(single, most_telling(several, LAW_LEVELS), alone, variations[0], seed)
    return _members(devices, variations)


def _members(devices: Sequence[_Found], variations: Sequence[_Variation]) -> tuple[Member, ...]:
    least = min(found.misfit for found in devices)
    made = [
        Member(
            found.device,
            variation.noise,
            variation.overhead_seconds,
            float(np.exp(-0.5 * (found.misfit - least))) * variation.weight,
            found.known_size,
        )
        for found, variation in product(devices, variations)
    ]
    kept = sorted(made, key=lambda member: -member.weight)[:MEMBERS]
    enough = LEAST_WEIGHT * sum(member.weight for member in kept)
    kept = [member for member in kept if member.weight >= enough]
    total = sum(member.weight for member in kept)
    return tuple(Member(m.device, m.noise, m.overhead_seconds, m.weight / total, m.known_size) for m in kept)


# ---- how batch times vary, and what comes on top


def _variations(levels: Sequence[Level], device: Device, seed: int) -> list[_Variation]:
    """The three best explanations of how latencies scatter under one device, each with another tail."""
    chance = Chance(np.random.default_rng((seed, 3)))

    def scored(noise: Noise, among: Sequence[Level]) -> tuple[float, Noise, float]:
        factors = noise.of(chance)
        runs = [simulate(level.arrivals, level.setting, device, factors) for level in among]
        overhead = _overhead(among, runs)
        misfit = sum(_quantile_misfit(level, run, overhead) for level, run in zip(among, runs, strict=True))
        return misfit + (TAIL_DOUBT if noise.tail_share > 0.0 else 0.0), noise, overhead

    first = levels[:SEARCHED_LEVELS]
    best_of_tails = [
        min((scored(Noise(spread, share, factor), first) for spread in SPREADS), key=lambda found: found[0])
        for share, factor in TAILS
    ]
    ordered = sorted(best_of_tails, key=lambda found: found[0])[:PROMISING_TAILS]
    if len(first) < len(levels):
        ordered = sorted((scored(noise, levels) for _, noise, _ in ordered), key=lambda found: found[0])
    return [
        _Variation(noise, overhead, float(np.exp(-0.5 * (misfit - ordered[0][0]))))
        for misfit, noise, overhead in ordered[:3]
    ]


def _overhead(levels: Sequence[Level], runs: Sequence[Run]) -> float:
    """What every request spends outside queue and batch: the median over levels of the medians' difference."""
    differences = [
        level.measured.p50_seconds - run.median
        for level, run in zip(levels, runs, strict=True)
        if level.measured.p50_seconds is not None
    ]
    return max(0.0, float(np.median(differences))) if differences else 0.0


def _quantile_misfit(level: Level, run: Run, overhead: float) -> float:
    misfit = 0.0
    p95, p99, _ = run.tail
    for seen, simulated in ((level.measured.p95_seconds, p95), (level.measured.p99_seconds, p99)):
        if seen is not None:
            error = _QUANTILE_ERROR * (1.0 + 500.0 / level.measured.total)
            misfit += float(np.log(seen / (simulated + overhead)) / error) ** 2
    return misfit


# ---- laws and strengths


def _devices(
    single: Sequence[Level], several: Sequence[Level], alone: Curve, variation: _Variation, seed: int
) -> list[_Found]:
    """The best strength of each law and its neighbours, the improbable left out."""
    factors = variation.noise.factors(np.random.default_rng((seed, 5)))
    search = _LawSearch(tuple(single), tuple(several), alone, variation.overhead_seconds, factors)
    visited = {law: search.begun(law) for law in Law}
    nearest = min(found.misfit for seen in visited.values() for found, _ in seen.values())
    kept: list[_Found] = []
    for law, seen in visited.items():
        if min(found.misfit for found, _ in seen.values()) <= nearest + FAR_OFF:
            kept += search.finished(law, seen)
    least = min(found.misfit for found in kept)
    return [found for found in kept if found.misfit <= least + 8.0]


_Visited = dict[float, tuple[_Found, Curve]]


@dataclass(frozen=True)
class _LawSearch:
    """Looks for the strength of a law with which levels of several instances come out as they were measured."""

    single: tuple[Level, ...]
    several: tuple[Level, ...]
    alone: Curve
    overhead_seconds: float
    factors: Floats

    def begun(self, law: Law) -> _Visited:
        """The strengths where the search begins, refined once; each with the curve that goes with it."""
        seen: _Visited = {}
        curve = self.alone
        for strength in STRENGTHS[law]:
            seen[strength] = self._visit(law, strength, curve, self.several[:SEARCHED_LEVELS])
            curve = seen[strength][1]
        self._refine(law, seen, REFINEMENTS[0])
        return seen

    def finished(self, law: Law, seen: _Visited) -> list[_Found]:
        """The best strength and those about a standard error away, weighed by all levels."""
        for step in REFINEMENTS[1:]:
            self._refine(law, seen, step)
        apart = _telling_apart([found for found, _ in seen.values()])
        return [self._whole(found, seen[found.device.strength][1]) for found in apart]

    def _refine(self, law: Law, seen: _Visited, step: float) -> None:
        """Visit the strengths a step away from the best so far."""
        best = min(seen, key=lambda strength: (seen[strength][0].misfit, strength))
        for strength in (round(max(0.0, best - step), 3), round(min(1.0, best + step), 3)):
            if strength not in seen:
                seen[strength] = self._visit(law, strength, seen[best][1], self.several[:SEARCHED_LEVELS])

    def _visit(
        self, law: Law, strength: float, start: Curve, among: Sequence[Level], rounds: int = ROUNDS
    ) -> tuple[_Found, Curve]:
        """Work out the curve from these levels, beginning with `start`, and how well they come out with it."""
        curve, misfit, device = start, 0.0, Device(start.seconds, law, strength)
        for _ in range(rounds):
            device = Device(curve.seconds, law, strength)
            runs = [simulate(level.arrivals, level.setting, device, self.factors) for level in among]
            misfit = self._misfit(among, runs)
            slowings = [slowing(run, device.curve_seconds) for run in runs]
            pooled = points([*self.single, *among], [*[None] * len(self.single), *slowings], SHARED_TRUST)
            curve = fit_curve(pooled, len(start.seconds) - 1)
        return _Found(device, curve.known, misfit), curve

    def _whole(self, found: _Found, curve: Curve) -> _Found:
        """The same law and strength, worked out from all levels and weighed by all of them."""
        law, strength = found.device.law, found.device.strength
        _, curve = self._visit(law, strength, curve, self.several, 1)
        device = Device(curve.seconds, law, strength)
        checked = [*self.several, *most_telling(self.single, CHECKED_LEVELS)]
        runs = [simulate(level.arrivals, level.setting, device, self.factors) for level in checked]
        return _Found(device, curve.known, self._misfit(checked, runs))

    def _misfit(self, levels: Sequence[Level], runs: Sequence[Run]) -> float:
        return sum(
            _misfit(level, run, self.overhead_seconds) for level, run in zip(levels, runs, strict=True)
        )


def _telling_apart(found: Sequence[_Found]) -> list[_Found]:
    """A law's best strength and the nearest one on each side that fits clearly worse: about a standard error away."""
    best = min(found, key=lambda one: (one.misfit, one.device.strength))
    kept = [best]
    for side in (-1.0, 1.0):
        there = [
            one
            for one in found
            if side * (one.device.strength - best.device.strength) > 0 and one.misfit >= best.misfit + 0.7
        ]
        kept += sorted(there, key=lambda one: abs(one.device.strength - best.device.strength))[:1]
    return kept


def _misfit(level: Level, run: Run, overhead: float) -> float:
    batches = int(run.executions.sum())
    pairs = [
        (level.mean_compute_seconds, float(run.compute_seconds.sum()) / batches),
        (level.mean_batch, len(level.arrivals) / batches),
    ]
    if level.measured.p50_seconds is not None:
        pairs.append((level.measured.p50_seconds, run.median + overhead))
    if level.measured.busy_seconds_per_inference:
        pairs.append((level.measured.busy_seconds_per_inference, run.busy_seconds / len(level.arrivals)))
    misfit = sum(float(np.log(seen / simulated) / _MEAN_ERROR) ** 2 for seen, simulated in pairs)
    return misfit + _quantile_misfit(level, run, overhead)
