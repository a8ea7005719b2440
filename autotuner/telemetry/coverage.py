"""Shows how scheduled targets stand against their certificates: the only metrics that name targets."""

from __future__ import annotations

import logging

from autotuner.domain.coverage import Coverage, Covered, Day
from autotuner.telemetry.metrics import Gauge, Instruments

log = logging.getLogger(__name__)

MOST_TARGETS = 500
"""So many targets are shown; each has nine series."""


class ShownCoverage:
    """The series of the targets that are shown. Not shared between threads."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._shown: set[str] = set()

    def show(self, target: str, found: Covered, day: Day) -> None:
        """Show what was found of a target; nothing where too many are shown already."""
        if target not in self._shown and len(self._shown) >= MOST_TARGETS:
            log.warning("coverage_not_shown", extra={"target": target, "shown": MOST_TARGETS})
            return
        self._shown.add(target)
        for state in Coverage:
            self._instruments.coverage.labels(target, state.value).set(int(state is found.state))
        band = found.band
        ends = {
            "lowest": band.lowest_per_second if band else None,
            "highest": band.highest_per_second if band else None,
        }
        for end, rate in ends.items():
            _set(self._instruments.certified, {"target": target, "end": end}, rate)
        for of, load in {"now": day.newest_per_second, "day": day.busiest_per_second}.items():
            _set(self._instruments.carried, {"target": target, "of": of}, load)

    def keep(self, targets: frozenset[str]) -> None:
        """Show no others than these any more."""
        every = self._instruments
        for gone in self._shown - targets:
            for gauge in (every.coverage, every.certified, every.carried):
                gauge.remove_by_labels({"target": gone})
        self._shown &= targets


def _set(gauge: Gauge, labels: dict[str, str], value: float | None) -> None:
    """Set one series, or take it away where there is no value."""
    if value is None:
        gauge.remove_by_labels(labels)
    else:
        gauge.labels(**labels).set(value)
