"""`autotuner rollback`: take a promotion back."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.invocation import Json, of
from autotuner.promotions import roll_back


def rollback(
    context: typer.Context,
    study: Annotated[str, typer.Argument(help="The study that promoted: its id, or `latest`.")],
    reason: Annotated[str, typer.Option(help="Why; recorded in the audit.")],
    json: Json = False,
) -> None:
    """Restore what served before a study's promotion exactly, one replica at a time."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        found = roll_back(app.desk(), study, app.settings.actor, reason)
    if json:
        invocation.answer({"study": found.study_id, "begun": found.begun})
    elif found.begun:
        print(f"study {found.study_id} restores production at its worker's next tick")
    else:
        print(
            f"study {found.study_id} was asked to before: `autotuner show {found.study_id}` tells how it stands"
        )
