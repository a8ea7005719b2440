"""What a source remembers from look to look: how often each source is scraped, and how often one began anew.

A counter that fell and grew past its old value between two looks betrays nothing by its value. The scrapes in between
do, so each look reads all of them since the one before, and a source that began anew is another one from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from autotuner.adapters.prometheus.scrapes import Source

Labels = tuple[tuple[str, str], ...]

SKEW_TOLERANCE_SECONDS = 0.25
"""A difference of clocks below this cannot be told from a slow answer; times stay what they were."""


class Continuity:
    """How often each scraped source was seen to begin anew. Not shared between threads."""

    def __init__(self) -> None:
        self._last: dict[str, dict[Labels, tuple[float, float]]] = {}
        self._begun: dict[str, int] = {}

    def took(self, source: Source, gauges: Collection[str]) -> float | None:
        """Take note of all scrapes of a source up to its newest; returns when it began anew since the last look."""
        fallen = None
        before = self._last.get(source.name, {})
        after: dict[Labels, tuple[float, float]] = {}
        for labels, values in source.series:
            if labels.get("__name__") in gauges or not values:
                continue
            key = tuple(sorted(labels.items()))
            fallen = max(filter(None, (fallen, _fallen(before.get(key), values))), default=None)
            after[key] = values[-1]
        self._last[source.name] = {**before, **after}
        if fallen is not None:
            self._begun[source.name] = self._begun.get(source.name, 0) + 1
        return fallen

    def who(self, sources: Sequence[Source]) -> str:
        """Return who counted, each with how often it was seen to begin anew."""
        return "; ".join(sorted(self._told(source.name) for source in sources))

    def _told(self, name: str) -> str:
        begun = self._begun.get(name, 0)
        return f"{name} begun anew {begun}×" if begun else name


def _fallen(last: tuple[float, float] | None, values: Sequence[tuple[float, float]]) -> float | None:
    """When a counter last fell after the sample it was last seen with; what happened before is not looked at."""
    if last is None:
        return None
    since = [last, *((at, value) for at, value in values if at > last[0])]
    return max((at for (_, earlier), (at, later) in pairwise(since) if later < earlier), default=None)


class ServerClock:
    """How far the server's clock is ahead of ours, in seconds. Steady: it moves only when the difference is clear."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def compare(self, theirs: float, asked: float, answered: float, rounded: float = 0.0) -> None:
        """Take in one answer: the server's time, and ours before and after, in seconds since the epoch.

        rounded: by how much at most the server rounds its time, in seconds.
        """
        found = theirs - (asked + answered) / 2
        doubt = SKEW_TOLERANCE_SECONDS + (answered - asked) / 2 + rounded
        if abs(found - self.ahead_seconds) > doubt:
            self.ahead_seconds = found
