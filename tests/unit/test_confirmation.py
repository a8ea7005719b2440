from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.confirmation import by_capacity
from autotuner.domain.judgement import Verdict
from autotuner.domain.lifecycle import next_step
from autotuner.domain.observation import Decision
from autotuner.domain.ramp import ladder
from autotuner.domain.study import Approval, Outcome, Phase, Study, Trial, TrialKind
from autotuner.domain.target import Objective
from tests.builders import a_budget, a_configuration, a_plan, a_target, at, changed
from tests.searches import a_step, a_trial, a_use
from tests.sightings import CANDIDATE, an_incumbent, seeing, trial_of

PLAN = a_plan(slo=a_budget(max_canary_share=0.8, harm_budget_requests=5000), ramp_steps=5)
LADDER = ladder(PLAN)
"""0.3333, 0.5, 0.5848, 0.684, 0.8"""

OTHER = a_configuration(preferred_batch_size=(16,))


def run(kind: TrialKind, verdict: Verdict, *levels: int, compute: float = 0.004, **changes: Any) -> Trial:
    """A judged trial that was accepted at these levels of the ladder."""
    use = a_use(compute_seconds_per_inference=compute)
    steps = tuple(a_step(LADDER[n], use=use, compute_error=0.00001) for n in levels)
    own = a_configuration() if kind in (TrialKind.BASELINE, TrialKind.CONTROL) else CANDIDATE
    fields: dict[str, Any] = {"steps": steps, "verdict": verdict, "kind": kind, "configuration": own}
    return a_trial(0, **{**fields, "reason": "as measured", "limited_by": "ceiling", **changes})


BASELINE = run(TrialKind.BASELINE, Verdict.ACCEPT, 0, 1)
WINNER = run(TrialKind.CANDIDATE, Verdict.ACCEPT, 0, 1, 2, 3, 4, limited_by="traffic")
SECOND = run(TrialKind.CANDIDATE, Verdict.ACCEPT, 0, 1, 2, 3, configuration=OTHER)
CONFIRMED = run(TrialKind.CONFIRMATION, Verdict.ACCEPT, 1, 2, 3, 4)
FAILED_CONTROL = run(TrialKind.CONTROL, Verdict.REJECT, steps=(a_step(LADDER[4], Verdict.REJECT, bad=300),))


def confirming(*trials: Trial, plan: Any = PLAN, winner: int = 1, **changes: Any) -> Study:
    return Study(
        id="study-1",
        plan=plan,
        created_at=at(0),
        actor="operator",
        phase=Phase.CONFIRMATION,
        incumbent=an_incumbent(),
        trials=tuple(changed(trial, number=number) for number, trial in enumerate(trials)),
        reference_rate_per_second=500.0,
        winner=winner,
        **changes,
    )


def after(*trials: Trial, **changes: Any) -> Decision:
    return next_step(confirming(*trials, **changes), seeing())


def levels(decision: Decision) -> list[int]:
    return [level.number for level in trial_of(decision).levels]


def test_the_winner_is_measured_at_todays_load_and_where_the_incumbent_failed() -> None:
    decision = after(BASELINE, WINNER)
    assert trial_of(decision).kind is TrialKind.CONFIRMATION
    assert trial_of(decision).configuration == CANDIDATE
    assert levels(decision) == [1, 2, 3, 4]


def test_then_the_incumbent_is_measured_where_the_winner_was_confirmed() -> None:
    decision = after(BASELINE, WINNER, CONFIRMED)
    assert trial_of(decision).kind is TrialKind.CONTROL
    assert trial_of(decision).configuration == a_configuration()
    assert levels(decision) == [4]


@pytest.mark.parametrize(
    ("approval", "phase"),
    [(Approval.AUTOMATIC, Phase.PROMOTION), (Approval.MANUAL, Phase.APPROVAL)],
)
def test_a_winner_is_confirmed_once_the_incumbent_failed_there_again(
    approval: Approval, phase: Phase
) -> None:
    decision = after(BASELINE, WINNER, CONFIRMED, FAILED_CONTROL, plan=changed(PLAN, approval=approval))
    assert decision.study.phase is phase


