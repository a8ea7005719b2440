"""Forecasts of settings: the ensemble's outlooks, corrected by what trials deviated, with honest bands.

Everything is drawn with common random numbers from the problem's seed, so that settings are compared on the same
traffic and the same history always gives the same forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from autotuner.batching.arrivals import Intensity, Recording, learn, replay
from autotuner.batching.correction import Correction, fit
from autotuner.batching.ensemble import Member, explain
from autotuner.batching.evidence import Level, most_telling, telling, usable
from autotuner.batching.outlook import Outlook, glance, look, slower
from autotuner.batching.trials import Aim, Floats, History, Problem, Setting


@dataclass(frozen=True)
class Depth:
    """How much traffic a forecast is made on: so many seconds, within these numbers of requests, by so many members.

    Seconds, because bursts have a length: a few thousand requests of a fast model are two or three bursts, and their
    p99 is that of the longest.
    """

    seconds: float
    fewest: int
    most: int
    members: int

    def count(self, rate_per_second: float) -> int:
        """Requests at a rate."""
        return int(np.clip(self.seconds * rate_per_second, self.fewest, self.most))


PRECISE = Depth(150.0, 24_000, 72_000, 6)
BRIEF = Depth(40.0, 8_000, 32_000, 3)
ABOVE = Depth(30.0, 8_000, 16_000, 6)
ROUGH = Depth(6.0, 2_500, 5_000, 2)
"""For what may be chosen, for what is worth a look, at rates above today's, and to find out what is worth a look."""

HOPELESS = 1.25
BEYOND_HOPE = 1.3
"""Multiple of the ceiling above which p99 need not be known, and by how much further it is taken to lie then."""

MOST_SHIFT = 0.3
"""The rough p99 of tried settings may differ from their precise one by so much, as a logarithm, and is made up for."""

MOST_REPLAYS, LEAST_REPLAYS, ALL_REPLAYS = 6, 3, 36
"""Replays of one level, and of all levels together about."""

MOST_RESIDUALS = 12
"""Levels whose deviation from the forecast is looked at."""

USUAL_NOISE_WEIGHT = 3.0
"""The mean noise of all windows counts like so many replays of each: the spread of a few says little."""

STOPPED_SPREAD = 0.25
"""Standard deviation of log p99 of a level left for one cluster of slow requests: it looks worse than it is."""

UNSEEN_SPREAD = 0.15
"""Standard deviation of log p99 an octave beyond the largest batch size seen."""

SHARE_ERROR = 0.06
TAIL_SHARE = 0.01
"""What the share of slow requests is wrong by in any case, relative; and the share of batches in a tail of their times,
where there is one: only those that ran tell how many there are. A tail of 1 % sits right on p99, so that a little more
or less of it moves p99 a lot."""

MOST_SHARE_ERROR = 0.4

UNMET_SPREAD = 0.08
"""Standard deviation of log p99 of several instances that were only seen at less than today's load, or not at all."""

LEAST_SPREAD = 0.015
OPENED = 1.0
"""A load level is worth opening where p99 is within the ceiling by so many standard deviations."""


@dataclass(frozen=True)
class Forecast:
    """What is expected of a setting.

    log_p99, spread: mean and standard deviation of the logarithm of p99 (seconds) at today's rate. value: what is
    maximised, as a logarithm: of the capacity in requests per second, or of inferences per device second;
    value_spread: its standard deviation. held_rate: requests per second
    that are probably held.
    """

    setting: Setting
    log_p99: float
    spread: float
    value: float
    value_spread: float
    mean_batch: float
    utilisation: float
    features: Floats
    held_rate: float

    def violation(self, limit_seconds: float) -> float:
        """Probability that p99 at today's rate is above `limit_seconds`."""
        return float(ndtr((self.log_p99 - np.log(limit_seconds)) / self.spread))


