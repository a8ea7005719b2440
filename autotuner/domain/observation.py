"""What a tick sees, and what it decides: the values that go into the journal so that an auditor can decide again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from autotuner.domain.calendar import CLEAR, Clearance
from autotuner.domain.measurement import Sample
from autotuner.domain.provenance import Provenance
from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.study import Action, Pending, Proposal, Study, Wish

WORKLOAD = "workload"
"""Under this name `Observation.faults` says why production is not what the study began with, if it is not."""

CONFIGURATION = "configuration"
"""Under this name it says who owns what production starts with, where a promotion has to go through them."""


@dataclass(frozen=True)
class Told:
    """What traces told of the slow requests of one judged step: of which trial, and its place there, from 0."""

    trial: int
    step: int
    slow: SlowRequests


@dataclass(frozen=True)
class Observation:
    """The world at one tick. What could not be read is None or absent; `faults` says why, by door or replica.

    fingerprints: of the complete configuration each ready replica serves. configs: those configurations as
    JSON text, and provenances, are read only when a study starts.
    """

    at: datetime
    wish: Wish = Wish.RUN
    sample: Sample | None = None
    weights: Mapping[str, int] | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    clearance: Clearance = CLEAR
    """What freezes, blackout dates and a stopped line do not allow now."""
    provenances: Mapping[str, Provenance] | None = None
    told: Told | None = None
    """What traces told since the last tick, if they did."""


@dataclass(frozen=True)
class ActionResult:
    """How an action ended. `retry` says that trying again may help; `proposal` answers a `Propose`."""

    at: datetime
    done: bool
    reason: str = ""
    retry: bool = False
    proposal: Proposal | None = None


@dataclass(frozen=True)
class Decision:
    """What to do now, the study as it is then, why, and when to look again."""

    study: Study
    action: Action | None
    reason: str
    look_after: timedelta = timedelta(0)


def acting(study: Study, action: Action, at: datetime, reason: str) -> Decision:
    """Return the decision to do `action`: the intention is part of the study before anything is done."""
    return Decision(replace(study, pending=Pending(action, at)), action, reason)