@pytest.mark.parametrize(
    "confirmation",
    [
        run(TrialKind.CONFIRMATION, Verdict.REJECT),
        run(TrialKind.CONFIRMATION, Verdict.VOID),
        run(TrialKind.CONFIRMATION, Verdict.INCONCLUSIVE),
        run(TrialKind.CONFIRMATION, Verdict.ACCEPT, 1),
    ],
)
def test_a_winner_that_does_not_hold_again_is_not_confirmed(confirmation: Trial) -> None:
    decision = after(BASELINE, WINNER, confirmation)
    assert decision.study.intended is Outcome.KEPT
    assert decision.study.rejected_winners == (1,)
    assert "not confirmed: as measured" in decision.study.reason


@pytest.mark.parametrize(
    ("control", "words"),
    [
        (run(TrialKind.CONTROL, Verdict.ACCEPT, 4, limited_by="traffic"), "the incumbent carried as much"),
        (run(TrialKind.CONTROL, Verdict.VOID), "the incumbent could not be measured again"),
        (run(TrialKind.CONTROL, Verdict.INCONCLUSIVE), "the incumbent could not be measured again"),
        (
            run(TrialKind.CONTROL, Verdict.ACCEPT, 2, limited_by="evidence"),
            "the incumbent could not be measured again",
        ),
    ],
)
def test_without_a_failing_incumbent_there_is_no_gain(control: Trial, words: str) -> None:
    decision = after(BASELINE, WINNER, CONFIRMED, control)
    assert decision.study.intended is Outcome.KEPT
    assert words in decision.study.reason


def test_the_next_best_candidate_gets_its_chance() -> None:
    lost = run(TrialKind.CONFIRMATION, Verdict.REJECT)
    decision = after(BASELINE, WINNER, SECOND, lost)
    assert trial_of(decision).configuration == OTHER
    assert decision.study.winner == 2
    assert levels(decision) == [1, 2, 3]


def test_after_three_winners_that_were_not_confirmed_the_search_is_not_believed() -> None:
    lost = run(TrialKind.CONFIRMATION, Verdict.REJECT)
    decision = after(BASELINE, WINNER, SECOND, lost, rejected_winners=(8, 9))
    assert decision.study.intended is Outcome.KEPT


LEAN = run(TrialKind.CANDIDATE, Verdict.ACCEPT, 0, 1, compute=0.003)
LEAN_AGAIN = run(TrialKind.CONFIRMATION, Verdict.ACCEPT, 1, compute=0.003)


def test_a_leaner_winner_is_compared_at_todays_load() -> None:
    assert not by_capacity(confirming(BASELINE, LEAN), LEAN)
    assert by_capacity(confirming(BASELINE, WINNER), WINNER)
    assert levels(after(BASELINE, LEAN)) == [1]
    assert levels(after(BASELINE, LEAN, LEAN_AGAIN)) == [1]


@pytest.mark.parametrize(("compute_again", "phase"), [(0.004, Phase.PROMOTION), (0.00305, Phase.RESTORATION)])
def test_a_gain_in_efficiency_must_be_there_on_fresh_data(compute_again: float, phase: Phase) -> None:
    control = run(TrialKind.CONTROL, Verdict.ACCEPT, 1, compute=compute_again)
    assert after(BASELINE, LEAN, LEAN_AGAIN, control).study.phase is phase


def test_a_leaner_winner_needs_an_incumbent_that_was_measured() -> None:
    decision = after(BASELINE, LEAN, LEAN_AGAIN, run(TrialKind.CONTROL, Verdict.REJECT))
    assert decision.study.intended is Outcome.KEPT


def test_where_efficiency_leads_capacity_decides_only_if_the_incumbent_fails() -> None:
    plan = changed(PLAN, target=changed(a_target(), objective=Objective.EFFICIENCY))
    assert not by_capacity(confirming(BASELINE, WINNER, plan=plan), WINNER)
    failing = run(TrialKind.BASELINE, Verdict.REJECT)
    assert by_capacity(confirming(failing, WINNER, plan=plan), WINNER)


def test_a_winner_where_the_incumbent_fails_everywhere_must_hold_todays_load() -> None:
    failing = run(TrialKind.BASELINE, Verdict.REJECT)
    decision = after(failing, WINNER)
    assert levels(decision) == [0, 1, 2, 3, 4]
    below = run(TrialKind.CONFIRMATION, Verdict.ACCEPT, 0)
    assert after(failing, WINNER, below).study.intended is Outcome.KEPT
