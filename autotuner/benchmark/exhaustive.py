"""The truth about candidates, from long runs on the same traffic: what a proposer's choices are held against.

What one candidate does is computed when it is asked for. The best of all is looked for in two steps: short runs say
which candidates cannot be it, long runs decide among the others. That takes seconds to minutes for a large workload, so
it is kept on disk, under a name that tells the system and the code it was computed with.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from autotuner.batching import batcher
from autotuner.batching.trials import Aim, Setting
from autotuner.benchmark import system, traffic, truth
from autotuner.benchmark.system import ALLOWED, MOST_LOAD, System
from autotuner.benchmark.truth import Traffic

Report = Callable[[str], None]

FINE_STEP = 1.04
"""Ratio of the rates between which a capacity is told apart."""

SHORT = 0.2
"""Length of the runs that say what cannot be the best, as a share of a long one."""

DOUBTFUL = 1.4
"""A short run whose p99 is within so many ceilings leaves a candidate in."""

BUSY_DOUBT = 0.05
RUNGS_DOUBT = 2
"""How far a short run may be wrong: relative, of busy seconds, and steps of a capacity."""

FOLDER = "benchmark"


@dataclass(frozen=True)
class Best:
    """The best candidate and its worth: larger is better, requests per second or inferences per busy second."""

    setting: Setting
    worth: float


class Truth:
    """What candidates do at today's (final) rate, and how much they can carry.

    aim: what they are worth. report: receives a sentence when the best has to be looked for.
    """

    def __init__(self, asked: System, aim: Aim, cache_folder: Path, report: Report = lambda _: None) -> None:
        self.settings = asked.candidates()
        self.ceiling_seconds = asked.ceiling_seconds
        self._asked, self._aim, self._report = asked, aim, report
        name = f"{asked.workload.name}-{asked.scenario}-{digest(asked)}-{aim}.npz"
        self._path = cache_folder / FOLDER / name
        self._today: dict[Setting, tuple[float, float]] = {}
        self._capacities: dict[Setting, float] = {}
        self._ladder = _Ladder(asked, 1.0)

    def p99_seconds(self, setting: Setting) -> float:
        """Return the p99 at today's rate."""
        return self._seen(setting)[0]

    def busy_seconds(self, setting: Setting) -> float:
        """Return the busy seconds of the device per inference at today's rate."""
        return self._seen(setting)[1]

    def holds(self, setting: Setting) -> bool:
        """Say whether the ceiling holds at today's rate."""
        return self.p99_seconds(setting) <= self.ceiling_seconds

    def capacity(self, setting: Setting) -> float:
        """Return the highest rate at which the ceiling holds, at lower ones from today's up too; 0 for none."""
        if setting not in self._capacities:
            rung = self._ladder.climb(setting) if self.holds(setting) else None
            self._capacities[setting] = self._ladder.rates[rung] if rung is not None else 0.0
        return self._capacities[setting]

    def worth(self, setting: Setting) -> float:
        """Return what a candidate is worth, larger is better, 0 where the ceiling does not hold."""
        if self._aim is Aim.CAPACITY:
            return self.capacity(setting)
        return 1.0 / self.busy_seconds(setting) if self.holds(setting) else 0.0

    def quality(self, setting: Setting) -> float:
        """Return a candidate's worth as a share of the best one's."""
        return self.worth(setting) / max(self.best.worth, math.ulp(0.0))

    @cached_property
    def best(self) -> Best:
        """The best candidate, from the disk where it was looked for before."""
        found = _read(self._path, self.settings)
        if found is None:
            self._report(f"looking for the best of {len(self.settings)} settings of {self._path.stem}")
            found = best_of(self)
            _write(self._path, found, self.settings)
        return found

    def promising(self) -> list[Setting]:
        """Return candidates among which the best one is, the most promising first."""
        short = self._asked.long_traffic(self._asked.final_rate, SHORT)
        limit = max(1, int(ALLOWED * short.arrivals.size))
        rated = []
        for setting in self.settings:
            run = self._asked.long_run(setting, short, slow_limit=limit, ceilings=DOUBTFUL)
            if run.complete:
                rated.append((run.busy_seconds() / run.latency.size, setting))
        if self._aim is Aim.EFFICIENCY:
            return [setting for _, setting in sorted(rated)]
        return self._by_short_capacity([setting for _, setting in rated])

    def surpasses(self, setting: Setting, worth: float) -> bool:
        """Say whether a candidate is worth more than that; quicker than to say how much."""
        if self._aim is Aim.EFFICIENCY:
            return self.worth(setting) > worth
        above = self._ladder.above(worth)
        return above is not None and self._ladder.holds(setting, above) and self.capacity(setting) > worth

    def hopeless(self, setting: Setting, worth: float) -> bool:
        """Say whether this one and all less promising ones are worth less than that."""
        if self._aim is Aim.EFFICIENCY:
            return 1.0 / self.busy_seconds(setting) < worth * (1.0 - BUSY_DOUBT)
        return False

    def _by_short_capacity(self, settings: Sequence[Setting]) -> list[Setting]:
        """Those whose capacity in short runs is not clearly below the best one's."""
        ladder = _Ladder(self._asked, SHORT)
        rungs: dict[Setting, int] = {}
        for setting in settings:
            least = max(0, max(rungs.values(), default=0) - RUNGS_DOUBT)
            if ladder.holds(setting, least):
                rungs[setting] = ladder.climb(setting, least)
        most = max(rungs.values(), default=0)
        kept = [setting for setting, rung in rungs.items() if rung >= most - RUNGS_DOUBT]
        return sorted(kept, key=lambda setting: -rungs[setting])

    def _seen(self, setting: Setting) -> tuple[float, float]:
        if setting not in self._today:
            self._today[setting] = self._asked.tail(setting, self._long)
        return self._today[setting]

    @cached_property
    def _long(self) -> Traffic:
        return self._asked.long_traffic(self._asked.final_rate)