@dataclass
class Forecaster:
    """All that a history says about a problem; forecasts are computed when asked for."""

    problem: Problem
    history: History
    known: tuple[Member, ...] = ()
    """Explanations that are known otherwise; none: they are looked for in the history."""

    course: Intensity | None = None
    """The rate over time, where it is known better than from the problem's arrivals."""

    _arrivals: dict[tuple[float, int], Floats] = field(default_factory=dict)
    _cliffs: dict[Setting, float] = field(default_factory=dict)
    _forecasts: dict[tuple[Setting, Depth], Forecast] = field(default_factory=dict)
    _looked: dict[tuple[Setting, float, Depth], Outlook] = field(default_factory=dict)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Explanations of the trials so far; none before anything was measured."""
        return self.known or explain(self.history, self.problem.seed)

    @cached_property
    def intensity(self) -> Intensity:
        """The recorded traffic's rate over time."""
        return self.course or learn(self.problem.arrivals)

    @cached_property
    def _recording(self) -> Recording:
        """The recorded arrivals; none where the rate over time is known better."""
        return Recording(self.problem.arrivals if self.course is None else np.zeros(0))

    @cached_property
    def factors(self) -> list[Floats]:
        """Batch-time factors of each member."""
        return [
            member.noise.factors(np.random.default_rng((self.problem.seed, 7, number)))
            for number, member in enumerate(self.members)
        ]

    def arrivals(self, rate: float, count: int) -> Floats:
        """Return about `count` arrivals at `rate`, the same at every call."""
        key = (rate, count)
        if key not in self._arrivals:
            rng = np.random.default_rng((self.problem.seed, 11, count))
            self._arrivals[key] = replay(self._recording, self.intensity, rate, count, rng)
        return self._arrivals[key]

    # ---- correction

    @cached_property
    def correction(self) -> Correction:
        """What the trials deviated from their replays."""
        found = telling(self.history) if self.members else []
        kept = {id(level) for level in most_telling([level for _, level in found], MOST_RESIDUALS)}
        used = [
            (level, number)
            for number, level in found
            if id(level) in kept and level.measured.p99_seconds is not None
        ]
        if not used:
            empty = np.zeros(0)
            return fit(np.zeros((0, 5)), empty, empty)
        replays = int(np.clip(ALL_REPLAYS // len(used), LEAST_REPLAYS, MOST_REPLAYS))
        rows = [self._residual(level, number, replays) for level, number in used]
        features, residuals, noise = zip(*rows, strict=True)
        shrunk = self._window_noise(np.array(noise), replays)
        stopped = np.array([not level.measured.accepted for level, _ in used])
        return fit(
            np.array(features), np.array(residuals), shrunk + np.where(stopped, STOPPED_SPREAD**2, 0.0)
        )

    def _residual(self, level: Level, number: int, replays: int) -> tuple[Floats, float, float]:
        """Features, log observed over replayed p99, and the variance of log p99 between the replays."""
        outlooks = []
        for repetition in range(replays):
            rng = np.random.default_rng((self.problem.seed, 13, number, repetition))
            factors = self.members[0].noise.factors(rng)
            outlooks.append(look(self.members[:1], level.setting, level.arrivals, [factors]))
        logs = np.array([outlook.log_p99 for outlook in outlooks])
        assert level.measured.p99_seconds is not None
        features = outlooks[0].features(level.setting, self.problem.ceiling_seconds)
        return features, float(np.log(level.measured.p99_seconds) - logs.mean()), float(logs.var(ddof=1))

    @staticmethod
    def _window_noise(between: Floats, replays: int) -> Floats:
        """The variance that each window's own chance gives a residual, from that between its replays."""
        freedom = replays - 1.0
        shrunk = (freedom * between + USUAL_NOISE_WEIGHT * between.mean()) / (freedom + USUAL_NOISE_WEIGHT)
        return np.asarray(shrunk * (1.0 + 1.0 / replays) + 0.01**2)

    # ---- forecasts

    def rough(self, settings: tuple[Setting, ...]) -> list[tuple[float, float]]:
        """Return (p99 seconds at today's rate, value) of each setting, by the heaviest members on little traffic.

        An infinite p99 stands for one above HOPELESS ceilings.
        """
        both = self._two
        rate = self.problem.rates[0]
        arrivals = self.arrivals(rate, ROUGH.count(rate))
        shift = self._rough_shift
        limit = HOPELESS * self.problem.ceiling_seconds * float(np.exp(-shift))
        found = []
        for setting in settings:
            used = list(zip(*both, strict=True))[: 1 if setting.instances == 1 else 2]
            looked = [glance(member, setting, arrivals, factors, limit) for member, factors in used]
            seen = [one for one in looked if one is not None]
            if not seen:
                found.append((np.inf, -np.inf))
                continue
            logs = [one.log_p99 if one else np.log(BEYOND_HOPE * limit) for one in looked]
            p99 = float(np.exp(np.mean(logs) + shift))
            if self.problem.aim is Aim.EFFICIENCY:
                found.append((p99, -float(np.mean([np.log(one.busy_seconds[0]) for one in seen]))))
            else:
                found.append((p99, float(np.log(self._rough_capacity(setting, *used[0])))))
        return found

    @cached_property
    def _rough_shift(self) -> float:
        """How much lower the little traffic makes log p99 than much of it does, on the first and the last trial."""
        rate = self.problem.rates[0]
        shifts = []
        for setting in {trial.setting: None for trial in (self.history[0], self.history[-1])}:
            little, much = (
                look(self.members[:1], setting, self.arrivals(rate, depth.count(rate)), self.factors[:1])
                for depth in (ROUGH, BRIEF)
            )
            shifts.append(much.log_p99 - little.log_p99)
        return float(np.clip(np.mean(shifts), -MOST_SHIFT, MOST_SHIFT))

    @cached_property
    def _two(self) -> tuple[tuple[Member, ...], list[Floats]]:
        """The heaviest member and the heaviest one of another law."""
        first = self.members[0]
        other = next((i for i, m in enumerate(self.members) if m.device.law is not first.device.law), None)
        kept = [0] if other is None else [0, other]
        return tuple(self.members[i] for i in kept), [self.factors[i] for i in kept]

    def _rough_capacity(self, setting: Setting, member: Member, factors: Floats) -> float:
        """Highest rate within the ceiling by bisection, interpolated between the two levels around it."""
        rates, ceiling = self.problem.rates, self.problem.ceiling_seconds
        low, high, known = 0, len(rates), {}
        while high - low > 1:
            middle = (low + high) // 2
            arrivals = self.arrivals(rates[middle], ROUGH.fewest)
            outlook = glance(member, setting, arrivals, factors, HOPELESS * ceiling)
            known[middle] = outlook.log_p99 if outlook else float(np.log(HOPELESS * ceiling))
            low, high = (middle, high) if known[middle] <= np.log(ceiling) else (low, middle)
        if high == len(rates) or low not in known:
            return rates[low]
        inside = (np.log(ceiling) - known[low]) / max(known[high] - known[low], 1e-9)
        return float(rates[low] * (rates[high] / rates[low]) ** inside)

    def forecast(self, setting: Setting, depth: Depth = PRECISE) -> Forecast:
        """Return the corrected forecast of a setting, made once. There must be members."""
        key = (setting, depth)
        if key not in self._forecasts:
            self._forecasts[key] = self._forecast(setting, depth)
        return self._forecasts[key]

    def _forecast(self, setting: Setting, depth: Depth) -> Forecast:
        today = self._outlook(setting, self.problem.rates[0], depth)
        mean, spread = self._corrected(setting, today)
        if self.problem.aim is Aim.EFFICIENCY:
            busy = np.log(today.busy_seconds)
            value, value_spread = (
                -today.mean(busy),
                float(np.sqrt(today.mean((busy - today.mean(busy)) ** 2))),
            )
            held = self.problem.rates[0]
        else:
            value, value_spread, held = self._capacity(setting, today, depth.members)
        return Forecast(
            setting,
            mean,
            spread,
            value,
            value_spread,
            today.mean(today.mean_batch),
            today.mean(today.utilisation),
            today.features(setting, self.problem.ceiling_seconds),
            held,
        )

    def cautious(self, setting: Setting, depth: Depth = PRECISE) -> Forecast:
        """Return the forecast with more in its spread, for deciding what may be risked.

        That is the nearness of saturation, and several instances that were not seen at today's load yet.
        """
        forecast = self.forecast(setting, depth)
        unmet = UNMET_SPREAD if setting.instances > 1 and not self._several_met else 0.0
        spread = np.sqrt(forecast.spread**2 + self.cliff(setting) ** 2 + unmet**2)
        return replace(forecast, spread=float(spread))

    @cached_property
    def _several_met(self) -> bool:
        """Whether several instances were seen at today's load."""
        return any(
            trial.setting.instances > 1 and trial.meets(self.problem.rates[0]) for trial in self.history
        )

    def at(self, setting: Setting, rate: float) -> tuple[float, float]:
        """Return mean and standard deviation of log p99 (seconds) at another rate, requests per second."""
        return self._corrected(setting, self._outlook(setting, rate, BRIEF))

    def _outlook(self, setting: Setting, rate: float, depth: Depth) -> Outlook:
        """The outlook at a rate, simulated once."""
        key = (setting, rate, depth)
        if key not in self._looked:
            used = slice(depth.members)
            arrivals = self.arrivals(rate, depth.count(rate))
            self._looked[key] = look(self.members[used], setting, arrivals, self.factors[used])
        return self._looked[key]

    def _corrected(self, setting: Setting, outlook: Outlook) -> tuple[float, float]:
        """Mean and standard deviation of log p99, the cliff of saturation and unseen batch sizes included."""
        features = outlook.features(setting, self.problem.ceiling_seconds)
        shift, variance = self.correction.at(features[None, :])
        slope = outlook.mean(np.log(outlook.p995_seconds / outlook.p99_seconds)) / np.log(2.0)
        steep = slope * self.share_error
        unseen = UNSEEN_SPREAD * outlook.mean(outlook.unseen)
        total = variance[0] + outlook.spread**2 + steep**2 + unseen**2 + LEAST_SPREAD**2
        return outlook.log_p99 + float(shift[0]), float(np.sqrt(total))

    @cached_property
    def share_error(self) -> float:
        """Relative error of the share of requests that are slow, as a standard deviation."""
        tailed = sum(member.weight for member in self.members if member.noise.tail_share > 0.0)
        ran = sum(level.executions for level in usable(self.history))
        return min(MOST_SHARE_ERROR, SHARE_ERROR + tailed / math.sqrt(max(1.0, TAIL_SHARE * ran)))

    def cliff(self, setting: Setting) -> float:
        """Return how much log p99 at today's rate rises when the device is a little slower (`outlook.SLOWER`)."""
        if setting not in self._cliffs:
            self._cliffs[setting] = self._cliff(setting)
        return self._cliffs[setting]

    def _cliff(self, setting: Setting) -> float:
        rate = self.problem.rates[0]
        arrivals = self.arrivals(rate, BRIEF.count(rate))
        worse = look([slower(self.members[0])], setting, arrivals, self.factors[:1])
        return abs(worse.log_p99 - float(np.log(self._outlook(setting, rate, BRIEF).p99_seconds[0])))

    def _capacity(self, setting: Setting, today: Outlook, members: int) -> tuple[float, float, float]:
        """Mean and standard deviation of log capacity, and the rate that is probably held; by bisection."""
        rates, ceiling = self.problem.rates, float(np.log(self.problem.ceiling_seconds))
        mean, spread = self._corrected(setting, today)
        seen = {0: (mean, spread, np.log(today.p99_seconds) + mean - today.log_p99)}
        low, high = 0, len(rates)
        while (mean <= ceiling and high - low > 1) or (len(seen) == 1 and len(rates) > 1):
            middle = (low + high) // 2
            outlook = self._outlook(setting, rates[middle], replace(ABOVE, members=members))
            centre, spread = self._corrected(setting, outlook)
            seen[middle] = centre, spread, np.log(outlook.p99_seconds) + centre - outlook.log_p99
            low, high = (middle, high) if centre <= ceiling else (low, middle)
        levels = sorted(seen)
        log_rates = np.log([rates[level] for level in levels])
        centres, spreads = np.array([seen[n][0] for n in levels]), np.array([seen[n][1] for n in levels])
        by_member = np.array([seen[level][2] for level in levels])
        own = np.array([_crossing(log_rates, by_member[:, i], ceiling) for i in range(by_member.shape[1])])
        band = [_crossing(log_rates, centres + sign * spreads, ceiling) for sign in (1.0, -1.0)]
        value = today.mean(own)
        between = float(np.sqrt(today.mean((own - value) ** 2)))
        safe = float(np.exp(_crossing(log_rates, centres + OPENED * spreads, ceiling)))
        return value, max(abs(band[1] - band[0]) / 2.0, between), safe


def _crossing(log_rates: Floats, log_p99: Floats, ceiling: float) -> float:
    """Logarithm of the rate at which log p99 first exceeds the ceiling, at least a tenth below the first rate."""
    above = np.nonzero(log_p99 > ceiling)[0]
    if not len(above):
        return float(log_rates[-1])
    first = int(above[0])
    if first == 0:
        return float(log_rates[0] - min(0.7, log_p99[0] - ceiling))
    inside = (ceiling - log_p99[first - 1]) / (log_p99[first] - log_p99[first - 1])
    return float(log_rates[first - 1] + inside * (log_rates[first] - log_rates[first - 1]))
