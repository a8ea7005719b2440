from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from autotuner.domain.findings.preflight import hopeless, unlike_production
from autotuner.domain.judgement import Counts, Verdict
from autotuner.domain.lifecycle import absorb, next_step
from autotuner.domain.observation import ActionResult, Observation
from autotuner.domain.phases import TRANSITIONS, entered
from autotuner.domain.study import (
    Approval,
    Level,
    Load,
    Outcome,
    Pending,
    Phase,
    Proposal,
    Propose,
    Restore,
    SetWeights,
    TrialKind,
    TrialState,
    Wish,
)
from autotuner.errors import AutotunerError
from tests.builders import (
    REPLICAS,
    a_budget,
    a_model_config,
    a_plan,
    a_sample,
    a_study,
    at,
    changed,
)
from tests.searches import a_step, a_use
from tests.sightings import (
    CANDIDATE,
    OLD,
    WEIGHTS,
    a_window,
    begun,
    done,
    failed,
    seeing,
    trial_of,
    under_way,
)

EVENTS = {event for _, event in TRANSITIONS}
JUDGED = {"state": TrialState.JUDGED, "ended_at": at(0)}


@pytest.mark.parametrize(("phase", "event"), sorted(product(Phase, EVENTS)))
def test_a_study_moves_as_the_table_says_and_not_otherwise(phase: Phase, event: str) -> None:
    study = a_study(phase=phase)
    wanted = TRANSITIONS.get((phase, event))
    if wanted is None:
        with pytest.raises(AutotunerError, match="no transition"):
            entered(study, event, at(1))
    else:
        assert entered(study, event, at(1)).phase is wanted
        assert entered(study, event, at(1)).phase_since == at(1)


def test_every_phase_can_be_reached_and_only_through_restoration_does_a_study_end() -> None:
    reached = {Phase.CREATED}
    for _ in Phase:
        reached |= {to for (phase, _), to in TRANSITIONS.items() if phase in reached}
    assert reached == set(Phase)
    assert {phase for (phase, _), to in TRANSITIONS.items() if to is Phase.ENDED} == {Phase.RESTORATION}
    assert set(Phase) - {phase for phase, _ in TRANSITIONS} == {Phase.ENDED}


def test_a_study_that_has_ended_or_waits_for_an_outcome_has_no_next_step() -> None:
    with pytest.raises(AutotunerError, match="no next step"):
        next_step(a_study(phase=Phase.ENDED), seeing())
    with pytest.raises(AutotunerError, match="no next step"):
        next_step(a_study(pending=Pending(Propose(0), at(0))), seeing())


def test_an_outcome_needs_an_action() -> None:
    with pytest.raises(AutotunerError, match="without a pending action"):
        absorb(a_study(), done())
    with pytest.raises(AutotunerError, match="a restore was pending"):
        absorb(under_way(begun(), pending=Pending(Restore("canary"), at(0))), done())


# -- created ---------------------------------------------------------------------------------------------------


def found(seconds: float = 0, **changes: Any) -> Observation:
    configs = {name: json.dumps(a_model_config()) for name in REPLICAS}
    configs.update(changes.pop("configs", {}))
    return seeing(seconds, **{"configs": configs, "sample": a_sample(), **changes})


def test_production_is_read_before_anything_else() -> None:
    decision = next_step(a_study(), found())
    assert decision.study.phase is Phase.BASELINE
    incumbent = decision.study.incumbent
    assert incumbent is not None
    assert incumbent.fingerprints == dict.fromkeys(REPLICAS, OLD)
    assert incumbent.weights == WEIGHTS
    assert decision.action is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"weights": None, "faults": {"gateway": "gateway is unavailable: refused"}},
            "gateway: gateway is un",
        ),
        ({"sample": a_sample(faults={"canary": "NaN"})}, "metrics of canary: NaN"),
        ({"sample": None}, "metrics of no answer"),
    ],
)
def test_a_target_that_cannot_be_read_is_waited_for_and_then_refused(
    changes: dict[str, Any], words: str
) -> None:
    waiting = next_step(a_study(), found(**changes))
    assert (waiting.study.phase, waiting.action) == (Phase.CREATED, None)
    assert words in waiting.reason
    over = next_step(a_study(), found(15, **changes))
    assert over.study.intended is Outcome.ABORTED
    assert words in over.study.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"configs": {"stable-1": json.dumps(a_model_config(CANDIDATE))}}, "serve different configurations"),
        ({"configs": {"canary": json.dumps(a_model_config(backend="onnx"))}}, "the canary differs"),
        ({"weights": {"stable-0": 500, "stable-1": 500}}, "the gateway has no weight for canary"),
        (
            {"sample": changed(a_sample(), edges_seconds=(5.0, 10.0))},
            "bucket edges on both sides of 0.1 s",
        ),
    ],
)
def test_a_target_that_cannot_be_tuned_is_refused_untouched(changes: dict[str, Any], words: str) -> None:
    decision = next_step(a_study(), found(**changes))
    assert decision.study.intended is Outcome.ABORTED
    assert words in decision.study.reason
    assert decision.study.incumbent is None
    over = next_step(decision.study, seeing(1))
    assert (over.study.phase, over.study.outcome) == (Phase.ENDED, Outcome.ABORTED)


