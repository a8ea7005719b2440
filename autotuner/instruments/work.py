"""Inference statistics and metrics as a diagnosis reads them: what any version since 2.30 tells, and no more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autotuner.domain.findings.reading import Batch, Device, Quantiles, Work
from autotuner.domain.provenance import ordered
from autotuner.instruments.readings import Readings, Unreadable, sensible
from autotuner.instruments.triton import DEVICE_BUSY, INFERENCE, MEMORY_TOTAL, MEMORY_USED, UNKNOWN_FORM

PARTS = ("compute_input", "compute_infer", "compute_output")
PENDING = INFERENCE + "pending_request_count"
UTILISATION = "nv_gpu_utilization"
SUMMARIES = ("request", "queue", *PARTS)
QUANTILES = {0.5: "p50_seconds", 0.95: "p95_seconds", 0.99: "p99_seconds"}
WANTED = frozenset(
    (
        *(INFERENCE + name for name in ("request_success", "request_failure", "count", "exec_count")),
        *(f"{INFERENCE}{name}_duration_us" for name in SUMMARIES),
        *(f"{INFERENCE}{name}_summary_us" for name in SUMMARIES),
        PENDING,
        UTILISATION,
        "nv_cache_num_hits_per_model",
        *MEMORY_USED,
        *MEMORY_TOTAL,
        *DEVICE_BUSY,
    )
)

GAUGES = frozenset((PENDING, UTILISATION, *(f"{INFERENCE}{name}_summary_us" for name in SUMMARIES)))
"""Samples that may fall, beside those that a study reads."""


@dataclass(frozen=True)
class Scraped:
    """One server's page as a metrics server scraped it at `at`; device: told by others, None for what the page says."""

    at: datetime
    page: Readings
    device: Device | None = None


def read_work(statistics: Mapping[str, Any]) -> dict[str, Work]:
    """Return what inference statistics say by model, versions added up. Raises Unreadable."""
    found: dict[str, Work] = {}
    try:
        for version in statistics["model_stats"]:
            name = str(version["name"])
            work = _work(version)
            found[name] = found[name] + work if name in found else work
    except UNKNOWN_FORM as error:
        raise Unreadable(
            f"inference statistics in an unknown form ({type(error).__name__}: {error})"
        ) from error
    return found


def versions_in(statistics: Mapping[str, Any], model: str) -> tuple[str, ...]:
    """Return the versions of a model that inference statistics are of: those that are loaded."""
    mine = (each for each in statistics["model_stats"] if each["name"] == model)
    return ordered(filter(None, (str(each.get("version", "")) for each in mine)))


def _work(version: Mapping[str, Any]) -> Work:
    told = version.get("inference_stats", {})
    return Work(
        requests=_count(told, "success"),
        failures=_count(told, "fail"),
        inferences=_whole(version.get("inference_count", 0)),
        executions=_whole(version.get("execution_count", 0)),
        cache_hits=_count(told, "cache_hit"),
        request_seconds=_seconds(told, "success"),
        queue_seconds=_seconds(told, "queue"),
        input_seconds=_seconds(told, "compute_input"),
        infer_seconds=_seconds(told, "compute_infer"),
        output_seconds=_seconds(told, "compute_output"),
        batches=tuple(
            sorted((_batch(one) for one in version.get("batch_stats", [])), key=lambda one: one.size)
        ),
    )


def _batch(told: Mapping[str, Any]) -> Batch:
    """One realised size. Triton counts an execution once here, however many requests were in it."""
    return Batch(
        _whole(told["batch_size"]), _count(told, "compute_infer"), *(_seconds(told, part) for part in PARTS)
    )


def _count(told: Mapping[str, Any], name: str) -> int:
    return _whole((told.get(name) or {}).get("count", 0))


def _seconds(told: Mapping[str, Any], name: str) -> float:
    return sensible("inference statistics", float((told.get(name) or {}).get("ns", 0))) / 1e9


def _whole(value: Any) -> int:
    return round(sensible("inference statistics", float(value)))


# ---- the metrics page


def work_of_metrics(page: Readings, model: str) -> Work | None:
    """Return what the counters say of a model, without times by batch size; None where they do not know it."""
    if not page.samples(INFERENCE + "request_success", model=model):
        return None

    def total(name: str) -> float:
        return page.total_or_zero(INFERENCE + name, model=model)

    seconds = {name: total(f"{name}_duration_us") / 1e6 for name in SUMMARIES}
    return Work(
        requests=round(total("request_success")),
        failures=round(total("request_failure")),
        inferences=round(total("count")),
        executions=round(total("exec_count")),
        cache_hits=round(page.total_or_zero("nv_cache_num_hits_per_model", model=model)),
        request_seconds=seconds["request"],
        queue_seconds=seconds["queue"],
        input_seconds=seconds["compute_input"],
        infer_seconds=seconds["compute_infer"],
        output_seconds=seconds["compute_output"],
    )


def models_in(page: Readings) -> int:
    """Return how many models the page counts requests of."""
    return len({labels.get("model") for labels, _ in page.samples(INFERENCE + "request_success")})


def pending_of(page: Readings, model: str) -> float | None:
    """Return the requests that wait now; None where the version does not tell."""
    found = page.samples(PENDING, model=model)
    return sum(sensible(PENDING, value) for _, value in found) if found else None


def quantiles_of(page: Readings, model: str) -> dict[str, Quantiles]:
    """Return latency quantiles by part, the highest over versions; a part without any observation is left out."""
    found = {}
    for part in SUMMARIES:
        values: dict[str, float] = {}
        for labels, value in page.samples(f"{INFERENCE}{part}_summary_us", model=model):
            name = QUANTILES.get(_number(labels.get("quantile", "")))
            if name is not None and math.isfinite(value) and value >= 0.0:
                values[name] = max(values.get(name, 0.0), value / 1e6)
        if values:
            found[part] = Quantiles(**values)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def device_of(page: Readings, model: str) -> Device:
    """Return the devices that the model runs on, as far as labels tell, else all of the server's."""
    own = {
        labels["gpu_uuid"]
        for labels, _ in page.samples(INFERENCE + "request_success", model=model)
        if "gpu_uuid" in labels
    }
    gauges = [
        sensible(UTILISATION, value)
        for labels, value in page.samples(UTILISATION)
        if not own or labels.get("gpu_uuid") in own
    ]
    busy_us = page.total_or_none(DEVICE_BUSY)
    return Device(
        utilisation=min(1.0, sum(gauges) / len(gauges)) if gauges else None,
        busy_seconds=None if busy_us is None else busy_us / 1e6,
        memory_used_bytes=_memory(page, MEMORY_USED, own),
        memory_total_bytes=_memory(page, MEMORY_TOTAL, own),
    )


def _memory(page: Readings, names: tuple[str, ...], own: set[str]) -> float | None:
    for name in names:
        found = [
            sensible(name, value)
            for labels, value in page.samples(name)
            if not own or labels.get("gpu_uuid", "") in own or "gpu_uuid" not in labels
        ]
        if found:
            return sum(found)
    return None
