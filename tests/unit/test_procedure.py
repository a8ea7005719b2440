from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from autotuner.domain import procedure
from autotuner.domain.aftermath import interrupted
from autotuner.domain.judgement import Verdict
from autotuner.domain.procedure import advance
from autotuner.domain.study import (
    Level,
    Load,
    Pending,
    Phase,
    Proposal,
    SetWeights,
    TrialKind,
    TrialState,
)
from autotuner.domain.trial_states import TRANSITIONS, moved
from autotuner.errors import AutotunerError
from tests.builders import a_configuration, a_sample, at, changed
from tests.searches import a_step
from tests.sightings import (
    CANDIDATE,
    NEW,
    OLD,
    WEIGHTS,
    a_stage,
    a_window,
    begun,
    done,
    failed,
    seeing,
    trial_of,
    under_way,
)

ONE_THIRD = {"stable-0": 334, "stable-1": 333, "canary": 333}
EVENTS = {event for _, event in TRANSITIONS}
ON_CANARY = {"canary": NEW}


@pytest.mark.parametrize(("state", "event"), sorted(product(TrialState, EVENTS)))
def test_a_trial_moves_as_the_table_says_and_not_otherwise(state: TrialState, event: str) -> None:
    trial = begun(state=state)
    wanted = TRANSITIONS.get((state, event))
    if wanted is None:
        with pytest.raises(AutotunerError, match="no transition"):
            moved(trial, event)
    else:
        assert moved(trial, event).state is wanted


def test_every_state_of_a_trial_can_be_reached_and_only_judged_is_final() -> None:
    reached = {TrialState.PROPOSED}
    for _ in TrialState:
        reached |= {to for (state, _), to in TRANSITIONS.items() if state in reached}
    assert reached == set(TrialState)
    assert set(TrialState) - {state for state, _ in TRANSITIONS} == {TrialState.JUDGED}


# -- applying --------------------------------------------------------------------------------------------------


def test_a_configuration_is_loaded_once_the_replica_is_empty() -> None:
    decision = advance(under_way(begun()), seeing(sample=a_sample()))
    assert decision.action == Load("canary", CANDIDATE)
    assert decision.study.pending == Pending(Load("canary", CANDIDATE), at(0))


def test_traffic_is_taken_off_a_replica_before_it_is_loaded() -> None:
    decision = advance(under_way(begun()), seeing(weights=ONE_THIRD))
    assert decision.action == SetWeights(WEIGHTS)


def test_a_replica_may_finish_what_it_has_for_a_while() -> None:
    busy = changed(a_sample().gateway["canary"], sent=1003)
    sample = changed(a_sample(), gateway={**a_sample().gateway, "canary": busy})
    first = advance(under_way(begun()), seeing(0, sample=sample))
    assert first.action is None
    assert "3 requests" in first.reason
    assert advance(first.study, seeing(9, sample=sample)).action is None
    assert isinstance(advance(first.study, seeing(10, sample=sample)).action, Load)


def test_counters_from_before_the_traffic_was_taken_off_do_not_say_that_a_replica_is_empty() -> None:
    study = under_way(begun())
    old = advance(study, seeing(30, sample=a_sample(15)))
    assert old.action is None
    assert old.reason == "canary may still have requests to answer"
    assert advance(old.study, seeing(32, sample=a_sample(29))).action is None
    assert isinstance(advance(old.study, seeing(33, sample=a_sample(31))).action, Load)


def test_what_a_replica_serves_already_is_not_loaded_again() -> None:
    decision = advance(under_way(begun()), seeing(served=ON_CANARY))
    assert decision.action is None
    assert trial_of(decision).state is TrialState.APPLIED


def test_a_replica_that_is_not_ready_is_waited_for_and_then_the_trial_is_void() -> None:
    waiting = advance(under_way(begun()), seeing(0, absent=("canary",)))
    assert trial_of(waiting).state is TrialState.PROPOSED
    over = advance(waiting.study, seeing(30, absent=("canary",)))
    assert trial_of(over).verdict is Verdict.VOID
    assert "canary is not ready" in trial_of(over).reason


def test_a_load_that_the_server_refuses_rejects_the_configuration() -> None:
    loading = advance(under_way(begun()), seeing()).study
    trial = loading.trial
    assert trial is not None
    decision = procedure.absorb(
        loading, trial, Load("canary", CANDIDATE), failed(1, "out of memory", retry=False)
    )
    assert trial_of(decision).verdict is Verdict.REJECT
    assert trial_of(decision).reason == "reject: it does not load: out of memory"
    assert trial_of(decision).state is TrialState.JUDGED


