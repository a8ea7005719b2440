"""Devices that would explain what trials measured, each with a weight: what is not known is kept open.

For each law of interference and each strength the batch curve is worked out from the observed compute times, each
divided by the slowing that a simulation on the trial's own arrivals shows. How well the trials' compute times, batch
sizes and latencies then come out again weighs the member. Without a trial of several instances nothing is known of
interference and all members stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from autotuner.batching.curve import Curve, Points, fit_curve
from autotuner.batching.simulator import Device, Law, Run, simulate
from autotuner.batching.trials import Floats, History, Measured, Setting

STRENGTHS = {
    Law.DISPATCH: (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0),
    Law.SHARING: (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0),
    Law.EXCLUSIVE: (0.6, 0.7, 0.8, 0.9, 1.0),
}
SPREADS = (0.0, 0.05, 0.1, 0.2)
"""Standard deviations of the logarithm of a batch's time."""

TAILS = ((0.0, 1.0), (0.004, 3.0), (0.01, 1.6), (0.01, 2.2), (0.01, 3.0), (0.01, 4.0), (0.03, 2.0))
"""(share of batches, factor on their time)."""

REPLAYED = 6000
"""Requests of a level that are replayed at most."""

MEMBERS = 6
FACTORS = 8192
LEAST_REQUESTS = 60

_MEAN_ERROR = 0.03
_QUANTILE_ERROR = 0.06


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
class _Level:
    """One measured level beside the setting it was measured with, cut to what is replayed."""

    setting: Setting
    measured: Measured
    arrivals: Floats


def explain(history: History, seed: int) -> tuple[Member, ...]:
    """Return the best members, heaviest first, weights adding up to 1; none while no level was seen to batch."""
    levels = [
        _Level(trial.setting, level, level.arrivals[:REPLAYED])
        for trial in history
        for level in trial.levels
        if level.batches and level.total >= LEAST_REQUESTS and len(level.arrivals) >= LEAST_REQUESTS
    ]
    if not levels:
        return ()
    laws = _laws(levels)
    (device, known), _ = max(laws, key=lambda found: found[1])
    noises = _noises(levels, device, seed)
    found = [
        Member(device, noise, overhead, weight * share, known)
        for ((device, known), weight), (noise, overhead, share) in product(laws, noises)
    ]
    kept = sorted(found, key=lambda member: -member.weight)[:MEMBERS]
    total = sum(member.weight for member in kept)
    return tuple(Member(m.device, m.noise, m.overhead_seconds, m.weight / total, m.known_size) for m in kept)


# ---- laws and strengths


def _laws(levels: Sequence[_Level]) -> list[tuple[tuple[Device, int], float]]:
    """Every (device, largest size seen) with its weight, the improbable ones left out; one of each law stays."""
    several = any(level.setting.instances > 1 for level in levels)
    largest = max(level.setting.max_batch_size for level in levels)
    single = [level for level in levels if level.setting.instances == 1]
    alone = fit_curve(_points(single or levels), largest)
    scored: list[tuple[tuple[Device, int], float]] = []
    for law, strengths in STRENGTHS.items():
        for strength in strengths:
            device = Device(alone.seconds, law, strength)
            known = alone.known
            misfit = 0.0
            if several:
                device, known = _deconvolved(levels, law, strength, alone)
                misfit = _law_misfit(levels, device)
            scored.append(((device, known), float(np.exp(-0.5 * misfit) / len(strengths))))
    if not several:
        return _spread_out(scored)
    best = max(weight for _, weight in scored)
    if best <= 0.0:
        scored = [(found, 1.0) for found, _ in scored]
        best = 1.0
    return [(found, weight) for found, weight in scored if weight >= 0.02 * best]


def _spread_out(scored: list[tuple[tuple[Device, int], float]]) -> list[tuple[tuple[Device, int], float]]:
    """Weak, middling and strong interference under the first two laws: what is possible before any evidence."""
    wanted = {(Law.DISPATCH, 0.2), (Law.DISPATCH, 0.5), (Law.DISPATCH, 0.85)}
    wanted |= {(Law.SHARING, 0.5), (Law.SHARING, 0.85), (Law.EXCLUSIVE, 0.9)}
    return [(found, 1.0) for found, _ in scored if (found[0].law, found[0].strength) in wanted]


