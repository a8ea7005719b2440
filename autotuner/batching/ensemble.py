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

SHARED_TRUST = 0.05
"""What a batch time from several instances counts against one from a single instance, which needs no correction."""

SPREADS = (0.03, 0.12)
"""Standard deviations of the logarithm of a batch's time."""

TAILS = ((0.0, 1.0), (0.004, 3.0), (0.01, 1.6), (0.01, 2.2), (0.01, 3.0), (0.01, 4.0), (0.03, 2.0))
"""(share of batches, factor on their time)."""

TAIL_DOUBT = 1.5
"""What a tail must explain better than none, as a misfit: one window shows a tail easily where there is none."""

LAW_LEVELS = 4
NOISE_LEVELS = 4
"""Levels that laws and noise are compared on: the most telling ones."""

ROUNDS = 2
"""How often curve and slowing are worked out from one another."""

CHECKED_LEVELS = 2
"""Levels of a single instance that an explanation of the others must not spoil."""

MEMBERS = 6
FACTORS = 8192

_MEAN_ERROR = 0.02
_QUANTILE_ERROR = 0.05
"""Relative errors of a right explanation, from the chance of one window."""


@dataclass(frozen=True)
class Noise:
    """How a batch's time varies: spread of its logarithm, and a share of batches slower by a factor; mean factor 1."""

    spread: float
    tail_share: float
    tail_factor: float

    def factors(self, rng: np.random.Generator) -> Floats:
        """Draw factors of mean 1, shape (FACTORS,)."""
        drawn = np.exp(self.spread * rng.standard_normal(FACTORS) - 0.5 * self.spread**2)
        drawn[rng.random(FACTORS) < self.tail_share] *= self.tail_factor
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
    total = sum(member.weight for member in kept)
    return tuple(Member(m.device, m.noise, m.overhead_seconds, m.weight / total, m.known_size) for m in kept)


# ---- how batch times vary, and what comes on top


def _variations(levels: Sequence[Level], device: Device, seed: int) -> list[_Variation]:
    """The three best explanations of how latencies scatter under one device, each with another tail."""

    def scored(noise: Noise) -> tuple[float, Noise, float]:
        factors = noise.factors(np.random.default_rng((seed, 3)))
        runs = [simulate(level.arrivals, level.setting, device, factors) for level in levels]
        overhead = _overhead(levels, runs)
        misfit = sum(_quantile_misfit(level, run, overhead) for level, run in zip(levels, runs, strict=True))
        return misfit + (TAIL_DOUBT if noise.tail_share > 0.0 else 0.0), noise, overhead

    best_of_tails = [
        min((scored(Noise(spread, share, factor)) for spread in SPREADS), key=lambda found: found[0])
        for share, factor in TAILS
    ]
    ordered = sorted(best_of_tails, key=lambda found: found[0])
    return [
        _Variation(noise, overhead, float(np.exp(-0.5 * (misfit - ordered[0][0]))))
        for misfit, noise, overhead in ordered[:3]
    ]


def _overhead(levels: Sequence[Level], runs: Sequence[Run]) -> float:
    """What every request spends outside queue and batch: the median over levels of the medians' difference."""
    differences = [
        level.measured.p50_seconds - float(np.median(run.latency_seconds))
        for level, run in zip(levels, runs, strict=True)
        if level.measured.p50_seconds is not None
    ]
    return max(0.0, float(np.median(differences))) if differences else 0.0


def _quantile_misfit(level: Level, run: Run, overhead: float) -> float:
    misfit = 0.0
    for seen, share in ((level.measured.p95_seconds, 0.95), (level.measured.p99_seconds, 0.99)):
        if seen is not None:
            error = _QUANTILE_ERROR * (1.0 + 500.0 / level.measured.total)
            simulated = float(np.quantile(run.latency_seconds, share)) + overhead
            misfit += float(np.log(seen / simulated) / error) ** 2
    return misfit


# ---- laws and strengths


def _devices(
    single: Sequence[Level], several: Sequence[Level], alone: Curve, variation: _Variation, seed: int
) -> list[_Found]:
    """The best strength of each law and its neighbours, the improbable left out."""
    factors = variation.noise.factors(np.random.default_rng((seed, 5)))
    checked = [*several, *most_telling(single, CHECKED_LEVELS)]

    def visit(law: Law, strength: float, start: Curve) -> tuple[_Found, Curve]:
        curve = start
        for _ in range(ROUNDS):
            device = Device(curve.seconds, law, strength)
            runs = [simulate(level.arrivals, level.setting, device, factors) for level in several]
            slowings = [slowing(run, device.curve_seconds) for run in runs]
            pooled = points([*single, *several], [*[None] * len(single), *slowings], SHARED_TRUST)
            curve = fit_curve(pooled, len(start.seconds) - 1)
        device = Device(curve.seconds, law, strength)
        misfit = sum(_misfit(level, device, factors, variation.overhead_seconds) for level in checked)
        return _Found(device, curve.known, misfit), curve

    kept: list[_Found] = []
    for law in Law:
        seen: dict[float, _Found] = {}
        curve = alone
        for strength in STRENGTHS[law]:
            seen[strength], curve = visit(law, strength, curve)
        for step in REFINEMENTS:
            best = min(seen, key=lambda strength: (seen[strength].misfit, strength))
            for strength in (round(max(0.0, best - step), 3), round(min(1.0, best + step), 3)):
                if strength not in seen:
                    seen[strength], curve = visit(law, strength, curve)
        kept += _telling_apart(list(seen.values()))
    least = min(found.misfit for found in kept)
    return [found for found in kept if found.misfit <= least + 8.0]


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


def _misfit(level: Level, device: Device, factors: Floats, overhead: float) -> float:
    run = simulate(level.arrivals, level.setting, device, factors)
    batches = int(run.executions.sum())
    pairs = [
        (level.mean_compute_seconds, float(run.compute_seconds.sum()) / batches),
        (level.mean_batch, len(level.arrivals) / batches),
    ]
    if level.measured.p50_seconds is not None:
        pairs.append((level.measured.p50_seconds, float(np.median(run.latency_seconds)) + overhead))
    if level.measured.busy_seconds_per_inference:
        pairs.append((level.measured.busy_seconds_per_inference, run.busy_seconds / len(level.arrivals)))
    misfit = sum(float(np.log(seen / simulated) / _MEAN_ERROR) ** 2 for seen, simulated in pairs)
    return misfit + _quantile_misfit(level, run, overhead)
