"""What a sampler predicted of its proposals beside what was then measured: how far the model is to be believed."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Step, Study, Trial

P99, P99_LOW, P99_HIGH = "p99_ms", "p99_low_ms", "p99_high_ms"
"""Predicted p99 in milliseconds, and its 90 % band."""

RATE = "rate_per_second"
"""The rate on one replica that a prediction is for, in requests per second."""

RISK = "violation_probability"
"""The probability that p99 exceeds the ceiling at that rate, 0 to 1: the risk that was accepted with the proposal."""


@dataclass(frozen=True)
class Prediction:
    """One trial's predicted p99 with its 90 % band, and the p99 observed at the level it was predicted for.

    observed_seconds: None where that level was not measured, or its histogram has no p99. rate_per_second: of the
    prediction, on one replica. risk: the predicted probability of a violation, 0 to 1.
    """

    trial: Trial
    rate_per_second: float
    p99_seconds: float
    low_seconds: float
    high_seconds: float
    risk: float
    observed_seconds: float | None

    @property
    def within(self) -> bool | None:
        """Whether the observed p99 lies in the band; None where nothing was observed."""
        if self.observed_seconds is None:
            return None
        return self.low_seconds <= self.observed_seconds <= self.high_seconds


def predictions(study: Study) -> tuple[Prediction, ...]:
    """Return every trial whose p99 was predicted, in order."""
    return tuple(found for trial in study.trials if (found := _prediction(study, trial)) is not None)


def _prediction(study: Study, trial: Trial) -> Prediction | None:
    told = trial.proposal.predicted if trial.proposal is not None else {}
    if not {P99, P99_LOW, P99_HIGH, RATE} <= set(told):
        return None
    step = _step_at(study, trial, told[RATE])
    return Prediction(
        trial,
        told[RATE],
        told[P99] / 1e3,
        told[P99_LOW] / 1e3,
        told[P99_HIGH] / 1e3,
        told.get(RISK, 0.0),
        step.latency.p99_seconds if step is not None else None,
    )


def _step_at(study: Study, trial: Trial, rate_per_second: float) -> Step | None:
    """The newest believed step of the level that means this rate."""
    reference = study.reference_rate_per_second or 0.0
    level = min(trial.levels, key=lambda each: abs(each.share * reference - rate_per_second), default=None)
    believed = [s for s in trial.steps if s.level == level and s.verdict is not Verdict.VOID]
    return believed[-1] if believed else None
