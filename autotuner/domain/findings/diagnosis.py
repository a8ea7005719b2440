"""One diagnosis: everything that a window says, put together once, for whoever prints, draws or answers it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from autotuner.domain.findings.assess import assess
from autotuner.domain.findings.breakdown import Breakdown, breakdown
from autotuner.domain.findings.histogram import Realised, realised
from autotuner.domain.findings.kinds import Finding, Kind, title_of
from autotuner.domain.findings.possible import StudyPossible, study_possible
from autotuner.domain.findings.prediction import Prediction, Wish, predict
from autotuner.domain.findings.scene import Scene


@dataclass(frozen=True)
class Diagnosis:
    """What is the matter, where the time goes, what tuning would be worth, and whether a study could run."""

    scene: Scene
    at: datetime
    findings: tuple[Finding, ...]
    breakdown: Breakdown
    realised: Realised
    prediction: Prediction
    study_possible: StudyPossible

    @property
    def headline(self) -> str:
        """The most important finding in one line."""
        first = self.findings[0]
        return f"{title_of(first)}: {first.evidence[0]}"

    @property
    def measured(self) -> bool:
        """Whether there was anything to measure."""
        return all(finding.kind is not Kind.IDLE for finding in self.findings)


def diagnosis(scene: Scene, at: datetime, look_interval: timedelta, wish: Wish) -> Diagnosis:
    """Return the diagnosis of a scene. at: the end of its window."""
    findings = assess(scene)
    return Diagnosis(
        scene,
        at,
        findings,
        breakdown(scene),
        realised(scene),
        predict(scene, look_interval, wish),
        study_possible(scene, findings),
    )
