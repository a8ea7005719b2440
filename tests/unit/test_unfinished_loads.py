"""A load that was given up may still take effect: nothing rests on what is served until a later load has succeeded."""

from __future__ import annotations

from datetime import timedelta

from autotuner.domain.aftermath import settled
from autotuner.domain.judgement import Verdict
from autotuner.domain.procedure import advance
from autotuner.domain.study import Load, Outcome, Phase, TrialKind, TrialState
from tests.builders import a_configuration, a_sample
from tests.closed_loop.endings import BETTER, a_loop, at, check_ending, served, trials
from tests.sightings import begun, done, failed, seeing, under_way

SECOND = timedelta(seconds=1)
OTHER = a_configuration(preferred_batch_size=(16,))


def test_a_stage_whose_load_takes_effect_after_it_was_given_up_ends_on_the_incumbent() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.STAGE, TrialState.PROPOSED))
    late = loop.plan.pace.load_limit + 8 * SECOND
    loop.target.faults.hang_loads("stable-0")
    loop.target.faults.foreign_configuration("stable-0", BETTER, after=late)
    loop.target.faults.hang_loads("stable-0", hangs=False, after=late)
    exposed = []
    while not loop.tick().ended:
        if loop.study.phase is Phase.RESTORATION and served(loop, "stable-0") == BETTER:
            exposed.append(loop.target.route.weights()["stable-0"])
    loop.clock.advance(late)
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert "promotion stopped at stable-0" in study.reason
    assert "a person must look" not in study.reason
    assert exposed
    assert set(exposed) == {0}
    asked = [entry.action for entry in loop.store.journal(loop.study_id) if entry.action]
    assert {"type": "Restore", "replica": "stable-0"} in [dict(action) for action in asked]


def test_a_load_that_hangs_for_ever_is_named_and_asks_for_a_person() -> None:
    loop = a_loop(pace={"restore_limit": 20 * SECOND})
    loop.run(until=at(TrialKind.STAGE, TrialState.PROPOSED))
    loop.target.faults.hang_loads("stable-0")
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert "stable-0 could not be restored: a load that was given up may still take effect" in study.reason


def test_the_next_trial_is_loaded_although_the_replica_serves_it_while_a_load_is_open() -> None:
    study = under_way(begun(configuration=a_configuration()), unsettled=("canary",))
    decision = advance(study, seeing(sample=a_sample()))
    assert decision.action == Load("canary", a_configuration())


def test_a_load_is_open_from_no_answer_to_the_next_success() -> None:
    study = under_way(begun(state=TrialState.PROPOSED))
    open_now = settled(study, "canary", failed(1, "no answer within 30 s"))
    assert open_now.unsettled == ("canary",)
    assert settled(open_now, "canary", failed(2, "no answer within 30 s")).unsettled == ("canary",)
    assert settled(open_now, "stable-0", done(2)).unsettled == ("canary",)
    assert settled(open_now, "canary", failed(2, "no such device", retry=False)).unsettled == ("canary",)
    assert settled(open_now, "canary", done(2)).unsettled == ()
    assert settled(study, "canary", failed(1, "no such device", retry=False)).unsettled == ()


def test_a_candidate_whose_load_hangs_leaves_the_canary_with_the_incumbent() -> None:
    loop = a_loop(OTHER)
    loop.run(until=at(TrialKind.CANDIDATE, TrialState.PROPOSED))
    late = loop.plan.pace.load_limit + 4 * SECOND
    loop.target.faults.hang_loads("canary")
    loop.target.faults.foreign_configuration("canary", OTHER, after=late)
    loop.target.faults.hang_loads("canary", hangs=False, after=late)
    loop.run()
    loop.clock.advance(late)
    study = check_ending(loop)
    assert trials(study, TrialKind.CANDIDATE)[0].verdict is Verdict.VOID
    assert served(loop, "canary") == a_configuration()
