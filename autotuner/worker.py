"""The loop around the controller: which study is due, and what to do when something fails.

One broad `except` lives here. Whatever fails for longer than a moment while users are exposed, the traffic goes
back to production first; the study carries on from its records when the failure is over (guards rules 3 and 6).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autotuner.controller import Controller, Tick
from autotuner.errors import Conflict, Unavailable
from autotuner.ports import Clock, Store
from autotuner.telemetry.logs import bound

log = logging.getLogger(__name__)

IDLE = timedelta(seconds=1)
GRACE = timedelta(seconds=3)
"""How long a study may fail to advance before its canary's traffic is given back."""


@dataclass
class _Course:
    """When a study is due, and since when it has been failing: since it was due, however long the failing took."""

    target: str
    due: datetime
    failing_since: datetime | None = None
    failures: int = 0
    retreated: bool = False


@dataclass
class Worker:
    """Advances every unfinished study it may drive until it is stopped."""

    store: Store
    controller: Controller
    clock: Clock
    told: Callable[[str, Tick], None] | None = None
    only: str | None = None
    """The one study to advance; None for all."""
    _known: bool = False
    """Whether the database has ever said which studies are unfinished."""
    _courses: dict[str, _Course] = field(default_factory=dict)

    def run(self, stop: threading.Event, until_idle: bool = False) -> None:
        """Run until `stop` is set, or with `until_idle` until no study is unfinished."""
        while not stop.is_set():
            pause = self.turn()
            if until_idle and self._known and not self._courses:
                return
            stop.wait(pause.total_seconds())

    def turn(self) -> timedelta:
        """Advance each study that is due once; return how long nothing will be due."""
        now = self.clock.now()
        self._refresh(now)
        for study_id, course in list(self._courses.items()):
            if course.due <= now:
                self._advance(study_id, course)
        now = self.clock.now()
        waits = [course.due - now for course in self._courses.values()]
        return max(timedelta(0), min([IDLE, *waits]))

    def _refresh(self, now: datetime) -> None:
        """Learn which studies are unfinished; keep to the known ones while the database does not answer."""
        try:
            unfinished = {s: t for s, t in self.store.unfinished() if self.only in (None, s)}
        except Unavailable as error:
            log.warning("database_unavailable", extra={"reason": str(error)})
            return
        self._known = True
        for gone in self._courses.keys() - unfinished.keys():
            del self._courses[gone]
        for study_id, target in unfinished.items():
            self._courses.setdefault(study_id, _Course(target, now))

    def _advance(self, study_id: str, course: _Course) -> None:
        try:
            with bound(study=study_id, target=course.target):
                tick = self.controller.tick(study_id, course.target)
        except Conflict as error:
            log.warning("study_taken_over", extra={"study": study_id, "reason": str(error)})
            self.controller.lost(course.target)
            self.controller.forget(study_id)
            course.due = self.clock.now() + IDLE
        except Exception as error:  # noqa: BLE001 - the top of the loop: log, count, back off
            self._failed(study_id, course, error)
        else:
            course.failing_since, course.failures, course.retreated = None, 0, False
            course.due = self.clock.now() + tick.look_after
            if self.told is not None:
                self.told(study_id, tick)

    def _failed(self, study_id: str, course: _Course, error: Exception) -> None:
        now = self.clock.now()
        course.failing_since = course.failing_since or course.due
        course.failures += 1
        expected = isinstance(error, Unavailable)
        log.warning(
            "tick_failed",
            extra={"study": study_id, "reason": str(error), "failures": course.failures},
            exc_info=None if expected else error,
        )
        if not course.retreated and now - course.failing_since >= GRACE:
            done = self.controller.retreat(study_id)
            course.retreated = "could not" not in done
            log.warning("retreated", extra={"study": study_id, "reason": done})
        back_off = min(timedelta(seconds=10), timedelta(seconds=0.5) * 2 ** min(course.failures, 5))
        course.due = now + back_off
