"""What production rests on: which configuration keeps which ceiling, over which load, how surely, and on what.

A promotion gives a certificate, of its winner on fresh data; a study that kept the incumbent gives one too, of the
incumbent as the baseline measured it. It is made from the study's records alone, so whoever doubts it can make it again
(guards rule 4). It holds for the model and the devices it was measured on, and lapses when one of its parts changes, or
production is on something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from autotuner.domain.benefit import winning_trial
from autotuner.domain.configuration import Configuration, configured_fingerprint
from autotuner.domain.evidence import strictness
from autotuner.domain.provenance import Provenance, differences, ordered
from autotuner.domain.selection import baseline
from autotuner.domain.slo import ALLOWED_BAD_SHARE, SloBudget
from autotuner.domain.study import Outcome, Study, Trial
from autotuner.domain.target import Target
from autotuner.errors import Refused

LAPSES_WHEN = (
    "production serves a configuration with another fingerprint",
    "the model, its version policy or its backend changes: the fingerprint is of all of these",
    "another version of the model is loaded",
    "Triton, its image or the replicas' devices change",
    "the promotion is rolled back, or another one follows",
    "the SLO budget promises users more than the version it was measured under",
    "the load per replica leaves the band",
)
"""What ends a certificate. What production runs is read by the next study or diagnosis, the load by whoever watches."""


@dataclass(frozen=True)
class Band:
    """The load it was measured at, requests per second of one replica, from the lowest level accepted to the highest.

    at_least: only the traffic ended the ramp, not the ceiling. requests, bad: of all levels together, counted strictly.
    """

    lowest_per_second: float
    highest_per_second: float
    levels: int
    at_least: bool
    requests: int
    bad: int


@dataclass(frozen=True)
class Bound:
    """At most `allowed_share` of requests take longer than the ceiling, or fail.

    A level of which that is not true was accepted with a chance of 1 − confidence at most.
    """

    p99_ceiling_seconds: float
    allowed_share: float
    error_ratio_ceiling: float
    confidence: float
    slo_version: int


@dataclass(frozen=True)
class Model:
    """The model as its complete configuration names it. version_policy: as JSON text, as Triton read it back."""

    name: str
    platform: str
    version_policy: str


@dataclass(frozen=True)
class Hardware:
    """What the replicas compute on. kind: of the instance group (`KIND_GPU`); devices: their numbers, as configured.

    memory_bytes: of the device, as the server reported it; None where it did not.
    """

    kind: str
    devices: tuple[int, ...]
    memory_bytes: float | None


@dataclass(frozen=True)
class Certificate:
    """What was promoted, and what is known of it. fingerprint: of the complete configuration that production serves."""

    study_id: str
    target: str
    configuration: Configuration
    fingerprint: str
    given_at: datetime
    band: Band
    bound: Bound
    model: Model
    hardware: Hardware
    provenance: Provenance
    """What was running while it was measured, as far as it was told."""


def certificate(study: Study, shown_by: Study | None = None) -> Certificate:
    """Return what a study certifies: its winner, or the incumbent that it kept.

    What was proposed to whoever owns production is certified once a later study of the target, shown_by, found it
    there. Raises Refused when the study did none of these, or the incumbent was accepted at no level.
    """
    if study.proposed_to is not None and (shown_by is None or not shows(shown_by, study)):
        raise Refused(
            f"study {study.id} proposed its winner, and no later study has found it in production yet: "
            "its certificate waits for that"
        )
    trial = _certified(study)
    if trial is None or not trial.accepted or study.ended_at is None:
        raise Refused(f"study {study.id} neither promoted a winner nor kept an incumbent that it accepted")
    assert study.incumbent is not None
    text = study.incumbent.configs[study.plan.target.stable_names[0]]
    config = json.loads(text)
    slo = study.plan.slo
    return Certificate(
        study_id=study.id,
        target=study.plan.target.name,
        configuration=trial.configuration,
        fingerprint=configured_fingerprint(text, trial.configuration),
        given_at=shown_by.created_at if shown_by is not None else study.ended_at,
        band=_band(trial),
        bound=Bound(
            slo.p99_ceiling_seconds,
            ALLOWED_BAD_SHARE,
            slo.error_ratio_ceiling,
            1.0 - strictness(trial).accept_alpha,
            slo.version,
        ),
        model=_model(study.plan.target.model, config),
        hardware=_hardware(config, trial),
        provenance=replace(study.incumbent.provenance, model_versions=_versions(study, trial)),
    )


def _certified(study: Study) -> Trial | None:
    """The trial that a certificate rests on."""
    if study.outcome is Outcome.PROMOTED or study.proposed_to is not None:
        return winning_trial(study)
    return baseline(study) if study.outcome is Outcome.KEPT else None


def shows(later: Study, proposed: Study) -> bool:
    """Say whether a later study began with what an earlier one proposed, on every stable replica."""
    trial = winning_trial(proposed)
    if proposed.proposed_to is None or proposed.incumbent is None or trial is None or later.incumbent is None:
        return False
    names = proposed.plan.target.stable_names
    wanted = configured_fingerprint(proposed.incumbent.configs[names[0]], trial.configuration)
    found = [later.incumbent.fingerprints[name] for name in later.plan.target.stable_names]
    return later.created_at > proposed.created_at and found == [wanted] * len(found)


def _band(trial: Trial) -> Band:
    rates = [step.rate_per_second for step in trial.accepted]
    return Band(
        min(rates),
        max(rates),
        len(rates),
        trial.censored,
        sum(step.candidate.total for step in trial.accepted),
        sum(step.candidate.bad_at_most for step in trial.accepted),
    )


def _model(name: str, config: Mapping[str, Any]) -> Model:
    platform = str(config.get("platform") or config.get("backend") or "")
    policy = config.get("version_policy")
    return Model(name, platform, json.dumps(policy, sort_keys=True) if policy else "")


def _versions(study: Study, trial: Trial) -> tuple[str, ...]:
    """Versions of the model that were loaded while the levels were measured; as the study found them where untold."""
    assert study.incumbent is not None
    measured = ordered(version for step in trial.accepted for version in step.model_versions)
    return measured or study.incumbent.provenance.model_versions


def _hardware(config: Mapping[str, Any], trial: Trial) -> Hardware:
    group = (config.get("instance_group") or [{}])[0]
    known = [step.use.memory_total_bytes for step in trial.accepted if step.use is not None]
    memory = next((each for each in known if each is not None), None)
    return Hardware(str(group.get("kind", "")), tuple(int(n) for n in group.get("gpus") or ()), memory)


def contradicted(given: Certificate, looked_at: Mapping[str, Provenance]) -> str:
    """Return which replica runs something else than was certified; empty where nothing that is known differs.

    looked_at: what replicas run now, by name.
    """
    for name, provenance in looked_at.items():
        different = differences(given.provenance, provenance)
        if different:
            return f"{name} runs {' and '.join(different)}: to be certified again"
    return ""


@dataclass(frozen=True)
class Found:
    """What a later study found when it began to read production."""

    study_id: str
    provenance: Provenance


def unlike(given: Certificate, fingerprints: Mapping[str, str]) -> str:
    """Return which replica serves another configuration than was certified; empty when none does."""
    for name, served in fingerprints.items():
        if served != given.fingerprint:
            return f"{name} serves another configuration than was certified"
    return ""


def lapsed(
    given: Certificate,
    slo: SloBudget,
    target: Target,
    rolled_back_by: str | None,
    followed_by: str | None,
    found: Found | None = None,
) -> str:
    """Return why a certificate no longer holds, as far as the records tell; empty while it does.

    slo, target: as they are registered now. rolled_back_by, followed_by: studies that took the promotion back, or
    promoted something else later. found: what production ran when it was last read; None where nobody has since.
    """
    if rolled_back_by is not None:
        return f"the promotion was rolled back by study {rolled_back_by}"
    if followed_by is not None:
        return f"study {followed_by} has promoted another configuration since"
    if target.model != given.model.name:
        return f"the target's model is {target.model} now"
    tighter = (slo.p99_ceiling_seconds, slo.error_ratio_ceiling)
    measured = (given.bound.p99_ceiling_seconds, given.bound.error_ratio_ceiling)
    if any(now < then for now, then in zip(tighter, measured, strict=True)):
        return f"version {slo.version} of the SLO budget promises users more than version {given.bound.slo_version}"
    different = differences(given.provenance, found.provenance) if found is not None else ()
    if found is not None and different:
        return f"study {found.study_id} found {' and '.join(different)}: to be certified again"
    return ""
