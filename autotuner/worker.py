"""The loop around the controller: which studies this process carries, which is due, and what to do when one fails.

Every second it looks around: who else is at work, what is unfinished, and what its own share of that is. Ticks run in
a bounded pool, whatever has waited longest first, so that a target that answers slowly holds up itself and not the
others. All bookkeeping is done by the one thread that runs the loop.

One broad `except` lives here. Whatever fails for longer than a moment while users are exposed, the traffic goes
back to production first; the study carries on from its records when the failure is over (guards rules 3 and 6).
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from autotuner.controller import Controller, Orders, Tick
from autotuner.domain.calendar import RUNNING, Standing
from autotuner.domain.sharing import Errand, admitted, share
from autotuner.errors import Conflict, Unavailable
from autotuner.ports import Clock, Leases, Muster, Store
from autotuner.telemetry.logs import bound

if TYPE_CHECKING:
    from autotuner.telemetry.metrics import Instruments  # only what serves them needs the library

log = logging.getLogger(__name__)

IDLE = timedelta(seconds=1)
GRACE = timedelta(seconds=3)
"""How long a study may fail to advance before its canary's traffic is given back."""

STUCK = timedelta(seconds=12)
"""A tick that takes longer waits for something that does not keep its own limits: its canary's traffic goes back."""

STOP_LATENCY = timedelta(seconds=0.25)
"""How often a loop that waits for ticks looks whether it is to stop."""

SLOW = timedelta(seconds=1)
"""A tick that takes longer, and much longer than others do, has a target that answers slowly: such targets share a
part of the threads."""

MUCH_LONGER = 4
LEARNING = 0.05
"""How much one tick counts in the mean duration of ticks."""

SLOW_PART = 4
"""One in so many threads may be waiting for slow targets."""

HANDED_OVER_AT_ONCE = 20
"""So many studies at most are given to other workers in one look around: each is a write to the database."""


ALONE = Muster(1, {})

UPKEEP_EVERY = timedelta(seconds=30)
"""How long a pod that started anew may serve less than was promoted, where no ConfigMap has it."""


