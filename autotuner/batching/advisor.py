"""Which setting to try next, and which to keep: the best one that is very probably within the ceiling.

The first trial is the incumbent. Then the setting with the largest expected gain among those whose probability of a
violation fits into what is left of the study's risk; or, where only several instances could pay and nobody knows how
they disturb one another, the mildest setting that would show it. Nothing safe promises enough: the search is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autotuner.batching.forecast import Forecast, Forecaster
from autotuner.batching.trials import Advice, Aim, History, Measured, Problem, Setting, Tried

RISK_A_STUDY = 0.35
"""Sum of the probabilities of a violation that a study may accept."""

RISK_A_TRIAL = 0.05
LAST_RISK = 0.15
"""What a trial may risk at most, and what one may when nothing less risky promises anything."""

LIMIT = 1.01
"""A violation is a p99 above this multiple of the ceiling."""

FIRST_DELAY_MARGIN = 0.92
"""Share of the ceiling that the mean p99 may reach before any setting with a delay was tried."""

PROBE_MARGIN = 0.94
"""Share of the ceiling that the probe of interference may reach under the worst explanation."""

LEAST_GAIN = 0.015
"""Expected relative gain below which no further trial is worth its traffic."""

INSTANCE_COST = 0.004
"""What an instance more must bring, relative; a tie goes to fewer."""

SHORTLIST = {Aim.EFFICIENCY: 3, Aim.CAPACITY: 2}
"""Settings of a band that are looked at closely, of known and of untried numbers of instances each."""

BANDS = (0.5, 0.65, 0.75, 0.85, 0.91, 0.96, 1.01, 1.1)
"""Shares of the ceiling between which the best settings are looked at: the nearer to it, the better and the riskier."""

DELAY_STRIDE = 4
"""Every so-manieth delay is looked at first where capacity leads: at saturation the delay is nearly inert."""

STONE_RISK = 0.02
MOST_STONES = 4
NEARER = 0.6
"""A step that only brings knowledge risks less, is one of a few, and at most this share of the squared way away."""

MOST_DOUBT = 0.6
HOPED_GAIN = 0.03
"""What it is to lead to: settings that violate with no more than this probability and promise that much."""

DOUBTFUL_MISFIT = 0.06
"""Misfit, as a standard deviation of log p99, above which another window of the incumbent is worth its time."""

REACHED_TODAY = 0.9
"""Share of today's rate from which a level counts as one at today's rate."""

MOST_LEADERS = 6
"""Tried settings that are looked at again: the best, and the latest."""

MOST_RATED = 1200
"""Settings that are all looked at roughly; of more, every so-manieth delay first, then those beside the promising."""

MOST_REPEATS = 3
"""How often the incumbent is measured at most."""

RESORT_RISK = 0.33
RESORT_GAIN = 0.1
"""What the last resort may risk, and must promise: the guard ends it after a dozen slow requests."""

CHOICE_RISK = 0.06
CHOICE_LIMIT = 1.02


def advise(problem: Problem, history: History) -> Advice:
    """Return the next setting to try and why; no setting when nothing safe promises enough.

    A pure function: the same problem and history give the same advice.
    """
    if not history:
        why = "the incumbent first, at today's load: what everything is compared with"
        return Advice(problem.incumbent, why, highest_rate=problem.rates[0])
    forecaster = Forecaster(problem, history)
    if not forecaster.members:
        return Advice(None, "no trial has measured batches yet: nothing can be predicted")
    return _Search(forecaster).advice()


def choose(problem: Problem, history: History) -> Setting:
    """Return the setting to keep: the best measured one that is within the ceiling beyond reasonable doubt.

    The incumbent where no other qualifies.
    """
    forecaster = Forecaster(problem, history)
    good = [trial for trial in history if trial.setting != problem.incumbent and _held(trial, problem)]
    if not forecaster.members:
        return problem.incumbent
    rated = []
    for trial in [t for t in history if t.setting == problem.incumbent] + good:
        forecast = forecaster.cautious(trial.setting)
        sure = (
            forecast.log_p99 <= np.log(problem.ceiling_seconds)
            and forecast.violation(CHOICE_LIMIT * problem.ceiling_seconds) <= CHOICE_RISK
        )
        if sure or trial.setting == problem.incumbent:
            value = _measured_value(trial, problem, forecast)
            rated.append((round(value - INSTANCE_COST * trial.setting.instances, 6), trial.setting))
    if not rated:
        return problem.incumbent
    return max(rated, key=lambda found: (found[0], [-part for part in found[1].complexity()]))[1]


def _today(trial: Tried, problem: Problem) -> Measured | None:
    """The level at today's rate, or the nearest to it; a ladder may begin below it."""
    return min(trial.levels, key=lambda level: abs(level.rate_per_second - problem.rates[0]), default=None)


