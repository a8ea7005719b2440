"""Which setting to try next: the best one that is very probably within the ceiling.

The first trial is the incumbent. Then the setting with the largest expected gain among those whose probability of a
violation fits into what is left of the study's risk; or, where only several instances could pay and nobody knows how
they disturb one another, the mildest setting that would show it. Nothing safe promises enough: the search is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from autotuner.batching.forecast import BRIEF, Forecast, Forecaster
from autotuner.batching.trials import REACHED, Advice, Aim, History, Measured, Problem, Setting, Tried

RISK_A_STUDY = 0.5
"""Sum of the probabilities of a violation that a study may accept."""

FAILED = 0.3
"""What a trial that did not hold has spent of it at least: who was wrong once risks less."""

RISK_A_TRIAL = 0.05
LAST_RISK = 0.15
"""What a trial may risk at most, and what one may when nothing less risky promises anything."""

LIMIT = 1.01
"""A violation is a p99 above this multiple of the ceiling."""

FIRST_DELAY_MARGIN = 0.8
"""Share of the ceiling that the mean p99 may reach before any setting with a delay was tried."""

PROBE_MARGIN = 0.94
"""Share of the ceiling that the probe of interference may reach under the worst explanation."""

LEAST_GAIN = 0.015
"""Expected relative gain below which no further trial is worth its traffic."""

INSTANCE_COST = 0.004
"""What an instance more must bring, relative; a tie goes to fewer."""

SHORTLIST = {Aim.EFFICIENCY: 2, Aim.CAPACITY: 1}
"""Settings of a band that are looked at closely, of known and of untried numbers of instances each."""

BANDS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2)
"""Shares of the ceiling between which the best settings are looked at: the nearer to it, the better and the riskier."""

EDGES = 6
BELOW_EDGE = 3
"""Kinds of setting whose delay is driven up to the ceiling, and delays below that one that are looked at too."""

DELAY_STRIDE = 8
"""Every so-manieth delay is looked at first where capacity leads: at saturation the delay is nearly inert."""

STONE_RISK = 0.1
STONES_UNTIL = 10
NEARER = 0.85
"""A step that only brings knowledge risks less, is made while trials are few, and leaves at most this share of the
squared way."""

MOST_DOUBT = 0.6
HOPED_GAIN = 0.03
"""What it is to lead to: settings that violate with no more than this probability and promise that much."""

MOST_LEADERS = 6
"""Tried settings that are looked at again: the best, and the latest."""

MOST_RATED = 240
"""Settings that are all looked at roughly; of more, every so-manieth delay first, then those beside the promising."""

FINALISTS, HOPEFULS = 8, 4
"""Settings that are looked at closely: the best by expected gain, and by gain of those that may well be within."""

PRICE_OF_RISK = 0.3
"""Relative gain that a certain violation costs: of two settings that promise nearly the same the safer one is tried."""

GENTLER = (0.85, 0.7, 0.55, 0.4)
"""Shares of today's rate that a probe is limited to where nothing is safe at today's rate, the highest that is."""

RESORT_RISK = 0.33
RESORT_GAIN = 0.1
"""What the last resort may risk, and must promise: the guard ends it after a dozen slow requests."""


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


def _today(trial: Tried, problem: Problem) -> Measured | None:
    """The level at today's rate, or the nearest to it; a ladder may begin below it."""
    return min(trial.levels, key=lambda level: abs(level.rate_per_second - problem.rates[0]), default=None)


def _busy_today(trial: Tried, problem: Problem) -> float | None:
    """Device seconds per inference at today's rate; None where unknown."""
    level = _today(trial, problem)
    return level.busy_seconds_per_inference if level else None


def _met(trial: Tried, problem: Problem) -> bool:
    """Whether the trial met today's load; one that measured nothing counts, so that it is not repeated for ever."""
    return not trial.levels or trial.meets(problem.rates[0])


def _held(trial: Tried, problem: Problem) -> bool:
    """Whether today's level was accepted with a measured p99 within the ceiling."""
    level = _today(trial, problem)
    if level is None or not level.accepted or level.rate_per_second < REACHED * problem.rates[0]:
        return False
    return level.p99_seconds is None or level.p99_seconds <= problem.ceiling_seconds


def _reached(trial: Tried, problem: Problem) -> float:
    """What the trial itself shows of the aim: inferences per device second, or the highest accepted rate."""
    if problem.aim is Aim.CAPACITY:
        return max((level.rate_per_second for level in trial.levels if level.accepted), default=0.0)
    busy = _busy_today(trial, problem)
    return 1.0 / busy if busy else 0.0