def test_a_canary_that_differs_in_tuned_fields_only_is_no_obstacle() -> None:
    decision = next_step(a_study(), found(configs={"canary": json.dumps(a_model_config(CANDIDATE))}))
    assert decision.study.phase is Phase.BASELINE


# -- from outside ----------------------------------------------------------------------------------------------


def test_a_spent_harm_budget_ends_the_study_in_the_middle_of_a_window() -> None:
    window = a_window(harm_requests=120.5)
    trial = begun(state=TrialState.MEASURING, window=window, closed_harm_requests=79.5)
    decision = next_step(under_way(trial), seeing(3))
    assert decision.study.phase is Phase.RESTORATION
    assert decision.study.intended is Outcome.ABORTED
    assert decision.study.reason == "the harm budget of 200 requests is spent"
    assert trial_of(decision).state is TrialState.JUDGED
    assert decision.study.harm_requests == pytest.approx(200)
    one_less = replace(trial, closed_harm_requests=79.4)
    assert next_step(under_way(one_less), seeing(3)).study.phase is Phase.SEARCH


def test_a_cancelled_study_is_restored() -> None:
    decision = next_step(under_way(begun()), seeing(wish=Wish.CANCEL))
    assert (decision.study.phase, decision.study.intended) == (Phase.RESTORATION, Outcome.ABORTED)


def test_a_stable_replica_that_somebody_changed_ends_the_study_and_one_out_of_sight_does_not() -> None:
    decision = next_step(under_way(begun()), seeing(served={"stable-1": "another"}))
    assert decision.study.intended is Outcome.ABORTED
    assert "stable-1 serves neither" in decision.study.reason
    assert next_step(under_way(begun()), seeing(absent=("stable-1",))).study.phase is Phase.SEARCH


@pytest.mark.parametrize("state", [TrialState.APPLIED, TrialState.RETREATING])
def test_weights_that_cannot_be_set_end_the_study_even_in_promotion(state: TrialState) -> None:
    trial = begun(TrialKind.STAGE, replicas=("stable-0",), state=state, blocked_since=at(0))
    study = under_way(trial, phase=Phase.PROMOTION)
    lost = {"weights": None, "faults": {"gateway": "gateway is unavailable: refused"}}
    limit = study.plan.pace.restore_limit.total_seconds()
    assert next_step(study, seeing(limit - 1, **lost)).study.phase is Phase.PROMOTION
    decision = next_step(study, seeing(limit, **lost))
    assert decision.study.intended is Outcome.ABORTED
    assert "gateway is unavailable" in decision.study.reason


@pytest.mark.parametrize("phase", [Phase.APPROVAL, Phase.PROMOTION])
def test_the_time_for_tuning_does_not_cut_off_what_comes_after(phase: Phase) -> None:
    judged = begun(TrialKind.CANDIDATE, **JUDGED)
    study = under_way(judged, phase=phase, winner=0, phase_since=at(6 * 3600))
    assert next_step(study, seeing(6 * 3600 + 1)).study.phase is phase
    tuning = under_way(judged, phase=Phase.SEARCH)
    assert next_step(tuning, seeing(6 * 3600)).study.intended is Outcome.INCONCLUSIVE


# -- baseline --------------------------------------------------------------------------------------------------


def measured(kind: TrialKind, verdict: Verdict, *steps: Any, **changes: Any) -> Any:
    return begun(kind, **{**JUDGED, "verdict": verdict, "steps": steps, "reason": "as measured", **changes})


PRODUCTION = measured(TrialKind.PRODUCTION, Verdict.ACCEPT, a_step(Level(0, 1.0)))


def after_baseline(verdict: Verdict, *steps: Any, production: Any = PRODUCTION) -> Any:
    study = under_way(production, measured(TrialKind.BASELINE, verdict, *steps), phase=Phase.BASELINE)
    return next_step(study, seeing()).study


