"""What operators ask for is obeyed at the next tick, and stopping puts everything back exactly."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autotuner.domain.configuration import fingerprint
from autotuner.domain.study import Approval, Outcome, Phase, TrialKind, TrialState, Wish
from autotuner.operations import ask
from tests.closed_loop.endings import a_loop, at, check_ending, reached, seconds, trials
from tests.closed_loop.loop import Loop


def wish(loop: Loop, wanted: Wish) -> None:
    """Record what the operator wants."""
    ask(loop.store, loop.clock, loop.study_id, wanted, "operator", "the test says so")


MOMENTS = {
    "baseline": reached(Phase.BASELINE),
    "production measured": at(TrialKind.PRODUCTION),
    "baseline measured": at(TrialKind.BASELINE, level=1),
    "search": reached(Phase.SEARCH),
    "candidate warming": at(TrialKind.CANDIDATE, TrialState.WARMING),
    "candidate measured": at(TrialKind.CANDIDATE, level=2),
    "confirmation": reached(Phase.CONFIRMATION),
    "confirmation measured": at(TrialKind.CONFIRMATION),
    "control measured": at(TrialKind.CONTROL, TrialState.WARMING),
    "promotion": reached(Phase.PROMOTION),
    "stage relieved": at(TrialKind.STAGE, TrialState.PROPOSED),
    "stage applied": at(TrialKind.STAGE, TrialState.APPLIED),
    "stage warming": at(TrialKind.STAGE, TrialState.WARMING),
    "stage measured": at(TrialKind.STAGE),
    "watch": reached(Phase.WATCH),
    "watch measured": at(TrialKind.WATCH),
}


@pytest.mark.parametrize("moment", list(MOMENTS))
def test_a_cancelled_study_puts_everything_back_exactly(moment: str) -> None:
    loop = a_loop()
    loop.run(until=MOMENTS[moment])
    if moment == "stage relieved":
        loop.run(until=lambda _: loop.target.route.weights()["stable-0"] == 0)
    wish(loop, Wish.CANCEL)
    asked = seconds(loop)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert study.reason == "cancelled by an operator"
    assert seconds(loop) - asked < 10
    assert study.incumbent is not None
    for replica in study.plan.target.replicas:
        found = fingerprint(loop.target.serving.model_config(replica.name))
        assert found == study.incumbent.fingerprints[replica.name]


def test_a_study_cancelled_before_it_began_touches_nothing() -> None:
    loop = a_loop()
    wish(loop, Wish.CANCEL)
    loop.run()
    assert loop.study.outcome is Outcome.ABORTED
    assert not [entry for entry in loop.store.journal(loop.study_id) if entry.action]


def test_a_paused_study_tries_nothing_more_until_it_runs_again() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.SEARCH))
    wish(loop, Wish.PAUSE)
    for _ in range(20):
        assert "paused" in loop.tick().reason
    assert trials(loop.study, TrialKind.CANDIDATE) == []
    wish(loop, Wish.RUN)
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED


def waiting_for_approval(**pace: timedelta) -> Loop:
    """A loop whose winner waits for an operator."""
    loop = a_loop(approval=Approval.MANUAL, pace=pace)
    loop.run(until=reached(Phase.APPROVAL))
    for _ in range(5):
        assert loop.tick().reason == "waiting for approval"
    weights = loop.target.route.weights()
    assert weights["canary"] == 0
    return loop


def test_an_approved_winner_is_promoted() -> None:
    loop = waiting_for_approval()
    wish(loop, Wish.APPROVE)
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED


def test_a_winner_that_is_not_approved_is_not_promoted() -> None:
    loop = waiting_for_approval()
    wish(loop, Wish.DISAPPROVE)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.KEPT
    assert study.reason == "an operator did not approve the winner"


def test_a_winner_that_nobody_approves_in_time_is_not_promoted() -> None:
    """Waiting has a limit of its own: the study's time limit is for tuning."""
    limit = timedelta(minutes=5)
    loop = waiting_for_approval(approval_limit=limit, study_limit=timedelta(minutes=3))
    since = loop.study.phase_since
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.KEPT
    assert study.reason == "nobody approved the winner in time"
    assert since is not None
    assert limit <= loop.clock.now() - since <= limit + timedelta(seconds=10)


def test_a_study_whose_time_is_up_while_tuning_is_inconclusive() -> None:
    loop = a_loop(pace={"study_limit": timedelta(seconds=40)})
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.INCONCLUSIVE
    assert study.reason == "the study's time is up"
