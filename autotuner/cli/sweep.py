"""`autotuner sweep`: what every configuration of a grid can do on the local stack, to compare a study's winner with."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from autotuner import __version__
from autotuner.adapters.clock import SystemClock
from autotuner.answers import configuration_object
from autotuner.bootstrap import world_of
from autotuner.cli.exits import Exit
from autotuner.cli.invocation import Json, of, say
from autotuner.cli.stopping import stopped_by_signals
from autotuner.domain.configuration import Configuration
from autotuner.domain.ramp import ladder, production_level
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.study import Level, StudyPlan
from autotuner.errors import InvalidInput
from autotuner.ports import Clock
from autotuner.sandbox.stack import SandboxStack, brisk_plan, remove_directory, run_directory
from autotuner.sandbox.sweep import Grid, Reading, Row, Sweep, best, configurations
from autotuner.sandbox.workload import DEFAULT_WORKLOAD, Workload, load_workload, workload_names

ACTOR = "sweep"
NO_DATABASE = "none"
"""Stands for a database, so that the stack starts none: a sweep remembers nothing."""

PATIENCE = 2
"""The first signal ends the sweep; so many are taken while things are restored, one more ends the program."""

DEFAULT_PATH = "docs/sweep-{workload}.md"


@dataclass(frozen=True)
class Result:
    """A sweep's rows and all that a reader needs to judge them. planned: how many rows were asked for."""

    workload: Workload
    plan: StudyPlan
    note: str
    grid: Grid
    window: timedelta
    began_at: datetime
    incumbent: Configuration
    planned: int
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        """The row with the highest capacity."""
        return best(self.rows, self.plan)

    def rate(self, level: Level) -> float:
        """Requests per second that a level means on one replica, of the workload's mean rate."""
        return level.share * self.workload.traffic.requests_per_second


