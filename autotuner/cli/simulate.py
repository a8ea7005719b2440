"""`autotuner simulate`: what every configuration would do, predicted from a workload file within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from autotuner import __version__
from autotuner.answers import configuration_object
from autotuner.batching.frontier import Climb, Point, Question, Reading, climbs
from autotuner.batching.trials import Setting
from autotuner.batching.whatif import Answer, Role, Standing, answer
from autotuner.cli.invocation import Json, of, say
from autotuner.cli.terminal_tables import for_terminal
from autotuner.domain.prediction import configuration_of
from autotuner.domain.target import Objective
from autotuner.report.page import write_page
from autotuner.report.prediction import Source, conclusion, headline, render, tables
from autotuner.sandbox.question import question_of
from autotuner.sandbox.workload import DEFAULT_WORKLOAD, Workload, load_workload, workload_names

NEWS_EVERY = 50
"""Configurations between two remarks on progress."""

WIDTH = 150
"""Columns of the tables where the output is no terminal."""


def simulate(
    context: typer.Context,
    workload: Annotated[
        str, typer.Option(help=f"A workload file, or one of: {', '.join(workload_names())}.")
    ] = DEFAULT_WORKLOAD,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second on one replica. Default: the file's, divided between two."),
    ] = None,
    objective: Annotated[
        Objective | None, typer.Option(help="What decides between configurations. Default: the file's.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the answer as a page, with plots, here.")] = None,
    json: Json = False,
) -> None:
    """Predict what every configuration would do: nothing is started and nothing is measured.

    The frontier of throughput and p99, its knee, the best configurations, and how far the answer
    hangs on the rate and on bursts. From a workload file's batch curve, arrivals and promise.
    """
    invocation = of(context, json=json)
    chosen = load_workload(workload)
    question = question_of(chosen, rate, objective, seed=0)
    found = answer(question, tuple(_told(question)))
    source = Source(chosen.name, arrivals_words(chosen), chosen.note)
    if html is not None:
        say(f"page: {write_page(render(found, source), html, '--html')}")
    if json:
        invocation.answer(as_object(found, chosen))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(f"{headline(found, source)}; predicted, not measured ({source.note})", soft_wrap=True)
    console.print(conclusion(found), soft_wrap=True)
    for table in tables(found):
        console.print(for_terminal(table))


def _told(question: Question) -> Iterator[Climb]:
    """Pass the climbs on and say how far it is."""
    count = len(question.settings)
    say(f"simulating {count} configurations at up to {len(question.rates)} rates each")
    for number, climb in enumerate(climbs(question), start=1):
        yield climb
        if number % NEWS_EVERY == 0 and number < count:
            say(f"{number} of {count}")
    say("looking at other arrivals")


def arrivals_words(workload: Workload) -> str:
    """How the file says that requests arrive: `Poisson`, or the kind and its figures."""
    kind, value = next(iter(workload.traffic.arrivals.items()))
    if kind == "poisson":
        return "Poisson"
    if kind == "bursty":
        return f"bursty ({value['high']:g} and {value['low']:g} times the rate, {value['mean_seconds']:g} s)"
    return f"recorded ({value})"


# ---- JSON


def as_object(found: Answer, workload: Workload) -> dict[str, Any]:
    """The whole answer; durations in seconds, rates in requests per second on one replica."""
    question = found.question
    return {
        "version": __version__,
        "workload": workload.name,
        "figures_from": f"predicted, {workload.note}",
        "objective": str(question.aim),
        "rate_per_second": question.rate_per_second,
        "p99_ceiling_seconds": question.ceiling_seconds,
        "rates_per_second": list(question.rates),
        "conclusion": conclusion(found),
        "named": {_key(role): _standing_object(found, one) for role, one in found.standings.items()},
        "frontier": [_point_object(point) for point in found.frontier],
        "knee": _point_object(found.knee) if found.knee else None,
        "sensitivity_to_rate": [
            {
                "share": row.share,
                "rate_per_second": row.rate_per_second,
                "p99_seconds": {_key(role): p99 for role, p99 in row.p99_seconds.items()},
                "best": _setting_object(row.best),
            }
            for row in found.rates
        ],
        "sensitivity_to_burstiness": [
            {
                "arrivals": row.pattern.lower(),
                "p99_seconds": {_key(role): p99 for role, p99 in row.p99_seconds.items()},
                "capacity_per_second": {_key(role): carried for role, carried in row.capacity.items()},
                "best": _setting_object(row.best),
            }
            for row in found.patterns
        ],
        "configurations": [_climb_object(found, climb) for climb in found.climbs],
    }


def _key(role: Role) -> str:
    return str(role).replace(" ", "_")


def _setting_object(setting: Setting | None) -> dict[str, Any] | None:
    return None if setting is None else configuration_object(configuration_of(setting))


def _point_object(point: Point) -> dict[str, Any]:
    return {
        "rate_per_second": point.rate_per_second,
        "p99_seconds": point.p99_seconds,
        "configuration": _setting_object(point.setting),
    }


def _standing_object(found: Answer, standing: Standing) -> dict[str, Any]:
    reading = standing.climb.at(found.question.rate_per_second)
    return {
        "configuration": _setting_object(standing.climb.setting),
        "capacity_per_second": standing.capacity,
        "at_rate": _reading_object(reading) if reading else None,
    }


def _climb_object(found: Answer, climb: Climb) -> dict[str, Any]:
    question = found.question
    return {
        "configuration": _setting_object(climb.setting),
        "capacity_per_second": climb.capacity(question.rate_per_second, question.ceiling_seconds),
        "readings": [_reading_object(reading) for reading in climb.readings],
    }


def _reading_object(reading: Reading) -> dict[str, Any]:
    return {
        "rate_per_second": reading.rate_per_second,
        "p50_seconds": reading.p50_seconds,
        "p99_seconds": reading.p99_seconds,
        "mean_batch": reading.mean_batch,
        "device_seconds_per_inference": reading.busy_seconds,
        "utilisation": reading.utilisation,
    }