def _upkept(done: Future[object]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.warning("upkeep_failed", extra={"reason": str(error)}, exc_info=error)


@dataclass(frozen=True)
class Terms:
    """How much one worker takes on. threads: ticks at the same time; canaries_per_site: under load at the same time.

    present_for: how long after its last word a worker is taken to be alive.
    """

    threads: int = 1
    studies: int = 1_000
    canaries_per_site: int = 1_000
    present_for: timedelta = timedelta(seconds=15)


@dataclass
class _Course:
    """When a study is due, and since when it has been failing: since it was due, however long the failing took."""

    errand: Errand
    due: datetime
    failing_since: datetime | None = None
    failures: int = 0
    retreated: bool = False
    ticking: bool = False
    began: datetime | None = None
    """When the tick under way began."""
    slow: bool = False


@dataclass(frozen=True)
class _Ticked:
    """What became of one tick; began and ended by this process's clock. retreated: what giving traffic back came to."""

    study_id: str
    began: datetime
    ended: datetime
    result: Tick | Exception
    retreated: str = ""


@dataclass(frozen=True)
class _Around:
    """What a look around found: every unfinished study, and who is at work; None when the database does not answer."""

    errands: Sequence[Errand] | None
    muster: Muster = ALONE
    standing: Standing = RUNNING


@dataclass
class Worker:
    """Carries its share of the unfinished studies until it is stopped.

    pool: where ticks run; None to run them in the loop itself, one after another.
    """

    store: Store
    leases: Leases
    controller: Controller
    clock: Clock
    terms: Terms = Terms()
    pool: Executor | None = None
    told: Callable[[str, Tick], None] | None = None
    late: Callable[[timedelta], None] | None = None
    """Told how long after it was due each tick began."""
    instruments: Instruments | None = None
    only: str | None = None
    """The one study to advance, whoever else there is; None for a share of all."""
    upkeep: Callable[[], object] | None = None
    """What looks after promotions that live in servers' memory, from time to time; a worker of one study does not."""
    loads: Executor | None = None
    """Where that is done: it may load models, which takes minutes."""
    _upkeep_due: datetime | None = None
    _known: bool = False
    """Whether the database has ever said which studies are unfinished."""
    _unfinished: int = 0
    _standing: Standing = RUNNING
    _look_due: datetime | None = None
    _newest: datetime | None = None
    """The latest instant this loop has seen: before it the clock was set back."""
    _looking: bool = False
    _ticking: int = 0
    _slow_ticking: int = 0
    """How many of them are of targets that answer slowly."""
    _usual: timedelta = timedelta(0)
    """The mean duration of the newest ticks."""
    _courses: dict[str, _Course] = field(default_factory=dict)
    _due: list[tuple[datetime, str]] = field(default_factory=list)
    """A heap of when each study is due; entries that no longer hold are passed over."""
    _done: queue.SimpleQueue[_Ticked | _Around] = field(default_factory=queue.SimpleQueue)

    def run(self, stop: threading.Event, until_idle: bool = False) -> None:
        """Run until `stop` is set, or with `until_idle` until no study is unfinished; then no tick is under way."""
        try:
            while not stop.is_set():
                pause = self.turn()
                if until_idle and self._known and not self._unfinished and not self._ticking:
                    return
                self._wait(stop, pause)
        finally:
            while self._ticking or self._looking:
                self._settle(self._done.get())

    def turn(self) -> timedelta:
        """Begin a tick of each study that is due; return how long nothing will be due."""
        self._settle_all()
        now = self.clock.now()
        if self._newest is not None and now < self._newest:
            self._set_back(now)
        self._newest = now
        if not self._looking and (self.pool is None or self._look_due is None or self._look_due <= now):
            self._looking, self._look_due = True, now + IDLE
            self._do(self._look)
            self._settle_all()
        self._keep_up(now)
        self._rescue(now)
        for course in self._next():
            self._begin(course)
        self._settle_all()
        pause = self._due[0][0] - self.clock.now() if self._due else IDLE
        return max(timedelta(0), min(IDLE, pause))

    def _keep_up(self, now: datetime) -> None:
        """Begin to look after promotions that live in memory, beside everything else."""
        due = self._upkeep_due is None or now >= self._upkeep_due
        if self.upkeep is None or self.loads is None or self.only is not None or not due:
            return
        self._upkeep_due = now + UPKEEP_EVERY
        self.loads.submit(self.upkeep).add_done_callback(_upkept)

    def leave(self) -> None:
        """Give production its traffic and every lease back, and tell the others. Raises Unavailable."""
        self.controller.leave()
        if self.only is None:
            self.leases.dismiss(self.controller.holder)

    def _set_back(self, now: datetime) -> None:
        """Tick everything now that would otherwise be due only when the clock has caught up with itself."""
        log.warning("clock_set_back", extra={"seconds": ((self._newest or now) - now).total_seconds()})
        self._look_due = self._upkeep_due = None
        for course in self._courses.values():
            course.failing_since = min(course.failing_since, now) if course.failing_since else None
            course.began = now
            if not course.ticking:
                self._plan(course, now)

    def _wait(self, stop: threading.Event, pause: timedelta) -> None:
        """Wait until something is due, a tick has ended or it is time to stop."""
        if not self._ticking and not self._looking:
            stop.wait(pause.total_seconds())
            return
        free = self._ticking < self.terms.threads
        timeout = min(pause, STOP_LATENCY) if free else STOP_LATENCY
        with contextlib.suppress(queue.Empty):
            self._settle(self._done.get(timeout=timeout.total_seconds()))

    def _do(self, work: Callable[[], _Ticked | _Around]) -> None:
        """Do work, in the pool where there is one, and queue what it came to."""
        if self.pool is None:
            self._done.put(work())
        else:
            self.pool.submit(lambda: self._done.put(work()))

    def _settle_all(self) -> None:
        while not self._done.empty():
            self._settle(self._done.get())

    def _settle(self, done: _Ticked | _Around) -> None:
        if isinstance(done, _Ticked):
            self._ticked(done)
        else:
            self._looked(done)

    # -- which studies -------------------------------------------------------------------------------------

    def _look(self) -> _Around:
        """Ask what is unfinished and who is at work, and renew the leases that are held."""
        try:
            self.controller.renew()
            errands, standing = self.store.errands(), self.store.standing(self.clock.now())
            if self.only is not None:
                return _Around(errands, standing=standing)
            muster = self.leases.muster(self.controller.holder, self.terms.present_for)
            return _Around(errands, muster, standing)
        except Unavailable as error:
            log.warning("database_unavailable", extra={"reason": str(error)})
        except Exception as error:
            log.warning("look_around_failed", extra={"reason": str(error)}, exc_info=error)
        return _Around(None)

    def _looked(self, around: _Around) -> None:
        """Take a share of what there is; keep to what is known while the database does not answer."""
        self._looking = False
        if around.errands is None:
            return
        self._standing = around.standing
        runnable = admitted(around.errands, self.terms.canaries_per_site)
        if self.only is None:
            self._unfinished = len(around.errands)
            mine = self._share(runnable, around.muster)
        else:
            self._unfinished = sum(each.study_id == self.only for each in around.errands)
            mine = [each for each in runnable if each.study_id == self.only]
            if self._unfinished and not mine and self.told is not None:
                self.told(self.only, Tick("waiting: every place for a canary on this site is taken", IDLE))
        self._known = True
        self._follow(mine)
        if self.instruments is not None:
            self.instruments.studies.set(len(self._courses))
            self.instruments.leases.set(self.controller.leases_held)

    def _follow(self, mine: Sequence[Errand]) -> None:
        """Keep a course for each of `mine` and for nothing else."""
        now = self.clock.now()
        for gone in self._courses.keys() - {each.study_id for each in mine}:
            if not self._courses[gone].ticking:
                del self._courses[gone]
        for each in mine:
            course = self._courses.get(each.study_id)
            if course is None:
                self._courses[each.study_id] = course = _Course(each, now)
                self._plan(course, now)
            course.errand = each

    def _share(self, runnable: Sequence[Errand], muster: Muster) -> list[Errand]:
        """Return what this worker carries from now on: its fair share of what may run."""
        ours = share(runnable, muster.holders, self.controller.holder, muster.workers, self.terms.studies)
        given = self._given(ours.kept, min(ours.surplus, HANDED_OVER_AT_ONCE))
        return [each for each in (*ours.kept, *ours.taken) if each.study_id not in given]

    def _given(self, kept: Sequence[Errand], surplus: int) -> set[str]:
        """Hand over up to `surplus` studies that are at rest, the newest first; returns which."""
        given: set[str] = set()
        for each in reversed(kept):
            if len(given) >= surplus:
                break
            course = self._courses.get(each.study_id)
            if (course is None or not course.ticking) and self._handed_over(each):
                given.add(each.study_id)
        return given

    def _handed_over(self, errand: Errand) -> bool:
        try:
            given = self.controller.hand_over(errand.study_id)
        except Unavailable as error:
            log.warning("database_unavailable", extra={"reason": str(error)})
            return False
        if given:
            log.info("study_handed_over", extra={"study": errand.study_id, "target": errand.target})
        return given

    # -- ticks ---------------------------------------------------------------------------------------------

    def _plan(self, course: _Course, due: datetime) -> None:
        course.due = due
        heapq.heappush(self._due, (due, course.errand.study_id))

    def _next(self) -> list[_Course]:
        """Return the courses to tick now, whatever has waited longest first, as many as there are threads for."""
        now = self.clock.now()
        chosen: list[_Course] = []
        put_off: list[tuple[datetime, str]] = []
        slow = max(1, self.terms.threads // SLOW_PART)
        if self.pool is not None:
            slow -= self._slow_ticking
        while self._due and self._due[0][0] <= now:
            if self.pool is not None and self._ticking + len(chosen) >= self.terms.threads:
                break
            due, study_id = heapq.heappop(self._due)
            course = self._courses.get(study_id)
            if course is None or course.ticking or course.due != due:
                continue
            if self.pool is not None and course.slow and slow <= 0:
                put_off.append((due, study_id))
                continue
            slow -= course.slow
            chosen.append(course)
        for entry in put_off:
            heapq.heappush(self._due, entry)
        return chosen

    def _begin(self, course: _Course) -> None:
        course.ticking, course.began = True, self.clock.now()
        self._ticking += 1
        self._slow_ticking += course.slow
        lateness = self.clock.now() - course.due
        if self.late is not None:
            self.late(lateness)
        if self.instruments is not None:
            self.instruments.tick_lateness.observe(max(0.0, lateness.total_seconds()))
        self._do(lambda: self._tick(course))

    def _tick(self, course: _Course) -> _Ticked:
        """Make one tick, in whatever thread; whatever it raises is an answer too."""
        errand, began = course.errand, self.clock.now()
        result: Tick | Exception
        retreated = ""
        with bound(study=errand.study_id, target=errand.target):
            try:
                result = self.controller.tick(errand.study_id, errand.target, self._orders(errand))
            except Exception as error:  # noqa: BLE001 - the top of the loop: log, count, back off
                result = error
                if not isinstance(error, Conflict):
                    retreated = self._retreat(course)
        return _Ticked(errand.study_id, began, self.clock.now(), result, retreated)

    def _rescue(self, now: datetime) -> None:
        """Give back the traffic of one study whose tick hangs: nobody watches what the canary does to users."""
        for course in self._courses.values():
            began = course.began or now
            if course.ticking and not course.retreated and now - began > STUCK:
                done = self.controller.retreat(course.errand.study_id)
                course.retreated = "could not" not in done
                course.began = now
                log.warning("tick_hangs", extra={"study": course.errand.study_id, "reason": done})
                return

    def _orders(self, errand: Errand) -> Orders | None:
        """Return what was read a moment ago; without a pool each tick asks for itself."""
        return None if self.pool is None else Orders(errand.wish, self._standing)

    def _retreat(self, course: _Course) -> str:
        """Give traffic back once a study has been failing for too long; returns what was done, empty for nothing."""
        failing_for = self.clock.now() - (course.failing_since or course.due)
        return (
            self.controller.retreat(course.errand.study_id)
            if not course.retreated and failing_for >= GRACE
            else ""
        )

    def _ticked(self, ticked: _Ticked) -> None:
        """Note when the study is due next."""
        course = self._courses[ticked.study_id]
        self._slow_ticking -= course.slow
        lasted = ticked.ended - ticked.began
        course.ticking, course.slow = False, lasted > max(SLOW, MUCH_LONGER * self._usual)
        self._usual += LEARNING * (lasted - self._usual)
        self._ticking -= 1
        result = ticked.result
        if self.instruments is not None:
            kind = "done" if isinstance(result, Tick) else "failed"
            self.instruments.ticks.labels("taken over" if isinstance(result, Conflict) else kind).inc()
            self.instruments.tick_seconds.observe(max(0.0, lasted.total_seconds()))
        if isinstance(result, Tick):
            course.failing_since, course.failures, course.retreated = None, 0, False
            if result.ended:
                # Not to be ticked again until a look around would say otherwise.
                del self._courses[ticked.study_id]
                self._unfinished = max(0, self._unfinished - 1)
            else:
                self._plan(course, self.clock.now() + result.look_after)
            if self.told is not None:
                self.told(ticked.study_id, result)
        elif isinstance(result, Conflict):
            log.warning("study_taken_over", extra={"study": ticked.study_id, "reason": str(result)})
            self.controller.lost(course.errand.target)
            self.controller.forget(ticked.study_id)
            self._plan(course, self.clock.now() + IDLE)
        else:
            self._failed(ticked, course, result)

    def _failed(self, ticked: _Ticked, course: _Course, error: Exception) -> None:
        course.failing_since = course.failing_since or course.due
        course.failures += 1
        log.warning(
            "tick_failed",
            extra={"study": ticked.study_id, "reason": str(error), "failures": course.failures},
            exc_info=None if isinstance(error, Unavailable) else error,
        )
        if ticked.retreated:
            course.retreated = "could not" not in ticked.retreated
            log.warning("retreated", extra={"study": ticked.study_id, "reason": ticked.retreated})
        back_off = min(timedelta(seconds=10), timedelta(seconds=0.5) * 2 ** min(course.failures, 5))
        self._plan(course, self.clock.now() + back_off)
