"""When requests arrive: the same seed gives the same instants, however often one looks.

A unit-rate Poisson process is drawn once and stretched by the integrated rate (time-change theorem, Daley &
Vere-Jones, An Introduction to the Theory of Point Processes, §7.4), so a change of rate moves the instants but
draws nothing anew.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotuner.adapters.simulated.profile import Bursts

_DRAW = 4096


class Arrivals:
    """Arrival instants in seconds, in order, at a mean rate in requests per second that can be changed."""

    def __init__(self, rate_per_second: float, bursts: Bursts | None, seed: np.random.SeedSequence) -> None:
        draws, states = seed.spawn(2)
        self._draws = np.random.default_rng(draws)
        self._states = np.random.default_rng(states)
        self._rate = rate_per_second
        self._bursts = bursts
        self._level = 1.0 if bursts is None else bursts.low
        self._since = 0.0
        """Where the present stretch of constant rate began, in seconds."""
        self._until = self._stretch_length()
        self._integral = 0.0
        """The integrated rate at `_since`."""
        self._units = np.empty(0)
        """Instants of the unit-rate process that are drawn and not yet used."""
        self._last_unit = 0.0

    def until(self, to: float) -> NDArray[np.float64]:
        """Return the instants since the last call up to and including `to`."""
        pieces = []
        while self._bursts is not None and self._until <= to:
            pieces.append(self._take(self._until))
            self._switch(self._bursts)
        pieces.append(self._take(to))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def set_rate(self, rate_per_second: float, at: float) -> None:
        """Change the mean rate from `at` on; every earlier instant must have been taken."""
        self._begin(at)
        self._rate = rate_per_second

    def _take(self, end: float) -> NDArray[np.float64]:
        rate = self._rate * self._level
        reached = self._integral + rate * (end - self._since)
        while self._last_unit <= reached:
            more = self._last_unit + np.cumsum(self._draws.exponential(size=_DRAW))
            self._units = np.concatenate([self._units, more])
            self._last_unit = float(more[-1])
        count = int(np.searchsorted(self._units, reached, side="right"))
        taken, self._units = self._units[:count], self._units[count:]
        if count == 0:
            return taken
        return self._since + (taken - self._integral) / rate

    def _begin(self, at: float) -> None:
        self._integral += self._rate * self._level * (at - self._since)
        self._since = at

    def _switch(self, bursts: Bursts) -> None:
        self._begin(self._until)
        self._level = bursts.low if self._level == bursts.high else bursts.high
        self._until += self._stretch_length()

    def _stretch_length(self) -> float:
        if self._bursts is None:
            return math.inf
        busy = self._level == self._bursts.high
        share = self._bursts.high_share if busy else 1.0 - self._bursts.high_share
        return float(self._states.exponential(2.0 * share * self._bursts.mean_seconds))