def _busy_today(trial: Tried, problem: Problem) -> float | None:
    """Device seconds per inference at today's rate; None where unknown."""
    level = _today(trial, problem)
    return level.busy_seconds_per_inference if level else None


def _held(trial: Tried, problem: Problem) -> bool:
    """Whether today's level was accepted with a measured p99 within the ceiling."""
    level = _today(trial, problem)
    if level is None or not level.accepted or level.rate_per_second < REACHED_TODAY * problem.rates[0]:
        return False
    return level.p99_seconds is None or level.p99_seconds <= problem.ceiling_seconds


def _reached(trial: Tried, problem: Problem) -> float:
    """What the trial itself shows of the aim: inferences per device second, or the highest accepted rate."""
    if problem.aim is Aim.CAPACITY:
        return max((level.rate_per_second for level in trial.levels if level.accepted), default=0.0)
    busy = _busy_today(trial, problem)
    return 1.0 / busy if busy else 0.0


def _measured_value(trial: Tried, problem: Problem, forecast: Forecast) -> float:
    """What the trial reached, as `Forecast.value` is given.

    A capacity is the forecast's, which has learnt from the trial: its ladder ends below what it can carry.
    """
    if problem.aim is Aim.CAPACITY:
        return forecast.value
    busy = _busy_today(trial, problem)
    return -float(np.log(busy)) if busy else forecast.value


