"""What finding out cost in GPU hours, against what the promoted configuration saves a day.

What nobody told is unknown, never zero: a model on CPUs, or one whose GPUs the server does not name, has no GPU hours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

from autotuner.domain.study import Study

KIND_GPU = "KIND_GPU"
HOURS_A_DAY = 24.0
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Carried:
    """The highest rate that one replica carried, requests per second. at_least: only the traffic limited it."""

    per_second: float | None
    at_least: bool


@dataclass(frozen=True)
class GpuHours:
    """GPU hours of a study; None where unknown, and `unknown` says why, empty when all is known.

    per_replica: GPUs of one replica. canary: those of the canary, held from the study's start to its end. measuring:
    the part of them in which judged windows were open. saved_per_day: what production's load needs less of them a day,
    every replica at its capacity; negative where it needs more. saved_at_least: the winner's capacity is a lower bound.
    """

    per_replica: int | None = None
    canary: float | None = None
    measuring: float | None = None
    saved_per_day: float | None = None
    saved_at_least: bool = False
    unknown: str = ""


def gpu_hours(study: Study, before: Carried | None, after: Carried | None) -> GpuHours:
    """Return what a study cost and its winner saves. before, after: incumbent and winner, None where not measured."""
    gpus, why = gpus_of(study)
    if gpus is None:
        return GpuHours(unknown=why)
    canary = study.plan.target.canary.name
    measured = sum(
        (s.ended_at - s.started_at for t in study.trials if t.replicas == (canary,) for s in t.steps),
        timedelta(0),
    )
    held = (study.ended_at - study.created_at) / HOUR * gpus if study.ended_at is not None else None
    replicas, why = _replicas_saved(study, before, after)
    return GpuHours(
        per_replica=gpus,
        canary=held,
        measuring=measured / HOUR * gpus,
        saved_per_day=replicas * gpus * HOURS_A_DAY if replicas is not None else None,
        saved_at_least=replicas is not None and after is not None and after.at_least,
        unknown=why or ("" if held is not None else "the study has not ended"),
    )


def gpus_of(study: Study) -> tuple[int | None, str]:
    """Return how many GPUs one replica computes on, as its configuration names them, or None and why."""
    if study.incumbent is None:
        return None, "the study has not read production"
    text = study.incumbent.configs.get(study.plan.target.stable_names[0])
    if text is None:
        return None, "production's configuration is not in the records"
    groups = json.loads(text).get("instance_group") or []
    kinds = {str(group.get("kind", "")) for group in groups}
    if kinds != {KIND_GPU}:
        return None, f"the model's instances are {' and '.join(sorted(kinds - {''})) or 'of an unknown kind'}"
    if not all(group.get("gpus") for group in groups):
        return None, "the server does not name the GPUs of the model's instances"
    return len({int(number) for group in groups for number in group["gpus"]}), ""


def _replicas_saved(study: Study, before: Carried | None, after: Carried | None) -> tuple[float | None, str]:
    """Return how many replicas less production's load needs, a fraction too, or None and why."""
    rate = study.reference_rate_per_second
    if rate is None or before is None or after is None or not before.per_second or not after.per_second:
        return None, "incumbent and winner were not both measured"
    if before.at_least:
        return None, "only the traffic ended the incumbent's ramp: it may carry as much"
    return rate / before.per_second - rate / after.per_second, ""
