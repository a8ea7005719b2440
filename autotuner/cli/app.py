"""The command `autotuner`: which commands there are."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner import __version__
from autotuner.cli import (
    database,
    history,
    kubernetes,
    metrics,
    notices,
    records,
    rollback,
    schedules,
    serve,
    targets,
    tokens,
    tuning,
    work,
)
from autotuner.cli.invocation import CommandLine, start
from autotuner.cli.wishes import WISHES, wish_command
from autotuner.settings import variables

ENVIRONMENT = "\n\n".join(
    [
        "Environment:",
        *(
            f"{each.name}: {each.description}" + (f" Default: {each.default}." if each.default else "")
            for each in variables()
        ),
    ]
)

app = typer.Typer(
    cls=CommandLine,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tunes NVIDIA Triton Inference Server on production traffic, under a p99 ceiling fixed before it starts.",
    epilog=ENVIRONMENT,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"autotuner {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log everything; show where an error comes from.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback has answered before this runs
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Begin every command the same way."""
    start(context, debug)


app.command(epilog=ENVIRONMENT)(tuning.tune)
app.command(epilog=ENVIRONMENT)(work.worker)
app.command(epilog=ENVIRONMENT)(work.scheduler)
app.command(epilog=ENVIRONMENT)(serve.serve)
app.command()(history.history)
app.command()(history.show)
app.command()(records.replay)
app.command()(records.export)
app.command()(records.audit)
for name in WISHES:
    app.command(name)(wish_command(name))
app.command()(rollback.rollback)
app.add_typer(targets.commands, name="target")
app.add_typer(metrics.commands, name="metrics")
app.add_typer(schedules.commands, name="schedule")
app.add_typer(notices.commands, name="notifications")
app.add_typer(tokens.commands, name="token")
app.add_typer(database.commands, name="db")
app.add_typer(kubernetes.commands, name="kubernetes")
