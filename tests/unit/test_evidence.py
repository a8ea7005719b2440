from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from autotuner.domain.evidence import (
    KEPT_INCREMENTS,
    Evidence,
    closed_step,
    compute_error,
    control_replicas,
    looked,
    spoilt,
    strictness,
    too_thin,
    unreadable,
    weigh,
    window_limit,
    window_minimum,
)
from autotuner.domain.judgement import SCREENING, STRICT, Counts, Verdict
from autotuner.domain.measurement import Sample
from autotuner.domain.study import Arrived, Increment, Level, OpenWindow, Study, Trial, TrialKind, TrialState
from tests.builders import a_gateway_count, a_sample, a_server_count, at
from tests.searches import a_judgement
from tests.sightings import a_stage, a_window, begun, seeing, under_way

LIMIT = timedelta(minutes=2)
THIRDS = {"stable-0": 333, "stable-1": 333, "canary": 334}


def measuring(kind: TrialKind = TrialKind.CANDIDATE, **changes: Any) -> Trial:
    return begun(kind, **{"state": TrialState.MEASURING, "window": a_window(), **changes})


def judged(
    sample: Sample, study: Study | None = None, trial: Trial | None = None, window: OpenWindow | None = None
) -> Evidence:
    trial = trial or measuring()
    return weigh(study or under_way(trial), trial, window or a_window(), sample, LIMIT)


# -- verdicts --------------------------------------------------------------------------------------------------


def test_fast_requests_are_accepted_and_slow_ones_rejected() -> None:
    good, bad = judged(a_sample(30, 2000)).judgement, judged(a_sample(3, 1060, slow={"canary": 30})).judgement
    assert good is not None
    assert good.verdict is Verdict.ACCEPT
    assert bad is not None
    assert bad.verdict is Verdict.REJECT


def test_what_befalls_all_alike_is_nobodys_fault() -> None:
    judgement = judged(a_sample(3, 1060, slow=30)).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.VOID


def test_where_production_was_over_the_ceiling_before_its_being_so_now_excuses_nobody() -> None:
    trial = measuring()
    failing = under_way(trial, control_baseline=Counts(1000, 900, 900, 0))
    judgement = judged(a_sample(3, 1060, slow=50), failing, trial).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.REJECT
    assert "which were over it before, had 100 of 120" in judgement.reason


def test_a_window_without_requests_is_inconclusive_at_its_end_and_not_before() -> None:
    assert judged(a_sample(100, 1000)).judgement is None
    judgement = judged(a_sample(122, 1000)).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "no data is not success" in judgement.reason


def test_a_replica_that_answers_nothing_is_rejected_by_what_is_overdue() -> None:
    def stuck(seconds: float, waiting: int) -> Sample:
        sample = a_sample(seconds, {"stable-0": 1100, "stable-1": 1100, "canary": 1000})
        return replace(sample, gateway={**sample.gateway, "canary": a_gateway_count(1000, waiting=waiting)})

    window = a_window(recent=(stuck(2.5, 40), stuck(3, 60)))
    evidence = judged(stuck(3.2, 70), window=window)
    assert evidence.candidate == Counts(60, 60, 60, 0)
    assert evidence.judgement is not None
    assert evidence.judgement.verdict is Verdict.REJECT


def test_promotion_rests_on_the_stricter_level() -> None:
    strict = {kind for kind in TrialKind if strictness(measuring(kind)) is STRICT}
    assert strict == {TrialKind.CONFIRMATION, TrialKind.STAGE, TrialKind.WATCH}
    assert strictness(measuring()) is SCREENING


def test_the_control_is_what_is_stable_and_not_under_test() -> None:
    study = under_way(measuring())
    assert control_replicas(study, measuring()) == ("stable-0", "stable-1")
    assert control_replicas(study, a_stage()) == ("stable-1",)
    assert control_replicas(study, measuring(replicas=("stable-0", "stable-1"))) == ()


# -- looks -----------------------------------------------------------------------------------------------------


