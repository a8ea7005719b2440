"""How fast the proposer's parts are: its event simulator beside one in plain Python, and one ask beside Optuna's TPE.

Everything is taken on one core, after a first call that compiles, as the best of a few repetitions: ratios then hold on
other machines too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from autotuner.batching.advisor import advise
from autotuner.batching.simulator import Device, Law, simulate
from autotuner.batching.trials import Aim, Floats, History, Problem, Setting, Tried
from autotuner.benchmark.optuna_rivals import tpe
from autotuner.benchmark.scenarios import Scenario
from autotuner.benchmark.workloads import builtin
from autotuner.benchmark.world import World
from autotuner.cache import cache_directory
from tests.benchmarks import plain_batcher
from tests.benchmarks.verdict import Row

REQUESTS = 200_000
PLAIN_REQUESTS = 20_000
RATE = 900.0
LEAST_REQUESTS_PER_SECOND = 5e6
TRIALS, CANDIDATES = 50, 2_000
MOST_ASK_SECONDS = 0.5
REPETITIONS = 3
WORKLOAD = "small-vision"

SETTINGS = {
    "no delay, 1 instance": Setting(0.0, (), 1, 32),
    "delay 5 ms, preferred 8, 2 instances": Setting(0.005, (8,), 2, 32),
    "delay 5 ms, none preferred, 4 instances": Setting(0.005, (), 4, 32),
}


def seconds(work: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    """Processor time of the fastest of some repetitions: what else runs on the machine matters little."""
    taken = []
    for _ in range(repetitions):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def arrivals(count: int) -> Floats:
    """Poisson arrivals."""
    return np.cumsum(np.random.default_rng(1).exponential(1.0 / RATE, count))


def compiled_latency(setting: Setting, count: int, law: Law = Law.DISPATCH) -> Floats:
    """Latencies by the compiled simulator."""
    device = Device(0.004 + 0.0003 * np.arange(33.0), law, 0.5)
    return simulate(arrivals(count), setting, device, np.ones(1)).latency_seconds


def plain_latency(setting: Setting, count: int) -> list[float]:
    """Latencies by the plain one."""
    curve = [0.004 + 0.0003 * size for size in range(33)]
    return plain_batcher.simulate(
        arrivals(count).tolist(),
        setting.delay_seconds,
        setting.preferred,
        plain_batcher.Instances(setting.instances, curve, 0.5),
    )


def speeds() -> Iterator[Row]:
    """Requests per second of the two simulators, and how often faster the compiled one is."""
    for name, setting in SETTINGS.items():
        for law in Law:
            compiled_latency(setting, 1_000, law)
            speed = REQUESTS / seconds(lambda s=setting, w=law: compiled_latency(s, REQUESTS, w))  # type: ignore[misc]
            yield Row(
                f"event simulator, {law.name.lower()}: {name}",
                f"≥ {LEAST_REQUESTS_PER_SECOND / 1e6:.0f} M requests/s",
                f"{speed / 1e6:.1f} M requests/s",
                speed >= LEAST_REQUESTS_PER_SECOND,
            )
            if law is Law.DISPATCH:
                plain = PLAIN_REQUESTS / seconds(lambda s=setting: plain_latency(s, PLAIN_REQUESTS))  # type: ignore[misc]
                yield Row(f"as a ratio to plain Python: {name}", "", f"{speed / plain:.0f} ×", None)


def a_long_history(problem: Problem, world: World) -> History:
    """So many trials, the incumbent's first, spread over the candidates that hold the ceiling somehow."""
    dice = np.random.default_rng(2)
    mild = [
        s
        for s in problem.candidates
        if s.delay_seconds < 0.5 * problem.ceiling_seconds and s != problem.incumbent
    ]
    picked = dice.choice(len(mild), TRIALS - 1, replace=False)
    tried: list[Tried] = [world.measure(problem.incumbent, 0, 1)]
    for number, index in enumerate(picked, start=2):
        tried.append(world.measure(mild[int(index)], 0, number))
    return tuple(tried)


def with_candidates(problem: Problem, count: int) -> Problem:
    """The problem with further delays between those it has, so that it has `count` candidates."""
    longest = 0.8 * problem.ceiling_seconds
    kinds = sorted({(s.preferred, s.instances) for s in problem.candidates})
    delays = np.linspace(0.0, longest, count // len(kinds) + 2)
    made = dict.fromkeys(problem.candidates)
    for delay in delays:
        for preferred, instances in kinds:
            if len(made) < count:
                made[Setting(float(delay), preferred, instances, problem.incumbent.max_batch_size)] = None
    return replace(problem, candidates=tuple(sorted(made)))


def asks() -> Iterator[Row]:
    """Time of one ask after so many trials, beside plain Optuna TPE at the same history."""
    workload = next(one for one in builtin() if one.name == WORKLOAD)
    for aim in Aim:
        world = World(workload, Scenario.BURSTY, aim, cache_directory())
        plain = world.problem(0)
        history = a_long_history(plain, world)
        problem = with_candidates(plain, CANDIDATES)
        advise(problem, history)
        ours = seconds(lambda p=problem, h=history: advise(p, h))  # type: ignore[misc]
        theirs = seconds(lambda p=problem, h=history: tpe(p, h, p.candidates))  # type: ignore[misc]
        yield Row(
            f"one ask for {aim}: {TRIALS} trials, {len(problem.candidates):,} candidates",
            f"≤ {MOST_ASK_SECONDS} s",
            f"{ours:.2f} s",
            ours <= MOST_ASK_SECONDS,
        )
        yield Row(
            f"as a ratio to plain Optuna TPE: {aim}", "", f"{ours / theirs:.1f} × ({theirs:.2f} s)", None
        )


def rows() -> Iterator[Row]:
    """All figures."""
    yield from speeds()
    yield from asks()