def test_a_load_that_may_yet_succeed_is_repeated_within_its_limit() -> None:
    study = advance(under_way(begun()), seeing()).study
    trial, load = study.trial, Load("canary", CANDIDATE)
    assert trial is not None
    again = procedure.absorb(study, trial, load, failed(10, "connection lost"))
    assert trial_of(again).state is TrialState.PROPOSED
    later = changed(again.study, pending=Pending(load, at(20)))
    over = procedure.absorb(later, trial_of(again), load, failed(30, "connection lost"))
    assert trial_of(over).verdict is Verdict.VOID


# -- routing ---------------------------------------------------------------------------------------------------


def test_a_configuration_warms_up_with_little_traffic_first() -> None:
    study = under_way(begun(state=TrialState.APPLIED))
    decision = advance(study, seeing(served=ON_CANARY))
    assert decision.action == SetWeights({"stable-0": 450, "stable-1": 450, "canary": 100})
    trial = trial_of(decision)
    routed = procedure.absorb(decision.study, trial, SetWeights({}), done(1))
    assert trial_of(routed).state is TrialState.WARMING


def test_a_warm_configuration_gets_its_next_level() -> None:
    accepted = a_step(Level(0, 0.3333))
    study = under_way(begun(state=TrialState.APPLIED, warmed=True, steps=(accepted,)))
    decision = advance(study, seeing(served=ON_CANARY))
    assert decision.action == SetWeights({"stable-0": 250, "stable-1": 250, "canary": 500})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (seeing(absent=("canary",)), "canary is not ready"),
        (seeing(), "canary no longer serves the configuration on trial"),
    ],
)
def test_nothing_is_routed_to_a_replica_that_does_not_serve_the_trial(seen: object, words: str) -> None:
    decision = advance(under_way(begun(state=TrialState.APPLIED)), seen)  # type: ignore[arg-type]
    assert trial_of(decision).state is TrialState.RETREATING
    assert words in decision.reason


def test_a_level_that_the_harm_budget_could_not_pay_for_ends_the_trial_with_what_it_reached() -> None:
    spent = begun(TrialKind.BASELINE, state=TrialState.JUDGED, closed_harm_requests=150)
    accepted = a_step(Level(0, 0.3333))
    study = under_way(spent, begun(state=TrialState.APPLIED, warmed=True, steps=(accepted,)))
    decision = advance(study, seeing(served=ON_CANARY))
    assert trial_of(decision).verdict is Verdict.ACCEPT
    assert trial_of(decision).limited_by == "harm budget"
    assert decision.action == SetWeights(WEIGHTS)
    nothing = under_way(spent, begun(state=TrialState.APPLIED, warmed=True))
    assert trial_of(advance(nothing, seeing(served=ON_CANARY))).verdict is Verdict.INCONCLUSIVE


def test_weights_that_could_not_be_set_are_remembered_since_when() -> None:
    decision = advance(under_way(begun(state=TrialState.APPLIED)), seeing(5, served=ON_CANARY))
    trial = trial_of(decision)
    held = procedure.absorb(decision.study, trial, SetWeights({}), failed(6, "gateway is unavailable"))
    assert trial_of(held).blocked_since == at(5)
    assert trial_of(held).state is TrialState.APPLIED
    again = procedure.absorb(held.study, trial_of(held), SetWeights({}), done(9))
    assert trial_of(again).blocked_since is None


# -- measuring -------------------------------------------------------------------------------------------------


def test_an_untouched_window_goes_on() -> None:
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=a_window()))
    sample = a_sample(3, 1030)
    decision = advance(study, seeing(3, served=ON_CANARY, weights=ONE_THIRD, sample=sample))
    assert decision.action is None
    assert decision.reason == "0 of 30 requests slow or failed so far"
    assert decision.look_after == timedelta(seconds=1)


def test_a_breach_takes_the_traffic_away_in_the_same_step() -> None:
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=a_window()))
    sample = a_sample(3, 1060, slow={"canary": 40})
    decision = advance(study, seeing(3, served=ON_CANARY, weights=ONE_THIRD, sample=sample))
    assert decision.action == SetWeights(WEIGHTS)
    assert trial_of(decision).verdict is Verdict.REJECT
    assert trial_of(decision).limited_by == "ceiling"
    assert trial_of(decision).harm_requests == pytest.approx(40 - 0.6)


