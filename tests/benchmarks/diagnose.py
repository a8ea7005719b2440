"""How right a diagnosis predicts: p99 and capacity of configurations it never saw, against the real stack.

A real tritonserver with the emulated GPU behind a real Envoy is diagnosed under its workload's incumbent, then another
configuration is loaded and measured with the same readings; and so on, with a diagnosis before each, because a machine
that is shared is not as fast from one quarter of an hour to the next. Nothing measured is fed back: what is compared
was predicted from the diagnosis alone, p99 at the rate that came in the window it was measured in.
`python -m tests.benchmarks.diagnose --out FILE` writes the table too; `--rows FILE` keeps what was compared, and tells
all that is in it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.triton import TritonServing
from autotuner.batching.prospect import Asked as AskedOfModel
from autotuner.batching.prospect import Band, Expected, expected
from autotuner.batching.trials import Aim
from autotuner.bootstrap import observer_of
from autotuner.diagnosing import Asked, Deployment, ServerPlace, diagnose, looked
from autotuner.domain.configuration import Configuration, with_configuration
from autotuner.domain.findings.prediction import Prediction
from autotuner.domain.findings.window import Window, gather
from autotuner.domain.prediction import setting_of
from autotuner.domain.selection import TIE
from autotuner.domain.target import Replica, Target
from autotuner.sandbox.envoy import TOTAL_WEIGHT, EnvoyProcess, Topology
from autotuner.sandbox.model_repository import reference_requests, write_repository
from autotuner.sandbox.question import PRODUCTION_REPLICAS
from autotuner.sandbox.traffic import TrafficConfig, TrafficProcess
from autotuner.sandbox.tritonserver import TritonProcess, install
from autotuner.sandbox.workload import Workload, load_workload
from tests.benchmarks.verdict import Row
from tests.builders import a_target, changed

WORKLOADS = ("small-vision", "heavy-detector", "embedding", "stepped")
DIAGNOSES = (12.0, 22.0)
SETTLE, WARM = timedelta(seconds=1), timedelta(seconds=2.5)
REQUESTS, WINDOWS = 2500, (12.0, 25.0)
"""Requests that a p99 is measured on, and the shortest and longest window for it in seconds; `DIAGNOSES`: the same of
the windows that predictions are made from."""

CAPACITY_REQUESTS, CAPACITY_WINDOWS = 1200, (7.0, 25.0)
"""The same for each rate that a capacity is looked for at."""

THIN = 50.0
"""Requests a second below which fewer configurations are measured: windows become long."""

CAPACITIES = 6
"""Configurations of a workload whose capacity is measured: each takes half a minute."""

THIN_CONFIGURATIONS, THIN_CAPACITIES = 4, 4
FLUSH = timedelta(milliseconds=250)

P99_TARGET, CAPACITY_TARGET = 0.15, 0.10
RUNGS = (0.88, 1.0, 1.13)
"""Rates that a capacity is looked for at, as multiples of the predicted one; another one where it lies outside."""

CLOCK = SystemClock()
NAME = "replica"


@dataclass(frozen=True)
class Compared:
    """One configuration: predicted with its bands, and measured; None where it was not measured."""

    workload: str
    configuration: Configuration
    told_p99: Band
    told_capacity: Band | None
    p99_seconds: float | None
    capacity: float | None

    @property
    def p99_error(self) -> float | None:
        """Relative error of the predicted p99."""
        return _error(self.told_p99.value, self.p99_seconds)

    @property
    def capacity_error(self) -> float | None:
        """Relative error of the predicted capacity."""
        return _error(self.told_capacity.value if self.told_capacity else None, self.capacity)


def _kept(one: Compared) -> str:
    return json.dumps(asdict(one))


def _read(text: str) -> Compared:
    told = json.loads(text)
    configuration = Configuration(
        **{
            **told["configuration"],
            "preferred_batch_size": tuple(told["configuration"]["preferred_batch_size"]),
        }
    )
    capacity = told["told_capacity"]
    return Compared(
        told["workload"],
        configuration,
        Band(**told["told_p99"]),
        Band(**capacity) if capacity else None,
        told["p99_seconds"],
        told["capacity"],
    )


def _error(told: float | None, seen: float | None) -> float | None:
    return None if told is None or seen is None else abs(told / seen - 1.0)


@dataclass
class Stack:
    """A server of one workload behind a gateway, under its traffic."""

    workload: Workload
    server: TritonProcess
    envoy: EnvoyProcess
    traffic: TrafficProcess
    target: Target

    def deployment(self) -> Deployment:
        place = ServerPlace(NAME, self.server.http_url, self.server.metrics_url)
        return Deployment((place,), self.workload.name, self.envoy.admin_url)

    def window(self, length: timedelta) -> Window:
        """Look for so long."""
        observer = observer_of(self.deployment(), CLOCK)
        facts = observer.facts()
        return gather(looked(observer, CLOCK, _wait, length), facts.model)

    def load(self, configuration: Configuration) -> None:
        serving = TritonServing(self.target)
        serving.load(
            NAME, with_configuration(serving.model_config(NAME), configuration), timedelta(seconds=30)
        )
        _wait(WARM)


@contextmanager
def running(workload: Workload, directory: Path) -> Iterator[Stack]:
    """The stack of one workload, at production's rate on one replica."""
    repository = write_repository(workload, directory / "models")
    asked = reference_requests(workload)
    with ExitStack() as open_until_the_end:
        server = TritonProcess(NAME, install(), repository, workload.name, directory / "server")
        open_until_the_end.enter_context(server)
        replica = Replica(NAME, server.http_url, server.metrics_url)
        ceiling = timedelta(milliseconds=workload.slo.p99_ms)
        topology = Topology([replica], ceiling, {NAME: TOTAL_WEIGHT}, flush_interval=FLUSH)
        envoy = EnvoyProcess(topology, run_directory=directory / "envoy")
        open_until_the_end.callback(envoy.stop)
        envoy.start()
        body = directory / "body.bin"
        body.write_bytes(asked.bodies[0])
        config = TrafficConfig(
            url=envoy.url,
            path=asked.path,
            body_paths=(str(body),),
            requests_per_second=_rate(workload),
            arrivals=dict(workload.traffic.arrivals),
            status_path=str(directory / "status.json"),
            headers=dict(asked.headers),
        )
        traffic = TrafficProcess(config, run_directory=directory)
        open_until_the_end.callback(traffic.stop)
        traffic.start()
        other = Replica("unused", server.http_url, server.metrics_url)
        target = changed(a_target(), model=workload.name, stable=(replica,), canary=other)
        yield Stack(workload, server, envoy, traffic, target)