@dataclass
class _Search:
    forecaster: Forecaster

    @property
    def problem(self) -> Problem:
        return self.forecaster.problem

    @property
    def history(self) -> History:
        return self.forecaster.history

    def advice(self) -> Advice:
        forecasts = self._forecasts()
        best = self._best_so_far()
        left = max(0.0, RISK_A_STUDY - sum(trial.risk for trial in self.history))
        safe, chosen = self._chosen(forecasts, best, min(RISK_A_TRIAL, left))
        if chosen is None or self._worth(chosen, best) <= LEAST_GAIN:
            safe, chosen = self._chosen(forecasts, best, min(LAST_RISK, left))
        gain = chosen.value - best if chosen else 0.0
        probe = self._probe(forecasts, best, max(gain, 0.0))
        if probe is not None:
            return self._said(probe, best, "shows how instances disturb one another")
        if chosen is not None and self._worth(chosen, best) > LEAST_GAIN:
            return self._said(chosen, best, "largest expected gain among the safe settings")
        stone = self._stone(forecasts, best)
        if stone is not None:
            return self._said(stone, best, "a safe step towards a better setting that is not safe yet")
        if self._worth_repeating() and self._hoped(forecasts, best):
            return self._again("better settings are in sight, and its last window told too little")
        resort = self._resort(forecasts, best, left)
        if resort is not None:
            return self._said(resort, best, "nothing else is left to learn from, and much to gain")
        if len(self.history) == 1 and self._hoped(forecasts, best):
            return self._again("better settings are in sight, but too little is known to try any safely")
        why = f"nothing safe promises more than {LEAST_GAIN:.1%}"
        return Advice(None, f"{why}: {len(safe)} of {len(forecasts)} promising settings are safe")

    def _chosen(
        self, forecasts: list[Forecast], best: float, allowed: float
    ) -> tuple[list[Forecast], Forecast | None]:
        """The settings whose risk is allowed, and the best of them."""
        safe = [f for f in forecasts if self._risk(f) <= allowed and self._mild(f)]
        return safe, max(safe, key=lambda f: self._rank(f, best), default=None)

    # ---- candidates

    def _forecasts(self) -> list[Forecast]:
        """Forecasts of the most promising untried settings, within the ceiling or nearly."""
        tried = {trial.setting for trial in self.history}
        left = tuple(s for s in self.problem.candidates if s not in tried)
        return [self.forecaster.cautious(setting) for setting in self._shortlist(left)]

    def _shortlist(self, left: tuple[Setting, ...]) -> list[Setting]:
        """The best of each band of p99, of known and of untried numbers of instances; of equal ones the simplest."""
        share_of_band = SHORTLIST[self.problem.aim]
        if max(trial.setting.instances for trial in self.history) == 1:
            left = tuple(s for s in left if s.instances <= self.problem.incumbent.instances + 1)
        coarse = self._thinned(left)
        rated = self._rated(coarse)
        kept = self._picked(rated, share_of_band)
        if len(coarse) < len(left) and self.problem.aim is Aim.EFFICIENCY:
            rated += self._rated(tuple(self._beside(kept, left) - set(coarse)))
            kept = self._picked(rated, share_of_band)
        return list(dict.fromkeys([*kept, *self._mildest(left)]))

    def _thinned(self, left: tuple[Setting, ...]) -> tuple[Setting, ...]:
        """Settings with every so-manieth delay only, where there are too many or the delay is nearly inert."""
        stride = DELAY_STRIDE if self.problem.aim is Aim.CAPACITY else math.ceil(len(left) / MOST_RATED)
        kept = set(sorted({s.delay_seconds for s in left})[::stride])
        return tuple(s for s in left if s.delay_seconds in kept)

    def _beside(self, kept: Sequence[Setting], left: Sequence[Setting]) -> set[Setting]:
        """Settings that differ from one of `kept` in the delay alone, and little."""
        delays = sorted({s.delay_seconds for s in left})
        place = {delay: number for number, delay in enumerate(delays)}
        wanted = {
            (replace(s, delay_seconds=delays[n]))
            for s in kept
            for n in range(max(0, place[s.delay_seconds] - 2), min(len(delays), place[s.delay_seconds] + 3))
        }
        return wanted & set(left)

    def _rated(
        self, settings: tuple[Setting, ...]
    ) -> list[tuple[float, tuple[int, int, int], Setting, float]]:
        """Each setting with minus its rough value, its complexity and its rough p99 over the ceiling."""
        ceiling = self.problem.ceiling_seconds
        return [
            (-round(value - INSTANCE_COST * s.instances, 4), s.complexity(), s, p99 / ceiling)
            for s, (p99, value) in zip(settings, self.forecaster.rough(settings), strict=True)
        ]

    def _picked(
        self, rated: list[tuple[float, tuple[int, int, int], Setting, float]], share_of_band: int
    ) -> list[Setting]:
        tried = {trial.setting.instances for trial in self.history}
        kept: list[Setting] = []
        ordered = sorted(rated)
        for low, high in pairwise((0.0, *BANDS)):
            inside = [(value, s, share) for value, _, s, share in ordered if low < share <= high]
            known = _unlike([one for one in inside if one[1].instances in tried])
            other = _unlike([one for one in inside if one[1].instances not in tried])
            kept += [*known[:share_of_band], *other[:share_of_band]]
        return kept

    def _mildest(self, left: Sequence[Setting]) -> list[Setting]:
        """Settings of one instance more than any tried one, without a long delay: candidates for the probe."""
        most = max(trial.setting.instances for trial in self.history)
        more = [s for s in left if s.instances == most + 1]
        return sorted(more, key=lambda s: (s.delay_seconds, len(s.preferred), -s.cap))[:3]

    # ---- judging forecasts

    def _best_so_far(self) -> float:
        """The best value of a tried setting that held, by forecast, so that both sides err alike."""
        held = [t for t in self.history if _held(t, self.problem) or t.setting == self.problem.incumbent]
        ordered = sorted(held, key=lambda trial: -_reached(trial, self.problem))[:MOST_LEADERS]
        return max((self.forecaster.forecast(t.setting).value for t in ordered), default=-np.inf)

    def _risk(self, forecast: Forecast) -> float:
        return forecast.violation(LIMIT * self.problem.ceiling_seconds)

    def _mild(self, forecast: Forecast) -> bool:
        """Whether a first delay keeps its distance: how delays work here has not been seen yet."""
        delayed = any(trial.setting.delay_seconds > 0 for trial in self.history)
        if delayed or forecast.setting.delay_seconds == 0:
            return True
        return bool(forecast.log_p99 <= np.log(FIRST_DELAY_MARGIN * self.problem.ceiling_seconds))

    def _gain(self, forecast: Forecast, best: float) -> float:
        extra = forecast.setting.instances - self.problem.incumbent.instances
        return forecast.value - best - INSTANCE_COST * max(0, extra)

    def _rank(self, forecast: Forecast, best: float) -> tuple[float, list[int]]:
        return round(self._worth(forecast, best), 6), [-part for part in forecast.setting.complexity()]

    def _worth(self, forecast: Forecast, best: float) -> float:
        """Expected relative gain: nothing is gained where the ceiling does not hold."""
        return (1.0 - forecast.violation(self.problem.ceiling_seconds)) * self._gain(forecast, best)

    def _probe(self, forecasts: list[Forecast], best: float, gain: float) -> Forecast | None:
        """The mildest setting with one instance more, where more instances could beat what is safe without."""
        if max(trial.setting.instances for trial in self.history) > 1:
            return None
        if self.problem.aim is Aim.CAPACITY and gain > LEAST_GAIN:
            return None  # a capacity shows at once in what is surely better; knowledge of more instances can wait
        several = [f for f in forecasts if f.setting.instances > 1]
        hope = max((f.value + f.value_spread - best for f in several), default=0.0)
        if hope <= gain + LEAST_GAIN:
            return None
        limit = np.log(PROBE_MARGIN * self.problem.ceiling_seconds)
        mild = [f for f in several if f.setting.instances == 2 and f.log_p99 + 1.64 * f.spread <= limit]
        return max(
            mild, key=lambda f: (round(f.value, 6), [-p for p in f.setting.complexity()]), default=None
        )

    def _hoped(self, forecasts: list[Forecast], best: float) -> list[Forecast]:
        """Clearly better settings that may well be within the ceiling."""
        ceiling = self.problem.ceiling_seconds
        return [
            f for f in forecasts if f.violation(ceiling) <= MOST_DOUBT and self._gain(f, best) > HOPED_GAIN
        ]

    def _again(self, why: str) -> Advice:
        return Advice(
            self.problem.incumbent, f"the incumbent once more: {why}", highest_rate=self.problem.rates[0]
        )

    def _worth_repeating(self) -> bool:
        """Whether one more window of the incumbent would tell much: it was not accepted, or not foreseen."""
        windows = [trial for trial in self.history if trial.setting == self.problem.incumbent]
        doubtful = (
            not _held(windows[-1], self.problem) or self.forecaster.correction.variance > DOUBTFUL_MISFIT**2
        )
        return doubtful and len(windows) < MOST_REPEATS

    def _resort(self, forecasts: list[Forecast], best: float, left: float) -> Forecast | None:
        """The least risky clear gain, where the study would end on the incumbent."""
        if any(_held(t, self.problem) and t.setting != self.problem.incumbent for t in self.history):
            return None
        kept = [
            f
            for f in forecasts
            if self._gain(f, best) > RESORT_GAIN and self._risk(f) <= min(RESORT_RISK, left)
        ]
        return min(
            kept, key=lambda f: (round(self._risk(f), 4), f.setting.complexity(), f.setting), default=None
        )

    def _stone(self, forecasts: list[Forecast], best: float) -> Forecast | None:
        """A safe setting nearer than any tried one to the best of those that may be within the ceiling."""
        hoped = self._hoped(forecasts, best)
        steps = sum(1 for trial in self.history if trial.risk == 0.0) - 1
        if not hoped or steps >= MOST_STONES:
            return None
        goal = max(hoped, key=lambda f: self._rank(f, best)).features
        tried = min(
            float(np.sum((self.forecaster.forecast(t.setting).features - goal) ** 2))
            for t in self.history[-MOST_LEADERS:]
        )
        safe = [f for f in forecasts if self._risk(f) <= STONE_RISK and self._mild(f)]
        nearer = [(float(np.sum((f.features - goal) ** 2)), f) for f in safe]
        kept = [
            (round(apart, 6), f.setting.complexity(), f) for apart, f in nearer if apart <= NEARER * tried
        ]
        return min(kept, key=lambda found: (found[0], found[1], found[2].setting))[2] if kept else None

    def _said(self, forecast: Forecast, best: float, why: str) -> Advice:
        p99_ms = np.exp(forecast.log_p99) * 1e3
        low, high = (np.exp(forecast.log_p99 + sign * 1.64 * forecast.spread) * 1e3 for sign in (-1, 1))
        predicted = {
            "p99_ms": round(float(p99_ms), 3),
            "p99_low_ms": round(float(low), 3),
            "p99_high_ms": round(float(high), 3),
            "gain": round(float(np.expm1(forecast.value - best)), 4),
            "violation_probability": round(self._risk(forecast), 5),
            "mean_batch": round(forecast.mean_batch, 3),
            "utilisation": round(forecast.utilisation, 4),
        }
        return Advice(
            forecast.setting,
            f"{why}: p99 of {p99_ms:.0f} ms expected ({low:.0f}–{high:.0f}), gain {predicted['gain']:.1%}",
            predicted,
            forecast.held_rate,
        )


def record(advice: Advice, trial: Tried) -> Tried:
    """Return the trial with the risk that the advice accepted for it."""
    return replace(trial, risk=advice.predicted.get("violation_probability", 0.0))


def _unlike(rated: Sequence[tuple[float, Setting, float]]) -> list[Setting]:
    """Settings that differ in value or p99; of those that do not, the first."""
    kept: dict[tuple[float, float], Setting] = {}
    for value, setting, share in rated:
        kept.setdefault((round(value, 2), round(share, 2)), setting)
    return list(kept.values())
