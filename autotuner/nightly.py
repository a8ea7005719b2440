"""Settles nights: each starts once, in its window, or is reported as missed.

Whoever looks reads schedules, freezes and what is under way, and writes a night together with its study: the night's
key keeps it from starting twice, whoever else looks at the same moment and whatever is killed in between (rule 3).
A night that cannot start waits for as long as its window lasts. What was due while nobody looked is caught up once:
the newest night may still start, those before it are missed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from autotuner.domain.access import Said
from autotuner.domain.calendar import Night, Schedule, Standing
from autotuner.domain.sharing import Errand
from autotuner.domain.study import Phase, Study
from autotuner.errors import Conflict, NotFound, Refused
from autotuner.operations import new_study
from autotuner.ports import Clock, Nights, NightState, Registry, Store

log = logging.getLogger(__name__)

ACTOR = "scheduler"
"""Who starts nights, as the audit names it."""

UNATTENDED = "no scheduler was at work in its window"
OVERTAKEN = "the next night was due before it could start"

Firings = Callable[[Schedule, datetime, datetime], Iterable[Night]]
"""Gives the nights of a schedule that are due after one instant and up to another, in order."""


@dataclass(frozen=True)
class _Seen:
    """What one look found."""

    now: datetime
    standing: Standing
    busy: Mapping[str, str]
    """The unfinished study of each target that has one."""
    places: Mapping[str, int]
    """How many studies each site has under way or waiting."""


@dataclass
class NightWatch:
    """Looks at every schedule and settles what is due. Its memory only saves questions: the records decide.

    canaries_per_site: as for workers. inconclusive_nights: after so many in a row people are told.
    """

    store: Store
    nights: Nights
    registry: Registry
    clock: Clock
    firings: Firings
    canaries_per_site: int = 1_000
    inconclusive_nights: int = 3
    told: Callable[[str], None] = lambda _: None
    """Told what became of each night that this watch settled: `started` or `missed`."""
    why_another: Callable[[str], str] = lambda _: ""
    """Gives why a target's production is to be certified anew; empty where nothing asks for it."""
    _settled: dict[str, datetime] | None = None
    _waiting: dict[tuple[str, str], str] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget what is remembered: somebody else may have settled nights."""
        self._settled = None
        self._waiting.clear()

    def look(self) -> None:
        """Settle whatever is due now. Raises Unavailable when the database does not answer."""
        now = self.clock.now()
        self.nights.close_nights(self.inconclusive_nights, now)
        if self._settled is None:
            self._settled = dict(self.nights.settled_until())
        seen = self._seen(now)
        for schedule in self.nights.schedules():
            if not schedule.paused and self._settle(schedule, seen):
                seen = self._seen(now)

    def _seen(self, now: datetime) -> _Seen:
        errands = self.store.errands()
        places = Counter(each.site for each in errands if _takes_place(each))
        return _Seen(now, self.nights.standing(now), {e.target: e.study_id for e in errands}, places)

    def _settle(self, schedule: Schedule, seen: _Seen) -> bool:
        """Settle what is due of one schedule; says whether a study was started."""
        assert self._settled is not None
        assert schedule.set_at is not None
        since = max(schedule.set_at, self._settled.get(schedule.target, schedule.set_at))
        due = list(self.firings(schedule, since, seen.now))
        for night in due[:-1]:
            self._miss(night, self._waiting.get((night.target, night.name), OVERTAKEN), seen.now)
        if not due or seen.now < due[-1].starts_at(schedule):
            return False
        return self._start_or_wait(due[-1], schedule, seen)

    def _start_or_wait(self, night: Night, schedule: Schedule, seen: _Seen) -> bool:
        key = (night.target, night.name)
        if seen.now >= night.ends_at(schedule):
            self._miss(night, self._waiting.pop(key, UNATTENDED), seen.now)
            return False
        why = self._held_back(night, seen)
        if not why:
            self._waiting.pop(key, None)
            return True
        if self._waiting.get(key) != why:
            log.info("night_waits", extra={"target": night.target, "night": night.name, "reason": why})
        self._waiting[key] = why
        return False

    def _held_back(self, night: Night, seen: _Seen) -> str:
        """Start a night, or return what keeps it from starting; empty when it has started."""
        held = seen.standing.clearance(night.target, seen.now).start
        if held:
            return held
        if night.target in seen.busy:
            return f"study {seen.busy[night.target]} has not ended"
        try:
            registered = self.registry.registration(night.target)
            site = registered.target.site
            if seen.places.get(site, 0) >= self.canaries_per_site:
                return f"every place for a canary on site {site} is taken"
            plan = registered.defaults.plan(registered.target, registered.slo)
            plan = replace(plan, seed=(plan.seed + night.due_at.toordinal()) % 2**31)
            why = self.why_another(night.target)
            study = new_study(plan, seen.now, ACTOR)
            self._start(night, replace(study, reason=f"certifies anew: {why}" if why else ""), seen.now)
        except (Conflict, NotFound, Refused) as error:
            return str(error)
        return ""

    def _start(self, night: Night, study: Study, now: datetime) -> None:
        said = Said(ACTOR, "; ".join(filter(None, (f"the night {night.name}", study.reason))), now)
        started = self.nights.start_night(night, study, said)
        self._remember(night)
        if started:
            self.told(NightState.STARTED.value)
        event = "night_started" if started else "night_was_settled"
        log.info(event, extra={"target": night.target, "night": night.name})

    def _miss(self, night: Night, why: str, now: datetime) -> None:
        missed = self.nights.miss_night(night, Said(ACTOR, why, now))
        self._remember(night)
        if missed:
            self.told(NightState.MISSED.value)
            log.warning("night_missed", extra={"target": night.target, "night": night.name, "reason": why})

    def _remember(self, night: Night) -> None:
        assert self._settled is not None
        self._settled[night.target] = max(night.due_at, self._settled.get(night.target, night.due_at))


def _takes_place(errand: Errand) -> bool:
    return errand.phase not in (Phase.APPROVAL, Phase.ENDED)