def test_each_look_keeps_what_came_since_the_last() -> None:
    trial = measuring()
    study = under_way(trial)
    first = looked(study, trial, a_window(), a_sample(3, 1030, slow={"canary": 2}, failed={"canary": 1}))
    second = looked(study, trial, first, a_sample(4, 1050, slow={"canary": 2}, failed={"canary": 1}))
    assert [(i.total, i.over[0], i.failed) for i in second.increments] == [(30, 2, 1), (20, 0, 0)]
    assert [i.inferences for i in second.increments] == [30, 20]
    assert [i.compute_seconds for i in second.increments] == pytest.approx([0.009 * 7, 0.009 * 5])
    assert second.harm_requests == pytest.approx(3 - 0.5)


def test_each_look_keeps_what_was_sent_unless_the_plan_does_without() -> None:
    trial = measuring()
    study = under_way(trial)
    without = replace(study, plan=replace(study.plan, keeps_batches=False))
    both = [looked(each, trial, a_window(), a_sample(3, 1030)) for each in (study, without)]
    assert [window.increments[0].arrived for window in both] == [Arrived(1.0, 30), None]


def test_samples_are_kept_only_as_long_as_a_request_may_be_overdue() -> None:
    trial = measuring()
    study, window = under_way(trial), a_window()
    for second in range(3, 12):
        window = looked(study, trial, window, a_sample(second, 1000 + second))
    assert [sample.at for sample in window.recent] == [at(8), at(9), at(10), at(11)]


def test_the_number_of_looks_that_are_kept_is_bounded() -> None:
    trial = measuring()
    window = a_window(increments=(Increment(1, (0,), 0, 0.0, 1),) * KEPT_INCREMENTS)
    window = looked(under_way(trial), trial, window, a_sample(3, 1030))
    assert len(window.increments) == KEPT_INCREMENTS
    assert window.increments[-1].total == 30


def test_production_as_it_is_harms_nobody() -> None:
    trial = measuring(TrialKind.PRODUCTION, replicas=("stable-0", "stable-1"))
    assert looked(under_way(trial), trial, a_window(), a_sample(3, 1100, slow=90)).harm_requests == 0


# -- what spoils -----------------------------------------------------------------------------------------------


def problem(sample: Sample, **window: Any) -> str:
    trial = measuring()
    return spoilt(under_way(trial), trial, a_window(**window), sample, dict(THIRDS))


def test_a_quiet_window_is_believed() -> None:
    assert problem(a_sample(3, 1100)) == ""


def test_counters_that_went_back_spoil_a_window() -> None:
    sample = a_sample(3, 1100)
    assert "gateway's counters of canary went backwards" in problem(
        replace(sample, gateway={**sample.gateway, "canary": a_gateway_count(10)})
    )
    assert "the counters of stable-1 went backwards" in problem(
        replace(sample, servers={**sample.servers, "stable-1": a_server_count(0)})
    )
    assert problem(a_sample(3, 1100), recent=(a_sample(2.5, 1100),)) == ""
    assert "went backwards" in problem(a_sample(3, 1100), recent=(a_sample(2.5, 1101),))


def test_a_share_that_was_not_given_spoils_a_window() -> None:
    assert "stable-0 got 50% of the requests where 33% was set" in problem(
        a_sample(3, {"stable-0": 1100, "stable-1": 1100, "canary": 1000})
    )


@pytest.mark.parametrize(
    ("served", "contaminated"), [(500, False), (575, False), (576, True), (425, False), (424, True)]
)
def test_requests_that_came_another_way_spoil_a_window(served: int, contaminated: bool) -> None:
    sample = a_sample(3, 1500)
    sample = replace(sample, servers={**sample.servers, "canary": a_server_count(1000 + served)})
    assert problem(sample) == (
        f"canary answered {served} requests where 500 came through the gateway: contaminated"
        if contaminated
        else ""
    )


def test_a_few_requests_more_or_less_are_forgiven() -> None:
    sample = a_sample(3, 1010)
    few = replace(sample, servers={**sample.servers, "canary": a_server_count(1070)})
    assert problem(few) == ""


