"""From how studies went to the figures of one row: how soon, how good, at what cost to users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.benchmark.study import Course

REACHED = 0.95
"""Share of the optimum that counts as having found it."""

VIOLATED = 1.02
"""A trial violates the ceiling when its true p99 is above this multiple of it."""

SEVERELY = 1.5

SOON, LATE = 12, 20
MILESTONES = (5, 10, 20)


@dataclass(frozen=True)
class Score:
    """One sampler over all its studies.

    median_trials, p90_trials: to 95 % of the optimum, the incumbent's trial counted; infinite where it was not reached.
    reached_soon, reached_late: share of studies that reached it within 12 and 20 trials. violations, severe: trials
    a study above 1.02 and 1.5 times the ceiling. worst_ratio: the highest true p99 over the ceiling of any trial.
    quality: mean quality of the best trial so far after 5, 10 and 20 trials. harm_requests: slow requests above 1 %
    a study, those of confirming included; harm_share, harm_today_share: the same, and the part of it at today's
    rate, as shares of the requests of one window (a capacity trial's last level is over the ceiling by design).
    unsafe_finals: share of studies whose
    choice is above 1.02 times the ceiling. final_quality, trials: means.
    """

    sampler: str
    studies: int
    median_trials: float
    p90_trials: float
    reached_soon: float
    reached_late: float
    violations: float
    severe: float
    worst_ratio: float
    quality: tuple[float, ...]
    harm_requests: float
    harm_share: float
    harm_today_share: float
    unsafe_finals: float
    final_quality: float
    trials: float


def score(courses: Sequence[Course]) -> Score:
    """Return the figures of one sampler's studies, of which there is at least one."""
    needed = np.array([trials_to_reach(course) for course in courses])
    counts = [len(course.attempts) for course in courses]
    ratios = [[attempt.p99_ratio for attempt in course.attempts] for course in courses]
    harm = [_harm(course, [attempt.harm_requests for attempt in course.attempts]) for course in courses]
    harm_today = [
        _harm(course, [attempt.harm_today_requests for attempt in course.attempts]) for course in courses
    ]
    return Score(
        sampler=courses[0].sampler,
        studies=len(courses),
        median_trials=_quantile(needed, 0.5),
        p90_trials=_quantile(needed, 0.9),
        reached_soon=float(np.mean(needed <= SOON)),
        reached_late=float(np.mean(needed <= LATE)),
        violations=float(np.mean([sum(ratio > VIOLATED for ratio in study) for study in ratios])),
        severe=float(np.mean([sum(ratio > SEVERELY for ratio in study) for study in ratios])),
        worst_ratio=max(max(study) for study in ratios),
        quality=tuple(float(np.mean([quality_after(c, trials) for c in courses])) for trials in MILESTONES),
        harm_requests=float(np.mean(harm)),
        harm_share=_share_of_window(courses, harm),
        harm_today_share=_share_of_window(courses, harm_today),
        unsafe_finals=float(np.mean([course.final_ratio > VIOLATED for course in courses])),
        final_quality=float(np.mean([course.final_quality for course in courses])),
        trials=float(np.mean(counts)),
    )


def _harm(course: Course, of_trials: Sequence[float]) -> float:
    """Of the trials and of confirming, which happens at today's rate."""
    return sum(of_trials) + course.confirmation_harm_requests


def _share_of_window(courses: Sequence[Course], requests: Sequence[float]) -> float:
    shares = [each / course.window_requests for each, course in zip(requests, courses, strict=True)]
    return float(np.mean(shares))


def trials_to_reach(course: Course) -> float:
    """Return the number of the first trial that reached 95 % of the optimum, infinite when none did."""
    return next(
        (float(n) for n, attempt in enumerate(course.attempts, start=1) if attempt.quality >= REACHED),
        math.inf,
    )


def quality_after(course: Course, trials: int) -> float:
    """Return the quality of the best of the first trials; 0 before any held the ceiling."""
    return max((attempt.quality for attempt in course.attempts[:trials]), default=0.0)


def _quantile(needed: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> float:
    """The smallest number within which at least this share of studies reached it."""
    return float(np.sort(needed)[max(0, math.ceil(share * needed.size) - 1)])
