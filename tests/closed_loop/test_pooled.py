"""Whole studies on a target whose stable replicas the gateway knows together only, with a canary made for the study."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from autotuner.controller import Orders
from autotuner.domain.calendar import RUNNING
from autotuner.domain.configuration import Configuration, read_configuration
from autotuner.domain.study import Outcome, Phase, TrialKind, TrialState, Wish
from autotuner.domain.target import Target
from autotuner.domain.workload import CANARY, STABLE
from autotuner.errors import Conflict
from autotuner.operations import ask, replay
from autotuner.ports import World
from autotuner.targets import try_connections
from tests.closed_loop.endings import at
from tests.closed_loop.loop import Loop, QuickStore, a_brisk_plan, a_short_plan, proposers
from tests.closed_loop.pooled import PooledWorld, a_pooled_target, apart


@dataclass
class PooledLoop(Loop):
    """A loop whose controller sees the simulated target as a workload on Kubernetes looks."""

    pooled: PooledWorld = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pooled = PooledWorld(self.target, self.plan.target)

    def simulated_target(self) -> Target:
        return apart(self.plan.target)

    def world(self) -> World:
        return self.pooled.world

    def served(self, replica: str) -> Configuration:
        return read_configuration(self.target.serving.model_config(replica))


def as_found(loop: PooledLoop) -> bool:
    """Production serves the incumbent, and nothing of the study is left."""
    study = loop.study
    gone = not loop.pooled.up and study.canary_since is None
    if study.incumbent is None:
        return gone
    names = study.plan.target.stable_names
    return gone and all(loop.served(name) == study.incumbent.configuration for name in names)


@pytest.fixture(scope="module")
def promoted() -> PooledLoop:
    loop = PooledLoop(a_brisk_plan(target=a_pooled_target()), seed=2)
    loop.run()
    return loop


def test_a_better_configuration_is_promoted_pod_by_pod_and_the_canary_is_gone(promoted: PooledLoop) -> None:
    study = promoted.study
    assert study.outcome is Outcome.PROMOTED, study.reason
    assert study.winner is not None
    winner = study.trials[study.winner].configuration
    assert [promoted.served(name) for name in study.plan.target.stable_names] == [winner, winner]
    stages = [trial.replicas for trial in study.trials if trial.kind is TrialKind.STAGE]
    assert stages == [("stable-0",), ("stable-1",)]
    assert not promoted.pooled.up
    assert promoted.pooled.put_up_calls == promoted.pooled.taken_down == 1


def test_a_stage_is_judged_by_what_all_users_of_production_got(promoted: PooledLoop) -> None:
    stage = next(t for t in promoted.study.trials if t.kind is TrialKind.STAGE)
    watch = next(t for t in promoted.study.trials if t.kind is TrialKind.WATCH)
    step = stage.steps[-1]
    assert step.total_rate_per_second == pytest.approx(step.rate_per_second * 2, rel=0.05)
    assert watch.steps[-1].rate_per_second == pytest.approx(step.rate_per_second, rel=0.2)


def test_while_a_pod_is_loaded_the_canary_takes_one_pods_share(promoted: PooledLoop) -> None:
    actions = [entry.action for entry in promoted.store.journal(promoted.study_id) if entry.action]
    loads = [
        n for n, action in enumerate(actions) if action["type"] == "Load" and action["replica"] != CANARY
    ]
    before = [action for action in actions[: loads[0]] if action["type"] == "SetWeights"][-1]
    assert before["weights"] == {STABLE: 500, CANARY: 500}


def test_the_whole_study_is_decided_again_from_its_records(promoted: PooledLoop) -> None:
    assert replay(promoted.store, promoted.study_id, proposers).differences == ()


def test_a_stage_is_not_judged_while_a_pod_that_shares_its_traffic_is_missing() -> None:
    loop = PooledLoop(a_brisk_plan(target=a_pooled_target()), seed=2, store=QuickStore())
    loop.run(until=at(TrialKind.STAGE))
    loop.target.faults.crash("stable-1")
    loop.said.clear()
    loop.run(until=lambda study: study.trial is not None and study.trial.state is not TrialState.MEASURING)
    assert any("stable-1 is not ready" in said for said in loop.said), loop.said
    assert loop.study.trial is not None
    assert loop.study.trial.steps == ()


def test_between_studies_nobody_misses_the_canary() -> None:
    loop = PooledLoop(a_short_plan(target=a_pooled_target()), store=QuickStore())
    checks = try_connections(loop.plan.target, loop.world(), loop.target.background)
    assert [(each.what, each.detail) for each in checks if not each.passed] == []
    assert [each.what for each in checks][:2] == ["replica stable-0", "replica stable-1"]


def test_a_canary_that_is_refused_ends_the_study_with_the_reason() -> None:
    loop = PooledLoop(a_short_plan(target=a_pooled_target()), store=QuickStore())
    loop.pooled.refuses = "model control: tritonserver must be started with --model-control-mode=explicit"
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert "--model-control-mode=explicit" in study.reason
    assert as_found(loop)
    assert loop.pooled.taken_down == 1


def test_a_canary_that_never_serves_is_given_up_after_the_load_limit_and_removed() -> None:
    loop = PooledLoop(a_short_plan(target=a_pooled_target()), store=QuickStore())
    loop.target.faults.crash(CANARY)
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert "canary" in study.reason
    assert study.ended_at is not None
    assert study.ended_at - study.created_at >= study.plan.pace.load_limit
    assert as_found(loop)


def test_somebody_elses_rollout_ends_the_study_and_takes_the_canary_down() -> None:
    loop = PooledLoop(a_short_plan(target=a_pooled_target()), store=QuickStore())
    loop.run(until=lambda study: study.phase is Phase.SEARCH)
    loop.pooled.rolled_out = "somebody rolled out another pod template"
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert "another pod template" in study.reason
    assert as_found(loop)


def test_a_cancelled_study_leaves_nothing_behind() -> None:
    loop = PooledLoop(a_short_plan(target=a_pooled_target()), store=QuickStore())
    loop.run(until=lambda study: study.phase is Phase.BASELINE)
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "tester", "enough")
    assert loop.run().outcome is Outcome.ABORTED
    assert as_found(loop)


def a_promotion_that_is_about_to_end() -> PooledLoop:
    loop = PooledLoop(a_brisk_plan(target=a_pooled_target()), seed=2, store=QuickStore())
    loop.run(until=lambda study: study.phase is Phase.RESTORATION)
    assert loop.study.intended is Outcome.PROMOTED
    return loop


def test_a_cancellation_comes_in_time_until_the_canary_goes() -> None:
    loop = a_promotion_that_is_about_to_end()
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "tester", "enough")
    unknowing = Orders(Wish.RUN, RUNNING)
    while "cancelled meanwhile" not in loop.controller.tick(loop.study_id, "vision", unknowing).reason:
        assert loop.pooled.up
    assert loop.run().outcome is Outcome.ABORTED
    assert as_found(loop)


def test_whoever_cancels_when_the_canary_goes_is_told_that_the_promotion_stands() -> None:
    loop = a_promotion_that_is_about_to_end()
    loop.run(until=lambda study: study.canary_since is None)
    assert loop.study.phase is Phase.RESTORATION
    with pytest.raises(Conflict, match="its promotion stands, and it ends within moments: then roll it back"):
        ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "tester", "enough")
    assert loop.store.wish(loop.study_id) is Wish.RUN
    assert loop.run().outcome is Outcome.PROMOTED


@pytest.mark.parametrize("every", [7, 11])
def test_a_worker_killed_again_and_again_still_takes_the_canary_down_once_it_ends(every: int) -> None:
    loop = PooledLoop(a_short_plan(target=a_pooled_target()), store=QuickStore())
    for number in range(4000):
        if loop.tick().ended:
            break
        if number % every == every - 1:
            loop.controller = loop.new_controller()
    assert loop.study.phase is Phase.ENDED
    assert not loop.pooled.up
