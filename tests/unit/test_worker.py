from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from autotuner.controller import Orders, Tick
from autotuner.domain.calendar import RUNNING, Standing
from autotuner.domain.sharing import Errand
from autotuner.domain.study import Phase, Wish
from autotuner.errors import Conflict, Unavailable
from autotuner.ports import Muster
from autotuner.worker import GRACE, IDLE, Worker
from tests.builders import ManualClock

SECOND = timedelta(seconds=1)


class ScriptedController:
    """Ticks as it is told; notes what else is asked of it."""

    def __init__(self) -> None:
        self.ticks: list[str] = []
        self.asked: list[str] = []
        self.answer: Callable[[], Tick] = lambda: Tick("fine", 2 * SECOND)
        self.retreats = ["production has its traffic back"]

    holder = "worker-1"

    def tick(self, study_id: str, target: str, orders: Orders | None = None) -> Tick:
        self.ticks.append(study_id)
        return self.answer()

    def retreat(self, study_id: str) -> str:
        self.asked.append(f"retreat {study_id}")
        return self.retreats.pop(0)

    def renew(self) -> None:
        pass

    def lost(self, target: str) -> None:
        self.asked.append(f"lost {target}")

    def forget(self, study_id: str) -> None:
        self.asked.append(f"forget {study_id}")


class ListingStore:
    """Knows which studies are unfinished, unless it is away."""

    def __init__(self, *studies: str) -> None:
        self.studies = list(studies)
        self.away = False

    def errands(self) -> Sequence[Errand]:
        if self.away:
            raise Unavailable("postgres", "connection refused")
        return [Errand(study, f"target of {study}", "here", Phase.SEARCH, Wish.RUN) for study in self.studies]

    def standing(self, now: datetime) -> Standing:
        return RUNNING


class Alone:
    """The leases of a worker that has no other beside it."""

    def muster(self, holder: str, ttl: timedelta) -> Muster:
        return Muster(1, {})


class Scene:
    """A worker with its surroundings."""

    def __init__(self, *studies: str) -> None:
        self.controller, self.store, self.clock = ScriptedController(), ListingStore(*studies), ManualClock()
        self.worker = Worker(self.store, Alone(), self.controller, self.clock)  # type: ignore[arg-type]

    def fails(self, error: Exception) -> None:
        def answer() -> Tick:
            raise error

        self.controller.answer = answer


def test_a_study_is_advanced_when_it_is_due() -> None:
    scene = Scene("a")
    assert scene.worker.turn() == IDLE
    scene.clock.turn(1.5)
    assert scene.worker.turn() == timedelta(seconds=0.5)
    assert scene.controller.ticks == ["a"]
    scene.clock.turn(0.5)
    scene.worker.turn()
    assert scene.controller.ticks == ["a", "a"]


def test_every_unfinished_study_has_its_own_time() -> None:
    scene = Scene("a")
    scene.worker.turn()
    scene.store.studies.append("b")
    scene.clock.turn(1)
    scene.worker.turn()
    assert scene.controller.ticks == ["a", "b"]


def test_a_study_that_has_ended_is_dropped() -> None:
    scene = Scene("a")
    scene.worker.turn()
    scene.store.studies.clear()
    scene.clock.turn(5)
    assert scene.worker.turn() == IDLE
    assert scene.controller.ticks == ["a"]


def test_known_studies_go_on_while_the_list_cannot_be_read() -> None:
    scene = Scene("a")
    scene.worker.turn()
    scene.store.away = True
    scene.clock.turn(2)
    scene.worker.turn()
    assert scene.controller.ticks == ["a", "a"]


def test_failures_back_off_up_to_ten_seconds() -> None:
    scene = Scene("a")
    scene.fails(Unavailable("postgres", "connection refused"))
    moments = []
    for _ in range(600):
        before = len(scene.controller.ticks)
        scene.worker.turn()
        if len(scene.controller.ticks) > before:
            moments.append(scene.clock.now())
        scene.clock.turn(0.1)
    waits = [round((b - a).total_seconds()) for a, b in pairwise(moments)]
    assert waits == [1, 2, 4, 8, 10, 10, 10, 10]


def test_after_the_grace_the_traffic_is_given_back_once() -> None:
    scene = Scene("a")
    scene.fails(Unavailable("postgres", "connection refused"))
    began = scene.clock.now()
    while not scene.controller.asked:
        scene.clock.advance(scene.worker.turn())
    assert scene.clock.now() - began <= GRACE + SECOND
    for _ in range(40):
        scene.clock.advance(scene.worker.turn())
    assert scene.controller.asked == ["retreat a"]


def test_traffic_that_could_not_be_given_back_is_tried_again() -> None:
    scene = Scene("a")
    scene.controller.retreats = [
        "the traffic could not be given back: refused",
        "production has its traffic back",
    ]
    scene.fails(ZeroDivisionError("a defect"))
    for _ in range(60):
        scene.clock.advance(max(scene.worker.turn(), SECOND))
    assert scene.controller.asked == ["retreat a", "retreat a"]


def test_a_success_begins_the_grace_anew() -> None:
    scene = Scene("a")
    for _ in range(6):
        scene.fails(Unavailable("postgres", "connection refused"))
        scene.clock.advance(2 * SECOND)
        scene.worker.turn()
        scene.controller.answer = lambda: Tick("fine", SECOND)
        scene.clock.advance(2 * SECOND)
        scene.worker.turn()
    assert scene.controller.asked == []


def test_a_study_taken_over_is_dropped_from_memory_and_not_retreated() -> None:
    scene = Scene("a")
    scene.fails(Conflict("lease of target target of a", "expected worker-1, found worker-2"))
    for _ in range(10):
        scene.worker.turn()
        scene.clock.advance(SECOND)
    assert set(scene.controller.asked) == {"lost target of a", "forget a"}


def test_one_failing_study_does_not_hold_up_another() -> None:
    scene = Scene("bad", "good")

    def answer() -> Tick:
        if scene.controller.ticks[-1] == "bad":
            raise ZeroDivisionError("a defect")
        return Tick("fine", SECOND)

    scene.controller.answer = answer
    for _ in range(3):
        scene.worker.turn()
        scene.clock.advance(SECOND)
    assert scene.controller.ticks.count("good") == 3


def test_what_is_done_is_told_and_what_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene("a")
    told: list[tuple[str, Tick]] = []
    scene.worker.told = lambda study, tick: told.append((study, tick))
    scene.worker.turn()
    assert told == [("a", Tick("fine", 2 * SECOND))]
    scene.fails(ZeroDivisionError("a defect"))
    scene.clock.advance(2 * SECOND)
    with caplog.at_level(logging.WARNING):
        scene.worker.turn()
    assert [record.message for record in caplog.records] == ["tick_failed"]
    assert caplog.records[0].exc_info is not None


def test_a_worker_runs_until_nothing_is_unfinished_or_it_is_stopped() -> None:
    scene = Scene("a")

    def answer() -> Tick:
        scene.store.studies.clear()
        return Tick("over", timedelta(0), ended=True)

    scene.controller.answer = answer
    scene.worker.run(threading.Event(), until_idle=True)
    assert scene.controller.ticks == ["a"]
    stopped = threading.Event()
    stopped.set()
    scene.worker.run(stopped)
    assert scene.controller.ticks == ["a"]
