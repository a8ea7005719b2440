"""Forecasts of settings: the ensemble's outlooks, corrected by what trials deviated, with honest bands.

Everything is drawn with common random numbers from the problem's seed, so that settings are compared on the same
traffic and the same history always gives the same forecast.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from autotuner.batching.arrivals import Intensity, draw, learn
from autotuner.batching.correction import Correction, fit
from autotuner.batching.ensemble import Member, explain
from autotuner.batching.evidence import Level, most_telling, telling
from autotuner.batching.outlook import Outlook, look, slower
from autotuner.batching.trials import Aim, Floats, History, Problem, Setting

PRECISE = 16_000
BRIEF = 8_000
ROUGH = 2_500
"""Requests simulated for a forecast at today's rate, at each other rate, and to choose what is worth a forecast."""

REPLAYS = 6
MOST_RESIDUALS = 16
"""Levels whose deviation from the forecast is looked at."""

STOPPED_SPREAD = 0.25
"""Standard deviation of log p99 of a level left for one cluster of slow requests: it looks worse than it is."""

UNSEEN_SPREAD = 0.15
"""Standard deviation of log p99 an octave beyond the largest batch size seen."""

TAIL_SHARE = 2.5
"""The step from quantile .99 to .995 counts as so many standard deviations: a service tail of 1 % sits right there."""

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
    _today: dict[Setting, Outlook] = field(default_factory=dict)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Explanations of the trials so far; none before anything was measured."""
        return self.known or explain(self.history, self.problem.seed)

    @cached_property
    def intensity(self) -> Intensity:
        """The recorded traffic's rate over time."""
        return self.course or learn(self.problem.arrivals)

    @cached_property
    def factors(self) -> list[Floats]:
        """Batch-time factors of each member."""
        return [
            member.noise.factors(np.random.default_rng((self.problem.seed, 7, number)))
            for number, member in enumerate(self.members)
        ]

    def arrivals(self, rate: float, count: int) -> Floats:
        """Return `count` arrivals at `rate`, the same at every call."""
        key = (rate, count)
        if key not in self._arrivals:
            rng = np.random.default_rng((self.problem.seed, 11, count))
            self._arrivals[key] = draw(self.intensity, rate, count, rng)
        return self._arrivals[key]

    # ---- correction

    @cached_property
    def correction(self) -> Correction:
        """What the trials deviated from their replays."""
        rows = []
        if self.members:
            found = telling(self.history)
            kept = {id(level) for level in most_telling([level for _, level in found], MOST_RESIDUALS)}
            rows = [
                self._residual(level, number)
                for number, level in found
                if id(level) in kept and level.measured.p99_seconds is not None
            ]
        if not rows:
            empty = np.zeros(0)
            return fit(np.zeros((0, 5)), empty, empty)
        features, residuals, noise = zip(*rows, strict=True)
        return fit(np.array(features), np.array(residuals), np.array(noise))

    def _residual(self, level: Level, number: int) -> tuple[Floats, float, float]:
        """Features, log observed over replayed p99, and the variance that the window's own chance gives it."""
        replays = []
        for replay in range(REPLAYS):
            rng = np.random.default_rng((self.problem.seed, 13, number, replay))
            factors = self.members[0].noise.factors(rng)
            replays.append(look(self.members[:1], level.setting, level.arrivals, [factors]))
        logs = np.array([outlook.log_p99 for outlook in replays])
        assert level.measured.p99_seconds is not None
        noise = float(logs.var(ddof=1)) * (1.0 + 1.0 / REPLAYS) + 0.01**2
        if not level.measured.accepted:
            noise += STOPPED_SPREAD**2
        features = replays[0].features(level.setting, self.problem.ceiling_seconds)
        return features, float(np.log(level.measured.p99_seconds) - logs.mean()), noise

    # ---- forecasts

    def rough(self, settings: tuple[Setting, ...]) -> list[tuple[float, float]]:
        """Return (p99 seconds at today's rate, value) of each setting, by the heaviest members on little traffic."""
        both = self._two()
        found = []
        for setting in settings:
            members, factors = (both[0][:1], both[1][:1]) if setting.instances == 1 else both
            today = look(members, setting, self.arrivals(self.problem.rates[0], ROUGH), factors)
            p99 = float(np.exp(today.log_p99))
            if self.problem.aim is Aim.EFFICIENCY or p99 > 1.2 * self.problem.ceiling_seconds:
                found.append((p99, -float(np.log(today.mean(today.busy_seconds)))))
            else:
                found.append((p99, float(np.log(self._rough_capacity(setting, members, factors)))))
        return found

    def _two(self) -> tuple[tuple[Member, ...], list[Floats]]:
        """The heaviest member and the heaviest one of another law."""
        first = self.members[0]
        other = next((i for i, m in enumerate(self.members) if m.device.law is not first.device.law), None)
        kept = [0] if other is None else [0, other]
        return tuple(self.members[i] for i in kept), [self.factors[i] for i in kept]

    def _rough_capacity(self, setting: Setting, members: tuple[Member, ...], factors: list[Floats]) -> float:
        """Highest rate within the ceiling by bisection, interpolated between the two levels around it."""
        rates, ceiling = self.problem.rates, np.log(self.problem.ceiling_seconds)
        low, high, known = 0, len(rates), {}
        while high - low > 1:
            middle = (low + high) // 2
            outlook = look(members, setting, self.arrivals(rates[middle], ROUGH), factors)
            known[middle] = outlook.log_p99
            low, high = (middle, high) if outlook.log_p99 <= ceiling else (low, middle)
        if high == len(rates) or low not in known:
            return rates[low]
        inside = (ceiling - known[low]) / max(known[high] - known[low], 1e-9)
        return float(rates[low] * (rates[high] / rates[low]) ** inside)

    def forecast(self, setting: Setting) -> Forecast:
        """Return the corrected forecast of a setting. There must be members."""
        today = self._outlook_today(setting)
        mean, spread = self._corrected(setting, today)
        if self.problem.aim is Aim.EFFICIENCY:
            busy = np.log(today.busy_seconds)
            value, value_spread = (
                -today.mean(busy),
                float(np.sqrt(today.mean((busy - today.mean(busy)) ** 2))),
            )
            held = self.problem.rates[0]
        else:
            value, value_spread, held = self._capacity(setting, today)
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

    def cautious(self, setting: Setting) -> Forecast:
        """Return the forecast with the nearness of saturation in its spread: for deciding what may be risked."""
        forecast = self.forecast(setting)
        return replace(forecast, spread=float(np.hypot(forecast.spread, self.cliff(setting))))

    def _outlook_today(self, setting: Setting) -> Outlook:
        """The outlook at today's rate, simulated once."""
        if setting not in self._today:
            arrivals = self.arrivals(self.problem.rates[0], PRECISE)
            self._today[setting] = look(self.members, setting, arrivals, self.factors)
        return self._today[setting]

    def _corrected(self, setting: Setting, outlook: Outlook) -> tuple[float, float]:
        """Mean and standard deviation of log p99, the cliff of saturation and unseen batch sizes included."""
        features = outlook.features(setting, self.problem.ceiling_seconds)
        shift, variance = self.correction.at(features[None, :])
        steep = outlook.mean(np.log(outlook.p995_seconds / outlook.p99_seconds)) / TAIL_SHARE
        unseen = UNSEEN_SPREAD * outlook.mean(outlook.unseen)
        total = variance[0] + outlook.spread**2 + steep**2 + unseen**2 + LEAST_SPREAD**2
        return outlook.log_p99 + float(shift[0]), float(np.sqrt(total))

    def cliff(self, setting: Setting) -> float:
        """Return how much log p99 at today's rate rises when the device is a little slower (`outlook.SLOWER`)."""
        arrivals = self.arrivals(self.problem.rates[0], PRECISE)
        worse = look([slower(self.members[0])], setting, arrivals, self.factors[:1])
        return abs(worse.log_p99 - float(np.log(self._outlook_today(setting).p99_seconds[0])))

    def _capacity(self, setting: Setting, today: Outlook) -> tuple[float, float, float]:
        """Mean and standard deviation of log capacity, and the rate that is probably held; by bisection."""
        rates, ceiling = self.problem.rates, float(np.log(self.problem.ceiling_seconds))
        mean, spread = self._corrected(setting, today)
        seen = {0: (mean, spread, np.log(today.p99_seconds) + mean - today.log_p99)}
        low, high = 0, len(rates)
        while (mean <= ceiling and high - low > 1) or (len(seen) == 1 and len(rates) > 1):
            middle = (low + high) // 2
            outlook = look(self.members, setting, self.arrivals(rates[middle], BRIEF), self.factors)
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
