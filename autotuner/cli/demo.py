"""`autotuner demo`: the whole loop on this machine, with real servers and an emulated GPU."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.table import Table

from autotuner.adapters.clock import SystemClock
from autotuner.answers import configuration_object, ending_object
from autotuner.cli.exits import Exit, exit_code_of
from autotuner.cli.invocation import of
from autotuner.cli.live import Display
from autotuner.cli.rehearsal import Options, Rehearsal
from autotuner.domain.benefit import Benefit, Standing, benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.study import Outcome, Study
from autotuner.errors import InvalidInput
from autotuner.report import write_report
from autotuner.sandbox.stack import remove_directory, run_directory
from autotuner.sandbox.workload import DEFAULT_WORKLOAD, load_workload, workload_names

REPORT_NAME = "autotuner-report-{study}.html"


@dataclass(frozen=True)
class Ending:
    """What a demo ended with."""

    study: Study
    benefit: Benefit
    served: dict[str, Configuration]
    weights: dict[str, int]
    seconds: float
    requests: int
    report: Path
    note: str


def demo(  # noqa: PLR0913, PLR0917 - one argument an option
    context: typer.Context,
    workload: Annotated[
        str, typer.Option(help=f"A workload file, or one of: {', '.join(workload_names())}.")
    ] = DEFAULT_WORKLOAD,
    short: Annotated[bool, typer.Option(help="Fewer trials and levels: a few minutes less.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
    keep: Annotated[bool, typer.Option(help="Leave everything running at the end, until Ctrl-C.")] = False,
    report: Annotated[Path | None, typer.Option(help="Where to write the HTML report.")] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where logs go; kept. Default: a temporary one.")
    ] = None,
    database_url: Annotated[
        str,
        typer.Option(
            envvar="AUTOTUNER_DEMO_DATABASE_URL", help="A PostgreSQL ≥ 15 to use instead of starting one."
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the traffic and of the sampler.")] = 1,
) -> None:
    """Tune a model on real servers on this machine: three tritonservers, Envoy, PostgreSQL, bursty traffic."""
    of(context, json=as_json)
    chosen = load_workload(workload)
    if database_url and not database_url.startswith("postgresql"):
        raise InvalidInput(
            "--database-url", database_url.split("@")[-1], "postgresql+psycopg://USER:PASSWORD@HOST/DB"
        )
    place = directory or run_directory()
    options = Options(chosen, place, database_url, short, seed)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # SIGINT too: what a script starts beside itself ignores it
        signal.signal(number, _interrupt)
    began = SystemClock().now()
    try:
        with Display(json=as_json) as display:
            code = _conduct(options, display, began, report, keep=keep, as_json=as_json)
    finally:
        if directory is None:
            remove_directory(place)
    raise typer.Exit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _conduct(
    options: Options, display: Display, began: datetime, report: Path | None, *, keep: bool, as_json: bool
) -> int:
    with Rehearsal(options, display) as rehearsal:
        study = rehearsal.study()
        path = report or Path(REPORT_NAME.format(study=study.id))
        ending = Ending(
            study=study,
            benefit=benefit(study),
            served=dict(rehearsal.served()),
            weights=dict(rehearsal.weights()),
            seconds=(SystemClock().now() - began).total_seconds(),
            requests=rehearsal.requests(),
            report=write_report(study, path, rehearsal.stack.note),
            note=rehearsal.stack.note,
        )
        _tell(ending, display)
        if keep and not rehearsal.interrupted:
            _stay(rehearsal, display)
    if as_json:
        typer.echo(json.dumps(as_object(ending)))
    if rehearsal.interrupted:
        return Exit.INTERRUPTED
    return exit_code_of(study.outcome)


def _stay(rehearsal: Rehearsal, display: Display) -> None:
    stack = rehearsal.stack
    display.console.print(f"\nStill running: gateway {stack.envoy.url}, its admin {stack.envoy.admin_url}")
    for name, triton in stack.tritons.items():
        display.console.print(f"  {name}: {triton.http_url}")
    display.console.print(f"  database: {stack.url}\nCtrl-C stops everything.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        display.progress("stopping")


def as_object(ending: Ending) -> dict[str, Any]:
    """The demo's result as one JSON object; a study that had to be left before its end is an aborted one."""
    return {
        **ending_object(ending.study),
        "outcome": str(ending.study.outcome or Outcome.ABORTED),
        "seconds": round(ending.seconds, 1),
        "requests": ending.requests,
        "report": str(ending.report),
        "served": {name: configuration_object(found) for name, found in ending.served.items()},
        "weights": ending.weights,
        "note": ending.note,
    }


def _tell(ending: Ending, display: Display) -> None:
    study, worth, show = ending.study, ending.benefit, display.console.print
    show(f"\n[bold]{str(study.outcome).upper()}[/bold]: {study.reason}")
    show(
        f"Figures of this machine's {ending.note}; a rehearsal's dispersion factor is limited to {study.dispersion:g}"
        f" (measured: {study.measured_dispersion or 0:.0f}); a study in production has no such limit and looks longer."
    )
    table = Table("", "incumbent", "winner")
    currency = study.plan.target.currency
    rows: list[tuple[str, Callable[[Standing], str]]] = [
        ("configuration", lambda s: s.configuration.describe()),
        (
            "capacity per replica, requests/s",
            lambda s: _number(s.capacity_per_second, "≥ " if s.at_least else ""),
        ),
        ("p99 at production's load, ms", lambda s: _number(s.p99_seconds and s.p99_seconds * 1e3)),
        ("compute seconds per million", lambda s: _number(s.compute_seconds_per_million)),
        (f"cost per million at capacity, {currency}", lambda s: _number(s.cost_per_million, digits=2)),
    ]
    for title, value in rows:
        table.add_row(title, *("-" if s is None else value(s) for s in (worth.incumbent, worth.winner)))
    show(table)
    if worth.capacity_ratio is not None:
        show(f"capacity: {worth.capacity_ratio:.2f} × the incumbent's")
    show(
        f"slow requests caused by tuning: {worth.harm_requests:.0f} of a harm budget of {worth.harm_budget_requests}"
        f", in {ending.requests:,} requests and {ending.seconds:.0f} s"
    )
    for name, served in ending.served.items():
        show(f"  {name} serves: {served.describe()} (weight {ending.weights.get(name, 0)})")
    show(f"report: {ending.report}")
    show(
        "Next: `autotuner demo --keep` leaves the stack up; `autotuner demo --workload FILE` rehearses your own model; "
        "`autotuner tune TARGET.yaml` tunes a real Triton (see README)."
    )


def _number(value: float | None, prefix: str = "", digits: int = 0) -> str:
    return "-" if value is None else f"{prefix}{value:,.{digits}f}"
