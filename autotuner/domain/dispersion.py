"""How much the counts of this target scatter, learnt from production and from the incumbent on the canary."""

from __future__ import annotations

from autotuner.domain.study import Study
from autotuner.stats.overdispersion import Series, estimate_dispersion


def learnt_dispersion(study: Study) -> float:
    """Return the factor that all counts of the study are divided by (see `stats.overdispersion`), at least 1."""
    return estimate_dispersion(_series(study)).factor


def _series(study: Study) -> list[Series]:
    found = []
    for trial in study.trials:
        for step in trial.steps:
            looks = step.increments
            if looks and step.judgement.verdict != "reject":
                depth = len(looks[0].over)
                found.append(Series([i.total for i in looks], [[i.over[d] for i in looks] for d in range(depth)]))
    return found
