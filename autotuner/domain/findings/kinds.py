"""What a diagnosis can find: a closed list of kinds, how sure, and in which order. `docs/diagnose.md` explains each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Kind(StrEnum):
    """What is the matter. Closed: whoever reads findings by machine may rely on these."""

    WRONG_TOOL = "wrong_tool"
    STATEFUL = "stateful"
    ENSEMBLE = "ensemble"
    FAILURES = "failures"
    MODEL = "model"
    SATURATION = "saturation"
    MISCONFIGURATION = "misconfiguration"
    BATCHING = "batching"
    OUTSIDE_TRITON = "outside_triton"
    INSTANCES = "instances"
    MEMORY = "memory"
    COLD_START = "cold_start"
    THIN_TRAFFIC = "thin_traffic"
    IDLE = "idle"
    HEALTHY = "healthy"


class Confidence(StrEnum):
    """How sure a finding is."""

    SURE = "sure"
    """The evidence leaves no other explanation, or the server itself says so."""
    LIKELY = "likely"
    """The evidence fits, and something else could look the same."""
    POSSIBLE = "possible"
    """Worth a look; the readings allow it and do not show it."""


class Severity(IntEnum):
    """What a finding means for whoever serves requests; decides the order."""

    NOTICE = 0
    """Costs requests nothing now: an instrument that is off, a risk."""
    COSTS = 1
    """Costs latency or capacity."""
    BREAKS = 2
    """Breaks the ceiling, or requests fail."""
    DECIDES = 3
    """Decides whether the other questions can be asked at all."""


@dataclass(frozen=True)
class Finding:
    """One thing that is the matter, or that nothing is.

    evidence: sentences with the figures it rests on. remedy: what to do. share: of a request's time that it
    explains, 0 to 1, which orders findings of equal severity and confidence.
    """

    kind: Kind
    confidence: Confidence
    evidence: tuple[str, ...]
    remedy: str
    severity: Severity = Severity.COSTS
    share: float = 0.0


def title_of(finding: Finding) -> str:
    """Return what a finding is and how sure, as people read it: `thin traffic (likely)`."""
    return f"{finding.kind.replace('_', ' ')} ({finding.confidence})"


_CONFIDENCES = tuple(Confidence)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, most important first: what decides, what breaks, what costs; sure before likely."""
    return tuple(
        sorted(
            findings,
            key=lambda one: (-one.severity, _CONFIDENCES.index(one.confidence), -one.share, one.kind),
        )
    )
