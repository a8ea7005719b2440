"""All studies of a benchmark, side by side in processes; the result does not depend on how many there are."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from autotuner.batching.trials import Aim
from autotuner.benchmark.contestants import contestant
from autotuner.benchmark.exhaustive import Report
from autotuner.benchmark.scenarios import Scenario
from autotuner.benchmark.scoring import Score, score
from autotuner.benchmark.study import Course, run_study
from autotuner.benchmark.workloads import BenchWorkload
from autotuner.benchmark.world import World

Task = TypeVar("Task")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Plan:
    """What is run: every sampler on every workload with each of the seeds 0, 1, … trials: the most in a study."""

    workloads: tuple[BenchWorkload, ...]
    scenario: Scenario
    aim: Aim
    samplers: tuple[str, ...]
    seeds: int
    trials: int
    cache_folder: Path


@dataclass(frozen=True)
class _Study:
    plan: Plan
    workload: BenchWorkload
    sampler: str
    seed: int


def play(plan: Plan, jobs: int, report: Report) -> tuple[Course, ...]:
    """Return how every study went, ordered by sampler, workload and seed. report: receives progress.

    jobs: processes; with 1 everything happens in this one.
    """
    report(
        f"looking for the best setting of {len(plan.workloads)} workloads; what is not known yet takes minutes"
    )
    for done, workload in enumerate(
        _each(_learn, [(plan, workload) for workload in plan.workloads], jobs), start=1
    ):
        report(f"truth {done} of {len(plan.workloads)}: {workload}")
    studies = [
        _Study(plan, workload, sampler, seed)
        for workload in plan.workloads
        for sampler in plan.samplers
        for seed in range(plan.seeds)
    ]
    courses: list[Course] = []
    for course in _each(_run, studies, jobs):
        courses.append(course)
        if len(courses) % max(1, len(studies) // 50) == 0:
            report(f"study {len(courses)} of {len(studies)}: {course.sampler} on {course.workload}")
    order = {name: place for place, name in enumerate(plan.samplers)}
    return tuple(sorted(courses, key=lambda course: (order[course.sampler], course.workload, course.seed)))


def scores(courses: Iterable[Course]) -> tuple[Score, ...]:
    """Return a row for each sampler, in the order in which they first appear."""
    by_sampler: dict[str, list[Course]] = {}
    for course in courses:
        by_sampler.setdefault(course.sampler, []).append(course)
    return tuple(score(theirs) for theirs in by_sampler.values())


def _learn(task: tuple[Plan, BenchWorkload]) -> str:
    """Find a workload's best setting, so that no two processes look for it at once."""
    plan, workload = task
    truth = _world(workload, plan.scenario, plan.aim, plan.cache_folder).truth
    return f"{workload.name}, worth at best {truth.best.worth:.4g} among {len(truth.settings)} settings"


def _run(study: _Study) -> Course:
    plan = study.plan
    world = _world(study.workload, plan.scenario, plan.aim, plan.cache_folder)
    return run_study(world, contestant(study.sampler), study.sampler, study.seed, plan.trials)


@lru_cache(maxsize=32)
def _world(workload: BenchWorkload, scenario: Scenario, aim: Aim, cache_folder: Path) -> World:
    return World(workload, scenario, aim, cache_folder)


def _each(function: Callable[[Task], Done], tasks: Sequence[Task], jobs: int) -> Iterator[Done]:
    """Yield the results as they come, in no order."""
    if jobs == 1 or len(tasks) == 1:
        yield from map(function, tasks)
        return
    with ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(function, task) for task in tasks]
        try:
            for one in as_completed(running):
                yield one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
