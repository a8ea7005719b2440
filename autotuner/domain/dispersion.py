"""How much the counts of this target scatter, learnt from production and from the incumbent on the canary."""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Study
from autotuner.stats.overdispersion import Series, estimate_dispersion

REHEARSAL_LIMIT = 3.0
"""Most that a rehearsal takes the factor for; a real study has no limit and looks longer instead."""


def with_learnt_dispersion(study: Study) -> Study:
    """Return the study with the factor that all its counts are divided by learnt anew (see `stats.overdispersion`)."""
    measured = estimate_dispersion(_series(study)).factor
    return replace(study, measured_dispersion=measured, dispersion=min(measured, study.plan.max_dispersion))


def _series(study: Study) -> list[Series]:
    found = []
    for trial in study.trials:
        for step in trial.steps:
            looks = step.increments
            if looks and step.judgement.verdict is not Verdict.REJECT:
                depth = len(looks[0].over)
                found.append(
                    Series([i.total for i in looks], [[i.over[d] for i in looks] for d in range(depth)])
                )
    return found
