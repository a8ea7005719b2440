"""The batch-latency curve: compute time by batch size, from the sizes that ran, smooth but not blind to steps.

Non-negative least squares on a few shapes that devices show (a constant, a line, steps at powers of two, slopes that
begin at 4, 8, 16 and 32), then what is left at each size, smoothed over neighbouring sizes. Sizes that never ran follow
the shapes alone; `known` says how far the curve was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from autotuner.batching.trials import Floats

HINGES = (4, 8, 16, 32)
SHAPE_PENALTY = 0.02
"""Keeps steps and hinges small where few points speak for them; relative to the weight of a point."""

NEIGHBOURHOOD = 0.12
"""Width over which a size's own deviation is smoothed, in octaves of the batch size."""

TRUST = 20.0
"""Executions of a size at which half of its deviation is believed."""


@dataclass(frozen=True)
class Points:
    """Mean compute seconds of realised batch sizes, each with the executions behind it; shapes (n,)."""

    sizes: Floats
    seconds: Floats
    executions: Floats


@dataclass(frozen=True)
class Curve:
    """seconds: by batch size from 1, index 0 unused, never falling. known: largest size that was seen to run."""

    seconds: Floats
    known: int


def fit_curve(points: Points, largest: int) -> Curve:
    """Return the curve up to batch size `largest`. points: at least one with time above zero."""
    shapes = _shapes(points.sizes)
    weight = np.sqrt(np.minimum(points.executions, 400.0)) / points.seconds
    penalty = np.diag([0.0, 0.0, 1.0, *[1.0] * len(HINGES)]) * np.sqrt(len(points.sizes))
    scale = np.array([1.0, *[float(points.sizes.max())] * (shapes.shape[1] - 1)])
    rows = np.vstack([shapes * weight[:, None], SHAPE_PENALTY * penalty * scale * weight.mean()])
    wanted = np.concatenate([points.seconds * weight, np.zeros(len(penalty))])
    found, _ = nnls(rows, wanted)
    sizes = np.arange(largest + 1, dtype=np.float64)
    fitted = np.maximum(_shapes(sizes) @ found, 1e-9)
    left = np.log(points.seconds / np.maximum(shapes @ found, 1e-9))
    apart = np.log2(np.maximum(sizes, 1.0))[:, None] - np.log2(points.sizes)[None, :]
    near = np.exp(-0.5 * (apart / NEIGHBOURHOOD) ** 2) * points.executions[None, :]
    deviation = (near @ left) / (near.sum(axis=1) + TRUST)
    seconds = np.maximum.accumulate(fitted * np.exp(deviation))
    return Curve(seconds, int(points.sizes.max()))


def _shapes(sizes: Floats) -> Floats:
    """Values of the shapes at batch sizes, shape (n, 3 + hinges)."""
    steps = 2.0 ** np.ceil(np.log2(np.maximum(sizes, 1.0)))
    hinges = [np.maximum(sizes - at, 0.0) for at in HINGES]
    return np.column_stack([np.ones(len(sizes)), sizes, steps, *hinges])
