"""One study of the benchmark: a contestant, a world and a seed, and how it went."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.batching.advisor import record
from autotuner.batching.trials import Setting, Tried
from autotuner.benchmark.contestants import Contestant
from autotuner.benchmark.world import World
from autotuner.errors import AutotunerError


@dataclass(frozen=True)
class Attempt:
    """One trial. p99_ratio: true p99 over the ceiling, at what was today's rate then, or at the trial's own lower one.

    quality: true worth as a share of the best candidate's, 0 where the ceiling does not hold and for a trial that was
    limited to less than today's rate: it found nothing yet. rate_share: that limit over today's rate, 1 for none.
    harm_requests: slow requests above 1 % that it caused. harm_today_requests: the part of it at the lowest level.
    """

    setting: Setting
    p99_ratio: float
    quality: float
    harm_requests: float
    harm_today_requests: float
    rate_share: float = 1.0


@dataclass(frozen=True)
class Course:
    """How a study went; the incumbent's is the first attempt.

    final, final_ratio, final_quality: the setting that was kept, and the same of it at today's (final) rate.
    window_requests: sent in one window at today's rate. reason: why it ended.
    """

    workload: str
    sampler: str
    seed: int
    attempts: tuple[Attempt, ...]
    final: Setting
    final_ratio: float
    final_quality: float
    window_requests: float
    reason: str


def run_study(world: World, contestant: Contestant, sampler: str, seed: int, trials: int) -> Course:
    """Let the contestant propose until it has no more to propose or has had all trials, and choose then.

    sampler: its name. trials: the most, the incumbent's included.
    """
    problem = world.problem(seed)
    quality = world.truth.quality(world.aim)
    history: list[Tried] = []
    attempts: list[Attempt] = []
    window, reason = 0.0, f"all {trials} trials are done"
    advice, setting = contestant.begin(problem), problem.incumbent
    while True:
        number = len(history) + 1
        done = world.trial(setting, seed, number, advice.highest_rate)
        history.append(record(advice, done.tried))
        window = done.window_requests
        ratio = world.true_p99(setting, number, advice.highest_rate) / problem.ceiling_seconds
        whole = world.reaches_today(advice.highest_rate)
        worth = float(quality[world.truth.index(setting)]) if whole else 0.0
        share = 1.0 if whole else advice.highest_rate / world.system.rate
        attempts.append(Attempt(setting, ratio, worth, done.harm_requests, done.harm_today_requests, share))
        if number >= trials:
            break
        advice = contestant.propose(problem, history)
        if advice.setting is None:
            reason = advice.reason
            break
        if advice.setting not in problem.candidates:
            raise AutotunerError(f"{sampler} proposed {advice.setting}, which is no candidate")
        setting = advice.setting
    final = contestant.choose(problem, history)
    place = world.truth.index(final)
    return Course(
        workload=world.system.workload.name,
        sampler=sampler,
        seed=seed,
        attempts=tuple(attempts),
        final=final,
        final_ratio=float(world.truth.p99_seconds[place]) / problem.ceiling_seconds,
        final_quality=float(quality[place]),
        window_requests=window,
        reason=reason,
    )