def test_production_is_measured_first_and_then_the_incumbent_on_the_canary() -> None:
    first = next_step(under_way(phase=Phase.BASELINE), seeing())
    assert trial_of(first).kind is TrialKind.PRODUCTION
    assert trial_of(first).replicas == ("stable-0", "stable-1")
    second = next_step(under_way(PRODUCTION, phase=Phase.BASELINE), seeing())
    assert trial_of(second).kind is TrialKind.BASELINE
    assert second.study.reference_rate_per_second == 500.0
    assert second.study.control_baseline == Counts(1000, 0, 0, 0)


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.VOID])
def test_without_a_baseline_there_is_no_study(verdict: Verdict) -> None:
    assert after_baseline(verdict, a_step(verdict=verdict)).intended is Outcome.INCONCLUSIVE
    unmeasured = measured(TrialKind.PRODUCTION, verdict)
    study = next_step(under_way(unmeasured, phase=Phase.BASELINE), seeing()).study
    assert study.intended is Outcome.INCONCLUSIVE


def test_a_void_window_says_nothing_of_what_the_control_is_like() -> None:
    burst = a_step(verdict=Verdict.VOID, control=Counts(500, 400, 400, 0))
    study = after_baseline(Verdict.ACCEPT, burst, a_step())
    assert study.phase is Phase.SEARCH
    assert study.control_baseline == Counts(1000, 0, 0, 0)


def test_a_canary_that_fails_where_production_holds_cannot_speak_for_it() -> None:
    slow = a_step(verdict=Verdict.REJECT, bad=500, use=a_use(fastest_batch_seconds=0.02))
    study = after_baseline(Verdict.REJECT, slow)
    assert study.intended is Outcome.INCONCLUSIVE
    assert "the canary is slower than the stable replicas" in study.reason


def test_an_incumbent_that_fails_everywhere_may_be_helped_unless_compute_alone_is_too_slow() -> None:
    failing = measured(TrialKind.PRODUCTION, Verdict.REJECT, a_step(Level(0, 1.0), Verdict.REJECT, bad=500))
    slow = a_step(verdict=Verdict.REJECT, bad=500, use=a_use(fastest_batch_seconds=0.02))
    assert after_baseline(Verdict.REJECT, slow, production=failing).phase is Phase.SEARCH
    hopeless_step = a_step(verdict=Verdict.REJECT, bad=500, use=a_use(fastest_batch_seconds=0.097))
    study = after_baseline(Verdict.REJECT, hopeless_step, production=failing)
    assert study.intended is Outcome.KEPT
    assert "no configuration can help: compute alone takes 97 ms" in study.reason


@pytest.mark.parametrize(
    ("verdict", "fastest_seconds", "is_hopeless"),
    [
        (Verdict.REJECT, 0.095, True),
        (Verdict.REJECT, 0.0949, False),
        (Verdict.REJECT, None, False),
        (Verdict.ACCEPT, 0.2, False),
    ],
)
def test_only_what_is_certain_is_hopeless(
    verdict: Verdict, fastest_seconds: float | None, is_hopeless: bool
) -> None:
    step = a_step(verdict=verdict, use=a_use(fastest_batch_seconds=fastest_seconds))
    baseline = measured(TrialKind.BASELINE, verdict, step)
    assert bool(hopeless(under_way(), baseline)) is is_hopeless
    assert unlike_production(under_way(), baseline) == ""


# -- search ----------------------------------------------------------------------------------------------------


def candidate(verdict: Verdict, *shares: float, **changes: Any) -> Any:
    steps = tuple(a_step(Level(index, share)) for index, share in enumerate(shares))
    return measured(TrialKind.CANDIDATE, verdict, *steps, **changes)


BASELINE = measured(TrialKind.BASELINE, Verdict.ACCEPT, a_step(Level(0, 0.3333)), a_step(Level(1, 0.5)))


def test_the_search_asks_for_a_configuration_and_begins_its_trial() -> None:
    asked = next_step(under_way(BASELINE), seeing())
    assert asked.action == Propose(1)
    proposal = Proposal(CANDIDATE, "because", "tpe")
    begun_trial = absorb(asked.study, ActionResult(at(1), True, proposal=proposal))
    assert trial_of(begun_trial).configuration == CANDIDATE
    assert trial_of(begun_trial).kind is TrialKind.CANDIDATE
    assert begun_trial.study.pending is None


