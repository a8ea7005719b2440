"""Every configuration of a grid, measured one after the other on the canary: what a search's winner is compared with.

The same stack, doors, levels and settling as in a study, but no judgement: a fixed window at each level, and a level
is held when at most the allowed share of its requests was slow or failed in it. Whatever ends a sweep, the canary gets
its own configuration back and the gateway its own weights, and both are read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Self

from autotuner.domain.aftermath import DRAIN_LIMIT
from autotuner.domain.configuration import (
    Configuration,
    ModelConfig,
    fingerprint,
    read_configuration,
    with_configuration,
)
from autotuner.domain.judgement import Counts
from autotuner.domain.measurement import Latency, Sample, ServerUse, Window, overdue
from autotuner.domain.procedure import COLD
from autotuner.domain.ramp import canary_weights, ladder, production_level, warm_up_level
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.space import search_space
from autotuner.domain.study import Incumbent, Level, StudyPlan
from autotuner.errors import AutotunerError, Refused, Unavailable
from autotuner.ports import World

DELAYS_MICROSECONDS = (0, 5_000, 20_000)
PREFERRED = ((), (4, 8), (16,))
INSTANCES = (1, 2, 3)
"""The small grid: three delays × three sets of preferred sizes × three instance counts."""

POLL = timedelta(milliseconds=250)
ATTEMPTS = 2
"""How often a configuration is measured when something outside it spoils the first time."""

RESTORE_ATTEMPTS = 10
RESTORE_PAUSE = timedelta(seconds=2)


class Grid(StrEnum):
    """Which configurations a sweep measures."""

    SMALL = "small"
    """The incumbent and the small grid, as far as the workload's limits allow it."""
    FULL = "full"
    """Everything that a study's search could propose; hours."""


@dataclass(frozen=True)
class Reading:
    """What one load level showed in its window."""

    level: Level
    counts: Counts
    rate_per_second: float
    latency: Latency
    use: ServerUse

    @property
    def bad_share(self) -> float | None:
        """Share of requests that were slow or failed, 0 to 1; None when there was no request."""
        return self.counts.bad_at_most / self.counts.total if self.counts.total else None

    @property
    def held(self) -> bool:
        """Whether the level was carried within the ceiling; no data is not success."""
        return self.bad_share is not None and self.bad_share <= ALLOWED_BAD_SHARE


@dataclass(frozen=True)
class Row:
    """One configuration and its readings, lowest level first. problem: why there are none, or not all."""

    configuration: Configuration
    readings: tuple[Reading, ...] = ()
    problem: str = ""

    @property
    def capacity(self) -> Reading | None:
        """The highest level that was held; None when not even the lowest was."""
        held = [reading for reading in self.readings if reading.held]
        return held[-1] if held else None

    def compute_seconds_per_inference(self, level: Level) -> float | None:
        """Compute time per inference at `level`, else at the lowest level read; None when it is not known."""
        at_level = [reading for reading in self.readings if reading.level == level]
        known = at_level or list(self.readings[:1])
        return known[0].use.compute_seconds_per_inference if known else None


def configurations(plan: StudyPlan, incumbent: Configuration, grid: Grid) -> tuple[Configuration, ...]:
    """Return what `grid` means under the plan's limits, each once, the incumbent first."""
    limits = plan.target.limits
    if grid is Grid.FULL:
        found = set(search_space(plan, incumbent).candidates)
    else:
        found = {
            Configuration(delay, sizes, count, incumbent.max_batch_size)
            for delay in DELAYS_MICROSECONDS
            if delay <= limits.max_queue_delay_microseconds
            for sizes in PREFERRED
            if all(size <= incumbent.max_batch_size for size in sizes)
            for count in INSTANCES
            if count <= limits.max_instance_count
        }
    return (incumbent, *sorted(found - {incumbent}))


def best(rows: Iterable[Row], plan: StudyPlan) -> Row | None:
    """Return the row with the highest capacity; among equals the leanest, then the simplest. None without any."""
    level = production_level(plan)

    def rank(row: Row) -> tuple[float, float, tuple[int, int, int]]:
        share = row.capacity.level.share if row.capacity else 0.0
        work = row.compute_seconds_per_inference(level)
        return -share, work if work is not None else float("inf"), row.configuration.complexity()

    return min((row for row in rows if row.capacity is not None), key=rank, default=None)


