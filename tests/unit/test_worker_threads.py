"""Many studies in one worker: what hangs holds up itself alone, and workers share what there is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.controller import Orders, Tick
from autotuner.domain.calendar import Line, Standing
from autotuner.domain.sharing import Errand
from autotuner.domain.study import Phase, Wish
from autotuner.errors import Unavailable
from autotuner.ports import Muster
from autotuner.worker import Terms, Worker
from tests.builders import START

LIMIT_SECONDS = 20.0
SOON = timedelta(milliseconds=5)


class Studies:
    """A store, its leases and a controller in one, for studies whose ticks do what a test says."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.holders: dict[str, str] = {}
        self.workers = 1
        self.ticks: dict[str, int] = dict.fromkeys(names, 0)
        self.at_once = self.most_at_once = 0
        self.wishes: dict[str, Wish] = {}
        self.seen_orders: dict[str, Orders | None] = {}
        self.stands = Standing(Line(START, "an incident"))
        self.hanging: dict[str, threading.Event] = {}
        self.rested: set[str] = set(names)
        self.dismissed: list[str] = []
        self.retreats: list[str] = []
        self.away = False
        self.ending: set[str] = set()
        self.holder = "me"
        self._lock = threading.Lock()

    def errands(self) -> list[Errand]:
        if self.away:
            raise Unavailable("postgres", "connection refused")
        return [Errand(n, n, "here", Phase.SEARCH, self.wishes.get(n, Wish.RUN)) for n in self.names]

    def standing(self, now: datetime) -> Standing:
        return self.stands

    def muster(self, holder: str, ttl: timedelta) -> Muster:
        return Muster(self.workers, dict(self.holders))

    def dismiss(self, holder: str) -> None:
        self.dismissed.append(holder)

    def renew(self) -> None:
        pass

    def leave(self) -> None:
        self.holders.clear()

    def hand_over(self, study_id: str) -> bool:
        if study_id in self.rested:
            self.holders.pop(study_id, None)
        return study_id in self.rested

    def retreat(self, study_id: str) -> str:
        self.retreats.append(threading.current_thread().name)
        return "production has its traffic back"

    def tick(self, study_id: str, target: str, orders: Orders | None = None) -> Tick:
        with self._lock:
            self.holders[target] = self.holder
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.seen_orders[study_id] = orders
        if study_id in self.hanging:
            assert self.hanging[study_id].wait(LIMIT_SECONDS)
        with self._lock:
            self.at_once -= 1
            self.ticks[study_id] += 1
        if study_id in self.ending:
            self.names.remove(study_id)
            return Tick("over", timedelta(0), ended=True)
        return Tick("fine", SOON)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8, thread_name_prefix="ticks") as made:
        yield made


def a_worker(studies: Studies, pool: ThreadPoolExecutor, most: int = 1000) -> Worker:
    terms = replace(Terms(), threads=4, studies=most)
    return Worker(studies, studies, studies, SystemClock(), terms, pool)  # type: ignore[arg-type]


def run_until(worker: Worker, studies: Studies, enough: dict[str, int], held: set[str] | None = None) -> None:
    """Run the worker until each study has had so many ticks; held: and until it carries these and no others."""
    stop = threading.Event()

    def told(_study: str, _tick: Tick) -> None:
        ticked = all(studies.ticks[name] >= number for name, number in enough.items())
        if ticked and held in (None, set(studies.holders)):
            stop.set()

    worker.told = told
    guard = threading.Timer(LIMIT_SECONDS, stop.set)
    guard.start()
    worker.run(stop)
    guard.cancel()
    assert {name: studies.ticks[name] for name in enough if studies.ticks[name] < enough[name]} == {}


def test_ticks_of_different_studies_run_at_the_same_time_and_never_two_of_one(
    pool: ThreadPoolExecutor,
) -> None:
    studies = Studies(*"abcdefgh")
    run_until(a_worker(studies, pool), studies, dict.fromkeys("abcdefgh", 20))

    assert studies.most_at_once <= 4