def test_a_trial_that_is_only_to_teach_stays_below_production_s_load() -> None:
    asked = next_step(under_way(BASELINE), seeing()).study
    gentle = Proposal(CANDIDATE, "because", "greybox", highest_rate_per_second=10.0)

    trial = trial_of(absorb(asked, ActionResult(at(1), True, proposal=gentle)))

    assert trial.only_teaches
    assert [level.share for level in trial.levels] == [
        round(10.0 / (asked.reference_rate_per_second or 0.0), 4)
    ]


def test_without_a_proposal_the_search_is_over_and_without_a_sampler_the_study() -> None:
    asked = next_step(under_way(BASELINE), seeing()).study
    assert absorb(asked, done(1)).study.intended is Outcome.KEPT
    assert absorb(asked, failed(1, "torch is missing")).study.intended is Outcome.ABORTED


def test_the_search_ends_with_the_plans_trials_and_chooses() -> None:
    study = under_way(BASELINE, candidate(Verdict.ACCEPT, 0.3333, 0.5, 0.85), plan=a_plan(max_trials=1))
    decision = next_step(study, seeing())
    assert decision.study.phase is Phase.CONFIRMATION
    assert decision.study.winner == 1


def test_two_candidates_in_a_row_that_cannot_be_measured_end_the_search() -> None:
    void = candidate(Verdict.VOID)
    assert next_step(under_way(BASELINE, void), seeing()).action == Propose(2)
    decision = next_step(under_way(BASELINE, void, candidate(Verdict.INCONCLUSIVE)), seeing())
    assert decision.study.intended is Outcome.INCONCLUSIVE
    assert "candidates can no longer be measured" in decision.study.reason
    told_apart = under_way(BASELINE, void, candidate(Verdict.REJECT), void)
    assert next_step(told_apart, seeing()).action == Propose(4)


def test_no_trial_is_begun_that_the_harm_budget_could_not_pay_for() -> None:
    spent = candidate(Verdict.REJECT, closed_harm_requests=145)
    decision = next_step(under_way(BASELINE, spent), seeing())
    assert "could not pay for another trial" in decision.study.reason
    assert decision.study.intended is Outcome.KEPT


def test_the_search_stops_while_the_best_candidate_can_still_be_confirmed() -> None:
    """At 90 requests a second, confirming at 85 % may cost 153 requests and another trial 60."""
    best = candidate(Verdict.ACCEPT, 0.3333, 0.5, 0.85)
    tight = a_plan(slo=a_budget(harm_budget_requests=212))
    ample = a_plan(slo=a_budget(harm_budget_requests=214))
    assert next_step(under_way(BASELINE, best, plan=tight), seeing()).study.winner == 1
    assert next_step(under_way(BASELINE, best, plan=ample), seeing()).action == Propose(2)


def test_a_pause_stops_the_search_alone() -> None:
    paused = next_step(under_way(BASELINE), seeing(wish=Wish.PAUSE))
    assert (paused.action, paused.study.phase) == (None, Phase.SEARCH)
    goes_on = next_step(under_way(BASELINE, begun()), seeing(wish=Wish.PAUSE, sample=a_sample()))
    assert goes_on.action == Load("canary", CANDIDATE)


# -- approval --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "seconds", "phase", "outcome"),
    [
        (Wish.RUN, 1, Phase.APPROVAL, None),
        (Wish.APPROVE, 1, Phase.PROMOTION, None),
        (Wish.DISAPPROVE, 1, Phase.RESTORATION, Outcome.KEPT),
        (Wish.RUN, 12 * 3600, Phase.RESTORATION, Outcome.KEPT),
        (Wish.CANCEL, 1, Phase.RESTORATION, Outcome.ABORTED),
    ],
)
def test_only_an_approval_leads_to_promotion(
    wish: Wish, seconds: float, phase: Phase, outcome: Outcome | None
) -> None:
    winner = candidate(Verdict.ACCEPT, 0.3333, 0.85)
    study = under_way(BASELINE, winner, phase=Phase.APPROVAL, winner=1, plan=a_plan(approval=Approval.MANUAL))
    decision = next_step(study, seeing(seconds, wish=wish))
    assert (decision.study.phase, decision.study.intended) == (phase, outcome)


def test_the_next_look_is_soon() -> None:
    study = under_way(BASELINE, candidate(Verdict.ACCEPT, 0.5), phase=Phase.APPROVAL, winner=1)
    assert next_step(study, seeing(1)).look_after == timedelta(seconds=1)


def test_outcomes_in_restoration_are_those_of_restoring() -> None:
    study = under_way(BASELINE, phase=Phase.RESTORATION, pending=Pending(SetWeights(WEIGHTS), at(0)))
    assert absorb(study, done(1)).study.pending is None
    assert "not restored yet: no" in absorb(study, failed(1)).reason
