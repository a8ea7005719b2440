"""What goes wrong outside ends in words that a person understands, with production as it was or as it was proved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.adapters.simulated import MetricsFault, small_vision
from autotuner.domain.certificate import certificate
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Phase, TrialKind, TrialState
from tests.builders import a_budget, a_configuration
from tests.closed_loop.endings import (
    BETTER,
    TERRIBLE,
    a_loop,
    at,
    check_ending,
    reached,
    served,
    trials,
)
from tests.closed_loop.loop import Loop

SECOND = timedelta(seconds=1)
MEASURED = at(TrialKind.CANDIDATE)
OTHER = a_configuration(preferred_batch_size=(16,))


def said(loop: Loop, words: str) -> bool:
    """Whether one of the loop's sentences has `words`."""
    return any(words in line for line in loop.said)


# -- the canary ------------------------------------------------------------------------------------------------


def test_a_canary_that_dies_while_it_is_measured_and_comes_back_is_measured_again() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.crash("canary")
    loop.target.faults.start("canary", after=4 * SECOND)
    loop.run()
    study = check_ending(loop)
    candidate = trials(study, TrialKind.CANDIDATE)[0]
    assert candidate.voids == 1
    assert candidate.verdict is Verdict.ACCEPT
    assert said(loop, "VOID: canary is not ready")
    assert study.outcome is Outcome.PROMOTED


def test_a_canary_that_never_comes_back_ends_the_study_and_is_named() -> None:
    loop = a_loop(BETTER, OTHER)
    loop.run(until=MEASURED)
    loop.target.faults.crash("canary")
    loop.run()
    study = check_ending(loop, apart_from=["canary"])
    assert study.outcome is Outcome.ABORTED
    assert "canary could not be restored" in study.reason
    assert "a person must look" in study.reason


def test_a_dead_canary_carries_nothing_two_seconds_later() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.crash("canary")
    died = loop.clock.now()
    loop.run(until=lambda study: loop.target.route.weights()["canary"] == 0)
    assert loop.clock.now() - died <= 2.1 * SECOND


@pytest.mark.parametrize("dead", ["before", "after"])
def test_a_stage_gives_no_traffic_to_a_dead_canary(dead: str) -> None:
    """The canary stands in for the replica that is promoted; without it, production keeps its weights."""
    loop = a_loop()
    state = TrialState.PROPOSED if dead == "before" else TrialState.WARMING
    loop.run(until=at(TrialKind.STAGE, state))
    loop.target.faults.crash("canary")
    died = loop.clock.now()
    worst = 0
    while not loop.tick().ended:
        weights = loop.target.route.weights()
        if loop.clock.now() - died > 2.1 * SECOND:
            worst = max(worst, weights["canary"])
    study = check_ending(loop, apart_from=["canary"])
    assert worst == 0
    assert study.outcome is Outcome.ABORTED
    assert "canary" in study.reason


def test_a_canary_lost_after_the_watch_leaves_a_promoted_study_that_asks_for_a_person() -> None:
    loop = a_loop()
    loop.run(until=reached(Phase.WATCH))
    loop.target.faults.crash("canary")
    loop.run()
    study = check_ending(loop, apart_from=["canary"])
    assert study.outcome is Outcome.PROMOTED
    assert "canary could not be restored" in study.reason


# -- the gateway -----------------------------------------------------------------------------------------------


def test_a_gateway_restarted_while_measuring_voids_the_window_and_the_study_goes_on() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.gateway_restart()
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids == 1
    assert study.outcome is Outcome.PROMOTED


def test_a_gateway_away_for_ten_seconds_voids_the_window_and_the_study_goes_on() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.gateway_down()
    loop.target.faults.gateway_restart(after=10 * SECOND)
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids >= 1
    assert study.outcome is Outcome.PROMOTED


