"""Scenes of a deployment for the rules of a diagnosis: healthy unless said otherwise, one thing changed at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from autotuner.domain.findings.reading import Batch, Facts, Look, Quantiles, ReplicaLook, Unread, Work
from autotuner.domain.findings.scene import Scene
from autotuner.domain.findings.window import GatewayWindow, ReplicaWindow, Window
from autotuner.domain.measurement import GatewayCounters
from tests.builders import START

MODEL = "vision"
CONFIG: dict[str, Any] = {
    "name": MODEL,
    "backend": "onnxruntime",
    "max_batch_size": 32,
    "dynamic_batching": {"preferred_batch_size": [], "max_queue_delay_microseconds": "0"},
    "instance_group": [{"kind": "KIND_GPU", "count": 1}],
}


def a_config(**changes: Any) -> dict[str, Any]:
    """The usual configuration with top-level fields changed; None takes one away."""
    made = {**CONFIG, **changes}
    return {name: value for name, value in made.items() if value is not None}


def batcher(delay_ms: float = 0.0, *preferred: int) -> dict[str, Any]:
    """A section of dynamic batching, as Triton writes it."""
    return {
        "preferred_batch_size": list(preferred),
        "max_queue_delay_microseconds": str(round(delay_ms * 1e3)),
    }


def instances(count: int) -> list[dict[str, Any]]:
    """An instance group of so many."""
    return [{"kind": "KIND_GPU", "count": count}]


def some_work(
    batches: Mapping[int, tuple[int, float]],
    queue_ms: float = 2.0,
    copies: float = 0.05,
    rest_ms: float = 0.5,
    **changes: Any,
) -> Work:
    """Work from executions and milliseconds by batch size; copies: their share of an execution, half in, half out."""
    made = tuple(
        Batch(
            size, count, count * ms * copies / 2e3, count * ms * (1 - copies) / 1e3, count * ms * copies / 2e3
        )
        for size, (count, ms) in sorted(batches.items())
    )
    requests = sum(one.size * one.executions for one in made)
    summed = [
        sum(one.size * part for one, part in zip(made, parts, strict=True))
        for parts in (
            [one.input_seconds for one in made],
            [one.infer_seconds for one in made],
            [one.output_seconds for one in made],
        )
    ]
    fields: dict[str, Any] = {
        "requests": requests,
        "inferences": requests,
        "executions": sum(one.executions for one in made),
        "request_seconds": sum(summed) + requests * (queue_ms + rest_ms) / 1e3,
        "queue_seconds": requests * queue_ms / 1e3,
        "input_seconds": summed[0],
        "infer_seconds": summed[1],
        "output_seconds": summed[2],
        "batches": made,
    }
    return Work(**{**fields, **changes})


CAPPED = some_work({4: (40, 15.0), 8: (160, 21.0)}, queue_ms=60.0)
"""A busy model whose preferred sizes end at 8."""

SATURATED = some_work({7: (20, 58.0), 8: (146, 60.0)}, queue_ms=400.0)
"""Full batches of at most 8, and a queue that only grows."""

WAITING = some_work({4: (150, 13.0)}, queue_ms=50.0)
"""Requests that wait far longer than they compute, in small batches, on an instance with room."""

HEALTHY_BATCHES = {1: (200, 10.0), 2: (100, 11.0), 4: (60, 13.0), 8: (20, 18.0)}


def a_replica(work: Work | None = None, **changes: Any) -> ReplicaWindow:
    """One server over the window: healthy batches, summaries on, a device with room."""
    done = work or some_work(HEALTHY_BATCHES)
    fields: dict[str, Any] = {
        "work": done,
        "since_load": done,
        "members": {},
        "counts": (done.requests // 40,) * 40,
        "reloads": 0,
        "metrics": True,
        "utilisation": 0.4,
        "busy_counted": True,
        "memory_used_bytes": 4e9,
        "memory_total_bytes": 16e9,
        "pending": (0.0, 0.0),
        "quantiles": {"request": Quantiles(0.015, 0.03, 0.04)},
    }
    return ReplicaWindow(**{**fields, **changes})


@dataclass(frozen=True)
class Surroundings:
    """What a scene has beside its replicas."""

    config: Mapping[str, Any] = field(default_factory=lambda: CONFIG)
    ceiling_ms: float = 100.0
    seconds: float = 10.0
    gateway: GatewayWindow | None = None
    unread: tuple[Unread, ...] = ()
    models: int | None = 1
    weighted_route: bool | None = None


def a_scene(*replicas: ReplicaWindow, **changes: Any) -> Scene:
    """A scene of these replicas, one healthy one by default."""
    around = replace(Surroundings(), **changes)
    known = {f"r{number}": one for number, one in enumerate(replicas or (a_replica(),))}
    facts = Facts(
        MODEL,
        {MODEL: around.config} if around.config else {},
        dict.fromkeys(known, "2.51.0"),
        around.models,
        around.weighted_route,
        around.unread,
    )
    return Scene(around.ceiling_ms / 1e3, Window(around.seconds, known, around.gateway, tuple(known)), facts)


def a_gateway(
    mean_ms: float, requests: int = 700, p99_ms: float | None = None, failed: int = 0
) -> GatewayWindow:
    """A gateway with edges at 10, 50, 100 and 200 ms; p99 lies in the bucket that ends at or above p99_ms."""
    edges = (0.010, 0.050, 0.100, 0.200, float("inf"))
    wanted = (p99_ms if p99_ms is not None else 2 * mean_ms) / 1e3
    buckets = tuple(requests if edge >= wanted else round(0.98 * requests) for edge in edges)
    return GatewayWindow(requests, failed, requests * mean_ms / 1e3, edges, buckets)


def a_look(
    at_seconds: float,
    works: Mapping[str, Mapping[str, Work]],
    gateway: Mapping[str, GatewayCounters] | None = None,
    **changes: Any,
) -> Look:
    """A look at replicas with their work by model."""
    replicas = {name: ReplicaLook(work=work, **changes) for name, work in works.items()}
    edges = (0.1, float("inf")) if gateway else ()
    return Look(START + timedelta(seconds=at_seconds), replicas, gateway or {}, edges)
