"""A diagnosis as the JSON object that `--json` prints and the REST API answers; what is not known is null.

Durations are milliseconds where their name says so, rates are requests per second on one replica.
"""

from __future__ import annotations

import math
from typing import Any

from autotuner import __version__
from autotuner.answers import configuration_object, finding_object
from autotuner.batching.frontier import Point
from autotuner.batching.production import curve_points
from autotuner.batching.prospect import Band, Expected, Prospect
from autotuner.domain.findings.breakdown import Breakdown
from autotuner.domain.findings.diagnosis import Diagnosis
from autotuner.domain.findings.histogram import Realised
from autotuner.domain.findings.possible import StudyPossible
from autotuner.domain.findings.prediction import Prediction, worth
from autotuner.domain.findings.reading import Quantiles
from autotuner.domain.prediction import configuration_of


def diagnosis_object(found: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis."""
    scene = found.scene
    return {
        "version": __version__,
        "model": scene.model,
        "at": found.at.isoformat(),
        "window_seconds": scene.window.seconds,
        "p99_ceiling_ms": scene.ceiling_seconds * 1e3,
        "rate_per_second": scene.window.rate_per_second,
        "configuration": configuration_object(scene.configuration) if scene.configuration else None,
        "replicas": {
            name: {
                "triton": scene.facts.versions.get(name) or None,
                "model_versions": list(scene.facts.model_versions.get(name, ())),
                "requests": one.work.requests,
                "reloads": one.reloads,
            }
            for name, one in scene.window.replicas.items()
        },
        "headline": found.headline,
        "findings": [finding_object(one) for one in found.findings],
        "breakdown_ms": breakdown_object(found.breakdown),
        "realised_batch": realised_object(found.realised),
        "prediction": prediction_object(found.prediction),
        "study_possible": study_object(found.study_possible),
        "unread": [{"what": one.what, "why": one.why, "lost": one.lost} for one in scene.facts.unread],
    }


def breakdown_object(found: Breakdown) -> dict[str, Any]:
    """Where the time goes, each part with its mean and the quantiles that are known."""
    parts = {one.part.value: _times(one.mean_seconds, one.quantiles) for one in found.shares}
    return {"source": found.source, "total": _times(found.total_seconds, found.total), **parts}


def _times(mean_seconds: float | None, quantiles: Quantiles) -> dict[str, float | None]:
    return {
        "mean": _milliseconds(mean_seconds),
        "p50": _milliseconds(quantiles.p50_seconds),
        "p95": _milliseconds(quantiles.p95_seconds),
        "p99": _milliseconds(quantiles.p99_seconds),
    }


def realised_object(found: Realised) -> dict[str, Any]:
    """Realised against configured batch size, and the device's utilisation and memory."""
    total = sum(one.executions for one in found.batches)
    return {
        "mean": found.mean,
        **dict(zip(("p50", "p95", "p99"), found.sizes, strict=True)),
        "configured": found.configured or None,
        "preferred": list(found.preferred),
        "histogram": [
            {
                "batch_size": one.size,
                "executions": one.executions,
                "share": one.executions / total,
                "mean_ms": one.mean_seconds * 1e3,
            }
            for one in found.batches
        ],
        "device_utilisation": found.device_utilisation,
        "memory_used_bytes": found.memory_used_bytes,
        "memory_total_bytes": found.memory_total_bytes,
    }


def prediction_object(found: Prediction) -> dict[str, Any]:
    """What tuning would be worth, or why that cannot be said."""
    head: dict[str, Any] = {
        "possible": found.prospect is not None,
        "conclusion": worth(found),
        "why_not": found.why_not or None,
        "needed": list(found.needed),
        "doubts": list(found.doubts),
    }
    return head | (_prospect_object(found, found.prospect) if found.prospect is not None else {})


def _prospect_object(found: Prediction, prospect: Prospect) -> dict[str, Any]:
    cost = found.cost
    return {
        "today": expected_object(prospect.today),
        "best": expected_object(prospect.best) if prospect.best else None,
        "cost_per_million": None
        if cost is None
        else {
            "currency": found.currency,
            "now_at_capacity": cost.now,
            "then_at_capacity": cost.then,
            "at_todays_rate": cost.at_todays_rate,
        },
        "arrivals": {
            "rate_per_second": prospect.observed.rate_per_second,
            "dispersion_of_counts": prospect.observed.dispersion,
            "seconds_between_counts": prospect.observed.look_seconds,
            "bursts_between_counts": {
                "sigma": prospect.understood.bursts.sigma,
                "seconds": prospect.understood.bursts.seconds,
            },
        },
        "curve": [
            {
                "batch_size": one.size,
                "seen_ms": _milliseconds(one.seen_seconds),
                "executions": one.executions,
                "fitted_ms": one.fitted_seconds * 1e3,
            }
            for one in curve_points(prospect.observed, prospect.understood.members)
        ],
        "frontier": [_point_object(point) for point in prospect.frontier],
        "knee": _point_object(prospect.knee) if prospect.knee else None,
    }


def expected_object(one: Expected) -> dict[str, Any]:
    """A configuration with what is expected of it."""
    return {
        "configuration": configuration_object(configuration_of(one.setting)),
        "p99_ms": _band_object(one.p99_seconds, 1e3),
        "capacity_per_second": _band_object(one.capacity, 1.0) if one.capacity else None,
        "mean_batch": one.mean_batch,
        "device_ms_per_inference": one.busy_seconds * 1e3,
    }


def _band_object(band: Band, scale: float) -> dict[str, float]:
    return {"value": band.value * scale, "low": band.low * scale, "high": band.high * scale}


def _point_object(point: Point) -> dict[str, Any]:
    return {
        "rate_per_second": point.rate_per_second,
        "p99_ms": point.p99_seconds * 1e3,
        "configuration": configuration_object(configuration_of(point.setting)),
    }


def study_object(found: StudyPossible) -> dict[str, Any]:
    """Whether a study could run here. possible: null where something that decides is not known."""
    return {
        "possible": found.possible,
        "missing": list(found.missing),
        "verdict_takes_seconds": found.verdict_takes.total_seconds() if found.verdict_takes else None,
        "needs": [
            {"what": need.what, "answer": need.answer.value, "detail": need.detail} for need in found.needs
        ],
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else seconds * 1e3