@pytest.mark.parametrize(
    ("kind", "canary", "thin"),
    [
        (TrialKind.CANDIDATE, 1254, True),
        (TrialKind.CANDIDATE, 1256, False),
        (TrialKind.CONFIRMATION, 1100, True),
        (TrialKind.WATCH, 1100, False),
    ],
)
def test_a_level_whose_traffic_did_not_come_is_not_carried(kind: TrialKind, canary: int, thin: bool) -> None:
    trial = measuring(kind)
    sample = a_sample(12, {"stable-0": 1300, "stable-1": 1300, "canary": canary})
    assert bool(too_thin(under_way(trial), trial, a_window(), sample)) is thin


def test_while_warming_up_no_rate_is_asked_for() -> None:
    trial = measuring()
    assert too_thin(under_way(trial), trial, a_window(Level(-1, 0.1)), a_sample(12, 1001)) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sample": a_sample()}, ""),
        ({"sample": a_sample(), "absent": ("canary",)}, "canary is not ready: triton canary is unavail"),
        ({"sample": a_sample(), "absent": ("stable-0",)}, ""),
        ({"sample": None}, "no metrics: no answer"),
        ({"sample": a_sample(faults={"stable-1": "HTML"})}, "no metrics of stable-1: HTML"),
    ],
)
def test_what_cannot_be_read_is_named(changes: dict[str, Any], words: str) -> None:
    found = unreadable(under_way(measuring()), measuring(), seeing(**changes))
    assert found.startswith(words)
    assert bool(found) is bool(words)


# -- steps -----------------------------------------------------------------------------------------------------


def a_closed(
    kind: TrialKind,
    used_gb: float,
    arrived: tuple[Arrived, ...] = (),
    *,
    keeps_batches: bool = True,
    keeps_counts: bool = True,
    **changes: Any,
) -> Any:
    trial = measuring(kind, **changes)
    sample = a_sample(12, 1300)
    cramped = a_server_count(1300, memory_used_bytes=used_gb * 1e9)
    sample = replace(sample, servers={**sample.servers, "canary": cramped})
    looks: tuple[Arrived | None, ...] = arrived or (None,)
    increments = tuple(Increment(300, (0,), 0, 0.5, 300, look) for look in looks)
    counts = Counts(300, 0, 0, 0)
    evidence = Evidence(counts, counts, None)
    window = a_window(increments=increments, harm_requests=1.5)
    study = under_way(trial)
    plan = replace(study.plan, keeps_batches=keeps_batches, keeps_counts=keeps_counts)
    study = replace(study, plan=plan)
    return closed_step(study, trial, window, sample, evidence, a_judgement(Verdict.ACCEPT))


def test_a_step_says_what_was_measured() -> None:
    step = a_closed(TrialKind.BASELINE, 1.0)
    assert step.rate_per_second == pytest.approx(30.0)
    assert step.total_rate_per_second == pytest.approx(90.0)
    assert (step.started_at, step.ended_at, step.harm_requests) == (at(2), at(12), 1.5)
    assert step.use is not None
    assert len(step.increments) == 1
    assert a_closed(TrialKind.CANDIDATE, 1.0).increments == ()
    assert a_closed(TrialKind.WATCH, 1.0, replicas=("stable-0", "stable-1")).use is None


def test_a_step_keeps_batches_and_arrivals_of_what_was_under_test() -> None:
    looks = (Arrived(1.0, 30), Arrived(2.0, 70))
    step = a_closed(TrialKind.CANDIDATE, 1.0, arrived=looks)
    assert step.arrived == looks
    assert [(batch.size, batch.executions) for batch in step.batches] == [(4, 75)]
    several = a_closed(TrialKind.WATCH, 1.0, replicas=("stable-0", "stable-1"), arrived=looks)
    assert (several.batches, several.arrived) == ((), looks)


def test_a_step_of_production_alone_keeps_what_was_counted_in_its_window() -> None:
    step = a_closed(TrialKind.PRODUCTION, 1.0, replicas=("stable-0", "stable-1"))
    assert step.counted is not None
    assert {name: one.succeeded for name, one in step.counted.servers.items()} == {
        "stable-0": 300,
        "stable-1": 300,
    }
    assert {name: one.ended for name, one in step.counted.gateway.items()} == {
        "stable-0": 300,
        "stable-1": 300,
    }
    assert a_closed(TrialKind.BASELINE, 1.0).counted is None
    assert a_closed(TrialKind.WATCH, 1.0, replicas=("stable-0", "stable-1")).counted is None


