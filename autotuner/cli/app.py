"""The command `autotuner`: which commands there are."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner import __version__
from autotuner.cli import database, work
from autotuner.cli.invocation import CommandLine, start

app = typer.Typer(
    cls=CommandLine,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tunes NVIDIA Triton Inference Server on production traffic, under a p99 ceiling fixed before it starts.",
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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Begin every command the same way."""
    start(context, debug)


app.add_typer(database.commands, name="db")
app.command()(work.worker)
