"""What if: every setting over a range of rates, on a replica that is described instead of measured.

From a batch curve, an arrival process and the batcher's rules follows what each setting would do at each rate: the
lowest p99 at every throughput, where it begins to cost much, and which setting carries or saves the most. All settings
see the same arrivals, so that they differ by what they do and not by luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autotuner.batching.arrivals import Intensity, draw
from autotuner.batching.simulator import Device, Law, simulate
from autotuner.batching.trials import Aim, Floats, Setting

SENSITIVITY = (0.75, 0.9, 1.0, 1.1, 1.25)
"""Multiples of today's rate that answers are given for."""

LOWEST = 0.5
"""The lowest rate looked at, as a multiple of today's."""

LEAST_STEP, MOST_STEPS = 1.06, 16
"""Ratio of neighbouring rates above today's at least, and how many there are at most."""

BEYOND_DEVICE = 1.02
"""Rates go up to this multiple of what the device could execute in the best batches."""

HOPELESS = 2.0
"""A setting is followed up to where p99 exceeds the ceiling this many times."""

SHOWN = 2.0
"""The frontier is followed up to this multiple of the ceiling."""

WINDOW_SECONDS = 60.0
REQUESTS = (4_000, 10_000)
"""A window's requests: as many as arrive in WINDOW_SECONDS, within these limits."""

SHARE_TOLERANCE, MOST_CORRECTIONS = 0.005, 4
"""How far the exclusive share may be from that of the batches that ran, and how often it is set right."""

BISECTIONS = 6


@dataclass(frozen=True)
class Replica:
    """What serves.

    curve_seconds: time of a batch that runs alone, by batch size, index 0 unused, shape (largest + 1,).
    exclusive_share: the share of it, 0 to 1, during which no other batch can use the device, same shape; the rest
    overlaps. overhead_seconds: of a request outside queue and batch. spread: standard deviation of the
    logarithm of a batch's time; tail_share of the batches take tail_factor times as long. law: how instances disturb
    one another; with another law than the exclusive one, exclusive_share holds its strength.
    """

    curve_seconds: Floats
    exclusive_share: Floats
    overhead_seconds: float
    spread: float
    tail_share: float = 0.0
    tail_factor: float = 1.0
    law: Law = Law.EXCLUSIVE

    def most_per_second(self, instances: int) -> float:
        """Inferences per second that the device could execute in batches of the best size."""
        sizes = np.arange(1, len(self.curve_seconds))
        alone, strength = self.curve_seconds[1:], self.exclusive_share[1:]
        if self.law is Law.EXCLUSIVE:
            return float(np.max(sizes / np.maximum(alone * strength, alone / instances)))
        return float(np.max(sizes * instances / (alone * (1.0 + strength * (instances - 1)))))


@dataclass(frozen=True)
class Question:
    """What is asked.

    settings: those to be compared, the incumbent among them. intensity: how today's rate changes over time.
    rate_per_second: today's, on one replica. tie: differences below this share count as none.
    """

    settings: tuple[Setting, ...]
    incumbent: Setting
    replica: Replica
    intensity: Intensity
    rate_per_second: float
    ceiling_seconds: float
    aim: Aim
    tie: float
    seed: int = 0

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Rates that every setting is looked at, ascending, requests per second."""
        near = [self.rate_per_second * share for share in (LOWEST, *SENSITIVITY)]
        instances = max(setting.instances for setting in self.settings)
        top = BEYOND_DEVICE * self.replica.most_per_second(instances)
        if top <= near[-1]:
            return tuple(near)
        steps = int(np.clip(np.ceil(np.log(top / near[-1]) / np.log(LEAST_STEP)), 1, MOST_STEPS))
        return (*near, *(float(rate) for rate in np.geomspace(near[-1], top, steps + 1)[1:]))

    @cached_property
    def factors(self) -> Floats:
        """Factors on batch times, mean 1."""
        spread, replica = self.replica.spread, self.replica
        rng = np.random.default_rng((self.seed, 17))
        drawn = np.exp(spread * rng.standard_normal(8192) - 0.5 * spread**2)
        if replica.tail_share > 0.0:
            drawn[rng.random(len(drawn)) < replica.tail_share] *= replica.tail_factor
            drawn /= 1.0 + replica.tail_share * (replica.tail_factor - 1.0)
        return np.asarray(drawn)


@dataclass(frozen=True)
class Reading:
    """What a setting does at a rate. busy_seconds: of the device, for one inference. utilisation: 0 to 1."""

    rate_per_second: float
    p50_seconds: float
    p99_seconds: float
    mean_batch: float
    busy_seconds: float
    utilisation: float


@dataclass(frozen=True)
class Climb:
    """A setting's readings at ascending rates, up to where it is hopeless."""

    setting: Setting
    readings: tuple[Reading, ...]

    def at(self, rate: float) -> Reading | None:
        """The reading at a rate that was looked at, None where the setting was given up before."""
        return next((one for one in self.readings if one.rate_per_second == rate), None)

    def brackets(self, since: float, ceiling_seconds: float) -> tuple[Reading | None, Reading | None]:
        """Return the last reading of those from `since` up that hold the ceiling, and the first one that does not."""
        held = None
        for reading in self.readings:
            if reading.rate_per_second >= since:
                if reading.p99_seconds > ceiling_seconds:
                    return held, reading
                held = reading
        return held, None

    def capacity(self, since: float, ceiling_seconds: float) -> float | None:
        """The highest rate such that the ceiling holds at every rate from `since` up to it; None where it does not."""
        held, broken = self.brackets(since, ceiling_seconds)
        if held is None or broken is None:
            return held.rate_per_second if held else None
        inside = np.log(ceiling_seconds / held.p99_seconds) / np.log(broken.p99_seconds / held.p99_seconds)
        return float(held.rate_per_second * (broken.rate_per_second / held.rate_per_second) ** inside)


