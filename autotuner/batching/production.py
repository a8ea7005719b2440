"""What one window of production tells of a replica, without a single trial: its batch curve, its noise, its arrivals.

Nothing was varied, so not everything can be known, and what cannot is kept open: how instances would disturb one
another follows only from how busy the device was while one of them worked (see `_informed`), and bursts shorter than
the distance of two looks show only in what they did to queues and batches (see `_burstiness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from autotuner.batching.arrivals import Intensity, draw, learn_counts
from autotuner.batching.ensemble import Member, explain
from autotuner.batching.evidence import LEAST_REQUESTS
from autotuner.batching.simulator import Device, Law, Run, simulate
from autotuner.batching.trials import BatchCount, Floats, Measured, Setting, Tried

SIGMAS = (0.0, 0.2, 0.4, 0.6, 0.8)
SECONDS = (0.03, 0.15)
"""Bursts between two looks that are tried: standard deviation of the logarithm of the rate, and how long one lasts."""

BURST_DOUBT = 1.0
"""What bursts between looks must explain better than none, as a misfit."""

REPLAYED, REPLAYS = 10_000, 7
"""Requests that each kind of bursts is tried on, and how often. What counts is the median: one replay in ten meets a
stretch that explains nothing, and in the mean it would make kinds of bursts differ that do not."""

SPAN_SECONDS = 120.0
"""Length of a rate's course that is drawn from."""

INFORMED = 0.8
"""Weight of the law that the device's busy time speaks for; the rest stays with all the others."""

_BATCH_ERROR, _QUEUE_ERROR, _P95_ERROR, _P99_ERROR = 0.03, 0.08, 0.12, 0.25
"""Relative errors of mean batch, mean queue time and quantiles, by the chance of one window of a busy replica."""


_ROUGHNESS_ERROR, LEAST_LOOKS = 2.3, 16
"""Relative error of the median of one squared difference, which is a chi-squared of one degree where counts are Poisson
(1 / (2 · density · median) at its median 0.455), times the root of how many there are; and looks from which it is
asked."""


@dataclass(frozen=True)
class Observed:
    """One replica in production.

    counts: finished requests between looks that are look_seconds apart. batches: what ran. before: what ran between the
    model's load and the window. p50, p95, p99: as near to the client as they are known, in seconds;
    queue_seconds: mean.
    device_busy: share of the time, 0 to 1, None if unknown.
    """

    setting: Setting
    counts: tuple[int, ...]
    look_seconds: float
    batches: tuple[BatchCount, ...]
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    queue_seconds: float | None = None
    device_busy: float | None = None
    before: tuple[BatchCount, ...] = ()

    @property
    def requests(self) -> int:
        """Finished in the window."""
        return sum(self.counts)

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return len(self.counts) * self.look_seconds

    @property
    def rate_per_second(self) -> float:
        """Mean rate."""
        return self.requests / self.seconds

    @property
    def dispersion(self) -> float:
        """Variance over mean of the counts between looks: 1 for Poisson arrivals, more for bursts."""
        counted = np.array(self.counts, dtype=np.float64)
        return float(counted.var(ddof=1) / counted.mean()) if len(counted) > 2 and counted.mean() > 0 else 1.0


@dataclass(frozen=True)
class Bursts:
    """Changes of the rate between two looks: standard deviation of its logarithm, and how long one lasts."""

    sigma: float
    seconds: float


@dataclass(frozen=True)
class Understood:
    """What production says. members: explanations, the most trusted one first; intensity: the rate over time."""

    members: tuple[Member, ...]
    intensity: Intensity
    bursts: Bursts
    history: tuple[Tried, ...]
    """The window as the only trial there was."""


def enough(seen: Observed) -> bool:
    """Say whether a window can carry a prediction at all."""
    return seen.requests >= LEAST_REQUESTS and any(
        one.executions and one.compute_seconds for one in seen.batches
    )


def understand(seen: Observed, seed: int) -> Understood:
    """Return what explains the window. It must be `enough`."""
    coarse = learn_counts(np.array(seen.counts, dtype=np.float64), seen.look_seconds)
    intensity, bursts = coarse, Bursts(0.0, SECONDS[0])
    history = _history(seen, intensity, seed)
    members = _trusted(seen, explain(history, seed))
    for _ in range(1 if seen.setting.instances == 1 else 2):
        intensity, bursts = _burstiness(seen, coarse, members[0], seed)
        history = _history(seen, intensity, seed)
        members = _trusted(seen, explain(history, seed))
    return Understood(members, intensity, bursts, history)