@pytest.mark.parametrize("kind", [TrialKind.CANDIDATE, TrialKind.STAGE, TrialKind.WATCH])
def test_a_gateway_that_is_gone_for_ever_ends_the_study_with_production_restored(kind: TrialKind) -> None:
    loop = a_loop(pace={"study_limit": timedelta(minutes=3), "restore_limit": 20 * SECOND})
    loop.run(until=at(kind))
    loop.target.faults.gateway_down()
    loop.run()
    study = check_ending(loop, apart_from=["gateway"])
    assert study.outcome is Outcome.ABORTED
    assert "the weights could not be restored: gateway is unavailable" in study.reason


# -- metrics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["canary", "stable-0", "gateway"])
@pytest.mark.parametrize("fault", list(MetricsFault))
def test_metrics_that_lie_for_a_while_are_never_a_verdict(source: str, fault: MetricsFault) -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=0))
    loop.target.faults.metrics(source, fault)
    loop.target.faults.metrics_well(source, after=12 * SECOND)
    loop.run()
    study = check_ending(loop)
    candidate = trials(study, TrialKind.CANDIDATE)[0]
    assert candidate.verdict is not Verdict.REJECT
    assert all(step.verdict is not Verdict.REJECT for step in candidate.steps)
    assert study.outcome in (Outcome.PROMOTED, Outcome.INCONCLUSIVE)


@pytest.mark.parametrize("source", ["canary", "gateway"])
@pytest.mark.parametrize("fault", list(MetricsFault))
def test_metrics_that_lie_for_ever_promote_nothing(source: str, fault: MetricsFault) -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=0))
    loop.target.faults.metrics(source, fault)
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].verdict in (Verdict.VOID, Verdict.INCONCLUSIVE)
    assert study.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("fault", [MetricsFault.FROZEN, MetricsFault.SILENT])
def test_a_watch_that_goes_blind_is_rolled_back(fault: MetricsFault) -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.WATCH))
    loop.target.faults.metrics("gateway", fault)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert study.reason.startswith("rolled back")


# -- loads -----------------------------------------------------------------------------------------------------


def test_a_candidate_that_does_not_load_is_rejected_with_the_servers_words_and_the_search_goes_on() -> None:
    loop = a_loop(OTHER, BETTER)
    loop.run(until=at(TrialKind.CANDIDATE, TrialState.PROPOSED))
    loop.target.faults.refuse_loads("canary", "no such device")
    loop.run(until=lambda study: len(trials(study, TrialKind.CANDIDATE)) == 2)
    loop.target.faults.refuse_loads("canary", "")
    loop.run()
    study = check_ending(loop)
    refused, better = trials(study, TrialKind.CANDIDATE)
    assert refused.verdict is Verdict.REJECT
    assert "does not load" in refused.reason
    assert "no such device" in refused.reason
    assert better.verdict is Verdict.ACCEPT
    assert study.outcome is Outcome.PROMOTED


def test_a_load_that_hangs_is_given_up_in_time() -> None:
    loop = a_loop(OTHER, BETTER, profile=replace(small_vision(), load_time=2 * SECOND))
    loop.run(until=at(TrialKind.CANDIDATE, TrialState.PROPOSED))
    loop.target.faults.hang_loads("canary")
    began = loop.clock.now()
    loop.run(until=lambda study: len(trials(study, TrialKind.CANDIDATE)) == 2)
    assert loop.clock.now() - began <= loop.plan.pace.load_limit + 6 * SECOND
    loop.target.faults.hang_loads("canary", hangs=False)
    loop.run()
    study = check_ending(loop)
    hung, better = trials(study, TrialKind.CANDIDATE)
    assert hung.verdict is Verdict.VOID
    assert "no answer within 10 s" in hung.reason
    assert better.verdict is Verdict.ACCEPT
    assert study.outcome is Outcome.PROMOTED


def test_slow_loads_only_take_longer() -> None:
    loop = a_loop(profile=replace(small_vision(), load_time=3 * SECOND))
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED
    assert said(loop, "waiting for the load to finish")


def test_a_stage_whose_load_hangs_gives_every_replica_its_configuration_back() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.STAGE, TrialState.PROPOSED))
    loop.target.faults.hang_loads("stable-0")
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert "promotion stopped at stable-0" in study.reason


