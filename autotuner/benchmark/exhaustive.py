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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotuner.batching import batcher
from autotuner.batching.trials import Aim, Setting
from autotuner.benchmark import system, traffic, truth
from autotuner.benchmark.system import ALLOWED, MOST_LOAD, System
from autotuner.benchmark.truth import Traffic

Floats = NDArray[np.float64]
Report = Callable[[str], None]

FINE_STEP = 1.04
"""Ratio of the rates between which a capacity is told apart."""

FOLDER = "benchmark"
_TODAY, _CAPACITY = ("p99", "busy"), ("capacity",)
"""What is kept of a system, each in a file of its own: a capacity takes ten times as long, and only one aim asks."""


@dataclass(frozen=True)
class Truth:
    """What every candidate does at today's (final) rate, and how much it can carry.

    p99_seconds, busy_seconds_per_inference: at that rate, shape (n,). capacity_per_second: the highest rate at which
    the ceiling holds, at lower ones from today's up too, 0 where it does not hold today; shape (n,); None where
    efficiency is the aim.
    """

    settings: tuple[Setting, ...]
    ceiling_seconds: float
    p99_seconds: Floats
    busy_seconds_per_inference: Floats
    capacity_per_second: Floats | None

    def index(self, setting: Setting) -> int:
        """Return the place of a candidate. Raises ValueError for any other setting."""
        return self.settings.index(setting)

    def worth(self, aim: Aim) -> Floats:
        """Return what each candidate is worth, larger is better, 0 where the ceiling does not hold; shape (n,)."""
        holds = self.p99_seconds <= self.ceiling_seconds
        if aim is Aim.CAPACITY:
            if self.capacity_per_second is None:
                raise ValueError("no capacity is known: the truth was asked for with efficiency as the aim")
            return np.where(holds, self.capacity_per_second, 0.0)
        return np.where(holds, 1.0 / self.busy_seconds_per_inference, 0.0)

    def quality(self, aim: Aim) -> Floats:
        """Return each candidate's worth as a share of the best one's, shape (n,)."""
        worth = self.worth(aim)
        return worth / max(float(worth.max()), math.ulp(0.0))


def known_truth(asked: System, aim: Aim, cache_folder: Path, report: Report = lambda _: None) -> Truth:
    """Return the truth about a system's candidates, from the disk where it was computed before.

    aim: capacities are computed for capacity alone. report: receives a sentence when something has to be computed.
    """
    settings = asked.candidates()
    named = cache_folder / FOLDER / f"{asked.workload.name}-{asked.scenario}-{digest(asked)}"

    def kept(columns: tuple[str, ...], compute: Callable[[], tuple[Floats, ...]]) -> tuple[Floats, ...]:
        path = Path(f"{named}-{columns[-1]}.npz")
        found = _read(path, columns, len(settings))
        if found is None:
            what = f"{' and '.join(columns)} of {len(settings)} settings"
            report(f"computing {what} of {asked.workload.name}, {asked.scenario}")
            found = compute()
            _write(path, dict(zip(columns, found, strict=True)))
        return found

    p99_seconds, busy = kept(_TODAY, lambda: today(asked, settings))
    if aim is Aim.EFFICIENCY:
        return Truth(settings, asked.ceiling_seconds, p99_seconds, busy, None)
    (capacity,) = kept(_CAPACITY, lambda: (capacities(asked, settings, p99_seconds),))
    return Truth(settings, asked.ceiling_seconds, p99_seconds, busy, capacity)


def today(asked: System, settings: tuple[Setting, ...]) -> tuple[Floats, Floats]:
    """Return p99 and busy seconds per inference of each setting at today's rate, from long runs."""
    traffic = asked.long_traffic(asked.final_rate)
    table = np.array([asked.tail(setting, traffic) for setting in settings])
    return table[:, 0], table[:, 1]


def capacities(asked: System, settings: tuple[Setting, ...], p99_seconds: Floats) -> Floats:
    """Return each setting's capacity. p99_seconds: at today's rate, shape (n,)."""
    ladder = _Ladder(asked)
    holds = p99_seconds <= asked.ceiling_seconds
    return np.array([ladder.climb(s) if held else 0.0 for s, held in zip(settings, holds, strict=True)])


class _Ladder:
    """Rates from today's upwards, each with its traffic, drawn when it is first asked for."""

    def __init__(self, asked: System) -> None:
        self._system = asked
        rungs = math.floor(math.log(MOST_LOAD) / math.log(FINE_STEP))
        self._rates = [asked.final_rate * FINE_STEP**rung for rung in range(rungs + 1)]
        self._traffic = cache(lambda rung: asked.brief_traffic(self._rates[rung]))

    def climb(self, setting: Setting) -> float:
        """Return the rate of the highest rung that holds, the first taken to hold.

        Bisected: where a rung fails, those above it are taken to fail as well.
        """
        low, high = 0, len(self._rates)
        while high - low > 1:
            middle = (low + high) // 2
            if self._holds(setting, middle):
                low = middle
            else:
                high = middle
        return self._rates[low]

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


def _read(path: Path, columns: tuple[str, ...], rows: int) -> tuple[Floats, ...] | None:
    """The columns that were written, None when there are none or not these: then they are computed again."""
    try:
        with np.load(path) as file:
            found = tuple(np.asarray(file[name], dtype=np.float64) for name in columns)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return found if all(column.shape == (rows,) for column in found) else None


def _write(path: Path, columns: Mapping[str, Floats]) -> None:
    """Write beside the final name first: another process never reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        draft = Path(file.name)
        try:
            np.savez(file, allow_pickle=False, **columns)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    draft.replace(path)
