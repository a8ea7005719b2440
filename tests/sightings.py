"""Studies in the middle of their work and what a tick sees of a quiet world, to decide by hand what comes next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotuner.domain.configuration import Configuration, fingerprint
from autotuner.domain.judgement import Counts
from autotuner.domain.observation import ActionResult, Decision, Observation
from autotuner.domain.study import (
    Incumbent,
    Level,
    OpenWindow,
    Phase,
    Study,
    Trial,
    TrialKind,
    TrialState,
)
from tests.builders import (
    REPLICAS,
    a_configuration,
    a_model_config,
    a_plan,
    a_sample,
    a_study,
    at,
)

WEIGHTS = {"stable-0": 500, "stable-1": 500, "canary": 0}
"""How production was found."""

CANDIDATE = a_configuration(preferred_batch_size=())


def printed(configuration: Configuration) -> str:
    """The fingerprint of a replica that serves `configuration`."""
    return fingerprint(a_model_config(configuration))


OLD, NEW = printed(a_configuration()), printed(CANDIDATE)
"""Fingerprints of the incumbent and of `CANDIDATE`."""


def an_incumbent() -> Incumbent:
    """Production with the incumbent on every replica and nothing on the canary."""
    text = json.dumps(a_model_config(), sort_keys=True)
    return Incumbent(
        a_configuration(), dict.fromkeys(REPLICAS, text), dict.fromkeys(REPLICAS, OLD), dict(WEIGHTS)
    )


def begun(kind: TrialKind = TrialKind.CANDIDATE, **changes: Any) -> Trial:
    """A trial of `CANDIDATE` on the canary that has just been proposed."""
    fields: dict[str, Any] = {
        "number": 0,
        "kind": kind,
        "replicas": ("canary",),
        "configuration": CANDIDATE,
        "levels": (Level(0, 0.3333), Level(1, 0.5)),
        "state": TrialState.PROPOSED,
        "proposed_at": at(0),
    }
    return Trial(**{**fields, **changes})


def a_stage(**changes: Any) -> Trial:
    """The promotion of the winner to the first stable replica, just begun."""
    return begun(TrialKind.STAGE, **{"replicas": ("stable-0",), "levels": (Level(0, 0.5),), **changes})


def a_window(level: Level = Level(0, 0.3333), **changes: Any) -> OpenWindow:  # noqa: B008 - frozen
    """A window that was routed at 0 s and opened at 2 s."""
    fields: dict[str, Any] = {
        "level": level,
        "attempt": 0,
        "routed_at": at(0),
        "routed": a_sample(0, 1000),
        "first": a_sample(2, 1000),
    }
    return OpenWindow(**{**fields, **changes})


def under_way(*trials: Trial, phase: Phase = Phase.SEARCH, **changes: Any) -> Study:
    """A study with these trials, numbered in order, on a target that carries 90 requests a second."""
    numbered = tuple(replace(trial, number=number) for number, trial in enumerate(trials))
    fields: dict[str, Any] = {
        "plan": a_plan(),
        "phase": phase,
        "phase_since": at(0),
        "incumbent": an_incumbent(),
        "trials": numbered,
        "dispersion": 1.0,
        "control_baseline": Counts(4000, 4, 4, 0),
        "reference_rate_per_second": 90.0,
    }
    return a_study(**{**fields, **changes})


def seeing(seconds: float = 0.0, **changes: Any) -> Observation:
    """A quiet world: all replicas serve the incumbent, with production's weights; nothing is read of metrics.

    served: fingerprints by replica that differ from the incumbent's; absent: replicas that are not ready.
    """
    served: Mapping[str, str] = changes.pop("served", {})
    absent: tuple[str, ...] = changes.pop("absent", ())
    prints = {name: served.get(name, OLD) for name in REPLICAS if name not in absent}
    faults = {name: f"triton {name} is unavailable: connection refused" for name in absent}
    fields: dict[str, Any] = {
        "at": at(seconds),
        "weights": dict(WEIGHTS),
        "fingerprints": prints,
        "faults": {**faults, **changes.pop("faults", {})},
    }
    return Observation(**{**fields, **changes})


def done(seconds: float = 0.0) -> ActionResult:
    """An action that was done."""
    return ActionResult(at(seconds), True)


def failed(seconds: float = 0.0, reason: str = "no", retry: bool = True) -> ActionResult:
    """An action that was not."""
    return ActionResult(at(seconds), False, reason, retry)


def trial_of(decision: Decision) -> Trial:
    """The newest trial after a decision."""
    trial = decision.study.trial
    assert trial is not None
    return trial
