from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.judgement import Verdict
from autotuner.domain.lifecycle import next_step
from autotuner.domain.rollout import known_fingerprints, restore, restored
from autotuner.domain.study import (
    Level,
    Load,
    Outcome,
    Pending,
    Phase,
    Restore,
    SetWeights,
    Study,
    Trial,
    TrialKind,
    TrialState,
)
from tests.builders import at
from tests.searches import a_step
from tests.sightings import (
    CANDIDATE,
    NEW,
    OLD,
    WEIGHTS,
    a_stage,
    begun,
    done,
    failed,
    seeing,
    trial_of,
    under_way,
)

ALL_NEW = {"stable-0": NEW, "stable-1": NEW, "canary": NEW}
LIMIT_SECONDS = 600.0
NO_GATEWAY: dict[str, Any] = {"weights": None, "faults": {"gateway": "gateway is unavailable: refused"}}


def over(trial: Trial, verdict: Verdict = Verdict.ACCEPT) -> Trial:
    fields: dict[str, Any] = {"state": TrialState.JUDGED, "verdict": verdict, "reason": "as measured"}
    return begun(trial.kind, replicas=trial.replicas, steps=(a_step(Level(0, 0.5)),), **fields)


WINNER = over(begun())
STAGED = (over(a_stage()), over(a_stage(replicas=("stable-1",))))


def promoting(*stages: Trial, **changes: Any) -> Study:
    return under_way(WINNER, *stages, phase=Phase.PROMOTION, winner=0, **changes)


def restoring(*stages: Trial, intended: Outcome = Outcome.ABORTED, **changes: Any) -> Study:
    fields: dict[str, Any] = {"winner": 0, "intended": intended, "reason": "the reason", **changes}
    return under_way(WINNER, *stages, phase=Phase.RESTORATION, **fields)


# -- promotion -------------------------------------------------------------------------------------------------


def test_replicas_are_promoted_one_after_the_other() -> None:
    first = next_step(promoting(), seeing())
    assert trial_of(first).replicas == ("stable-0",)
    assert trial_of(first).configuration == CANDIDATE
    second = next_step(promoting(STAGED[0]), seeing(served={"stable-0": NEW}))
    assert second.study.promoted == ("stable-0",)
    assert trial_of(second).replicas == ("stable-1",)
    third = next_step(promoting(*STAGED, promoted=("stable-0",)), seeing(served=ALL_NEW))
    assert third.study.phase is Phase.WATCH
    assert third.study.promoted == ("stable-0", "stable-1")


@pytest.mark.parametrize("verdict", [Verdict.REJECT, Verdict.INCONCLUSIVE, Verdict.VOID])
def test_a_stage_that_is_not_accepted_stops_the_promotion(verdict: Verdict) -> None:
    decision = next_step(promoting(over(a_stage(), verdict)), seeing(served={"stable-0": NEW}))
    assert decision.study.intended is Outcome.ABORTED
    assert decision.study.reason == "promotion stopped at stable-0: as measured"


def watching(verdict: Verdict) -> Study:
    watch = over(begun(TrialKind.WATCH, replicas=("stable-0", "stable-1")), verdict)
    return under_way(WINNER, *STAGED, watch, phase=Phase.WATCH, winner=0)


def test_all_stable_replicas_are_watched_together() -> None:
    study = under_way(WINNER, *STAGED, phase=Phase.WATCH, winner=0)
    trial = trial_of(next_step(study, seeing(served=ALL_NEW)))
    assert (trial.kind, trial.replicas, trial.levels) == (
        TrialKind.WATCH,
        ("stable-0", "stable-1"),
        (Level(0, 1.0),),
    )


@pytest.mark.parametrize(
    ("verdict", "intended"),
    [
        (Verdict.ACCEPT, Outcome.PROMOTED),
        (Verdict.REJECT, Outcome.ABORTED),
        (Verdict.INCONCLUSIVE, Outcome.ABORTED),
        (Verdict.VOID, Outcome.ABORTED),
    ],
)
def test_only_an_accepted_watch_makes_a_promotion(verdict: Verdict, intended: Outcome) -> None:
    study = next_step(watching(verdict), seeing(served=ALL_NEW)).study
    assert study.intended is intended
    if intended is Outcome.ABORTED:
        assert study.reason == "rolled back: as measured"


# -- restoration -----------------------------------------------------------------------------------------------


def test_what_is_right_already_ends_the_study_at_once() -> None:
    study = restore(restoring(), seeing(9)).study
    assert (study.phase, study.outcome, study.reason) == (Phase.ENDED, Outcome.ABORTED, "the reason")
    assert study.ended_at == at(9)


def test_weights_come_first_and_the_canary_gets_none() -> None:
    third = {"stable-0": 334, "stable-1": 333, "canary": 333}
    decision = restore(restoring(), seeing(weights=third, served={"canary": NEW}))
    assert decision.action == SetWeights(WEIGHTS)
    assert restore(restoring(), seeing(served={"canary": NEW})).action == Restore("canary")


def test_the_canary_stands_in_until_each_stable_replica_is_restored() -> None:
    study = restoring(*STAGED)
    relieved = {"stable-0": 0, "stable-1": 500, "canary": 500}
    assert restore(study, seeing(served=ALL_NEW)).action == SetWeights(relieved)
    assert restore(study, seeing(served=ALL_NEW, weights=relieved)).action == Restore("stable-0")
    half = {"stable-1": NEW, "canary": NEW}
    assert restore(study, seeing(served=half, weights=relieved)).action == SetWeights(
        {"stable-0": 500, "stable-1": 0, "canary": 500}
    )
    last = {"canary": NEW}
    swapped = {"stable-0": 500, "stable-1": 0, "canary": 500}
    assert restore(study, seeing(served=last, weights=swapped)).action == SetWeights(WEIGHTS)
    assert restore(study, seeing(served=last)).action == Restore("canary")


