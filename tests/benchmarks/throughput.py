"""How many studies one worker process carries: each is ticked every second, on simulated canaries and a real database.

Targets are simulated by arithmetic on the clock, so that what is measured is the worker: its ticks, its decisions and
its writes. `AUTOTUNER_TEST_DATABASE_URL` names the server; without it one is started.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import PostgresLeases, PostgresStore, open_engine, upgrade
from autotuner.bootstrap import collected_rarely, pools_of, terms_of, ticks_of
from autotuner.controller import Controller, Outside, Tick
from autotuner.domain.study import StudyPlan
from autotuner.operations import register_target, start_study
from autotuner.ports import Clock, World
from autotuner.settings import Settings
from autotuner.worker import Worker
from tests.arithmetic_target import ArithmeticTarget, InTurn
from tests.benchmarks.verdict import Row
from tests.builders import a_budget, a_pace, a_plan, a_target
from tests.postgres_server import running_server

STUDIES = 1_000
SECONDS = 60.0
LATEST_SECONDS = 2.0
MEMORY_BYTES = 2**30


@dataclass
class Found:
    """What a run came to. Durations in seconds, memory in bytes."""

    studies: int
    seconds: float
    lateness: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    taken_on_after: float = 0.0
    processor_share: float = 0.0
    memory_bytes: int = 0
    failures: int = 0

    @property
    def rate(self) -> float:
        """Ticks a second."""
        return len(self.lateness) / self.seconds


def a_bench_plan(number: int) -> StudyPlan:
    """A study that is looked at every second and outlasts the run."""
    pace = a_pace(
        step_minimum=timedelta(seconds=20),
        production_window=timedelta(seconds=10),
        step_limit=timedelta(minutes=10),
    )
    target = a_target(name=f"target-{number:04}", site=f"site-{number % 10}")
    slo = a_budget(harm_budget_requests=1_000_000_000)
    return a_plan(target=target, slo=slo, pace=pace, max_trials=1000, ramp_steps=4, max_dispersion=2.0)


@contextmanager
def a_database() -> Iterator[str]:
    """The URL of a new, migrated database."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder) / "log") as server,
        server.database() as url,
    ):
        upgrade(url)
        yield url


def measured(url: str, studies: int, seconds: float, warm_up: float) -> Found:
    """Carry `studies` studies for `warm_up` and then for `seconds`, and return what was seen in the latter."""
    settings = Settings(database_url=url, holder="bench", studies=studies, canaries_per_site=studies)  # type: ignore[arg-type]
    clock, engine = SystemClock(), open_engine(url, pool_size=settings.threads + 2)
    store, leases = PostgresStore(engine), PostgresLeases(engine)
    worlds = _created(store, clock, studies)
    pools, ticks = pools_of(settings), ticks_of(settings)
    outside = Outside(store, leases, clock, lambda target: worlds[target.name], lambda _plan: InTurn(), pools)
    found, begun = Found(studies, seconds), set[str]()
    worker = Worker(store, leases, Controller(outside, settings.holder), clock, terms_of(settings), ticks)
    started = time.monotonic()

    def told(study_id: str, _tick: Tick) -> None:
        if len(begun) < studies:
            begun.add(study_id)
            found.taken_on_after = time.monotonic() - started

    def late(by: timedelta) -> None:
        if time.monotonic() - started > warm_up:
            found.lateness.append(by.total_seconds())

    worker.told, worker.late = told, late
    stop = threading.Event()
    timer = threading.Timer(warm_up + seconds, stop.set)
    timer.start()
    spent: list[float] = []
    starting = threading.Timer(warm_up, lambda: spent.append(time.process_time()))
    starting.start()
    with collected_rarely():
        worker.run(stop)
    found.processor_share = (time.process_time() - spent[0]) / seconds
    found.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    pools.shutdown()
    ticks.shutdown()
    engine.dispose()
    return found


def _created(store: PostgresStore, clock: Clock, studies: int) -> dict[str, World]:
    worlds = {}
    for number in range(studies):
        plan = a_bench_plan(number)
        slo = register_target(store, clock, plan.target, plan.slo, "bench", "")
        start_study(store, clock, replace(plan, slo=slo), "bench")
        worlds[plan.target.name] = ArithmeticTarget(plan.target, clock).world()
    return worlds


def rows() -> Iterator[Row]:
    """The figures of the default run."""
    with a_database() as url:
        yield from _rows(measured(url, STUDIES, SECONDS, warm_up=30.0))


def _rows(found: Found) -> Iterator[Row]:
    late = sorted(found.lateness) or [float("inf")]
    yield Row("studies in one process", "", f"{found.studies}", None)
    yield Row(
        "ticks a second",
        f"≥ {0.9 * found.studies:.0f}",
        f"{found.rate:.0f}",
        found.rate >= 0.9 * found.studies,
    )
    yield Row("all taken on within", "", f"{found.taken_on_after:.1f} s", None)
    yield Row("a tick is late by: median", "", f"{late[len(late) // 2]:.3f} s", None)
    yield Row("a tick is late by: p99", "", f"{late[int(0.99 * len(late))]:.3f} s", None)
    yield Row(
        "a tick is late by: most", f"≤ {LATEST_SECONDS} s", f"{late[-1]:.3f} s", late[-1] <= LATEST_SECONDS
    )
    yield Row("processor time of the worker", "", f"{found.processor_share:.0%} of one core", None)
    each = 1000 * found.processor_share / found.rate if found.rate else float("inf")
    yield Row("processor time of a tick", "", f"{each:.2f} ms", None)
    memory = found.memory_bytes
    yield Row("memory", "< 1 GiB", f"{memory / 2**20:.0f} MiB", memory < MEMORY_BYTES)


def main(arguments: list[str] | None = None) -> None:
    """Run with other numbers: `python -m tests.benchmarks.throughput --studies 200 --seconds 20`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--warm-up", type=float, default=30.0)
    asked = parser.parse_args(arguments)
    with a_database() as url:
        for row in _rows(measured(url, asked.studies, asked.seconds, asked.warm_up)):
            print(f"{row.name:40} {row.target:12} {row.reached:20} {row.ok}")


if __name__ == "__main__":
    main()
