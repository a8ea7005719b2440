"""The truth about every candidate, from long runs on the same traffic: what a proposer's choices are held against.

It takes minutes for a large workload, so it is computed once and kept on disk, under a name that tells the system
and the code it was computed with.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotuner.batching import batcher
from autotuner.batching.trials import Aim, Setting
from autotuner.benchmark import system, traffic, truth
from autotuner.benchmark.system import MOST_LOAD, System, p99
from autotuner.benchmark.truth import Traffic

Floats = NDArray[np.float64]
Report = Callable[[str], None]

FINE_STEP = 1.04
"""Ratio of the rates between which a capacity is told apart."""

ALLOWED = 0.01
"""Share of requests that may be slower than the ceiling."""

FOLDER = "benchmark"
_COLUMNS = ("p99", "busy", "capacity")


@dataclass(frozen=True)
class Truth:
    """What every candidate does at today's (final) rate, and how much it can carry.

    p99_seconds, busy_seconds_per_inference: at that rate, shape (n,). capacity_per_second: the highest rate at which
    the ceiling holds, at lower ones from today's up too, 0 where it does not hold today; shape (n,).
    """

    settings: tuple[Setting, ...]
    ceiling_seconds: float
    p99_seconds: Floats
    busy_seconds_per_inference: Floats
    capacity_per_second: Floats

    def index(self, setting: Setting) -> int:
        """Return the place of a candidate. Raises ValueError for any other setting."""
        return self.settings.index(setting)

    def worth(self, aim: Aim) -> Floats:
        """Return what each candidate is worth, larger is better, 0 where the ceiling does not hold; shape (n,)."""
        holds = self.p99_seconds <= self.ceiling_seconds
        if aim is Aim.CAPACITY:
            return np.where(holds, self.capacity_per_second, 0.0)
        return np.where(holds, 1.0 / self.busy_seconds_per_inference, 0.0)

    def quality(self, aim: Aim) -> Floats:
        """Return each candidate's worth as a share of the best one's, shape (n,)."""
        worth = self.worth(aim)
        return worth / max(float(worth.max()), math.ulp(0.0))


def known_truth(asked: System, cache_folder: Path, report: Report = lambda _: None) -> Truth:
    """Return the truth about a system's candidates, from the disk where it was computed before.

    report: receives a sentence when it has to be computed.
    """
    path = cache_folder / FOLDER / f"{asked.workload.name}-{asked.scenario}-{digest(asked)}.npz"
    settings = asked.candidates()
    columns = _read(path, len(settings))
    if columns is None:
        report(f"computing the truth of {len(settings)} settings of {asked.workload.name}, {asked.scenario}")
        columns = computed(asked, settings)
        _write(path, columns)
    return Truth(settings, asked.ceiling_seconds, *columns)


def computed(asked: System, settings: tuple[Setting, ...]) -> tuple[Floats, Floats, Floats]:
    """Return p99, busy seconds per inference and capacity of each setting, from long runs."""
    ladder = _Ladder(asked)
    rows = [ladder.climb(setting) for setting in settings]
    table = np.array(rows, dtype=np.float64).reshape(len(settings), len(_COLUMNS))
    return table[:, 0], table[:, 1], table[:, 2]


class _Ladder:
    """Rates from today's upwards, each with its traffic, drawn when it is first asked for."""

    def __init__(self, asked: System) -> None:
        self._system = asked
        rungs = math.floor(math.log(MOST_LOAD) / math.log(FINE_STEP))
        self._rates = [asked.final_rate * FINE_STEP**rung for rung in range(rungs + 1)]
        self._traffic = cache(lambda rung: asked.long_traffic(self._rates[rung]))

    def climb(self, setting: Setting) -> tuple[float, float, float]:
        """Return p99 and busy seconds per inference at the first rung, and the rate of the highest rung that holds.

        Bisected: where a rung fails, those above it are taken to fail as well.
        """
        today: Traffic = self._traffic(0)
        outcome = self._system.long_run(setting, today)
        tail = p99(outcome.latency)
        busy = outcome.busy_seconds() / today.arrivals.size
        if tail > self._system.ceiling_seconds:
            return tail, busy, 0.0
        low, high = 0, len(self._rates)
        while high - low > 1:
            middle = (low + high) // 2
            if self._holds(setting, middle):
                low = middle
            else:
                high = middle
        return tail, busy, self._rates[low]

    def _holds(self, setting: Setting, rung: int) -> bool:
        traffic: Traffic = self._traffic(rung)
        limit = max(1, int(ALLOWED * traffic.arrivals.size))
        return self._system.long_run(setting, traffic, slow_limit=limit).complete


def digest(asked: System) -> str:
    """Return a name for a system and the code that simulates it: another of either has another name."""
    text = repr((asked.workload.model_dump(exclude={"name"}), asked.changes, asked.rate, asked.incumbent))
    return hashlib.sha256((text + _code()).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    sources = (batcher.__file__, truth.__file__, traffic.__file__, system.__file__, __file__)
    return "".join(Path(source or "").read_text("utf-8") for source in sources)


def _read(path: Path, rows: int) -> tuple[Floats, Floats, Floats] | None:
    """The columns that were written, None when there are none or not these: then they are computed again."""
    try:
        with np.load(path) as file:
            p99_seconds, busy, capacity = (np.asarray(file[name], dtype=np.float64) for name in _COLUMNS)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return (p99_seconds, busy, capacity) if p99_seconds.shape == (rows,) else None


def _write(path: Path, columns: tuple[Floats, Floats, Floats]) -> None:
    """Write beside the final name first: another process never reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        draft = Path(file.name)
        try:
            np.savez(file, p99=columns[0], busy=columns[1], capacity=columns[2])
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    draft.replace(path)