def test_a_breach_while_warming_up_counts_too() -> None:
    window = a_window(Level(-1, 0.1))
    study = under_way(begun(state=TrialState.WARMING, window=window))
    tenth = {"stable-0": 450, "stable-1": 450, "canary": 100}
    sample = a_sample(3, {"stable-0": 1450, "stable-1": 1450, "canary": 1100}, slow={"canary": 90})
    decision = advance(study, seeing(3, served=ON_CANARY, weights=tenth, sample=sample))
    assert trial_of(decision).verdict is Verdict.REJECT
    assert decision.action == SetWeights(WEIGHTS)


def test_a_trial_that_is_only_to_teach_says_that_its_proposal_limited_it() -> None:
    gentle = Proposal(a_configuration(), "because", "greybox", highest_rate_per_second=30.0)
    level = Level(0, 0.3333)
    trial = begun(
        state=TrialState.MEASURING,
        warmed=True,
        window=a_window(level),
        replicas=("canary",),
        levels=(level,),
        proposal=gentle,
    )
    sample = a_sample(42, {"stable-0": 3000, "stable-1": 3000, "canary": 3000})

    decision = advance(under_way(trial), seeing(42, served=ON_CANARY, weights=ONE_THIRD, sample=sample))

    assert (trial_of(decision).verdict, trial_of(decision).limited_by) == (Verdict.ACCEPT, "proposal")


def test_an_accepted_level_leads_to_the_next_and_the_last_one_to_the_end() -> None:
    def after(steps: tuple[object, ...]) -> object:
        level = Level(len(steps), (0.3333, 0.5)[len(steps)])
        trial = begun(
            state=TrialState.MEASURING, warmed=True, window=a_window(level), steps=steps, replicas=("canary",)
        )
        weights = ONE_THIRD if not steps else {"stable-0": 250, "stable-1": 250, "canary": 500}
        share = weights["canary"] / 1000
        rest = (1 - share) / 2
        sample = a_sample(
            42,
            {
                "stable-0": 1000 + round(6000 * rest),
                "stable-1": 1000 + round(6000 * rest),
                "canary": 1000 + round(6000 * share),
            },
        )
        return advance(under_way(trial), seeing(42, served=ON_CANARY, weights=weights, sample=sample))

    first = after(())
    assert trial_of(first).state is TrialState.APPLIED  # type: ignore[arg-type]
    second = after((a_step(Level(0, 0.3333)),))
    assert trial_of(second).verdict is Verdict.ACCEPT  # type: ignore[arg-type]
    assert trial_of(second).limited_by == "traffic"  # type: ignore[arg-type]
    assert second.action == SetWeights(WEIGHTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": WEIGHTS}, "the gateway's weights are not the ones that were set"),
        ({"served": {"canary": OLD}}, "canary no longer serves the configuration on trial"),
        ({"sample": a_sample(3, 900)}, "went backwards"),
        (
            {"sample": a_sample(3, {"stable-0": 1000, "stable-1": 1000, "canary": 1090})},
            "got 0% of the requests where 33% was set",
        ),
    ],
)
def test_a_spoilt_window_is_left_and_repeated_without_blame(changes: dict[str, object], words: str) -> None:
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=a_window()))
    quiet = {"served": ON_CANARY, "weights": ONE_THIRD, "sample": a_sample(3, 1030)}
    decision = advance(study, seeing(3, **{**quiet, **changes}))
    assert words in decision.reason
    assert trial_of(decision).verdict is None
    assert trial_of(decision).voids == 1
    back = procedure.absorb(decision.study, trial_of(decision), SetWeights(WEIGHTS), done(4))
    assert trial_of(back).state is TrialState.PROPOSED
    assert not trial_of(back).warmed


def test_a_window_spoilt_too_often_ends_as_void() -> None:
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=a_window(), voids=2))
    decision = advance(study, seeing(3, served=ON_CANARY))
    assert trial_of(decision).verdict is Verdict.VOID
    back = procedure.absorb(decision.study, trial_of(decision), SetWeights(WEIGHTS), done(4))
    assert trial_of(back).state is TrialState.JUDGED


def test_metrics_that_are_missing_are_waited_for_up_to_the_limit() -> None:
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=a_window()))
    dark = {"served": ON_CANARY, "weights": ONE_THIRD, "sample": a_sample(3, faults={"stable-0": "NaN"})}
    waiting = advance(study, seeing(3, **dark))
    assert waiting.reason == "waiting: no metrics of stable-0: NaN"
    assert advance(waiting.study, seeing(17, **dark)).action is None
    assert trial_of(advance(waiting.study, seeing(18, **dark))).voids == 1