def test_a_target_that_hangs_holds_up_no_other(pool: ThreadPoolExecutor) -> None:
    studies = Studies("hangs", "a", "b")
    studies.hanging["hangs"] = threading.Event()
    stop = threading.Timer(LIMIT_SECONDS, studies.hanging["hangs"].set)
    stop.start()
    worker = a_worker(studies, pool)
    others = {"a": 30, "b": 30}

    def told(_study: str, _tick: Tick) -> None:
        if all(studies.ticks[name] >= number for name, number in others.items()):
            assert studies.ticks["hangs"] == 0 or studies.hanging["hangs"].is_set()
            studies.hanging["hangs"].set()
            ended.set()

    ended = threading.Event()
    worker.told = told
    worker.run(ended)
    stop.cancel()

    assert studies.ticks["hangs"] == 1


def test_slow_targets_together_leave_threads_for_the_others(pool: ThreadPoolExecutor) -> None:
    studies = Studies("slow-1", "slow-2", "slow-3", "slow-4", "quick")
    worker = a_worker(studies, pool)
    run_until(worker, studies, {"quick": 5})
    for name, course in worker._courses.items():
        course.slow = name.startswith("slow")
    for name in ("slow-1", "slow-2", "slow-3", "slow-4"):
        studies.hanging[name] = threading.Event()
    before = dict(studies.ticks)
    stop = threading.Event()

    def told(study: str, _tick: Tick) -> None:
        if study == "quick" and studies.ticks["quick"] >= before["quick"] + 20:
            assert sum(course.slow and course.ticking for course in worker._courses.values()) == 1
            for event in studies.hanging.values():
                event.set()
            stop.set()

    worker.told = told
    worker.run(stop)

    assert studies.ticks["quick"] >= before["quick"] + 20


def test_what_was_just_read_of_wishes_and_freezes_goes_with_the_tick(pool: ThreadPoolExecutor) -> None:
    studies = Studies("a")
    studies.wishes["a"] = Wish.PAUSE
    run_until(a_worker(studies, pool), studies, {"a": 2})

    assert studies.seen_orders == {"a": Orders(Wish.PAUSE, studies.stands)}


def test_a_worker_takes_its_share_and_leaves_the_rest(pool: ThreadPoolExecutor) -> None:
    studies = Studies(*"abcd")
    studies.workers = 2
    run_until(a_worker(studies, pool), studies, {"a": 5, "b": 5})

    assert (studies.ticks["c"], studies.ticks["d"]) == (0, 0)


def test_a_worker_that_is_joined_hands_over_what_is_at_rest(pool: ThreadPoolExecutor) -> None:
    studies = Studies(*"abcd")
    worker = a_worker(studies, pool)
    run_until(worker, studies, dict.fromkeys("abcd", 1))
    studies.workers, studies.rested = 2, {"a", "b", "d"}
    worker._look_due = None
    before = dict(studies.ticks)
    run_until(worker, studies, {"a": before["a"] + 50, "c": before["c"] + 50}, held={"a", "c"})

    assert set(studies.holders) == {"a", "c"}


def test_no_worker_carries_more_than_it_may(pool: ThreadPoolExecutor) -> None:
    studies = Studies(*"abcd")
    run_until(a_worker(studies, pool, most=1), studies, {"a": 5})

    assert set(studies.holders) == {"a"}


def test_known_studies_go_on_while_the_database_is_away(pool: ThreadPoolExecutor) -> None:
    studies = Studies("a")
    worker = a_worker(studies, pool)
    run_until(worker, studies, {"a": 1})
    studies.away = True
    worker._look_due = None
    run_until(worker, studies, {"a": studies.ticks["a"] + 5})


def test_a_worker_that_leaves_gives_its_leases_back_and_says_so(pool: ThreadPoolExecutor) -> None:
    studies = Studies("a")
    worker = a_worker(studies, pool)
    run_until(worker, studies, {"a": 1})
    worker.leave()

    assert (studies.holders, studies.dismissed) == ({}, ["me"])


def test_a_study_that_has_ended_is_ticked_no_more(pool: ThreadPoolExecutor) -> None:
    studies = Studies("a", "ends")
    studies.ending = {"ends"}
    run_until(a_worker(studies, pool), studies, {"a": 100, "ends": 1})

    assert studies.ticks["ends"] == 1


def test_a_worker_with_threads_ends_when_nothing_is_unfinished(pool: ThreadPoolExecutor) -> None:
    studies = Studies()
    stop = threading.Event()
    guard = threading.Timer(LIMIT_SECONDS, stop.set)
    guard.start()
    a_worker(studies, pool).run(stop, until_idle=True)
    guard.cancel()

    assert not stop.is_set()