def _length(requests: int, rate: float, shortest_and_longest: tuple[float, float]) -> timedelta:
    """A window in which so many requests come, as far as it may be so long."""
    shortest, longest = shortest_and_longest
    return timedelta(seconds=min(max(requests / rate, shortest), longest))


def _rate(workload: Workload) -> float:
    return workload.traffic.requests_per_second / PRODUCTION_REPLICAS


def _wait(duration: timedelta) -> None:
    time.sleep(duration.total_seconds())


def configurations(workload: Workload) -> tuple[Configuration, ...]:
    """Configurations that differ from the incumbent in every way it can: cap, delay, instances."""
    incumbent, largest = workload.incumbent_configuration(), workload.max_batch_size
    delay = round(0.1 * workload.slo.p99_ms * 1e3)
    half = max(2, largest // 2)
    most = workload.limits.instance_count
    made = (
        Configuration(0, (), 1, largest),
        Configuration(delay, (), 1, largest),
        Configuration(0, (half,), 1, largest),
        Configuration(0, (), min(2, most), largest),
        Configuration(delay, (half,), min(2, most), largest),
        Configuration(0, (max(1, largest // 4), half), 1, largest),
        Configuration(0, (), min(3, most), largest),
    )
    return tuple(one for one in dict.fromkeys(made) if one != incumbent)[:6]


def compare(name: str, directory: Path) -> Iterator[Compared]:
    """Diagnose a workload before each configuration, then measure what was predicted."""
    workload = load_workload(name)
    ceiling, rate = workload.slo.p99_ms / 1e3, _rate(workload)
    length = _length(REQUESTS, rate, WINDOWS)
    wanted = configurations(workload)
    capacities = CAPACITIES
    if rate < THIN:
        wanted, capacities = wanted[:THIN_CONFIGURATIONS], THIN_CAPACITIES
    with running(workload, directory) as stack:
        for number, configuration in enumerate(wanted):
            stack.load(workload.incumbent_configuration())
            asked = Asked(ceiling, _length(REQUESTS, rate, DIAGNOSES))
            found = diagnose(observer_of(stack.deployment(), CLOCK), CLOCK, _wait, asked)
            stack.load(configuration)
            window = stack.window(length)
            p99, capacity = window.latency.p99_seconds, None
            told = predicted(found.prediction, configuration, ceiling, window.rate_per_second)
            if number < capacities and told.capacity is not None:
                capacity = measured_capacity(stack, told.capacity.value, ceiling)
                stack.traffic.set_rate(rate)
            row = Compared(name, configuration, told.p99_seconds, told.capacity, p99, capacity)
            print(_line(row), file=sys.stderr, flush=True)
            yield row


def predicted(found: Prediction, configuration: Configuration, ceiling: float, rate: float) -> Expected:
    """What the diagnosis says of a configuration at a rate: the one that came in the window it is compared with."""
    prospect = found.prospect
    assert prospect is not None, found.why_not
    asked = AskedOfModel((), ceiling, Aim.CAPACITY, TIE)
    return expected(prospect.observed, asked, prospect.understood, setting_of(configuration), rate)


def measured_capacity(stack: Stack, about: float, ceiling: float) -> float | None:
    """The rate at which the measured p99 crosses the ceiling, between the two rungs around it."""
    seen: list[tuple[float, float]] = []
    rungs = [about * rung for rung in RUNGS]
    while rungs:
        rate = rungs.pop(0)
        stack.traffic.set_rate(rate)
        _wait(SETTLE)
        window = stack.window(_length(CAPACITY_REQUESTS, rate, CAPACITY_WINDOWS))
        p99 = window.latency.p99_seconds or 20 * ceiling
        seen.append((window.rate_per_second if p99 <= ceiling else rate, p99))
        if p99 > ceiling:
            if len(seen) == 1 and rate > 0.6 * about:
                seen.clear()
                rungs = [0.8 * rate]
                continue
            break
        if not rungs and rate < 1.7 * about:
            rungs = [1.15 * rate]
    return _crossing(seen, ceiling)


def _crossing(seen: Sequence[tuple[float, float]], ceiling: float) -> float | None:
    """Interpolated in the logarithms; None where the ceiling was not crossed."""
    if len(seen) < 2 or seen[-1][1] <= ceiling:
        return None
    (low, before), (high, after) = seen[-2:]
    share = math.log(ceiling / before) / math.log(after / before)
    return float(low * (high / low) ** share)


def all_compared(names: Sequence[str] = WORKLOADS) -> Iterator[Compared]:
    """Every workload, one after the other."""
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            yield from compare(name, Path(directory))


def rows_of(compared: Sequence[Compared]) -> list[Row]:
    """The medians beside their targets, and each configuration."""
    p99 = [one.p99_error for one in compared if one.p99_error is not None]
    capacity = [one.capacity_error for one in compared if one.capacity_error is not None]
    return [
        _median(f"median error of p99, {len(p99)} configurations", p99, P99_TARGET),
        _median(f"median error of capacity, {len(capacity)} configurations", capacity, CAPACITY_TARGET),
        Row("p99 within its band of nine in ten", "–", _within(compared), None),
        *(Row(_line(one), "–", "", None) for one in compared),
    ]


def _median(name: str, errors: Sequence[float], target: float) -> Row:
    reached = median(errors) if errors else math.inf
    return Row(name, f"≤ {100 * target:g} %", f"{100 * reached:.1f} %", reached <= target)


def _within(compared: Sequence[Compared]) -> str:
    known = [(one.told_p99, one.p99_seconds) for one in compared if one.p99_seconds is not None]
    inside = sum(band.low <= seen <= band.high for band, seen in known)
    return f"{inside} of {len(known)}"


def _line(one: Compared) -> str:
    return f"{one.workload}: {' | '.join(_cells(one)[1:])}"


def _cells(one: Compared) -> list[str]:
    p99, capacity = one.told_p99, one.told_capacity
    return [
        one.workload,
        one.configuration.describe(),
        f"{p99.value * 1e3:.0f} ({p99.low * 1e3:.0f}–{p99.high * 1e3:.0f})",
        _figure(one.p99_seconds, 1e3),
        _percent(one.p99_error),
        f"{capacity.value:.0f} ({capacity.low:.0f}–{capacity.high:.0f})" if capacity else "–",
        _figure(one.capacity),
        _percent(one.capacity_error),
    ]


def _figure(value: float | None, scale: float = 1.0) -> str:
    return "–" if value is None else f"{value * scale:.0f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def rows() -> list[Row]:
    """The whole table."""
    return rows_of(list(all_compared()))


HEAD = (
    "workload",
    "configuration",
    "p99 predicted, ms",
    "measured",
    "error",
    "capacity predicted, /s",
    "measured",
    "error",
)


INTRODUCTION = """\
# How right a diagnosis predicts

Measured by `make bench` (the benchmark `diagnose`): a real tritonserver with the emulated GPU behind a real Envoy is
diagnosed under its workload's incumbent, for {briefest:.0f} to {diagnosis:.0f} s, before each configuration; then that
one is loaded and measured: p99 in a window of {shortest:.0f} to {longest:.0f} s, capacity as the rate at which p99 of
windows of {brief:.0f} s and more crosses the ceiling. Nothing measured is fed back; p99 is predicted at the rate that
came.
"""


def markdown(compared: Sequence[Compared], seconds: float) -> str:
    """The page that is kept in the documentation."""
    figures = rows_of(compared)[:3]
    words = INTRODUCTION.format(
        briefest=DIAGNOSES[0],
        diagnosis=DIAGNOSES[1],
        shortest=WINDOWS[0],
        longest=WINDOWS[1],
        brief=CAPACITY_WINDOWS[0],
    )
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {' | '.join(_cells(one))} |" for one in compared]
    summary = [f"- {row.name}: **{row.reached}** (target {row.target})" for row in figures]
    return "\n".join([words, *summary, f"- measured in {seconds / 60:.0f} minutes", "", *lines, ""])


def main() -> int:
    """Print the table and write it where it is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.diagnose", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the table here")
    parser.add_argument("--workload", action="append", help="only this one; several: once each")
    parser.add_argument(
        "--rows", type=Path, help="add what is compared to this file, and tell all that is in it"
    )
    asked = parser.parse_args()
    began = time.monotonic()
    compared = []
    for one in all_compared(asked.workload or WORKLOADS):
        compared.append(one)
        if asked.rows:  # at once: a run takes half an hour, and may be ended
            with asked.rows.open("a", encoding="utf-8") as file:
                file.write(f"{_kept(one)}\n")
    if asked.rows:
        compared = [_read(line) for line in asked.rows.read_text("utf-8").splitlines()]
    text = markdown(compared, time.monotonic() - began)
    print(text)
    if asked.out:
        asked.out.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
