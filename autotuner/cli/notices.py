"""`autotuner notifications …`: what people were told, and what could not be delivered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotuner.cli.invocation import Json, of
from autotuner.ports import Message, MessageState

commands = typer.Typer(help="What people were told, and what could not be delivered.", no_args_is_help=True)


@commands.command("list")
def list_all(
    context: typer.Context,
    state: Annotated[
        MessageState | None, typer.Option(help="Only these: pending, delivered or dead (given up).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Shown at most, newest first.")] = 20,
    json: Json = False,
) -> None:
    """List notices, newest first, with what their last delivery came to."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        found = app.outbox.messages(state, limit)
    if json:
        invocation.answer({"notifications": [_object(message) for message in found]})
    else:
        print("\n".join(map(_line, found)) if found else "nothing was told")


@commands.command()
def retry(
    context: typer.Context,
    number: Annotated[
        int, typer.Argument(help="A dead notice's number, from `autotuner notifications list`.")
    ],
    json: Json = False,
) -> None:
    """Let a notice that was given up be delivered again."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        message = app.outbox.retry(number, app.clock.now())
    if json:
        invocation.answer(_object(message))
    else:
        print(f"notification {number} is delivered at the scheduler's next turn")


def _object(message: Message) -> dict[str, Any]:
    notice = message.notice
    return {
        "number": message.number,
        "kind": notice.kind.value,
        "target": notice.target,
        "subject": notice.subject,
        "at": notice.at.isoformat(),
        "text": notice.text,
        "state": message.state.value,
        "attempts": message.attempts,
        "next_attempt_at": message.next_attempt_at.isoformat(),
        "delivered_to": list(message.delivered_to),
        "error": message.error,
    }


def _line(message: Message) -> str:
    told = (
        f"{message.number:6} {message.notice.at:%Y-%m-%d %H:%M} {message.state.value:9} {message.notice.text}"
    )
    return f"{told} [{message.error}]" if message.error else told