_Rated = tuple[float, tuple[int, int, int], Setting, float]
"""Minus a rough value, complexity, setting, rough p99 over the ceiling."""


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
        best = self._best_so_far
        left = max(0.0, RISK_A_STUDY - sum(self._spent(trial) for trial in self.history))
        safe, chosen = self._chosen(forecasts, best, min(RISK_A_TRIAL, left))
        if chosen is None or not self._pays(chosen, best):
            safe, chosen = self._chosen(forecasts, best, min(LAST_RISK, left))
        gain = chosen.value - best if chosen else 0.0
        probe = self._probe(forecasts, best, max(gain, 0.0))
        if probe is not None:
            return self._said(probe, best, "shows how instances disturb one another")
        gentle = self._gentle_probe(forecasts, best, max(gain, 0.0))
        if gentle is not None:
            return gentle
        if chosen is not None and self._pays(chosen, best):
            return self._said(chosen, best, "largest expected gain among the safe settings")
        stone = self._stone(forecasts, best)
        if stone is not None:
            return self._said(stone, best, "a safe step towards a better setting that is not safe yet")
        resort = self._resort(forecasts, best, left)
        if resort is not None:
            return self._said(resort, best, "nothing else is left to learn from, and much to gain")
        why = f"nothing safe promises more than {LEAST_GAIN:.1%}"
        return Advice(None, f"{why}: {len(safe)} of {len(forecasts)} promising settings are safe")

    def _spent(self, trial: Tried) -> float:
        """What a trial has spent of the study's risk."""
        candidate = trial.setting != self.problem.incumbent and _met(trial, self.problem)
        return max(trial.risk, FAILED) if candidate and not _held(trial, self.problem) else trial.risk

    def _chosen(
        self, forecasts: list[Forecast], best: float, allowed: float
    ) -> tuple[list[Forecast], Forecast | None]:
        """The settings whose risk is allowed, and the best of them."""
        safe = [f for f in forecasts if self._risk(f) <= allowed and self._mild(f)]
        return safe, max(safe, key=lambda f: self._rank(f, best), default=None)

    # ---- candidates

    def _forecasts(self) -> list[Forecast]:
        """Forecasts of the most promising untried settings, within the ceiling or nearly; the best of them precise."""
        tried = {trial.setting for trial in self.history if _met(trial, self.problem)}
        left = tuple(s for s in self.problem.candidates if s not in tried)
        brief = [self.forecaster.cautious(setting, BRIEF) for setting in self._shortlist(left)]
        close = self._finalists(brief)
        return [self.forecaster.cautious(f.setting) if f.setting in close else f for f in brief]

    def _finalists(self, forecasts: list[Forecast]) -> set[Setting]:
        """Settings worth a precise forecast."""
        best = self._best_so_far
        by_worth = sorted(forecasts, key=lambda f: self._rank(f, best), reverse=True)[:FINALISTS]
        by_gain = sorted(self._hoped(forecasts, best), key=lambda f: (-round(f.value, 6), f.setting))
        return {f.setting for f in (*by_worth, *by_gain[:HOPEFULS])}

    def _shortlist(self, left: tuple[Setting, ...]) -> list[Setting]:
        """The best of each band of p99, of known and of untried numbers of instances; of equal ones the simplest."""
        share_of_band = SHORTLIST[self.problem.aim]
        if max(trial.setting.instances for trial in self.history) == 1:
            left = tuple(s for s in left if s.instances <= self.problem.incumbent.instances + 1)
        stride = self._stride(left)
        coarse = _thinned(left, stride)
        rated = self._rated(coarse)
        kept = self._picked(rated, share_of_band)
        if self.problem.aim is Aim.EFFICIENCY:
            rated += self._rated(tuple(_beside(kept, left, stride) - set(coarse)))
            kept = self._picked(rated, share_of_band) + self._edges(rated, left)
        return list(dict.fromkeys([*kept, *self._mildest(left)]))

    def _stride(self, left: Sequence[Setting]) -> int:
        """Every which delay is looked at first: not all where there are too many or the delay is nearly inert."""
        return DELAY_STRIDE if self.problem.aim is Aim.CAPACITY else math.ceil(max(1, len(left)) / MOST_RATED)

    def _rated(self, settings: tuple[Setting, ...]) -> list[_Rated]:
        """Each setting with minus its rough value, its complexity and its rough p99 over the ceiling."""
        ceiling = self.problem.ceiling_seconds
        return [
            (-round(value - INSTANCE_COST * s.instances, 4), s.complexity(), s, p99 / ceiling)
            for s, (p99, value) in zip(settings, self.forecaster.rough(settings), strict=True)
        ]

    def _picked(self, rated: list[_Rated], share_of_band: int) -> list[Setting]:
        tried = {trial.setting.instances for trial in self.history}
        kept: list[Setting] = []
        ordered = sorted(rated)
        for low, high in pairwise((0.0, *BANDS)):
            inside = [(value, s, share) for value, _, s, share in ordered if low < share <= high]
            known = _unlike([one for one in inside if one[1].instances in tried])
            other = _unlike([one for one in inside if one[1].instances not in tried])
            kept += [*known[:share_of_band], *other[:share_of_band]]
        return kept

    def _edges(self, rated: list[_Rated], left: Sequence[Setting]) -> list[Setting]:
        """Of the kinds that promise most, the longest delays that are expected to be within the ceiling.

        Rough figures say which kinds, that is preferred sizes with a number of instances, but not how far they go.
        """
        kinds: dict[tuple[tuple[int, ...], int], None] = {}
        for _, _, setting, share in sorted(rated):
            if share <= BANDS[-1]:
                kinds.setdefault((setting.preferred, setting.instances))
        ceiling = np.log(self.problem.ceiling_seconds)
        found: list[Setting] = []
        for kind in list(kinds)[:EDGES]:
            ladder = sorted(s for s in left if (s.preferred, s.instances) == kind)
            low, high = -1, len(ladder)
            while high - low > 1:
                middle = (low + high) // 2
                inside = self.forecaster.forecast(ladder[middle], BRIEF).log_p99 <= ceiling
                low, high = (middle, high) if inside else (low, middle)
            found += ladder[max(0, low - BELOW_EDGE) : low + 2]
        return found

    def _mildest(self, left: Sequence[Setting]) -> list[Setting]:
        """Settings of one instance more than any tried one, without a long delay: candidates for the probe."""
        most = max(trial.setting.instances for trial in self.history)
        more = [s for s in left if s.instances == most + 1]
        return sorted(more, key=lambda s: (s.delay_seconds, len(s.preferred), -s.cap))[:3]

    # ---- judging forecasts

    @cached_property
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

    def _pays(self, forecast: Forecast, best: float) -> bool:
        """Whether a setting promises enough, and its risk does not cost as much."""
        return self._gain(forecast, best) > LEAST_GAIN and self._worth(forecast, best) > 0.0

    def _worth(self, forecast: Forecast, best: float) -> float:
        """Expected relative gain, less the price of its risk: nothing is gained where the ceiling does not hold."""
        sure = 1.0 - forecast.violation(self.problem.ceiling_seconds)
        return sure * self._gain(forecast, best) - PRICE_OF_RISK * self._risk(forecast)

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

    def _gentle_probe(self, forecasts: list[Forecast], best: float, gain: float) -> Advice | None:
        """The mildest setting of one instance more at a load that it surely carries, where today's might be too much.

        How instances disturb one another shows at a lower load too, and nobody is harmed.
        """
        if self.problem.aim is Aim.CAPACITY and gain > LEAST_GAIN:
            return None
        most = max(trial.setting.instances for trial in self.history)
        more = [f for f in forecasts if f.setting.instances > most]
        hope = max((f.value + f.value_spread - best for f in more), default=0.0)
        if most > self.problem.incumbent.instances or hope <= gain + LEAST_GAIN:
            return None
        limit = np.log(PROBE_MARGIN * self.problem.ceiling_seconds)
        mild = self._mildest([f.setting for f in more])
        for share in GENTLER:
            rate = share * self.problem.rates[0]
            for setting in mild:
                mean, spread = self.forecaster.at(setting, rate)
                if mean + 1.64 * spread <= limit:
                    forecast = replace(self.forecaster.forecast(setting, BRIEF), log_p99=mean, spread=spread)
                    why = f"shows at {share:.0%} of today's load how instances disturb one another"
                    return replace(self._said(forecast, best, why), highest_rate=rate)
        return None

    def _hoped(self, forecasts: list[Forecast], best: float) -> list[Forecast]:
        """Clearly better settings that may well be within the ceiling."""
        ceiling = self.problem.ceiling_seconds
        return [
            f for f in forecasts if f.violation(ceiling) <= MOST_DOUBT and self._gain(f, best) > HOPED_GAIN
        ]

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
        if not hoped or len(self.history) >= STONES_UNTIL:
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


def _thinned(left: Sequence[Setting], stride: int) -> tuple[Setting, ...]:
    """Settings with every so-manieth delay."""
    kept = set(sorted({s.delay_seconds for s in left})[::stride])
    return tuple(s for s in left if s.delay_seconds in kept)


def _beside(kept: Sequence[Setting], left: Sequence[Setting], stride: int) -> set[Setting]:
    """Settings that differ from one of `kept` in the delay alone, and by half a stride at most."""
    delays = sorted({s.delay_seconds for s in left})
    place = {delay: number for number, delay in enumerate(delays)}
    reach = stride // 2 + 1
    wanted = {
        replace(s, delay_seconds=delay)
        for s in kept
        for delay in delays[max(0, place[s.delay_seconds] - reach) : place[s.delay_seconds] + reach + 1]
    }
    return wanted & set(left)


def _unlike(rated: Sequence[tuple[float, Setting, float]]) -> list[Setting]:
    """Settings that differ in value or p99; of those that do not, the first."""
    kept: dict[tuple[float, float], Setting] = {}
    for value, setting, share in rated:
        kept.setdefault((round(value, 2), round(share, 2)), setting)
    return list(kept.values())