def test_a_step_of_a_plan_that_does_without_keeps_none_of_these() -> None:
    step = a_closed(TrialKind.BASELINE, 1.0, keeps_batches=False)
    assert (step.batches, step.arrived) == ((), ())
    assert a_closed(TrialKind.PRODUCTION, 1.0, keeps_counts=False).counted is None


@pytest.mark.parametrize(
    ("kind", "used_gb", "verdict"),
    [
        (TrialKind.CANDIDATE, 14.3, Verdict.ACCEPT),
        (TrialKind.CANDIDATE, 14.5, Verdict.REJECT),
        (TrialKind.CONFIRMATION, 14.5, Verdict.REJECT),
        (TrialKind.BASELINE, 14.5, Verdict.ACCEPT),
    ],
)
def test_what_lands_in_the_memory_headroom_is_rejected_unless_it_is_production_itself(
    kind: TrialKind, used_gb: float, verdict: Verdict
) -> None:
    step = a_closed(kind, used_gb)
    assert step.verdict is verdict
    assert ("headroom" in step.judgement.reason) is (verdict is Verdict.REJECT)


def test_windows_have_the_limits_of_their_kind() -> None:
    study = under_way(measuring())
    pace = study.plan.pace
    kinds = {
        kind: (window_minimum(study, measuring(kind)), window_limit(study, measuring(kind)))
        for kind in TrialKind
    }
    assert kinds[TrialKind.CANDIDATE] == (pace.step_minimum, pace.step_limit)
    assert kinds[TrialKind.PRODUCTION] == (pace.production_window, pace.step_limit)
    assert kinds[TrialKind.STAGE] == (pace.step_minimum, pace.stage_limit)
    assert kinds[TrialKind.WATCH] == (pace.bake, pace.bake + pace.stage_limit)


# -- the error of compute time ---------------------------------------------------------------------------------


def drawn(dice: np.random.Generator, count: int = 60) -> tuple[Increment, ...]:
    items = dice.poisson(100, count) + 1
    seconds = items * (0.004 + 0.0005 * dice.standard_normal(count))
    return tuple(Increment(int(n), (0,), 0, float(c), int(n)) for n, c in zip(items, seconds, strict=True))


def ratio(increments: tuple[Increment, ...]) -> float:
    return sum(i.compute_seconds or 0.0 for i in increments) / sum(i.inferences or 0 for i in increments)


def test_the_error_of_a_ratio_is_that_of_repeating_the_whole_measurement() -> None:
    dice = np.random.default_rng(5)
    windows = [drawn(dice) for _ in range(600)]
    errors = [compute_error(window) or math.nan for window in windows]
    truth = float(np.std([ratio(window) for window in windows], ddof=1))
    assert float(np.mean(errors)) == pytest.approx(truth, rel=0.08)


def test_the_error_of_a_ratio_agrees_with_leaving_one_look_out_at_a_time() -> None:
    window = drawn(np.random.default_rng(7))
    n = len(window)
    without = [ratio(window[:i] + window[i + 1 :]) for i in range(n)]
    jackknife = math.sqrt((n - 1) / n * sum((r - sum(without) / n) ** 2 for r in without))
    assert compute_error(window) == pytest.approx(jackknife, rel=0.03)


def test_constant_work_has_no_error() -> None:
    assert compute_error((Increment(10, (0,), 0, 0.05, 10),) * 8) == pytest.approx(0.0)


@pytest.mark.parametrize("unknown", [2, 5])
def test_too_few_looks_or_too_many_unknown_ones_have_no_known_error(unknown: int) -> None:
    known = drawn(np.random.default_rng(1), 10)
    missing = (Increment(100, (0,), 0, None, None),) * unknown
    assert compute_error(known[:3]) is None
    assert compute_error((*known, *missing)) is None
    assert compute_error((*known, *missing[:1])) is not None