@pytest.mark.parametrize("canary", ["dead", "foreign"])
def test_a_canary_that_cannot_stand_in_carries_nothing_meanwhile(canary: str) -> None:
    study = restoring(*STAGED)
    if canary == "dead":
        seen = seeing(served={"stable-0": NEW, "stable-1": NEW}, absent=("canary",))
    else:
        seen = seeing(served={"stable-0": NEW, "stable-1": NEW, "canary": "another"})
    assert restore(study, seen).action == Restore("stable-0")


def test_replicas_that_the_study_never_touched_are_left_alone() -> None:
    seen = seeing(served={"stable-1": "somebody else's"})
    assert restore(restoring(), seen).study.phase is Phase.ENDED


def test_a_foreign_configuration_on_a_touched_replica_is_left_alone_too_but_not_on_the_canary() -> None:
    study = restoring(*STAGED)
    seen = seeing(served={"stable-0": "somebody else's", "canary": "somebody else's"})
    assert restore(study, seen).action == Restore("canary")


def test_a_promoted_study_puts_the_winner_on_the_canary_too() -> None:
    study = restoring(*STAGED, intended=Outcome.PROMOTED)
    served = {"stable-0": NEW, "stable-1": NEW}
    assert restore(study, seeing(served=served)).action == Load("canary", CANDIDATE)
    ended = restore(study, seeing(served=ALL_NEW)).study
    assert (ended.phase, ended.outcome) == (Phase.ENDED, Outcome.PROMOTED)


def test_a_replica_that_fell_back_after_the_watch_gets_the_winner_again() -> None:
    study = restoring(*STAGED, intended=Outcome.PROMOTED)
    relieved = {"stable-0": 0, "stable-1": 500, "canary": 500}
    seen = seeing(served={"stable-1": NEW, "canary": NEW}, weights=relieved)
    assert restore(study, seen).action == Load("stable-0", CANDIDATE)


def test_a_gateway_that_does_not_answer_keeps_no_replica_from_its_configuration() -> None:
    study = restoring(*STAGED)
    assert restore(study, seeing(served={"stable-0": NEW}, **NO_GATEWAY)).action == Restore("stable-0")
    assert restore(study, seeing(**NO_GATEWAY)).action == SetWeights(WEIGHTS)


def test_a_replica_out_of_reach_is_waited_for_and_named_at_the_limit() -> None:
    waiting = restore(restoring(), seeing(1, absent=("canary",)))
    assert waiting.action is None
    assert waiting.reason == "waiting to restore canary (triton canary is unavailable: connection refused)"
    ended = restore(restoring(), seeing(LIMIT_SECONDS, absent=("canary",))).study
    assert ended.outcome is Outcome.ABORTED
    assert "canary could not be restored: triton canary is unavailable" in ended.reason
    assert ended.reason.endswith("a person must look")


def test_each_touched_replica_has_its_share_of_the_time() -> None:
    study = restoring(*STAGED)
    seen = {"absent": ("canary",)}
    assert restore(study, seeing(3 * LIMIT_SECONDS - 1, **seen)).study.phase is Phase.RESTORATION
    assert restore(study, seeing(3 * LIMIT_SECONDS, **seen)).study.phase is Phase.ENDED


def test_everything_that_could_not_be_restored_is_named() -> None:
    seen = seeing(3 * LIMIT_SECONDS, absent=("canary", "stable-1"), **NO_GATEWAY)
    reason = restore(restoring(*STAGED), seen).study.reason
    for words in ("the weights could not be restored: gateway is un", "stable-1 could", "canary could"):
        assert words in reason


def test_production_gets_its_own_weights_even_when_a_replica_is_given_up() -> None:
    relieved = {"stable-0": 0, "stable-1": 500, "canary": 500}
    study = restoring(*STAGED)
    late = {"served": {"stable-0": NEW, "canary": NEW}, "weights": relieved}
    assert restore(study, seeing(3 * LIMIT_SECONDS, **late)).action == SetWeights(WEIGHTS)
    ended = restore(study, seeing(6 * LIMIT_SECONDS, **late)).study
    assert "the weights could not be restored: they do not stay as they are set" in ended.reason


@pytest.mark.parametrize(
    ("served", "outcome"),
    [
        ({"stable-0": NEW, "stable-1": NEW}, Outcome.PROMOTED),
        ({"stable-0": NEW, "stable-1": OLD}, Outcome.ABORTED),
    ],
)
def test_a_promotion_stands_when_only_the_canary_is_lost(served: dict[str, str], outcome: Outcome) -> None:
    study = restoring(*STAGED, intended=Outcome.PROMOTED)
    ended = restore(study, seeing(3 * LIMIT_SECONDS, served=served, absent=("canary",))).study
    assert ended.outcome is outcome
    assert "a person must look" in ended.reason


def test_what_failed_is_tried_again_at_the_next_look() -> None:
    study = restoring(pending=Pending(Restore("canary"), at(0)))
    again = restored(study, failed(1, "busy"))
    assert again.study.pending is None
    assert again.look_after.total_seconds() == 1
    assert restored(study, done(1)).look_after.total_seconds() == 0


def test_before_a_winner_only_the_incumbent_is_known() -> None:
    assert known_fingerprints(under_way(WINNER))["stable-0"] == {OLD}
    assert known_fingerprints(under_way(WINNER, winner=0))["stable-0"] == {OLD, NEW}
