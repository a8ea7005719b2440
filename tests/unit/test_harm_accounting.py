"""The harm budget counts what users really suffered: also what is answered late, and what a dead canary refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.adapters.simulated import MetricsFault
from autotuner.domain.aftermath import aftermath, closed_window, folded
from autotuner.domain.measurement import edges_around
from autotuner.domain.study import Outcome, Phase, Study, Trial, TrialKind, TrialState
from tests.builders import a_budget, a_sample, at
from tests.closed_loop.endings import TERRIBLE, a_loop, check_ending, trials
from tests.closed_loop.endings import at as when
from tests.closed_loop.loop import Loop
from tests.sightings import a_window, begun, seeing, under_way

SECOND = timedelta(seconds=1)


def suffered(loop: Loop) -> tuple[int, int]:
    """Requests that the canary was given and ended so far, and how many of them were slow or failed."""
    sample = loop.target.metrics.sample()
    counters = sample.gateway["canary"]
    edge, _ = edges_around(sample.edges_seconds, loop.plan.slo.p99_ceiling_seconds)
    measured = counters.buckets[-1]
    return measured + counters.failed_unmeasured, measured - counters.buckets[edge] + counters.failed


def test_what_a_bad_configuration_answers_after_its_traffic_was_taken_away_counts() -> None:
    loop = a_loop(TERRIBLE)
    loop.run(until=when(TrialKind.CANDIDATE, TrialState.APPLIED))
    requests, bad = suffered(loop)
    loop.run()
    more, worse = suffered(loop)
    truth = (worse - bad) - 0.01 * (more - requests)
    counted = trials(check_ending(loop), TrialKind.CANDIDATE)[0].harm_requests
    assert truth > 100
    assert counted == pytest.approx(truth, rel=0.15)


def test_requests_that_a_dead_canary_refuses_count() -> None:
    loop = a_loop()
    loop.run(until=when(TrialKind.CANDIDATE, level=2))
    _, bad = suffered(loop)
    harm = loop.study.harm_requests
    loop.target.faults.crash("canary")
    loop.target.faults.start("canary", after=4 * SECOND)
    loop.run(until=when(TrialKind.CANDIDATE, TrialState.WARMING))
    assert suffered(loop)[1] - bad > 150
    assert loop.study.harm_requests - harm == pytest.approx(suffered(loop)[1] - bad, rel=0.15)


def test_a_canary_that_dies_again_and_again_spends_no_more_than_the_harm_budget() -> None:
    budget = a_budget(harm_budget_requests=1200, max_canary_share=0.75)
    loop = a_loop(slo=budget)
    while not loop.tick().ended:
        if when(TrialKind.CANDIDATE, level=2)(loop.study):
            loop.target.faults.crash("canary")
            loop.target.faults.start("canary", after=3 * SECOND)
    study = check_ending(loop)
    total, bad = suffered(loop)
    assert bad - 0.01 * total <= budget.harm_budget_requests
    assert trials(study, TrialKind.CANDIDATE)[0].limited_by == "harm budget"


def test_harm_is_counted_while_the_servers_own_metrics_cannot_be_read() -> None:
    """A canary that fails everything cannot hide behind its metrics: the budget ends the study before the patience."""
    budget = a_budget(harm_budget_requests=1500, max_canary_share=0.75)
    loop = a_loop(slo=budget, pace={"no_data_limit": 60 * SECOND})
    loop.run(until=when(TrialKind.CANDIDATE, level=1))
    loop.target.faults.metrics("canary", MetricsFault.SILENT)
    loop.target.faults.slow("canary", factor=20.0)
    began = loop.clock.now()
    loop.run(until=lambda study: study.phase is Phase.RESTORATION)
    assert loop.clock.now() - began < 20 * SECOND
    loop.run()
    assert loop.study.outcome is Outcome.ABORTED
    assert "the harm budget of 1500 requests is spent" in loop.study.reason


# -- step by step ----------------------------------------------------------------------------------------------


def withdrawn() -> Trial:
    """A trial whose window was closed at 10 s with 5 requests of harm."""
    trial = begun(state=TrialState.RETREATING, window=a_window(harm_requests=5.0), closed_harm_requests=2.0)
    return closed_window(trial, at(10))


def looked_at(trial: Trial, seconds: float, slow: int, waiting: int = 0) -> Trial:
    """The trial after one more look, at which the canary had answered `slow` requests late."""
    sample = a_sample(seconds, 1000 + slow, slow=slow)
    busy = replace(sample.gateway["canary"], sent=1000 + slow + waiting)
    seen = seeing(seconds, sample=replace(sample, gateway={**sample.gateway, "canary": busy}))
    study: Study = aftermath(under_way(trial), seen)
    assert study.trial is not None
    return study.trial


def test_the_tail_of_a_window_counts_on_until_all_is_answered_and_the_histogram_was_merged() -> None:
    trial = withdrawn()
    assert (trial.window, trial.harm_requests) == (None, 7.0)
    trial = looked_at(trial, 10.5, slow=50, waiting=3)
    assert trial.harm_requests == pytest.approx(2 + 50 - 0.5)
    trial = looked_at(trial, 10.9, slow=60)
    assert trial.tail is not None
    trial = looked_at(trial, 11.0, slow=60)
    assert trial.tail is None
    assert trial.harm_requests == pytest.approx(2 + 60 - 0.6)


def test_a_tail_that_is_never_answered_is_given_up_and_keeps_its_harm() -> None:
    trial = looked_at(withdrawn(), 20.9, slow=60, waiting=3)
    assert trial.tail is not None
    assert looked_at(trial, 21.0, slow=60, waiting=3).tail is None


def test_unreadable_or_restarted_counters_leave_the_harm_as_it_was() -> None:
    study = under_way(withdrawn())
    assert aftermath(study, seeing(10.5)).harm_requests == 7.0
    assert aftermath(study, seeing(10.5, sample=a_sample(10.5, 4))).harm_requests == 7.0


def test_a_tail_ends_where_the_next_window_begins_so_that_nothing_counts_twice() -> None:
    old = replace(withdrawn(), state=TrialState.JUDGED)
    new = begun(state=TrialState.WARMING, window=a_window())
    study = aftermath(under_way(old, new), seeing(10.5, sample=a_sample(10.5, 1500, slow=500)))
    assert study.trials[0] == folded(replace(old, number=0))
    assert study.harm_requests == 7.0


def test_production_has_no_tail_because_its_traffic_goes_on() -> None:
    watched = closed_window(
        replace(withdrawn(), tail=None, kind=TrialKind.WATCH, window=a_window(harm_requests=5.0)), at(10)
    )
    assert (watched.tail, watched.window, watched.harm_requests) == (None, None, 7.0)