def _deconvolved(levels: Sequence[_Level], law: Law, strength: float, start: Curve) -> tuple[Device, int]:
    """The curve under this law, from observed times divided by the slowing that a simulation shows."""
    curve = start
    for _ in range(2):
        device = Device(curve.seconds, law, strength)
        curve = fit_curve(_points(levels, device), len(start.seconds) - 1)
    return Device(curve.seconds, law, strength), curve.known


def _points(levels: Sequence[_Level], device: Device | None = None) -> Points:
    """Observed mean times of all levels; those of several instances divided by the slowing under `device`."""
    sizes: list[float] = []
    seconds: list[float] = []
    executions: list[float] = []
    for level in levels:
        slowing = _slowing(level, device) if device is not None and level.setting.instances > 1 else None
        for batch in level.measured.batches:
            if batch.executions <= 0 or batch.compute_seconds <= 0.0:
                continue
            factor = 1.0 if slowing is None else slowing[min(batch.size, len(slowing) - 1)]
            sizes.append(float(batch.size))
            seconds.append(batch.compute_seconds / batch.executions / factor)
            executions.append(float(batch.executions))
    return Points(np.array(sizes), np.array(seconds), np.array(executions))


def _slowing(level: _Level, device: Device) -> Floats:
    """Simulated compute time over the curve, by batch size; sizes that did not run take the mean."""
    run = simulate(level.arrivals, level.setting, device, np.ones(1))
    alone = run.executions * device.curve_seconds[: len(run.executions)]
    mean = float(run.compute_seconds.sum() / alone.sum())
    some = run.executions >= 5
    slowing = np.full(len(alone), mean)
    slowing[some] = run.compute_seconds[some] / alone[some]
    return slowing


def _law_misfit(levels: Sequence[_Level], device: Device) -> float:
    misfit = 0.0
    for level in levels:
        if level.setting.instances == 1:
            continue
        run = simulate(level.arrivals, level.setting, device, np.ones(1))
        executions = sum(batch.executions for batch in level.measured.batches)
        spent = sum(batch.compute_seconds for batch in level.measured.batches)
        pairs = [
            (spent / executions, float(run.compute_seconds.sum() / run.executions.sum()), _MEAN_ERROR),
            (
                sum(b.size * b.executions for b in level.measured.batches) / executions,
                run.mean_batch,
                _MEAN_ERROR,
            ),
        ]
        if level.measured.busy_seconds_per_inference:
            busy = run.busy_seconds / len(level.arrivals)
            pairs.append((level.measured.busy_seconds_per_inference, busy, _MEAN_ERROR))
        misfit += sum((np.log(seen / simulated) / error) ** 2 for seen, simulated, error in pairs)
    return misfit


# ---- noise and overhead


def _noises(levels: Sequence[_Level], device: Device, seed: int) -> list[tuple[Noise, float, float]]:
    """The three best (noise, overhead seconds, weight) under one device."""
    scored = []
    for number, (spread, (share, factor)) in enumerate(product(SPREADS, TAILS)):
        noise = Noise(spread, share, factor)
        factors = noise.factors(np.random.default_rng((seed, number)))
        runs = [simulate(level.arrivals, level.setting, device, factors) for level in levels]
        overhead = _overhead(levels, runs)
        misfit = sum(_quantile_misfit(level, run, overhead) for level, run in zip(levels, runs, strict=True))
        scored.append((noise, overhead, misfit))
    best = min(misfit for _, _, misfit in scored)
    weighed = [(noise, overhead, float(np.exp(-0.5 * (m - best)))) for noise, overhead, m in scored]
    return sorted(weighed, key=lambda found: -found[2])[:3]


def _overhead(levels: Sequence[_Level], runs: Sequence[Run]) -> float:
    """What every request spends outside the queue and the batch: the median over levels of the medians' difference."""
    differences = [
        level.measured.p50_seconds - float(np.median(run.latency_seconds))
        for level, run in zip(levels, runs, strict=True)
        if level.measured.p50_seconds is not None and level.measured.accepted
    ]
    return max(0.0, float(np.median(differences))) if differences else 0.0


def _quantile_misfit(level: _Level, run: Run, overhead: float) -> float:
    misfit = 0.0
    for seen, share in ((level.measured.p95_seconds, 0.95), (level.measured.p99_seconds, 0.99)):
        if seen is not None:
            error = _QUANTILE_ERROR * (1.0 + 500.0 / level.measured.total)
            simulated = float(np.quantile(run.latency_seconds, share)) + overhead
            misfit += float(np.log(seen / simulated) / error) ** 2
    return misfit
