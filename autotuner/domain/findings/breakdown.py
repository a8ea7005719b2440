"""Where a request's time goes: before Triton, in its queue, copying in, computing, copying out; mean and quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.domain.findings.reading import Quantiles
from autotuner.domain.findings.scene import Scene


class Part(StrEnum):
    """A part of a request's way, in order."""

    BEFORE_TRITON = "before_triton"
    QUEUE = "queue"
    INPUT = "compute_input"
    INFER = "compute_infer"
    OUTPUT = "compute_output"
    REST = "rest"
    """In Triton, but in none of its counters: reading the request, handing over, writing the answer."""


@dataclass(frozen=True)
class Share:
    """One part. mean_seconds: None where it is not known. quantiles: where the source has them."""

    part: Part
    mean_seconds: float | None
    quantiles: Quantiles = field(default_factory=Quantiles)


@dataclass(frozen=True)
class Breakdown:
    """All parts, and the whole as the outermost source saw it. source: which that was."""

    shares: tuple[Share, ...]
    total_seconds: float | None
    total: Quantiles
    source: str

    def mean(self, part: Part) -> float | None:
        """Return the mean seconds of a part, None where unknown."""
        return next((one.mean_seconds for one in self.shares if one.part is part), None)


def breakdown(scene: Scene) -> Breakdown:
    """Return where the mean request spent its time in the window."""
    work, window = scene.work, scene.window
    inside = scene.total_seconds
    outside = window.gateway.mean_seconds if window.gateway else None
    sums = {
        Part.QUEUE: work.queue_seconds,
        Part.INPUT: work.input_seconds,
        Part.INFER: work.infer_seconds,
        Part.OUTPUT: work.output_seconds,
    }
    means = {part: window.mean(seconds) for part, seconds in sums.items()}
    counted = sum(mean for mean in means.values() if mean is not None)
    before = max(0.0, outside - inside) if outside is not None and inside is not None else None
    shares = [Share(Part.BEFORE_TRITON, before)]
    shares += [Share(part, mean, window.part(part.value)) for part, mean in means.items()]
    shares.append(Share(Part.REST, max(0.0, inside - counted) if inside is not None else None))
    by_gateway = outside is not None
    return Breakdown(
        tuple(shares),
        outside if by_gateway else inside,
        scene.latency,
        "the gateway's histogram" if by_gateway else "Triton's own counters",
    )