def test_counters_that_are_no_newer_are_no_look_and_void_the_window_in_the_end() -> None:
    window = a_window(recent=(a_sample(3, 1030),))
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=window))
    same = {"served": ON_CANARY, "weights": ONE_THIRD, "sample": a_sample(3, 1030)}
    waiting = advance(study, seeing(4, **same))
    assert waiting.study == study
    assert "no newer counters" in waiting.reason
    assert advance(study, seeing(17, **same)).study == study
    given_up = advance(study, seeing(18, **same))
    assert given_up.reason == "VOID: no newer counters for 15 s"
    assert trial_of(given_up).voids == 1


def test_a_dead_replica_is_given_one_look() -> None:
    study = under_way(begun(state=TrialState.MEASURING, warmed=True, window=a_window()))
    dead = {"absent": ("canary",), "weights": ONE_THIRD, "sample": a_sample(3, faults={"canary": "refused"})}
    waiting = advance(study, seeing(3, **dead))
    assert waiting.action is None
    assert advance(waiting.study, seeing(4, **dead)).action == SetWeights(WEIGHTS)


# -- stages ----------------------------------------------------------------------------------------------------


def test_the_canary_stands_in_for_a_stable_replica_that_is_loaded() -> None:
    study = under_way(a_stage(), phase=Phase.PROMOTION)
    assert advance(study, seeing()).action == SetWeights({"stable-0": 0, "stable-1": 500, "canary": 500})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"absent": ("canary",)}, "canary cannot stand in: triton canary is unavailable"),
        ({"served": {"canary": "somebody else's"}}, "canary cannot stand in: it serves neither"),
    ],
)
def test_a_stage_waits_for_a_canary_that_can_stand_in(seen: dict[str, object], words: str) -> None:
    study = under_way(a_stage(), phase=Phase.PROMOTION)
    waiting = advance(study, seeing(0, **seen))
    assert waiting.action is None
    assert words in waiting.reason
    assert trial_of(advance(waiting.study, seeing(30, **seen))).verdict is Verdict.VOID


def test_a_canary_that_dies_while_it_stands_in_loses_the_traffic() -> None:
    relieved = {"stable-0": 0, "stable-1": 500, "canary": 500}
    study = under_way(a_stage(), phase=Phase.PROMOTION)
    decision = advance(study, seeing(0, absent=("canary",), weights=relieved))
    assert decision.action == SetWeights(WEIGHTS)


def test_a_rejected_stage_is_taken_off_its_traffic_and_an_accepted_one_keeps_it() -> None:
    window = a_window(Level(0, 0.5))
    study = under_way(a_stage(state=TrialState.MEASURING, warmed=True, window=window), phase=Phase.PROMOTION)
    sample = a_sample(3, {"stable-0": 1090, "stable-1": 1090, "canary": 1000}, slow={"stable-0": 60})
    served = {"stable-0": NEW}
    rejected = advance(study, seeing(3, served=served, sample=sample))
    assert trial_of(rejected).verdict is Verdict.REJECT
    assert rejected.action == SetWeights({"stable-0": 0, "stable-1": 500, "canary": 500})
    alone = advance(study, seeing(3, served=served, sample=sample, absent=("canary",)))
    assert alone.action == SetWeights(WEIGHTS)
    good = a_sample(42, {"stable-0": 3000, "stable-1": 3000, "canary": 1000})
    accepted = advance(study, seeing(42, served=served, sample=good))
    assert trial_of(accepted).verdict is Verdict.ACCEPT
    assert accepted.action == SetWeights(WEIGHTS)


def test_production_is_measured_without_touching_its_weights() -> None:
    trial = begun(
        TrialKind.PRODUCTION,
        replicas=("stable-0", "stable-1"),
        configuration=a_configuration(),
        levels=(Level(0, 1.0),),
    )
    applied = advance(under_way(trial, phase=Phase.BASELINE), seeing())
    assert trial_of(applied).state is TrialState.APPLIED
    routed = advance(applied.study, seeing())
    assert routed.action is None
    assert trial_of(routed).state is TrialState.ROUTED


def test_an_interrupted_trial_keeps_what_it_reached_and_its_harm() -> None:
    window = a_window(harm_requests=7.5)
    half = begun(
        state=TrialState.MEASURING, window=window, steps=(a_step(Level(0, 0.3333)),), closed_harm_requests=2
    )
    over = interrupted(half, at(9), "cancelled")
    assert (over.state, over.verdict, over.limited_by) == (TrialState.JUDGED, Verdict.ACCEPT, "evidence")
    assert over.harm_requests == pytest.approx(9.5)
    assert over.window is None
    stage = interrupted(a_stage(steps=(a_step(Level(0, 0.5)),)), at(9), "cancelled")
    assert stage.verdict is Verdict.VOID
    assert interrupted(begun(), at(9), "cancelled").verdict is Verdict.VOID
