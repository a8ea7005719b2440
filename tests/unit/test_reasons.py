"""Why a study ended as it did, in plain words that rest on its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Study, TrialKind
from autotuner.report.reasons import reasons
from tests.builders import a_configuration, a_plan, a_study, a_target
from tests.studies import a_fast_step, a_rich_study, a_trial, ended, judged

BETTER = a_configuration(max_queue_delay_microseconds=2000)


def answers(study: Study) -> dict[str, str]:
    return {each.question: each.answer for each in reasons(study)}


def promoted() -> Study:
    """A study in which a candidate won, was confirmed and watched."""
    trials = (
        judged(a_trial(0, kind=TrialKind.BASELINE, steps=(a_fast_step(),), proposal=None)),
        judged(a_trial(1, configuration=BETTER, steps=(a_fast_step(),))),
        judged(a_trial(2, configuration=a_configuration(instance_count=2), steps=(a_fast_step(),))),
        judged(a_trial(3, steps=()), Verdict.REJECT),
        judged(
            a_trial(
                4, kind=TrialKind.CONFIRMATION, configuration=BETTER, steps=(a_fast_step(),), proposal=None
            )
        ),
        judged(a_trial(5, kind=TrialKind.WATCH, configuration=BETTER, proposal=None)),
    )
    study = a_rich_study(trials=trials, winner=1, rejected_winners=(), plan=a_plan(target=a_target()))
    return ended(study, Outcome.PROMOTED)


def test_a_winner_is_explained_by_its_figures_against_the_others_and_the_incumbent() -> None:
    told = answers(promoted())

    assert "requests/s per replica" in told["What won?"]
    assert "Of 3 tried on the canary, 2 held the ceiling" in told["Why this one?"]
    assert "Within 3% #2 (delay 0 ms, preferred 4+8, 2 instances) carried as much" in told["Why this one?"]
    assert "Promising." in told["Why this one?"]
    assert "5.00 ms in Triton's queue" in told["What does it do differently?"]
    assert "3 of 1,300 requests were slow or failed (allowed: 13)" in told["How sure is that?"]
    assert "production held the ceiling under watch" in told["How sure is that?"]
    assert "of a harm budget of 200, in 6 trials" in told["What did finding out cost?"]


def test_a_winner_that_is_not_confirmed_is_not_called_sure() -> None:
    study = promoted()
    found = replace(study, trials=study.trials[:4], outcome=None)

    assert "not been confirmed" in answers(found)["How sure is that?"]


@pytest.mark.parametrize(
    ("outcome", "question"),
    [
        (Outcome.KEPT, "Why was the incumbent kept?"),
        (Outcome.INCONCLUSIVE, "Why did it end without a result?"),
        (Outcome.ABORTED, "Why did it end without a result?"),
        (Outcome.ROLLED_BACK, "What was taken back?"),
    ],
)
def test_an_end_without_a_promotion_says_why_and_what_now(outcome: Outcome, question: str) -> None:
    told = answers(ended(a_study(), outcome))

    assert told[question] == "Nothing better."
    assert "serves what it served before" in told["What now?"]
    assert "What won?" not in told


def test_a_study_that_has_begun_nothing_explains_nothing() -> None:
    assert reasons(a_study()) == ()
