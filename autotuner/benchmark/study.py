"""One study of the benchmark: a contestant, a world and a seed, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.batching.advisor import record
from autotuner.batching.trials import Problem, Setting, Tried
from autotuner.benchmark.contestants import Contestant
from autotuner.benchmark.history import winner
from autotuner.benchmark.world import World
from autotuner.domain.confirmation import MAX_WINNERS
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

    final, final_ratio, final_quality: the setting that was confirmed, else the incumbent, and the same of it at today's
    (final) rate. confirmation_harm_requests: slow requests above 1 % that confirming caused.
    window_requests: sent in one window at today's rate. reason: why it ended.
    """

    workload: str
    sampler: str
    seed: int
    attempts: tuple[Attempt, ...]
    final: Setting
    final_ratio: float
    final_quality: float
    confirmation_harm_requests: float
    window_requests: float
    reason: str


def run_study(world: World, contestant: Contestant, sampler: str, seed: int, trials: int) -> Course:
    """Let the contestant propose until it has no more to propose or has had all trials; then confirm the winner.

    sampler: its name. trials: the most, the incumbent's included.
    """
    problem = world.problem(seed)
    truth = world.truth
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
        worth = truth.quality(setting) if whole else 0.0
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
    final, spent = _confirmed(world, problem, history, seed)
    return Course(
        workload=world.system.workload.name,
        sampler=sampler,
        seed=seed,
        attempts=tuple(attempts),
        final=final,
        final_ratio=truth.p99_seconds(final) / problem.ceiling_seconds,
        final_quality=truth.quality(final),
        confirmation_harm_requests=spent,
        window_requests=window,
        reason=reason,
    )


def _confirmed(world: World, problem: Problem, history: Sequence[Tried], seed: int) -> tuple[Setting, float]:
    """The best trial's setting that is confirmed on fresh data, and the slow requests that confirming caused.

    After MAX_WINNERS that were not the incumbent stays, as in the product.
    """
    left, spent = list(history), 0.0
    for number in range(len(history) + 1, len(history) + 1 + MAX_WINNERS):
        best = winner(problem, left)
        if best == problem.incumbent:
            break
        good, harm = world.confirmation(best, seed, number)
        spent += harm
        if good:
            return best, spent
        left = [trial for trial in left if trial.setting != best]
    return problem.incumbent, spent