def best_of(known: Truth) -> Best:
    """Return the best candidate; the first of equals in order of promise."""
    best = Best(known.settings[0], 0.0)
    for setting in known.promising():
        if best.worth and known.hopeless(setting, best.worth):
            break
        if known.surpasses(setting, best.worth):
            best = Best(setting, known.worth(setting))
    return best


class _Ladder:
    """Rates from today's upwards, each with its traffic, drawn when it is first asked for.

    share: of the usual traffic that is looked at.
    """

    def __init__(self, asked: System, share: float) -> None:
        self._system = asked
        rungs = math.floor(math.log(MOST_LOAD) / math.log(FINE_STEP))
        self.rates = [asked.final_rate * FINE_STEP**rung for rung in range(rungs + 1)]
        self._traffic = cache(lambda rung: asked.brief_traffic(self.rates[rung], share))

    def climb(self, setting: Setting, least: int = 0) -> int:
        """Return the highest rung that holds, `least` taken to hold.

        Bisected: where a rung fails, those above it are taken to fail as well.
        """
        low, high = least, len(self.rates)
        while high - low > 1:
            middle = (low + high) // 2
            if self.holds(setting, middle):
                low = middle
            else:
                high = middle
        return low

    def above(self, rate: float) -> int | None:
        """The lowest rung above a rate, None where there is none."""
        return next((rung for rung, found in enumerate(self.rates) if found > rate * 1.0001), None)

    def holds(self, setting: Setting, rung: int) -> bool:
        """Say whether at most 1 % of requests are slow on a rung."""
        found: Traffic = self._traffic(rung)
        limit = max(1, int(ALLOWED * found.arrivals.size))
        return self._system.long_run(setting, found, slow_limit=limit).complete


def digest(asked: System) -> str:
    """Return a name for a system and the code that simulates it: another of either has another name."""
    text = repr((asked.workload.model_dump(exclude={"name"}), asked.changes, asked.rate, asked.incumbent))
    return hashlib.sha256((text + _code()).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    sources = (batcher.__file__, truth.__file__, traffic.__file__, system.__file__, __file__)
    return "".join(Path(source or "").read_text("utf-8") for source in sources)


def _read(path: Path, settings: Sequence[Setting]) -> Best | None:
    """What was found before, None when there is nothing or not this: then it is looked for again."""
    try:
        with np.load(path) as file:
            place, worth = int(file["place"]), float(file["worth"])
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile):
        return None
    return Best(settings[place], worth) if 0 <= place < len(settings) else None


def _write(path: Path, best: Best, settings: Sequence[Setting]) -> None:
    """Write beside the final name first: another process never reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        draft = Path(file.name)
        try:
            np.savez(
                file,
                allow_pickle=False,
                place=np.array(settings.index(best.setting)),
                worth=np.array(best.worth),
            )
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    draft.replace(path)