def test_a_configuration_that_lands_in_the_memory_headroom_is_rejected_whatever_its_latency() -> None:
    loop = a_loop(a_configuration(preferred_batch_size=(), instance_count=3))
    loop.run(until=MEASURED)
    loop.target.faults.take_memory("canary", 12e9)
    loop.run()
    study = check_ending(loop)
    candidate = trials(study, TrialKind.CANDIDATE)[0]
    assert candidate.verdict is Verdict.REJECT
    assert "headroom" in candidate.reason
    assert study.outcome is Outcome.KEPT


# -- traffic ---------------------------------------------------------------------------------------------------


def test_a_shared_burst_is_nobodys_fault_and_the_step_is_repeated() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=1))
    loop.target.faults.slow(factor=8.0, lasting=3 * SECOND)
    loop.run()
    study = check_ending(loop)
    candidate = trials(study, TrialKind.CANDIDATE)[0]
    assert [step.verdict for step in candidate.steps].count(Verdict.VOID) == 1
    assert candidate.verdict is Verdict.ACCEPT
    assert said(loop, "nobody is blamed")
    assert study.outcome is Outcome.PROMOTED


def test_traffic_that_stops_is_no_success() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=0))
    loop.target.faults.traffic(0.0)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.INCONCLUSIVE
    assert trials(study, TrialKind.CANDIDATE)[0].verdict is Verdict.INCONCLUSIVE


def test_half_the_traffic_does_not_prove_a_level_that_did_not_come() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=0))
    loop.target.faults.traffic(230.0)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.INCONCLUSIVE
    assert "/s came where the level means" in trials(study, TrialKind.CANDIDATE)[0].reason


def test_requests_that_reach_the_canary_past_the_gateway_void_the_window() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=0))
    loop.target.faults.direct_traffic(60.0)
    loop.target.faults.direct_traffic(0.0, after=6 * SECOND)
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids >= 1
    assert said(loop, "contaminated")
    assert study.outcome is Outcome.PROMOTED


# -- other hands -----------------------------------------------------------------------------------------------


def test_weights_that_somebody_else_changes_void_the_window() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.foreign_weights({"stable-0": 500, "stable-1": 400, "canary": 100})
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids == 1
    assert said(loop, "the gateway's weights are not the ones that were set")
    assert study.outcome is Outcome.PROMOTED


def test_a_canary_that_somebody_else_reconfigures_is_measured_again() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.foreign_configuration("canary", TERRIBLE)
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids == 1
    assert said(loop, "canary no longer serves the configuration on trial")
    assert study.outcome is Outcome.PROMOTED


@pytest.mark.parametrize("kind", [TrialKind.CANDIDATE, TrialKind.STAGE, TrialKind.WATCH])
def test_a_stable_replica_that_somebody_else_reconfigures_ends_the_study_and_is_left_alone(
    kind: TrialKind,
) -> None:
    loop = a_loop()
    loop.run(until=at(kind))
    loop.target.faults.foreign_configuration("stable-1", OTHER)
    loop.run()
    study = check_ending(loop, apart_from=["stable-1"])
    assert served(loop, "stable-1") == OTHER
    assert study.outcome is Outcome.ABORTED
    assert "stable-1 serves neither the incumbent nor the winner" in study.reason


# -- bad configurations ----------------------------------------------------------------------------------------


def test_a_terrible_configuration_is_off_the_canary_within_three_seconds_of_the_evidence() -> None:
    loop = a_loop(TERRIBLE, slo=a_budget(harm_budget_requests=800, max_canary_share=0.75))
    loop.run(until=at(TrialKind.CANDIDATE, TrialState.WARMING))
    enough = 12 * loop.study.dispersion
    evident = None
    while loop.target.route.weights()["canary"]:
        loop.tick()
        trial = loop.study.trials[-1]
        if evident is None and trial.harm_requests >= enough:
            evident = loop.clock.now()
    assert evident is not None
    assert loop.clock.now() - evident <= 3 * SECOND
    loop.run()
    study = check_ending(loop)
    candidate = trials(study, TrialKind.CANDIDATE)[0]
    assert candidate.verdict is Verdict.REJECT
    assert candidate.harm_requests < 300
    assert study.outcome is Outcome.KEPT


