"""A target at a glance: what it promises, what it is doing, what serves, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autotuner.bootstrap import Application
from autotuner.catalogue import NOTHING_YET, Glance
from autotuner.domain.calendar import Schedule, Standing
from autotuner.domain.registration import Registration
from autotuner.domain.study import Phase
from autotuner.domain.titles import PHASE_TITLES
from autotuner.scheduler import next_start


@dataclass(frozen=True)
class TargetView:
    """A target as the list and its own page show it.

    state: one word; why: what stands behind it. next_night: when the next night starts; None without one.
    """

    kept: Registration
    glance: Glance
    state: str
    why: str
    schedule: Schedule | None
    next_night: datetime | None

    @property
    def name(self) -> str:
        """The target's name."""
        return self.kept.target.name


def views(app: Application, found: Sequence[Registration], standing: Standing) -> list[TargetView]:
    """Return targets at a glance, in the order given. standing: what keeps production as it is."""
    names = [each.target.name for each in found]
    glances = app.catalogue.glances(names)
    now = app.clock.now()
    schedules = {each.target: each for each in app.nights.schedules(names)}
    return [
        _view(
            each, glances.get(each.target.name, NOTHING_YET), schedules.get(each.target.name), standing, now
        )
        for each in found
    ]


def _view(
    kept: Registration, glance: Glance, schedule: Schedule | None, standing: Standing, now: datetime
) -> TargetView:
    state, why = _state(kept, glance, standing, now)
    night = next_start(schedule, now) if schedule is not None else None
    return TargetView(kept, glance, state, why, schedule, night)


def _state(kept: Registration, glance: Glance, standing: Standing, now: datetime) -> tuple[str, str]:
    newest = glance.newest
    if newest is not None and newest.phase != Phase.ENDED:
        state = "waiting" if newest.phase == Phase.APPROVAL else "tuning"
        return state, newest.reason or PHASE_TITLES[Phase(newest.phase)]
    if kept.retired_at is not None:
        return "retired", "no study of it may start"
    held = standing.clearance(kept.target.name, now).start
    if held:
        return ("stopped" if standing.line.stopped_at is not None else "frozen"), held
    return "idle", ""