def _history(seen: Observed, intensity: Intensity, seed: int) -> tuple[Tried, ...]:
    """The window as a trial of one level, on arrivals that are drawn as the intensity says."""
    items = sum(one.size * one.executions for one in seen.batches)
    busy = None if seen.device_busy is None or not items else seen.device_busy * seen.seconds / items
    rng = np.random.default_rng((seed, 23))
    level = Measured(
        rate_per_second=seen.rate_per_second,
        arrivals=draw(intensity, seen.rate_per_second, max(seen.requests, LEAST_REQUESTS), rng),
        total=seen.requests,
        bad=0,
        accepted=True,
        p50_seconds=seen.p50_seconds,
        p95_seconds=seen.p95_seconds,
        p99_seconds=None,  # of one window: a hiccup would pass for the batches' own tail, at every setting
        queue_seconds=seen.queue_seconds,
        busy_seconds_per_inference=busy,
        batches=seen.batches,
    )
    return (Tried(seen.setting, (level, *_before(seen, level))),)


def _before(seen: Observed, level: Measured) -> tuple[Measured, ...]:
    """What ran before the window, for batch sizes that did not run in it; counts no more than the window itself.

    Of one instance alone: batch times of several hang on the traffic of their own hour, which is not known.
    """
    ran, earlier = (sum(one.executions for one in batches) for batches in (seen.batches, seen.before))
    if seen.setting.instances > 1 or not earlier:
        return ()
    share = min(1.0, ran / earlier)
    batches = tuple(
        BatchCount(
            one.size,
            round(share * one.executions),
            one.compute_seconds * round(share * one.executions) / one.executions,
        )
        for one in seen.before
        if round(share * one.executions) > 0 and one.size <= seen.setting.max_batch_size
    )
    if not batches:
        return ()
    untimed = replace(level, p50_seconds=None, p95_seconds=None, p99_seconds=None, queue_seconds=None)
    return (replace(untimed, batches=batches),)


