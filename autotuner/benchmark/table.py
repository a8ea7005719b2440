"""The benchmark's table, as Markdown for people and as one JSON object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotuner.benchmark.scoring import MILESTONES, Score, quality_after, trials_to_reach
from autotuner.benchmark.study import Course

HEADINGS = (
    "sampler",
    "studies",
    "median / p90 trials to 95 %",
    "within 20 / 12",
    "quality after 5 / 10 / 20",
    "violations a study",
    "above 1.5 × ceiling",
    "worst",
    "slow requests a study",
    "of one window (today's rate alone)",
    "unsafe finals",
    "final quality",
    "trials",
)


def as_markdown(scores: Sequence[Score], missing: Mapping[str, str], trials: int) -> str:
    """Return the table. missing: contestants that could not compete, with the module each lacks."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(_cells(score, trials) for score in scores)]
    rows += [
        (name, f"unavailable: needs {needs}", *[""] * (len(HEADINGS) - 2)) for name, needs in missing.items()
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cells(score: Score, trials: int) -> tuple[str, ...]:
    return (
        score.sampler,
        str(score.studies),
        f"{_trials(score.median_trials, trials)} / {_trials(score.p90_trials, trials)}",
        f"{score.reached_late:.0%} / {score.reached_soon:.0%}",
        " / ".join(f"{each:.2f}" for each in score.quality),
        f"{score.violations:.2f}",
        f"{score.severe:.2f}",
        f"{score.worst_ratio:.2f}",
        f"{score.harm_requests:.0f}",
        f"{score.harm_share:.2%} ({score.harm_today_share:.2%})",
        f"{score.unsafe_finals:.1%}",
        f"{score.final_quality:.2f}",
        f"{score.trials:.1f}",
    )


def _trials(needed: float, most: int) -> str:
    return f"> {most}" if math.isinf(needed) else f"{needed:.0f}"


def score_object(score: Score) -> dict[str, Any]:
    """Return one row as a JSON object; what was never reached is null."""
    return {
        "sampler": score.sampler,
        "studies": score.studies,
        "median_trials": _finite(score.median_trials),
        "p90_trials": _finite(score.p90_trials),
        "reached_within_12": score.reached_soon,
        "reached_within_20": score.reached_late,
        "violations_per_study": score.violations,
        "severe_violations_per_study": score.severe,
        "worst_p99_over_ceiling": score.worst_ratio,
        "quality_after": dict(zip(map(str, MILESTONES), score.quality, strict=True)),
        "harm_requests_per_study": score.harm_requests,
        "harm_share_of_window": score.harm_share,
        "harm_at_todays_rate_share_of_window": score.harm_today_share,
        "unsafe_finals": score.unsafe_finals,
        "final_quality": score.final_quality,
        "trials_per_study": score.trials,
    }


def course_object(course: Course) -> dict[str, Any]:
    """Return one study as a JSON object."""
    return {
        "workload": course.workload,
        "sampler": course.sampler,
        "seed": course.seed,
        "trials_to_95_percent": _finite(trials_to_reach(course)),
        "best_quality": quality_after(course, len(course.attempts)),
        "final_quality": course.final_quality,
        "confirmation_harm_requests": course.confirmation_harm_requests,
        "final_p99_over_ceiling": course.final_ratio,
        "reason": course.reason,
        "attempts": [
            {
                "delay_ms": attempt.setting.delay_seconds * 1e3,
                "preferred_batch_size": list(attempt.setting.preferred),
                "instance_count": attempt.setting.instances,
                "rate_share": attempt.rate_share,
                "p99_over_ceiling": attempt.p99_ratio,
                "quality": attempt.quality,
                "harm_requests": attempt.harm_requests,
                "harm_at_todays_rate_requests": attempt.harm_today_requests,
            }
            for attempt in course.attempts
        ],
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
