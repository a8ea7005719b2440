"""What a Triton server has counted for one model: its metrics page, and its statistics per realised batch size.

The statistics are the batch-latency curve for free, from production traffic; they start again at each load, while
the metrics go on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from autotuner.domain.measurement import BatchTiming, ServerCounters
from autotuner.domain.provenance import ordered
from autotuner.instruments.readings import Readings, Unreadable, sensible

INFERENCE = "nv_inference_"
COUNTERS = ("request_success", "request_failure", "count", "exec_count")
DURATIONS = ("queue", "compute_input", "compute_infer", "compute_output")
MEMORY_USED = ("emulated_gpu_memory_used_bytes", "nv_gpu_memory_used_bytes")
MEMORY_TOTAL = ("emulated_gpu_memory_total_bytes", "nv_gpu_memory_total_bytes")
DEVICE_BUSY = ("emulated_gpu_busy_microseconds_total",)
"""Triton itself has only a utilisation gauge, of which no exact share of a window can be made."""

PULSE = INFERENCE + "request_success"
"""A sample that every server with a loaded model has."""

PENDING = INFERENCE + "pending_request_count"
"""Requests that wait for execution now; older servers have none."""

GAUGES = frozenset(
    (PENDING, *MEMORY_USED, *MEMORY_TOTAL, "nv_cpu_memory_used_bytes", "nv_cpu_memory_total_bytes")
)
"""Samples that may fall."""

WANTED = frozenset(
    (
        *(INFERENCE + name for name in COUNTERS),
        *(f"{INFERENCE}{name}_duration_us" for name in DURATIONS),
        *MEMORY_USED,
        *MEMORY_TOTAL,
        *DEVICE_BUSY,
        PENDING,
    )
)


@dataclass(frozen=True)
class Backlog:
    """What a server says of requests that it has not answered well: no evidence, but what a person wants to know.

    pending: waiting for execution, None where it is not told. failures: since it started, by reason; the reason is
    empty where none is told.
    """

    pending: int | None
    failures: Mapping[str, int]


UNKNOWN_FORM = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What reading statistics raises that are not Triton's; a number too large for its kind is among them."""


def read_backlog(page: Readings, model: str) -> Backlog:
    """Return what waits and what has failed for `model`, summed over its versions. Raises Unreadable."""
    failures: defaultdict[str, int] = defaultdict(int)
    name = INFERENCE + "request_failure"
    for labels, value in page.samples(name, model=model):
        failures[labels.get("reason", "")] += round(sensible(name, value))
    waiting = page.samples(PENDING, model=model)
    pending = round(page.total(PENDING, model=model)) if waiting else None
    return Backlog(pending, dict(sorted(failures.items())))


def statistics_path(model: str) -> str:
    """Return the path of the model's inference statistics."""
    return f"/v2/models/{quote(model, safe='')}/stats"


@dataclass(frozen=True)
class Statistics:
    """A model's inference statistics: what ran by realised batch size, smallest first, and its loaded versions."""

    batches: tuple[BatchTiming, ...] = ()
    versions: tuple[str, ...] = ()


UNTOLD = Statistics()


def read_server(page: Readings, model: str, told: Statistics) -> ServerCounters:
    """Return what the server has counted for `model`, summed over its versions. Raises Unreadable."""

    def count(name: str) -> int:
        return round(page.total(INFERENCE + name, model=model))

    def seconds(name: str) -> float:
        return page.total(f"{INFERENCE}{name}_duration_us", model=model) / 1e6

    if not page.samples(PULSE, model=model):
        raise Unreadable(f"nothing about the model {model}: it is not loaded there, or has another name")
    busy_us = page.total_or_none(DEVICE_BUSY)
    return ServerCounters(
        succeeded=count("request_success"),
        failed=count("request_failure"),
        inferences=count("count"),
        executions=count("exec_count"),
        queue_seconds=seconds("queue"),
        input_seconds=seconds("compute_input"),
        infer_seconds=seconds("compute_infer"),
        output_seconds=seconds("compute_output"),
        batches=told.batches,
        model_versions=told.versions,
        memory_used_bytes=page.total_or_none(MEMORY_USED),
        memory_total_bytes=page.total_or_none(MEMORY_TOTAL),
        device_busy_seconds=None if busy_us is None else busy_us / 1e6,
    )


def read_statistics(text: str) -> Statistics:
    """Return executions and compute time by realised batch size, and the versions they were counted for.

    Triton's `count` is executions, and `ns` their summed time: each execution counts once, however many requests
    were in it. Compute time is input copy, inference and output copy. Triton tells statistics of the versions that are
    ready. Raises Unreadable.
    """
    versions = []
    executions: defaultdict[int, int] = defaultdict(int)
    compute_seconds: defaultdict[int, float] = defaultdict(float)
    try:
        for version in json.loads(text)["model_stats"]:
            versions.append(str(version.get("version", "")))
            for batch in version.get("batch_stats", []):
                size = _batch_size(batch["batch_size"])
                executions[size] += int(_counter(batch["compute_infer"]["count"]))
                compute_seconds[size] += _compute_ns(batch) / 1e9
    except (*UNKNOWN_FORM, RecursionError) as error:
        raise Unreadable("inference statistics in an unknown form") from error
    batches = (BatchTiming(size, executions[size], compute_seconds[size]) for size in sorted(executions))
    return Statistics(tuple(batches), ordered(filter(None, versions)))


def _batch_size(value: Any) -> int:
    """A batch's size. Raises ValueError for one that no batch has."""
    size = int(value)
    if size < 1:
        raise ValueError(f"a batch of {size}")
    return size


def _compute_ns(batch: Mapping[str, Any]) -> float:
    return sum(_counter(batch[part]["ns"]) for part in DURATIONS if part != "queue")


def _counter(value: Any) -> float:
    return sensible("inference statistics", float(value))