@dataclass
class Sweep:
    """Measures configurations on the canary. Use as a context manager: leaving it restores everything.

    window: length of one level's measurement. wait: lets that much time pass. stopped: whether somebody asked for an
    end; then the present measurement is given up with KeyboardInterrupt. say: told each level's figures.
    """

    plan: StudyPlan
    world: World
    window: timedelta
    wait: Callable[[timedelta], object]
    stopped: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda _: None
    incumbent: Incumbent = field(init=False)
    _config: ModelConfig = field(init=False)

    def __enter__(self) -> Self:
        canary = self.canary
        self._config = self.world.serving.model_config(canary)
        self.incumbent = Incumbent(
            configuration=read_configuration(self._config),
            configs={canary: json.dumps(dict(self._config))},
            fingerprints={canary: fingerprint(self._config)},
            weights=dict(self.world.route.weights()),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def canary(self) -> str:
        """The replica that is measured."""
        return self.plan.target.canary.name

    def measure(self, configuration: Configuration) -> Row:
        """Return the configuration's readings up to the first level that it did not hold.

        Raises KeyboardInterrupt when an end was asked for.
        """
        problem, readings = "", list[Reading]()
        for _ in range(ATTEMPTS):
            readings.clear()
            try:
                self._put(with_configuration(self._config, configuration))
                self._warm_up()
                for level in ladder(self.plan):
                    readings.append(self._read(level))
                    self.say(_sentence(readings[-1]))
                    if not readings[-1].held:
                        break
            except Refused as error:
                return Row(configuration, (), str(error))
            except Unavailable as error:
                problem = str(error)
                self.say(f"spoilt: {problem}")
                continue
            return Row(configuration, tuple(readings))
        return Row(configuration, tuple(readings), problem)

    def _pause(self, duration: timedelta) -> None:
        self.wait(duration)
        if self.stopped():
            raise KeyboardInterrupt

    def _put(self, config: ModelConfig) -> None:
        self.world.route.set_weights(canary_weights(self.plan, self.incumbent, 0.0))
        self._drain(self._pause)
        self._load(config, self._pause)

    def _drain(self, pause: Callable[[timedelta], object]) -> None:
        """Let the canary work off what it has; given up after DRAIN_LIMIT, as in a study."""
        for _ in range(int(DRAIN_LIMIT / POLL)):
            counters = self.world.metrics.sample().gateway.get(self.canary)
            if counters is not None and counters.sent <= counters.ended:
                return
            pause(POLL)

    def _load(self, config: ModelConfig, pause: Callable[[timedelta], object]) -> None:
        """Load `config` and wait until it is read back."""
        limit = self.plan.pace.load_limit
        self.world.serving.load(self.canary, config, limit)
        for _ in range(int(limit / POLL)):
            if self._serves(config):
                return
            pause(POLL)
        raise Unavailable(f"triton {self.canary}", "it does not serve what was loaded")

    def _serves(self, config: ModelConfig) -> bool:
        served = self.world.serving.model_config(self.canary)
        return fingerprint(served) == fingerprint(config) and self.world.serving.is_ready(self.canary)

    def _warm_up(self) -> None:
        pace = self.plan.pace
        self._route(warm_up_level(self.plan))
        self._pause(COLD + pace.warm_up)

    def _route(self, level: Level) -> None:
        self.world.route.set_weights(canary_weights(self.plan, self.incumbent, level.share))

    def _read(self, level: Level) -> Reading:
        pace = self.plan.pace
        self._route(level)
        self._pause(pace.settle + pace.flush_interval)
        first = self._sample()
        self._pause(self.window)
        return self._reading(level, first, self._sample())

    def _sample(self) -> Sample:
        sample = self.world.metrics.sample()
        if missing := sample.missing([self.canary]):
            raise Unavailable("metrics", missing)
        return sample

    def _reading(self, level: Level, first: Sample, last: Sample) -> Reading:
        name, ceiling = self.canary, self.plan.slo.p99_ceiling_seconds
        span = Window(first, last)
        if last.gateway[name].behind(first.gateway[name]) or last.servers[name].behind(first.servers[name]):
            raise Unavailable(f"triton {name}", "counters went backwards: it or the gateway restarted")
        late = overdue([first], last, name, ceiling)
        return Reading(
            level=level,
            counts=span.counts([name], ceiling) + Counts(late, late, late, 0),
            rate_per_second=span.rate_per_second([name]),
            latency=span.latency([name]),
            use=span.use(name),
        )

    def _restore(self) -> None:
        """Give the canary its configuration and the gateway its weights back, and read both back.

        Raises AutotunerError when they are not as they were after RESTORE_ATTEMPTS.
        """
        trouble = ""
        for _ in range(RESTORE_ATTEMPTS):
            try:
                trouble = self._restored()
            except (Unavailable, Refused) as error:
                trouble = str(error)
            if not trouble:
                return
            self.wait(RESTORE_PAUSE)
        raise AutotunerError(f"the canary could not be restored, a person must look: {trouble}")

    def _restored(self) -> str:
        """Restore once; returns what is still not as it was found."""
        if not self._serves(self._config):
            self.world.route.set_weights(canary_weights(self.plan, self.incumbent, 0.0))
            self._drain(self.wait)
            self._load(self._config, self.wait)
        self.world.route.set_weights(self.incumbent.weights)
        if not self._serves(self._config):
            return f"{self.canary} serves another configuration than it was found with"
        held = dict(self.world.route.weights())
        return "" if held == dict(self.incumbent.weights) else f"the gateway's weights are {held}"


def _sentence(reading: Reading) -> str:
    p99 = reading.latency.p99_seconds
    latency = "p99 unknown" if p99 is None else f"p99 {p99 * 1e3:.0f} ms"
    share = reading.bad_share
    bad = "no request came" if share is None else f"{100 * share:.1f} % slow or failed"
    held = "held" if reading.held else "not held"
    return f"{reading.level.share:.0%} of traffic, {reading.rate_per_second:.0f}/s: {latency}, {bad}: {held}"