class Looker:
    """Simulates settings of one question; arrivals are drawn once for each rate."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._arrivals: dict[float, Floats] = {}

    def climb(self, setting: Setting) -> Climb:
        """Return the setting's readings from the lowest rate up."""
        question, share = self.question, None
        readings: list[Reading] = []
        always = question.rate_per_second * SENSITIVITY[-1]
        for rate in question.rates:
            reading, share = self.look(setting, rate, share)
            readings.append(reading)
            if rate >= always and reading.p99_seconds > HOPELESS * question.ceiling_seconds:
                break
        return Climb(setting, tuple(readings))

    def look(self, setting: Setting, rate: float, share: float | None = None) -> tuple[Reading, float]:
        """Return a reading, and the exclusive share of the batches that really ran.

        share: where to begin to look for it. The simulated device has one share for all batch sizes, and which
        sizes run is only known afterwards.
        """
        replica, arrivals = self.question.replica, self._drawn(rate)
        used = float(replica.exclusive_share[setting.cap]) if share is None else share
        run = simulate(arrivals, setting, self._device(used), self.question.factors)
        for _ in range(MOST_CORRECTIONS if replica.law is Law.EXCLUSIVE else 0):
            alone = run.executions * replica.curve_seconds
            seen = float((alone * replica.exclusive_share).sum() / alone.sum())
            if abs(seen - used) <= SHARE_TOLERANCE:
                break
            used = seen
            run = simulate(arrivals, setting, self._device(used), self.question.factors)
        p50, p99 = np.quantile(run.latency_seconds, (0.5, 0.99))
        reading = Reading(
            rate,
            float(p50) + replica.overhead_seconds,
            float(p99) + replica.overhead_seconds,
            run.mean_batch,
            run.busy_seconds / len(arrivals),
            min(1.0, run.busy_seconds / run.span_seconds),
        )
        return reading, used

    def capacity(self, climb: Climb, since: float | None = None) -> float | None:
        """The climb's capacity from a rate, today's by default, looked for between the two rates around it."""
        question = self.question
        start = question.rate_per_second if since is None else since
        held, broken = climb.brackets(start, question.ceiling_seconds)
        if held is None or broken is None:
            return held.rate_per_second if held else None
        low, high = held.rate_per_second, broken.rate_per_second
        for _ in range(BISECTIONS):
            middle = float(np.sqrt(low * high))
            reading, _share = self.look(climb.setting, middle)
            if reading.p99_seconds <= question.ceiling_seconds:
                low = middle
            else:
                high = middle
        return low

    def _device(self, share: float) -> Device:
        return Device(self.question.replica.curve_seconds, self.question.replica.law, share)

    def _drawn(self, rate: float) -> Floats:
        if rate not in self._arrivals:
            count = int(np.clip(WINDOW_SECONDS * rate, *REQUESTS))
            rng = np.random.default_rng((self.question.seed, 11))
            self._arrivals[rate] = draw(self.question.intensity, rate, count, rng)
        return self._arrivals[rate]


def climbs(question: Question) -> Iterator[Climb]:
    """Yield what every setting does, one after the other."""
    looker = Looker(question)
    for setting in question.settings:
        yield looker.climb(setting)


