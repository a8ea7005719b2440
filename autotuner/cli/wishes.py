"""`autotuner cancel`, `pause`, `resume`, `approve`, `disapprove`: an operator's wish, obeyed at the next tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from autotuner.cli.invocation import Json, of
from autotuner.domain.study import Wish
from autotuner.operations import approve, ask

WISHES: dict[str, tuple[Wish, str, str]] = {
    "cancel": (Wish.CANCEL, "End a study now and restore the incumbent.", "ends and restores the incumbent"),
    "pause": (Wish.PAUSE, "Start no further trial until `resume`.", "starts no further trial"),
    "resume": (Wish.RUN, "Let a paused study go on.", "goes on"),
    "approve": (Wish.APPROVE, "Let the confirmed winner into production.", "promotes its winner"),
    "disapprove": (
        Wish.DISAPPROVE,
        "Keep the incumbent although a winner is confirmed.",
        "keeps the incumbent",
    ),
}


def wish_command(name: str) -> Callable[..., None]:
    """Return the command that records the wish called `name`."""
    wish, purpose, effect = WISHES[name]

    def command(
        context: typer.Context,
        study: Annotated[str, typer.Argument(help="A study's id, or `latest`.")],
        reason: Annotated[str, typer.Option(help="Why; recorded in the audit.")] = "",
        json: Json = False,
    ) -> None:
        invocation = of(context, json=json)
        with invocation.opened() as app:
            actor = app.settings.actor
            if wish is Wish.APPROVE:
                found = approve(app.store, app.registry, app.clock, study, (actor, reason))
            else:
                found = ask(app.store, app.clock, study, wish, actor, reason)
        if json:
            invocation.answer({"study": found.id, "wish": wish.value, "phase": found.phase.value})
        else:
            print(f"study {found.id} {effect} at its worker's next tick")

    command.__doc__ = purpose
    return command