def _trusted(seen: Observed, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Members, the most trusted one first: the heaviest, and of equals the one that promises least of instances."""
    informed = _informed(seen, members)
    heaviest = max(member.weight for member in informed)
    equals = [member for member in informed if member.weight >= 0.99 * heaviest]
    first = max(equals, key=lambda member: (member.device.law is Law.EXCLUSIVE, member.device.strength))
    return (first, *(member for member in informed if member is not first))


def _informed(seen: Observed, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """One instance, and how busy the device was while it worked: that share of a batch cannot be had twice.

    What the device computes while one instance is at work it computes for it alone, so a second instance
    can overlap the
    rest at least: the exclusive law with that strength. Whether kernels of two instances would run side by side
    better than that is not known, so the other laws keep a part of the weight.
    """
    worked = sum(one.compute_seconds for one in seen.batches) / seen.seconds
    if seen.setting.instances > 1 or seen.device_busy is None or worked <= 0.0:
        return members
    strength = float(np.clip(seen.device_busy / worked, 0.05, 1.0))
    noises = {member.noise: member for member in members}
    total = sum(member.weight for member in noises.values())
    informed = [
        replace(
            member,
            device=Device(member.device.curve_seconds, Law.EXCLUSIVE, strength),
            weight=INFORMED * member.weight / total,
        )
        for member in noises.values()
    ]
    others = [replace(member, weight=(1.0 - INFORMED) * member.weight) for member in members]
    return (*informed, *others)


# ---- bursts between looks


def _burstiness(seen: Observed, coarse: Intensity, member: Member, seed: int) -> tuple[Intensity, Bursts]:
    """The bursts between looks that best explain the queue time, the batches and the tail of the window."""
    factors = member.noise.factors(np.random.default_rng((seed, 29)))
    count = int(np.clip(4 * seen.requests, 2_000, REPLAYED))
    tried: list[tuple[float, Intensity, Bursts]] = []
    kinds = [Bursts(0.0, SECONDS[0]), *(Bursts(*both) for both in product(SIGMAS[1:], SECONDS))]
    for bursts in kinds:
        intensity = with_bursts(coarse, bursts, seed)
        misfits = []
        for replay in range(REPLAYS):
            rng = np.random.default_rng((seed, 31, replay))
            arrivals = draw(intensity, seen.rate_per_second, count, rng)
            run = simulate(arrivals, seen.setting, member.device, factors)
            misfits.append(_misfit(seen, run, member.overhead_seconds) + _rougher(seen, arrivals, run))
        doubt = BURST_DOUBT if bursts.sigma else 0.0
        tried.append((float(np.median(misfits)) + doubt, intensity, bursts))
    _, intensity, bursts = min(tried, key=lambda one: one[0])
    return intensity, bursts


def _misfit(seen: Observed, run: Run, overhead_seconds: float) -> float:
    items = sum(one.size * one.executions for one in seen.batches)
    executions = sum(one.executions for one in seen.batches)
    chance = 1.0 + 300.0 / seen.requests
    pairs: list[tuple[float | None, float, float]] = [
        (items / executions, run.mean_batch, _BATCH_ERROR),
        (seen.queue_seconds, run.queue_seconds / len(run.latency_seconds), _QUEUE_ERROR),
        (seen.p95_seconds, float(np.quantile(run.latency_seconds, 0.95)) + overhead_seconds, _P95_ERROR),
        (seen.p99_seconds, float(np.quantile(run.latency_seconds, 0.99)) + overhead_seconds, _P99_ERROR),
    ]
    return sum(
        float(np.log(told / simulated) / (error * chance)) ** 2
        for told, simulated, error in pairs
        if told is not None and told > 0.0 and simulated > 0.0
    )


def _rougher(seen: Observed, arrivals: Floats, run: Run) -> float:
    """Misfit of how much the requests finished between two looks differ from those between the next two."""
    looks = len(seen.counts)
    if looks < LEAST_LOOKS:
        return 0.0
    finished = arrivals + run.latency_seconds
    edges = np.arange(float(arrivals[0]), float(arrivals[-1]), seen.look_seconds)
    simulated = _roughness(np.histogram(finished, edges)[0].astype(np.float64))
    told = _roughness(np.array(seen.counts, dtype=np.float64))
    chance = _ROUGHNESS_ERROR / np.sqrt(looks - 1)
    return float(np.log(told / simulated) / chance) ** 2 if told > 0.0 and simulated > 0.0 else 0.0


def _roughness(counts: Floats) -> float:
    """Median of squared differences of successive counts over their sum: what changes slowly hardly shows in it."""
    return float(np.median(np.diff(counts) ** 2 / np.maximum(counts[1:] + counts[:-1], 1.0)))


def with_bursts(coarse: Intensity, bursts: Bursts, seed: int) -> Intensity:
    """Return the intensity with bursts inside its bins: a log-normal rate that forgets itself exponentially."""
    if bursts.sigma == 0.0:
        return coarse
    width = min(coarse.bin_seconds, bursts.seconds / 4.0)
    bins = int(max(SPAN_SECONDS, coarse.bin_seconds * len(coarse.relative)) / width)
    kept = float(np.exp(-width / bursts.seconds))
    steps = np.random.default_rng((seed, 37)).standard_normal(bins) * np.sqrt(1.0 - kept**2)
    course = _remembered(steps, kept)
    slow = coarse.relative[
        (np.arange(bins) * width / coarse.bin_seconds).astype(np.int64) % len(coarse.relative)
    ]
    rate = slow * np.exp(bursts.sigma * course - 0.5 * bursts.sigma**2)
    return Intensity(width, rate / rate.mean())


def _remembered(steps: Floats, kept: float) -> Floats:
    """A first-order autoregression over the steps, of unit variance."""
    from scipy.signal import lfilter  # noqa: PLC0415 - a second of importing, for the rare bursty case

    found: Floats = np.asarray(lfilter([1.0], [1.0, -kept], steps), dtype=np.float64)
    return found


# ---- the curve, to be looked at


@dataclass(frozen=True)
class CurvePoint:
    """A batch size: its mean time where it ran, how often, and the fitted curve; seconds."""

    size: int
    seen_seconds: float | None
    executions: int
    fitted_seconds: float


def curve_points(seen: Observed, members: Sequence[Member]) -> tuple[CurvePoint, ...]:
    """Return the fitted curve at every size that ran and at powers of two up to the largest possible batch."""
    curve = members[0].device.curve_seconds
    ran = {one.size: one for one in seen.batches if one.executions and one.size < len(curve)}
    powers = {2**power for power in range(len(curve).bit_length()) if 2**power < len(curve)}
    return tuple(
        CurvePoint(
            size,
            ran[size].compute_seconds / ran[size].executions if size in ran else None,
            ran[size].executions if size in ran else 0,
            float(curve[size]),
        )
        for size in sorted({*ran, *powers, len(curve) - 1})
    )
