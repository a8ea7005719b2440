"""What a window of counts is worth: evidence to accept and to reject, blame, failures, and what is never said."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.domain.judgement import SCREENING, STRICT, Counts, Judgement, Levels, Verdict, judge
from autotuner.errors import InvalidInput
from tests.benchmarks.verdict import decide, share_of, shared_windows, simulate

HEALTHY = Counts(5000, 12, 12, 0)
NOTHING = Counts(0, 0, 0, 0)


def _bad(total: int, bad: int, failed: int = 0) -> Counts:
    return Counts(total, bad, bad, failed)


def _judged(candidate: Counts, control: Counts | None = HEALTHY, **terms: Any) -> Judgement | None:
    kept = {"error_ceiling": 0.001, "levels": STRICT, "dispersion": 1.0, "exhausted": False, **terms}
    return judge(candidate, control, HEALTHY, **kept)


def _verdict(candidate: Counts, control: Counts | None = HEALTHY, **terms: Any) -> Verdict | None:
    found = _judged(candidate, control, **terms)
    return found.verdict if found else None


def test_enough_requests_without_a_slow_one_are_accepted_and_fewer_are_not() -> None:
    assert _verdict(_bad(579, 0)) is None
    assert _verdict(_bad(580, 0)) is Verdict.ACCEPT
    assert _verdict(_bad(309, 0), levels=SCREENING) is Verdict.ACCEPT


def test_a_rejection_says_counts_share_interval_and_control() -> None:
    found = _judged(_bad(512, 20), _bad(498, 1))
    assert found is not None
    assert found.verdict is Verdict.REJECT
    assert found.reason.startswith("REJECT: 20 of 512 requests slow or failed (3.9 %, 95 % interval ")
    assert found.reason.endswith("where 1 % is allowed; the stable replicas had 1 of 498")


def test_a_canary_as_bad_as_its_control_is_void() -> None:
    assert _verdict(_bad(512, 20), _bad(498, 18)) is Verdict.VOID


def test_a_control_too_small_to_tell_keeps_looking_and_then_blames_nobody() -> None:
    assert _verdict(_bad(512, 20), _bad(10, 0)) is None
    assert _verdict(_bad(5120, 200), _bad(10, 0)) is Verdict.VOID


def test_a_silent_control_delays_but_never_prevents_a_rejection() -> None:
    assert _verdict(_bad(20, 20), NOTHING) is None
    assert _verdict(_bad(40, 40), NOTHING) is Verdict.REJECT


def test_where_no_control_exists_the_candidate_answers_alone() -> None:
    assert _verdict(_bad(40, 20), None) is Verdict.REJECT


def test_a_suffering_control_does_not_void_an_acceptance() -> None:
    assert _verdict(_bad(700, 0), _bad(700, 70)) is Verdict.ACCEPT


@pytest.mark.parametrize("exhausted", [False, True])
def test_no_request_is_never_accepted(exhausted: bool) -> None:
    expected = Verdict.INCONCLUSIVE if exhausted else None
    assert _verdict(NOTHING, exhausted=exhausted) is expected


def test_one_failure_neither_blocks_nor_rejects_but_asks_for_more_requests() -> None:
    assert _verdict(_bad(900, 1, failed=1)) is None
    assert _verdict(_bad(1000, 1, failed=1)) is Verdict.ACCEPT


def test_failures_alone_reject_although_the_share_of_slow_requests_is_fine() -> None:
    found = _judged(_bad(1500, 9, failed=9), _bad(1500, 3))
    assert found is not None
    assert found.verdict is Verdict.REJECT
    assert "9 failed (0.6 %), where 0.1 % is allowed" in found.reason


def test_failures_shared_with_the_control_are_void() -> None:
    assert _verdict(_bad(1500, 9, failed=9), _bad(1500, 9, failed=9)) is Verdict.VOID


def test_clusters_ask_for_more_evidence() -> None:
    assert _verdict(_bad(1000, 0), dispersion=4.0) is None
    assert _verdict(_bad(4 * 580, 0), dispersion=4.0) is Verdict.ACCEPT
    assert _verdict(_bad(512, 20), _bad(498, 1), dispersion=4.0) is None


def test_accepting_uses_the_lower_edge_and_rejecting_the_upper_one() -> None:
    wide = Counts(1000, 40, 0, 0)
    assert _verdict(wide, exhausted=True) is Verdict.INCONCLUSIVE


def test_an_exhausted_window_without_evidence_is_inconclusive() -> None:
    found = _judged(_bad(200, 1), exhausted=True)
    assert found is not None
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "too few requests" in found.reason


def test_a_judgement_is_plain_json() -> None:
    found = _judged(_bad(100_000, 100_000), _bad(100_000, 0))
    assert found is not None
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["verdict"] == "reject"


@pytest.mark.parametrize(
    "numbers",
    [(-1, 0, 0, 0), (10, 11, 0, 0), (10, 2, 3, 0), (10, 2, 2, 3), (math.nan, 0, 0, 0), (10, 0.5, 0, 0)],
)
def test_counts_that_cannot_be_are_refused(numbers: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput):
        Counts(*numbers)


@pytest.mark.parametrize(
    "terms", [{"dispersion": 0.9}, {"dispersion": math.nan}, {"allowed": 1.0}, {"error_ceiling": 0.0}]
)
def test_terms_out_of_range_are_refused_by_name(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(terms))):
        _judged(_bad(10, 0), **terms)


@pytest.mark.parametrize("alpha", [0.0, 1.0, math.nan])
def test_levels_are_probabilities(alpha: float) -> None:
    with pytest.raises(InvalidInput):
        Levels(alpha, 0.05)


def test_counts_add_up_and_excess_is_never_negative() -> None:
    both = Counts(100, 4, 3, 1) + Counts(100, 2, 1, 0)
    assert both == Counts(200, 6, 4, 1)
    assert both.excess(0.01) == pytest.approx(4.0)
    assert _bad(1000, 2).excess(0.01) == 0.0


@given(total=st.integers(0, 5000), bad=st.integers(0, 5000), failed=st.integers(0, 5000))
def test_an_accepted_canary_is_below_what_is_allowed(total: int, bad: int, failed: int) -> None:
    bad, failed = min(bad, total), min(bad, total, failed)
    found = _judged(_bad(total, bad, failed), exhausted=True)
    assert found is not None
    if found.verdict is Verdict.ACCEPT:
        assert found.estimate < 0.01
        assert failed <= 0.001 * total
    if found.verdict is Verdict.REJECT:
        assert found.estimate > 0.01 or failed > 0.001 * total


# Calibration on fewer runs than the benchmark: a limit is its target plus three standard errors of a binomial share.
RUNS = 300


def _limit(target: float) -> float:
    return target + 3 * math.sqrt(target * (1 - target) / RUNS)


@pytest.mark.parametrize("world", ["independent", "clustered"])
def test_errors_stay_below_their_levels_at_every_look_of_a_window(world: str) -> None:
    at_the_edge = decide(simulate(world, 0.01, runs=RUNS), STRICT)
    good = decide(simulate(world, 0.0025, runs=RUNS), STRICT)
    assert share_of(Verdict.ACCEPT, at_the_edge) <= _limit(0.01)
    assert share_of(Verdict.REJECT, good) <= _limit(0.01)
    assert share_of(Verdict.ACCEPT, good) >= 0.75


@pytest.mark.parametrize("canary_share", [1 / 3, 0.5, 0.85])
def test_a_shared_burst_blames_nobody_and_a_bad_canary_is_not_excused(canary_share: float) -> None:
    shared = decide(shared_windows(canary_share, 0.03, 0.0, RUNS), STRICT)
    alone = decide(shared_windows(canary_share, 0.0025, 0.03, RUNS), STRICT)
    assert share_of(Verdict.VOID, shared) >= 1 - _limit(0.02)
    assert share_of(Verdict.VOID, alone) <= _limit(0.03)
    assert share_of(Verdict.REJECT, alone) >= 0.9