@pytest.mark.parametrize("budget", [330, 430, 530, 700, 900, 1100, 1300])
def test_whatever_is_left_of_the_harm_budget_is_not_overspent(budget: int) -> None:
    """A level is opened, in confirmation too, only while the rest could pay for its going wrong at once."""
    loop = a_loop(TERRIBLE, BETTER, slo=a_budget(harm_budget_requests=budget, max_canary_share=0.75))
    loop.run()
    study = check_ending(loop)
    assert study.outcome is not Outcome.ABORTED


def test_a_replica_that_is_slow_once_promoted_stops_the_promotion_and_is_restored() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.STAGE, TrialState.APPLIED))
    loop.target.faults.slow("stable-0", factor=6.0)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert "promotion stopped at stable-0" in study.reason
    assert trials(study, TrialKind.STAGE)[-1].verdict is Verdict.REJECT


def test_a_rejected_stage_carries_no_more_traffic_until_it_is_restored() -> None:
    loop = a_loop(profile=replace(small_vision(), load_time=3 * SECOND))
    loop.run(until=at(TrialKind.STAGE))
    loop.target.faults.slow("stable-0", factor=6.0)
    loop.run(until=lambda study: trials(study, TrialKind.STAGE)[-1].verdict is not None)
    rejected = loop.clock.now()
    exposed = []
    while not loop.tick().ended:
        if served(loop, "stable-0") == BETTER and loop.clock.now() - rejected > SECOND:
            exposed.append(loop.target.route.weights()["stable-0"])
    assert exposed
    assert set(exposed) == {0}
    check_ending(loop)


def test_a_winner_that_does_not_hold_under_watch_is_rolled_back() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.WATCH))
    loop.target.faults.slow("stable-0", "stable-1", factor=6.0)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert study.reason.startswith("rolled back")


def test_a_stable_replica_that_restarts_under_watch_leaves_no_mixture() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.WATCH))
    loop.target.faults.crash("stable-1")
    loop.target.faults.start("stable-1", after=3 * SECOND)
    loop.run()
    study = check_ending(loop)
    assert study.outcome in (Outcome.PROMOTED, Outcome.ABORTED)


def test_a_stable_replica_that_restarts_while_a_candidate_is_measured_voids_the_window() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE, level=0))
    loop.target.faults.crash("stable-0")
    loop.target.faults.start("stable-0", after=2 * SECOND)
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].voids >= 1


@pytest.mark.parametrize("replica", ["canary", "stable-1"])
def test_another_version_of_the_model_ends_the_study(replica: str) -> None:
    """A load reads the model repository again, and takes what somebody put there meanwhile."""
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.another_version(replica, "2")
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert f"{replica} has loaded version 2 of the model instead of 1" in study.reason


def test_versions_that_are_no_longer_told_are_no_other_versions() -> None:
    loop = a_loop()
    loop.run(until=MEASURED)
    loop.target.faults.another_version("canary")
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.PROMOTED
    (confirmed,) = trials(study, TrialKind.CONFIRMATION)
    assert [step.model_versions for step in confirmed.accepted] == [()] * len(confirmed.accepted)
    assert certificate(study).provenance.model_versions == ("1",)


# -- before anything is touched --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: f.crash("canary"), "canary: "),
        (lambda f: f.gateway_down(), "gateway is unavailable"),
        (lambda f: f.metrics("stable-1", MetricsFault.HTML), "the answer is an HTML page"),
        (lambda f: f.foreign_configuration("stable-1", OTHER), "serve different configurations"),
        (
            lambda f: f.another_version("canary", "1", "2"),
            "canary runs version 1 and 2 of the model instead of 1",
        ),
    ],
)
def test_a_target_that_cannot_be_read_or_tuned_is_left_untouched(spoil: object, words: str) -> None:
    loop = a_loop()
    spoil(loop.target.faults)  # type: ignore[operator]
    loop.run()
    assert loop.study.outcome is Outcome.ABORTED
    assert words in loop.study.reason
    assert loop.study.trials == ()
    assert not [entry for entry in loop.store.journal(loop.study_id) if entry.action]
