"""Nothing is promoted on a control that was not measured, on old counts, or under a budget that nobody registered."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.adapters.memory_store import MemoryStore
from autotuner.adapters.simulated import MetricsFault
from autotuner.domain.configuration import fingerprint
from autotuner.domain.evidence import Evidence, closed_step, stale
from autotuner.domain.findings.preflight import hopeless
from autotuner.domain.judgement import Counts, Verdict
from autotuner.domain.phases import ending
from autotuner.domain.study import Increment, Level, Outcome, Phase, Study, TrialKind, TrialState
from autotuner.errors import Conflict, Refused
from autotuner.operations import register_target, start_study
from tests.builders import (
    START,
    ManualClock,
    a_budget,
    a_configuration,
    a_plan,
    a_sample,
    a_server_count,
    changed,
)
from tests.closed_loop.endings import a_loop, at, check_ending, served, trials
from tests.searches import a_judgement, a_search, a_step, a_trial, a_use
from tests.sightings import a_window, begun, under_way

SECOND = timedelta(seconds=1)


# -- the incumbent, measured again -----------------------------------------------------------------------------


def test_a_winner_is_not_confirmed_against_an_incumbent_that_could_not_be_loaded_again() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CONTROL, TrialState.PROPOSED))
    loop.target.faults.refuse_loads("canary", "out of memory")
    loop.run(until=lambda study: study.phase is not Phase.CONFIRMATION)
    loop.target.faults.refuse_loads("canary", "")
    loop.run()
    study = check_ending(loop)
    assert trials(study, TrialKind.CONTROL)[0].verdict is Verdict.REJECT
    assert study.outcome is Outcome.KEPT
    assert "the incumbent could not be measured again" in study.reason


@pytest.mark.parametrize("kind", list(TrialKind))
def test_memory_rejects_what_is_new_and_never_the_incumbent(kind: TrialKind) -> None:
    """An incumbent that is rejected for its memory would look as if it could not carry what the winner carried."""
    full = a_server_count(memory_used_bytes=15.9e9)
    sample = changed(a_sample(30, 4000), servers={**a_sample().servers, "canary": full})
    accepted = a_judgement(Verdict.ACCEPT)
    trial = begun(kind, state=TrialState.MEASURING)
    counts = Counts(3000, 0, 0, 0)
    step = closed_step(
        under_way(trial), trial, a_window(), sample, Evidence(counts, counts, accepted), accepted
    )
    of_the_incumbent = kind in (TrialKind.PRODUCTION, TrialKind.BASELINE, TrialKind.CONTROL)
    assert step.verdict is (Verdict.ACCEPT if of_the_incumbent else Verdict.REJECT)


# -- old counts ------------------------------------------------------------------------------------------------


def test_a_watch_whose_figures_stand_still_is_rolled_back_whatever_they_said_before() -> None:
    loop = a_loop(pace={"bake": 40 * SECOND, "stage_limit": 20 * SECOND})

    def convinced(study: Study) -> bool:
        window = study.trial.window if study.trial and at(TrialKind.WATCH)(study) else None
        return window is not None and len(window.increments) >= 20

    loop.run(until=convinced)
    for source in ("stable-0", "stable-1", "canary", "gateway"):
        loop.target.faults.metrics(source, MetricsFault.FROZEN)
    loop.run()
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert "no request has ended for 5 s: the counts may be old" in study.reason


def test_one_request_in_the_last_looks_makes_the_counts_fresh() -> None:
    none, one = Increment(0, (0,), 0, None, None), Increment(1, (0,), 0, None, None)
    study = under_way(begun())
    looks = 15
    assert "for 15 s" in stale(study, a_window(increments=(one, *(none,) * looks)))
    assert not stale(study, a_window(increments=(one, *(none,) * (looks - 1))))
    assert not stale(study, a_window(increments=(none,) * (looks - 1)))


# -- no configuration can help ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("production", "last", "compute_seconds", "told"),
    [
        (Verdict.REJECT, Verdict.VOID, 0.098, True),
        (Verdict.REJECT, Verdict.VOID, 0.05, False),
        (Verdict.ACCEPT, Verdict.VOID, 0.098, False),
        (Verdict.REJECT, Verdict.INCONCLUSIVE, 0.098, False),
    ],
)
def test_a_void_baseline_does_not_hide_that_compute_alone_exceeds_the_ceiling(
    production: Verdict, last: Verdict, compute_seconds: float, told: bool
) -> None:
    step = a_step(Level(0, 1 / 3), last, bad=900, use=a_use(fastest_batch_seconds=compute_seconds))
    baseline = a_trial(1, kind=TrialKind.BASELINE, verdict=last, steps=(step,))
    before = a_trial(0, kind=TrialKind.PRODUCTION, verdict=production)
    study = replace(a_search(), trials=(before, baseline))
    assert ("no configuration can help" in hopeless(study, baseline)) is told


# -- the budget ------------------------------------------------------------------------------------------------


def test_a_study_starts_only_under_the_budget_in_force() -> None:
    store, clock = MemoryStore(), ManualClock()
    plan = a_plan()
    old = register_target(store, clock, plan.target, plan.slo, "operator", "")
    tight = a_budget(p99_ceiling_seconds=0.08)
    new = register_target(store, clock, plan.target, tight, "operator", "a new promise")
    for wrong in (old, replace(new, p99_ceiling_seconds=0.2), replace(new, harm_budget_requests=999)):
        with pytest.raises(Refused, match="not the one in force for vision"):
            start_study(store, clock, replace(plan, slo=wrong), "operator")
    study = start_study(store, clock, replace(plan, slo=new), "operator")
    assert study.plan.slo == new
    clock.turn(1)
    with pytest.raises(Conflict, match=r"^target vision: study .* has not ended$"):
        start_study(store, clock, replace(plan, slo=new), "operator")


# -- a canary that was found with another configuration --------------------------------------------------------


def test_a_canary_found_with_another_configuration_gets_it_back_and_stands_in_only_with_productions() -> None:
    loop = a_loop()
    found = a_configuration(preferred_batch_size=(16,))
    loop.target.faults.foreign_configuration("canary", found)
    as_found = fingerprint(loop.target.serving.model_config("canary"))
    loop.run(until=at(TrialKind.STAGE, TrialState.WARMING))
    assert served(loop, "canary") == a_configuration()
    loop.target.faults.foreign_configuration("canary", found)
    loop.tick()
    loop.tick()
    assert loop.target.route.weights()["canary"] == 0
    loop.run()
    study = check_ending(loop, apart_from=["canary"])
    assert study.outcome is Outcome.ABORTED
    assert fingerprint(loop.target.serving.model_config("canary")) == as_found


def test_a_canary_found_with_another_configuration_hinders_no_promotion() -> None:
    loop = a_loop()
    loop.target.faults.foreign_configuration("canary", a_configuration(preferred_batch_size=(16,)))
    loop.run()
    assert check_ending(loop).outcome is Outcome.PROMOTED


# -- a winner that was not confirmed ---------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "winner"), [(Phase.CONFIRMATION, None), (Phase.APPROVAL, 0)])
def test_a_study_that_ends_before_its_winner_is_confirmed_has_none(phase: Phase, winner: int | None) -> None:
    study = under_way(replace(a_trial(0), number=0), phase=phase, winner=0)
    decision = ending(study, Outcome.ABORTED, "cancelled by an operator", START)
    assert decision.study.winner == winner
