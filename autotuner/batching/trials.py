"""What the grey-box model knows of a target: its settings, its arrivals and what trials measured.

These are the model's own words for it, so that it can be fed from a study's records, from a benchmark and from a
live server alike. Whoever feeds it says in which units; everything here is seconds and requests per second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REACHED = 0.9
"""Share of a rate from which a level counts as one at that rate."""


@dataclass(frozen=True, order=True)
class Setting:
    """A configuration as the batcher sees it.

    delay_seconds: the longest wait for a preferred size. preferred: ascending batch sizes, empty for none (the same
    as only max_batch_size). instances: how many batches may run at once.
    """

    delay_seconds: float
    preferred: tuple[int, ...]
    instances: int
    max_batch_size: int

    @property
    def cap(self) -> int:
        """The largest batch that is sent while the delay is not exceeded."""
        return self.preferred[-1] if self.preferred else self.max_batch_size

    def complexity(self) -> tuple[int, int, int]:
        """Orders settings from simple to elaborate: fewer instances, fewer preferred sizes, no delay."""
        return self.instances, len(self.preferred), int(self.delay_seconds > 0.0)


@dataclass(frozen=True)
class BatchCount:
    """Executions of one realised batch size in a window, and their summed compute time in seconds.

    Compute as Triton reports it: input copy, inference and output copy, waiting for a shared device included.
    """

    size: int
    executions: int
    compute_seconds: float


@dataclass(frozen=True)
class Measured:
    """One load level of one trial.

    arrivals: instants at which the replica's requests arrived, seconds from the window's begin, ascending, shape (n,).
    total, bad: requests judged, and those of them that were slow or failed. p50, p95, p99: latency quantiles in
    seconds as the client sees them, None where unknown. busy_seconds_per_inference: what the device spent on one
    inference, None where unknown. queue_seconds: mean time in queue, None where unknown.
    accepted: whether the verdict on the level was ACCEPT.
    """

    rate_per_second: float
    arrivals: Floats
    total: int
    bad: int
    accepted: bool
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    queue_seconds: float | None = None
    busy_seconds_per_inference: float | None = None
    batches: tuple[BatchCount, ...] = ()


@dataclass(frozen=True)
class Tried:
    """One trial: a setting and the load levels measured with it, lowest rate first.

    risk: the probability of a violation that was accepted when the setting was proposed, 0 to 1.
    """

    setting: Setting
    levels: tuple[Measured, ...]
    risk: float = 0.0

    def meets(self, rate_per_second: float) -> bool:
        """Say whether a level came within REACHED of the rate, accepted or not."""
        return any(level.rate_per_second >= REACHED * rate_per_second for level in self.levels)


class Aim(StrEnum):
    """What is to be maximised under the ceiling."""

    CAPACITY = "capacity"
    """The highest rate at which the ceiling holds, and at every rate from today's up to it."""
    EFFICIENCY = "efficiency"
    """Least device seconds per inference at today's rate."""


@dataclass(frozen=True)
class Problem:
    """All that is fixed before the first trial.

    candidates: every setting that may be tried, each once, the incumbent among them. rates: the load levels of a trial
    in requests per second on one replica, ascending; the first is today's. ceiling_seconds: of the p99 that a client
    sees. arrivals: a recording of today's traffic on one replica (seconds, ascending); scaled to other rates.
    """

    candidates: tuple[Setting, ...]
    incumbent: Setting
    ceiling_seconds: float
    aim: Aim
    rates: tuple[float, ...]
    arrivals: Floats
    seed: int = 0


@dataclass(frozen=True)
class Advice:
    """The next setting to try, or None when nothing is worth a trial, and why.

    predicted: named figures behind it, units in the names. highest_rate: requests per second of the highest load level
    worth opening, infinite for no opinion: above it the ceiling is expected to be exceeded.
    """

    setting: Setting | None
    reason: str
    predicted: dict[str, float] = field(default_factory=dict)
    highest_rate: float = math.inf


History = Sequence[Tried]
