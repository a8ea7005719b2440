"""Whatever goes wrong, whenever, in whatever combination: the end is right and can be decided again."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from autotuner.adapters.simulated import Faults, MetricsFault
from autotuner.domain.study import Outcome
from tests.closed_loop.endings import BETTER, TERRIBLE, a_loop, check_ending, seconds

SECOND = timedelta(seconds=1)
LONGEST = timedelta(minutes=25)


def _strike(faults: Faults, dice: random.Random) -> str:
    """Let one thing go wrong for a while, at some moment of the next half minute; returns what."""
    when, lasting = dice.uniform(0, 30) * SECOND, dice.uniform(1, 15) * SECOND
    replica = dice.choice(["stable-0", "stable-1", "canary"])
    source = dice.choice(["stable-0", "stable-1", "canary", "gateway"])
    fault = dice.choice(list(MetricsFault))
    over = when + lasting
    chosen = dice.choice(
        [
            "crash",
            "gateway restarts",
            "gateway away",
            "metrics",
            "refuses",
            "hangs",
            "slow",
            "traffic",
            "direct",
        ]
    )
    match chosen:
        case "crash":
            faults.crash(replica, after=when)
            faults.start(replica, after=over)
        case "gateway restarts":
            faults.gateway_restart(after=when)
        case "gateway away":
            faults.gateway_down(after=when)
            faults.gateway_restart(after=over)
        case "metrics":
            faults.metrics(source, fault, after=when)
            faults.metrics_well(source, after=over)
        case "refuses":
            faults.refuse_loads(replica, after=when)
            faults.refuse_loads(replica, "", after=over)
        case "hangs":
            faults.hang_loads(replica, after=when)
            faults.hang_loads(replica, hangs=False, after=over)
        case "slow":
            names = dice.choice([(), (replica,)])
            faults.slow(*names, factor=dice.uniform(2, 10), lasting=lasting, after=when)
        case "traffic":
            faults.traffic(dice.choice([0.0, 100.0, 300.0, 500.0]), after=when)
            faults.traffic(460.0, after=over)
        case _:
            faults.direct_traffic(dice.uniform(20, 200), after=when)
            faults.direct_traffic(0.0, after=over)
    return chosen


@pytest.mark.parametrize("seed", range(16))
def test_random_faults_at_random_times_never_leave_an_unproven_configuration_behind(seed: int) -> None:
    dice = random.Random(seed)
    loop = a_loop(TERRIBLE, BETTER, seed=seed)
    ended, next_strike = False, dice.uniform(0, 30)
    while not ended:
        if seconds(loop) >= next_strike:
            _strike(loop.target.faults, dice)
            next_strike += dice.uniform(5, 50)
        ended = loop.tick().ended
        if dice.random() < 0.02:
            loop.controller = loop.new_controller()
        assert seconds(loop) * SECOND < LONGEST
    away = [name for name in ("stable-0", "stable-1", "canary") if not loop.target.serving.is_ready(name)]
    study = check_ending(loop, apart_from=away, over_budget_by=0.0)
    if away:
        assert study.outcome is Outcome.ABORTED or "a person must look" in study.reason
