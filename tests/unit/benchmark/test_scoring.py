"""The benchmark's figures on studies made by hand, and the table they end in."""

from __future__ import annotations

import json
import math

import pytest

from autotuner.batching.trials import Setting
from autotuner.benchmark.scoring import quality_after, score, trials_to_reach
from autotuner.benchmark.study import Attempt, Course
from autotuner.benchmark.table import HEADINGS, as_markdown, course_object, score_object

SETTING = Setting(0.001, (4,), 2, 8)


def a_course(
    *attempts: tuple[float, float, float], final: tuple[float, float] = (0.9, 0.8), seed: int = 0
) -> Course:
    """A study of (p99 ratio, quality, harm) for each trial; final: ratio and quality."""
    return Course(
        workload="w",
        sampler="s",
        seed=seed,
        attempts=tuple(Attempt(SETTING, ratio, quality, harm, harm / 2) for ratio, quality, harm in attempts),
        final=SETTING,
        final_ratio=final[0],
        final_quality=final[1],
        confirmation_harm_requests=1.0,
        window_requests=1000.0,
        reason="done",
    )


FOUND_SECOND = a_course((0.8, 0.5, 0.0), (0.9, 0.96, 10.0), (1.6, 0.0, 30.0))
NEVER = a_course((0.8, 0.5, 0.0), (1.03, 0.0, 4.0), (0.9, 0.7, 0.0), final=(1.03, 0.0))


def test_trials_to_the_optimum_count_the_incumbents() -> None:
    assert trials_to_reach(FOUND_SECOND) == 2
    assert trials_to_reach(a_course((0.8, 0.95, 0.0))) == 1
    assert trials_to_reach(NEVER) == math.inf


def test_quality_is_that_of_the_best_so_far_and_zero_before_any_holds() -> None:
    course = a_course((1.2, 0.0, 0.0), (0.9, 0.7, 0.0), (0.9, 0.6, 0.0))

    assert [quality_after(course, trials) for trials in (0, 1, 2, 3, 20)] == [0.0, 0.0, 0.7, 0.7, 0.7]


def test_a_row_sums_up_its_studies() -> None:
    row = score([FOUND_SECOND, NEVER])

    assert (row.sampler, row.studies, row.trials) == ("s", 2, 3.0)
    assert (row.median_trials, row.p90_trials) == (2.0, math.inf)
    assert (row.reached_soon, row.reached_late) == (0.5, 0.5)
    assert (row.violations, row.severe, row.worst_ratio) == (1.0, 0.5, 1.6)
    assert row.quality == pytest.approx((0.83, 0.83, 0.83))
    assert row.harm_requests == 23.0
    assert row.harm_share == pytest.approx(0.023)
    assert row.harm_today_share == pytest.approx(0.012)
    assert row.unsafe_finals == 0.5
    assert row.final_quality == pytest.approx(0.4)


def test_a_trial_just_over_the_ceiling_is_no_violation() -> None:
    assert score([a_course((1.02, 0.0, 0.0), final=(1.02, 0.0))]).violations == 0.0
    assert score([a_course((1.02, 0.0, 0.0), final=(1.02, 0.0))]).unsafe_finals == 0.0
    assert score([a_course((1.021, 0.0, 0.0))]).violations == 1.0


def test_found_late_is_not_found_soon() -> None:
    late = a_course(*[(0.9, 0.5, 0.0)] * 14, (0.9, 1.0, 0.0))
    row = score([late])

    assert (row.reached_soon, row.reached_late, row.median_trials) == (0.0, 1.0, 15.0)


def test_the_ninetieth_percentile_is_that_of_nine_in_ten() -> None:
    quick, slow = a_course((0.9, 1.0, 0.0)), a_course((0.9, 0.5, 0.0), (0.9, 1.0, 0.0))

    assert score([quick] * 9 + [slow]).p90_trials == 1.0
    assert score([quick] * 8 + [slow] * 2).p90_trials == 2.0


def test_the_table_has_a_row_a_sampler_and_says_what_could_not_compete() -> None:
    lines = as_markdown([score([FOUND_SECOND, NEVER])], {"gp": "torch"}, 20).splitlines()

    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}
    assert lines[2].startswith(
        "| s | 2 | 2 / > 20 | 50% / 50% | 0.83 / 0.83 / 0.83 | 1.00 | 0.50 | 1.60 | 23 | 2.30% (1.20%)"
    )
    assert "needs torch" in lines[3]


def test_the_json_is_valid_where_nothing_was_reached() -> None:
    text = json.dumps([score_object(score([NEVER])), course_object(NEVER)], allow_nan=False)

    row, course = json.loads(text)
    assert row["median_trials"] is None
    assert course["trials_to_95_percent"] is None
    assert len(course["attempts"]) == 3