def sweep(  # noqa: PLR0913, PLR0917 - one argument an option
    context: typer.Context,
    workload: Annotated[
        str, typer.Option(help=f"A workload file, or one of: {', '.join(workload_names())}.")
    ] = DEFAULT_WORKLOAD,
    grid: Annotated[
        Grid,
        typer.Option(help="small: delays × preferred sizes × instances, 3 of each; full: the search space."),
    ] = Grid.SMALL,
    seconds_per_level: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="How long each load level is measured.")
    ] = 10.0,
    first: Annotated[int, typer.Option(min=0, help="Measure only this many configurations; 0: all.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The Markdown file to write. Default: docs/sweep-WORKLOAD.md.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 1,
    json: Json = False,
) -> None:
    """Measure every configuration of a grid on the local stack, one after the other: the answer a search should find.

    The incumbent is measured first. Ctrl-C restores the stack and keeps what was measured.
    """
    invocation = of(context, json=json)
    chosen = load_workload(workload)
    path = out or Path(DEFAULT_PATH.format(workload=chosen.name))
    _require_writable(path)
    with _stack(chosen, seed) as stack:
        result = _measure(stack, grid, timedelta(seconds=seconds_per_level), first)
    if result.rows:
        path.write_text(as_markdown(result), encoding="utf-8")
    found = result.best
    say(f"best: {found.configuration.describe()}" if found else "no configuration held even the lowest level")
    say(f"table: {path}")
    if json:
        invocation.answer({**as_object(result), "result": str(path)})
    elif found is not None and found.capacity is not None:
        print(f"{found.configuration.describe()}: {result.rate(found.capacity.level):.0f}/s per replica")
    raise typer.Exit(Exit.DONE if len(result.rows) == result.planned else Exit.INTERRUPTED)


def _require_writable(path: Path) -> None:
    """Fail now and not after half an hour. Raises InvalidInput."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise InvalidInput("--out", str(path), f"a file that can be written ({error.strerror})") from error


@contextmanager
def _stack(workload: Workload, seed: int) -> Iterator[SandboxStack]:
    place = run_directory()
    try:
        with SandboxStack(workload, place, NO_DATABASE, seed, say) as stack:
            yield stack
    finally:
        remove_directory(place)


def _measure(stack: SandboxStack, grid: Grid, window: timedelta, first: int) -> Result:
    clock = SystemClock()
    plan = brisk_plan(stack, stack.budget(ACTOR))
    rows: list[Row] = []
    began = clock.now()
    stop = threading.Event()
    with (
        stopped_by_signals(stop, PATIENCE),
        Sweep(plan, world_of(plan.target, clock), window, _waiting(stop), stop.is_set, _indented) as running,
    ):
        incumbent = running.incumbent.configuration
        wanted = configurations(plan, incumbent, grid)
        wanted = wanted[:first] if first else wanted
        try:
            for number, configuration in enumerate(wanted):
                left = _time_left(plan, window, rows, len(wanted), clock, began)
                say(f"{number + 1} of {len(wanted)}: {configuration.describe()} (about {left} left)")
                rows.append(running.measure(configuration))
        except KeyboardInterrupt:
            say("stopping: the canary's configuration and the weights are restored")
    say("restored: the canary serves what it was found with, and the gateway has its weights")
    return Result(stack.workload, plan, stack.note, grid, window, began, incumbent, len(wanted), tuple(rows))


def _indented(sentence: str) -> None:
    say(f"  {sentence}")


def _waiting(stop: threading.Event) -> Callable[[timedelta], None]:
    """A wait that a signal cuts short; once stopped, while things are restored, it lasts as long as it is asked to."""

    def wait(duration: timedelta) -> None:
        if stop.is_set():
            time.sleep(duration.total_seconds())
        else:
            stop.wait(duration.total_seconds())

    return wait


def _time_left(
    plan: StudyPlan, window: timedelta, rows: Sequence[Row], planned: int, clock: Clock, began: datetime
) -> str:
    """About how long it will still take: from what was measured so far, at first from what is planned."""
    if rows:
        each = (clock.now() - began) / len(rows)
    else:
        pace = plan.pace
        each = pace.warm_up + (window + pace.settle + pace.flush_interval) * len(ladder(plan))
    minutes = each * (planned - len(rows)) / timedelta(minutes=1)
    return f"{minutes:.0f} min" if minutes >= 1.5 else f"{minutes * 60:.0f} s"


# -- the result --------------------------------------------------------------------------------------------


def as_object(result: Result) -> dict[str, Any]:
    """A sweep's result as one JSON object; a capacity that nobody measured is null."""
    found = result.best
    return {
        "workload": result.workload.name,
        "note": result.note,
        "grid": str(result.grid),
        "seconds_per_level": result.window.total_seconds(),
        "planned": result.planned,
        "measured": len(result.rows),
        "best": configuration_object(found.configuration) if found else None,
        "capacity_per_second": _capacity(result, found) if found else None,
        "table": [_row_object(result, row) for row in result.rows],
    }


def _capacity(result: Result, row: Row) -> float | None:
    return result.rate(row.capacity.level) if row.capacity else None


def _row_object(result: Result, row: Row) -> dict[str, Any]:
    work = row.compute_seconds_per_inference(production_level(result.plan))
    return {
        "configuration": configuration_object(row.configuration),
        "capacity_per_second": _capacity(result, row),
        "compute_ms_per_inference": None if work is None else work * 1e3,
        "problem": row.problem,
        "levels": [_reading_object(reading) for reading in row.readings],
    }


def _reading_object(reading: Reading) -> dict[str, Any]:
    p99 = reading.latency.p99_seconds
    return {
        "share": reading.level.share,
        "rate_per_second": reading.rate_per_second,
        "p99_ms": None if p99 is None else p99 * 1e3,
        "requests": reading.counts.total,
        "bad": reading.counts.bad_at_most,
        "held": reading.held,
    }


def machine() -> str:
    """Return what this machine is, in a few words, without its name."""
    model = ""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        named = [
            line for line in information.read_text("utf-8").splitlines() if line.startswith("model name")
        ]
        model = f" ({named[0].partition(':')[2].strip()})" if named else ""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs{model}"


def as_markdown(result: Result) -> str:
    """Return the result as a Markdown page."""
    found, ceiling = result.best, result.plan.slo.p99_ceiling_seconds * 1e3
    facts = [
        ("workload", result.workload.name),
        ("figures from", result.note),
        ("date", result.began_at.strftime("%Y-%m-%d %H:%M UTC")),
        ("machine", machine()),
        ("autotuner", __version__),
        ("traffic", f"{result.workload.traffic.requests_per_second:g} requests/s in all, open loop"),
        ("p99 ceiling", f"{ceiling:g} ms"),
        ("grid", f"{result.grid}, {len(result.rows)} of {result.planned} configurations measured"),
        ("window", f"{result.window.total_seconds():g} s at each level, after warming up and settling"),
    ]
    lines = [
        f"# Sweep of {result.workload.name}",
        "",
        "Every configuration of a grid, measured one after the other on the canary of the local stack, with the levels",
        "and the doors of a study. Made by `autotuner sweep`.",
        "",
        *_table(["", ""], [list(fact) for fact in facts]),
        "",
        _verdict(result, found),
        "",
        *_table(_headings(result), [_cells(result, row, found) for row in result.rows]),
        "",
        f"A level is held when at most {ALLOWED_BAD_SHARE:.0%} of its requests were slow or failed in its one window;",
        "the first that is not held ends a row and stands in *italics*. There is no judgement of evidence behind this,",
        "so a capacity may be a level off where traffic is bursty. Capacity is the level's share of the mean rate; “≥”",
        "means that the highest level was held. Compute is at production's load per replica.",
        "",
    ]
    return "\n".join(lines)


def _verdict(result: Result, found: Row | None) -> str:
    if found is None or found.capacity is None:
        return "No configuration held even the lowest level."
    return f"Best: **{found.configuration.describe()}**, {_capacity_words(result, found)} requests/s per replica."


def _headings(result: Result) -> list[str]:
    levels = [f"p99 at {level.share:.0%} ({result.rate(level):.0f}/s), ms" for level in ladder(result.plan)]
    return ["configuration", "capacity level", "capacity, /s", *levels, "compute per inference, ms"]


def _capacity_words(result: Result, row: Row) -> str:
    if row.capacity is None:
        return "–"
    top = ladder(result.plan)[-1]
    return f"{'≥ ' if row.capacity.level == top else ''}{result.rate(row.capacity.level):.0f}"


def _cells(result: Result, row: Row, found: Row | None) -> list[str]:
    name = row.configuration.describe()
    name = f"**{name}**" if row is found else name
    name += " (incumbent)" if row.configuration == result.incumbent else ""
    name += f" – {row.problem}" if row.problem else ""
    level = f"{row.capacity.level.share:.0%}" if row.capacity else "none"
    read = {reading.level: _reading_words(reading) for reading in row.readings}
    work = row.compute_seconds_per_inference(production_level(result.plan))
    return [
        name,
        level,
        _capacity_words(result, row),
        *(read.get(level, "") for level in ladder(result.plan)),
        "–" if work is None else f"{work * 1e3:.2f}",
    ]


def _reading_words(reading: Reading) -> str:
    p99 = reading.latency.p99_seconds
    words = "–" if p99 is None else f"{p99 * 1e3:.0f}"
    if reading.held:
        return words
    share = reading.bad_share
    return f"*{words}, {'no request' if share is None else f'{100 * share:.1f} % bad'}*"


def _table(headings: list[str], rows: list[list[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
