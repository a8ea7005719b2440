"""Realised against configured batch size: how often each size ran, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain.findings.reading import Batch
from autotuner.domain.findings.scene import Scene


@dataclass(frozen=True)
class Realised:
    """Batches that ran in the window, smallest first, beside what is configured.

    sizes: p50, p95 and p99 of the size, over executions; None without any. device_utilisation and memory: a pair, as
    each alone misleads; None where the server reports no device.
    """

    mean: float | None
    sizes: tuple[int | None, int | None, int | None]
    configured: int
    preferred: tuple[int, ...]
    batches: tuple[Batch, ...]
    device_utilisation: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None


def realised(scene: Scene) -> Realised:
    """Return the histogram of realised batch sizes."""
    batches = scene.work.batches
    first = next(iter(scene.window.replicas.values()), None)
    return Realised(
        scene.work.mean_batch,
        (_quantile(batches, 0.50), _quantile(batches, 0.95), _quantile(batches, 0.99)),
        scene.max_batch_size,
        scene.preferred,
        batches,
        scene.window.utilisation,
        first.memory_used_bytes if first else None,
        first.memory_total_bytes if first else None,
    )


def _quantile(batches: tuple[Batch, ...], share: float) -> int | None:
    wanted, seen = share * sum(one.executions for one in batches), 0
    for one in batches:
        seen += one.executions
        if seen >= wanted:
            return one.size
    return None
