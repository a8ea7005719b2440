"""Whether certificates cover what production carries and runs today: the load of the last day against their bands.

What cannot be read proves nothing, neither that a certificate covers production nor that it does not (guards rule 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from autotuner.domain.certificate import Band
from autotuner.domain.measurement import Sample, Window
from autotuner.domain.target import Target

DAY = timedelta(days=1)


class Coverage(StrEnum):
    """How production stands against its certificates, best first."""

    COVERS = "covers"
    OUTSIDE = "outside"
    """Production carries a load that was not certified."""
    CHANGED = "changed"
    """Production runs something else: another configuration, version, image or device, or promises more."""
    NONE = "none"
    UNREAD = "unread"
    """Production, or a part of it, does not tell what it runs or carries."""


@dataclass(frozen=True)
class Day:
    """What a stable replica carried within the last day: means over windows, requests a second, by the window's end.

    since: when the first window began.
    """

    since: datetime
    loads: tuple[tuple[datetime, float], ...] = ()

    def with_load(self, at: datetime, per_second: float) -> Day:
        """Return the day with one more window; what is older than a day is left out."""
        kept = tuple(each for each in self.loads if each[0] > at - DAY)
        return Day(self.since, (*kept, (at, per_second)))

    @property
    def newest_per_second(self) -> float | None:
        """Load in the newest window; None before there is one."""
        return self.loads[-1][1] if self.loads else None

    @property
    def busiest_per_second(self) -> float | None:
        """Load in the busiest window; None before there is one."""
        return max((load for _, load in self.loads), default=None)

    def is_whole(self, now: datetime) -> bool:
        """Say whether a whole day has been looked at."""
        return now - self.since >= DAY


@dataclass(frozen=True)
class Covered:
    """How production stands against a certificate. reason: why it is not covered; empty while it is.

    study_id, band: of the certificate; empty and None without one.
    """

    state: Coverage
    reason: str = ""
    study_id: str = ""
    band: Band | None = None

    @property
    def wants_another(self) -> bool:
        """Whether the next night is to certify production anew: nothing is known against it where nothing is read."""
        return self.state in (Coverage.OUTSIDE, Coverage.CHANGED, Coverage.NONE)


UNCERTIFIED = Covered(Coverage.NONE, "nothing was certified yet")


def load_between(target: Target, first: Sample, last: Sample) -> float | None:
    """Return the mean load of one stable replica between two samples, requests per second; None when it is not known.

    Not known: a replica is missing in one of them, a counter began anew, or no time has passed.
    """
    backends = target.backends(target.stable_names)
    if last.at <= first.at:
        return None
    for name in backends:
        now, then = last.gateway.get(name), first.gateway.get(name)
        if now is None or then is None or now.behind(then):
            return None
    return Window(first, last).rate_per_second(backends) / len(target.stable)


def covered(study_id: str, band: Band, against: str, day: Day, now: datetime, *, unread: str = "") -> Covered:
    """Return how production stands against one certificate, of the study `study_id`.

    against: what is known against it besides the load; empty for nothing. More than its band at any time of the day is
    outside; less is so every night, so that only a whole day below the band is. unread: what of production could not
    be read, empty for nothing: what is not known never covers (guards rule 1).
    """
    if against:
        return Covered(Coverage.CHANGED, against, study_id, band)
    carried = day.busiest_per_second
    told = f"{band.lowest_per_second:.1f} to {band.highest_per_second:.1f} are certified"
    if carried is not None and carried > band.highest_per_second:
        why = f"a replica carried {carried:.1f} requests a second, {told}"
        return Covered(Coverage.OUTSIDE, why, study_id, band)
    if carried is not None and day.is_whole(now) and carried < band.lowest_per_second:
        why = f"a replica carried at most {carried:.1f} requests a second for a day, {told}"
        return Covered(Coverage.OUTSIDE, why, study_id, band)
    if unread or carried is None:
        return Covered(Coverage.UNREAD, unread or "its load is not known yet", study_id, band)
    return Covered(Coverage.COVERS, "", study_id, band)


def best_of(every: Iterable[Covered]) -> Covered:
    """Return the best of several; among those that cover nothing the one with the highest band."""
    ranked = list(Coverage)
    return min(
        every,
        key=lambda each: (ranked.index(each.state), -(each.band.highest_per_second if each.band else 0.0)),
        default=UNCERTIFIED,
    )
