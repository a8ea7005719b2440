"""`autotuner db …`: the schema of the database that everything is remembered in."""

from __future__ import annotations

import typer

from autotuner.bootstrap import upgrade_database
from autotuner.cli.invocation import Json, of

commands = typer.Typer(help="The database everything is remembered in.", no_args_is_help=True)


@commands.command()
def upgrade(context: typer.Context, json: Json = False) -> None:
    """Bring the database to the schema of this version. Safe to repeat; several at once take turns."""
    invocation = of(context, json=json)
    revision = upgrade_database(invocation.settings())
    if json:
        invocation.answer({"revision": revision})
    else:
        print(f"the database is at revision {revision}")