# ---- the frontier


@dataclass(frozen=True)
class Point:
    """The lowest p99 at a throughput, and the simplest of the settings that reach it."""

    rate_per_second: float
    p99_seconds: float
    setting: Setting


def frontier(question: Question, found: Sequence[Climb]) -> tuple[Point, ...]:
    """Return the lowest p99 at every rate, up to a multiple of the ceiling; at least at the lowest rate."""
    points: list[Point] = []
    for rate in question.rates:
        there = [(climb, reading) for climb in found if (reading := climb.at(rate)) is not None]
        if not there:
            break
        least = min(reading.p99_seconds for _, reading in there)
        if points and least > SHOWN * question.ceiling_seconds:
            break
        tied = [climb.setting for climb, one in there if one.p99_seconds <= least * (1.0 + question.tie)]
        points.append(Point(rate, least, min(tied, key=_plain)))
    return tuple(points)


def knee(points: Sequence[Point], ceiling_seconds: float) -> Point | None:
    """Return the point after which more throughput costs p99 much faster; None where the curve has no bend.

    The one furthest below the line through both ends of log p99 over the rate (Satopää and others 2011, "Finding a
    Kneedle in a haystack"). What lies beyond the first point above the ceiling does not matter to anybody.
    """
    broken = next((i for i, point in enumerate(points) if point.p99_seconds > ceiling_seconds), len(points))
    points = points[: broken + 1]
    if len(points) < 3:
        return None
    rate = np.array([point.rate_per_second for point in points])
    height = np.log([point.p99_seconds for point in points])
    across = (rate - rate[0]) / (rate[-1] - rate[0])
    below = height[0] + across * (height[-1] - height[0]) - height
    furthest = int(np.argmax(below))
    return points[furthest] if below[furthest] > 0.0 else None


# ---- the best settings


def best(question: Question, found: Iterable[Climb], aim: Aim, since: float) -> Climb | None:
    """Return the best setting of those that hold the ceiling at the rate `since`, None where none does.

    Within the tie in what is aimed at the other aim decides, then fewer instances, then the simpler setting.
    """
    rated = []
    for climb in found:
        reading, capacity = climb.at(since), climb.capacity(since, question.ceiling_seconds)
        if reading is not None and capacity is not None:
            worth = {Aim.CAPACITY: capacity, Aim.EFFICIENCY: 1.0 / reading.busy_seconds}
            rated.append((worth, climb))
    other = Aim.EFFICIENCY if aim is Aim.CAPACITY else Aim.CAPACITY
    for goal in (aim, other):
        most = max((worth[goal] for worth, _ in rated), default=0.0)
        rated = [(worth, climb) for worth, climb in rated if worth[goal] >= most * (1.0 - question.tie)]
    return min((climb for _, climb in rated), key=lambda climb: _plain(climb.setting), default=None)


def _plain(setting: Setting) -> tuple[tuple[int, int, int], Setting]:
    return setting.complexity(), setting


# ---- burstiness

HIGH, LOW, STATE_SECONDS = 1.75, 0.5, 1.2
"""Two states, as multiples of the mean rate, and how long one lasts on average: what `burstier` adds."""

_BURST_SPAN_SECONDS = 600.0
_BURST_BIN_SECONDS = 0.05


def smooth(question: Question) -> Question:
    """The question with Poisson arrivals."""
    return replace(question, intensity=Intensity(1.0, np.ones(1)))


def burstier(question: Question) -> Question:
    """The question with arrivals that switch between HIGH and LOW times the rate they would have as given."""
    given = question.intensity
    rng = np.random.default_rng((question.seed, 19))
    width = min(_BURST_BIN_SECONDS, given.bin_seconds)
    bins = int(max(_BURST_SPAN_SECONDS, given.bin_seconds * len(given.relative)) / width)
    at = np.arange(bins) * width
    share = (1.0 - LOW) / (HIGH - LOW)
    stays = int(2 * at[-1] / STATE_SECONDS) + 8
    lengths = np.column_stack(
        [
            rng.exponential(2.0 * STATE_SECONDS * share, stays),
            rng.exponential(2.0 * STATE_SECONDS * (1.0 - share), stays),
        ]
    ).ravel()
    state = np.searchsorted(np.cumsum(lengths), at, side="right")
    rate = np.where(state % 2 == 0, HIGH, LOW)
    rate = rate * given.relative[(at / given.bin_seconds).astype(np.int64) % len(given.relative)]
    return replace(question, intensity=Intensity(width, rate / rate.mean()))
