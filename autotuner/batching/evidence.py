"""Measured levels as the model reads them: which of them tell the most, and what batch times they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotuner.batching.curve import Points
from autotuner.batching.simulator import Run
from autotuner.batching.trials import Floats, History, Measured, Setting

LEAST_REQUESTS = 60
"""A level with fewer requests says nothing."""


MOST_REPLAYED = 60_000
"""Requests of a level that are replayed at most: a minute at a thousand a second."""


@dataclass(frozen=True)
class Level:
    """One measured level beside the setting it was measured with."""

    setting: Setting
    measured: Measured

    @property
    def arrivals(self) -> Floats:
        """When the level's requests arrived, in seconds; the first MOST_REPLAYED of them."""
        return self.measured.arrivals[:MOST_REPLAYED]

    @cached_property
    def counts(self) -> Floats:
        """Size, executions and compute seconds of each batch size that ran and took any time, shape (3, n)."""
        rows = [
            (batch.size, batch.executions, batch.compute_seconds)
            for batch in self.measured.batches
            if batch.executions > 0 and batch.compute_seconds > 0.0
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 3).T

    @cached_property
    def executions(self) -> int:
        """Batches that ran."""
        return sum(batch.executions for batch in self.measured.batches)

    @cached_property
    def mean_compute_seconds(self) -> float:
        """Compute time of a batch, as Triton reports it."""
        return sum(batch.compute_seconds for batch in self.measured.batches) / self.executions

    @cached_property
    def mean_batch(self) -> float:
        """Inferences of a batch."""
        return sum(batch.size * batch.executions for batch in self.measured.batches) / self.executions


def usable(history: History) -> list[Level]:
    """Return every level that has batches and enough requests, in order."""
    return [Level(trial.setting, level) for trial in history for level in trial.levels if _tells(level)]


def telling(history: History) -> list[tuple[int, Level]]:
    """Return, with the trial's index, today's level, the last accepted and the first other one of each trial."""
    found = []
    for number, trial in enumerate(history):
        levels = [level for level in trial.levels if _tells(level)]
        accepted = [level for level in levels if level.accepted]
        others = [level for level in levels if not level.accepted]
        kept = {id(level): level for level in (*levels[:1], *accepted[-1:], *others[:1])}
        found += [(number, Level(trial.setting, level)) for level in kept.values()]
    return found


def most_telling(levels: Sequence[Level], count: int) -> list[Level]:
    """Return at most `count` levels: of each number of instances the busiest first, in turns."""
    groups: dict[int, list[Level]] = {}
    for level in sorted(levels, key=lambda one: -one.mean_batch * min(one.measured.total, 5000)):
        groups.setdefault(level.setting.instances, []).append(level)
    kept: list[Level] = []
    while len(kept) < count and any(groups.values()):
        for instances in sorted(groups, reverse=True):
            if groups[instances] and len(kept) < count:
                kept.append(groups[instances].pop(0))
    return kept


def points(levels: Sequence[Level], slowings: Sequence[Floats | None], trust: float) -> Points:
    """Return mean batch times by size, pooled over levels, divided by each level's slowing by size where given.

    trust: what an execution counts for where it had to be divided.
    """
    largest = max(level.setting.max_batch_size for level in levels)
    seen: list[Floats] = []
    for level, slowing in zip(levels, slowings, strict=True):
        size, executions, seconds = level.counts[:, level.counts[0] <= largest]
        if slowing is not None:
            executions, seconds = trust * executions, trust * seconds / slowing[size.astype(np.int64)]
        seen.append(np.array([size, executions, seconds]))
    size, executions, seconds = np.concatenate(seen, axis=1)
    weight, total = (
        np.asarray(np.bincount(size.astype(np.int64), summed), dtype=np.float64)
        for summed in (executions, seconds)
    )
    sizes = np.flatnonzero(weight)
    return Points(sizes.astype(np.float64), total[sizes] / weight[sizes], weight[sizes])


def slowing(run: Run, curve_seconds: Floats) -> Floats:
    """Return simulated compute time over the curve, by batch size; sizes that hardly ran take the mean."""
    alone = run.executions * curve_seconds[: len(run.executions)]
    found = np.full(len(alone), float(run.compute_seconds.sum() / alone.sum()))
    some = run.executions >= 10
    found[some] = run.compute_seconds[some] / alone[some]
    return found


def _tells(level: Measured) -> bool:
    return bool(level.batches) and level.total >= LEAST_REQUESTS and len(level.arrivals) >= LEAST_REQUESTS
