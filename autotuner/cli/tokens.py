"""`autotuner token …`: who may use the REST API. Whoever may reach the database may make tokens."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

import typer

from autotuner.access import Wanted, issue_token, list_tokens, revoke_token
from autotuner.cli.invocation import Json, of, say
from autotuner.domain.access import Token, read_scopes
from autotuner.errors import InvalidInput

commands = typer.Typer(help="Who may use the REST API.", no_args_is_help=True)


@commands.command()
def create(
    context: typer.Context,
    actor: Annotated[str, typer.Argument(help="Who acts when the token is shown, as the audit names them.")],
    scope: Annotated[
        list[str],
        typer.Option(help="viewer, operator, approver, admin or tracer; may be given several times."),
    ],
    expires: Annotated[str, typer.Option(help="How long it is good: 12h, 90d; up to 366d.")] = "90d",
    note: Annotated[str, typer.Option(help="What it is for; recorded in the audit.")] = "",
    json: Json = False,
) -> None:
    """Make a token and show its secret, once: only its digest is kept."""
    invocation = of(context, json=json)
    wanted = Wanted(actor, read_scopes(scope), _life(expires), note)
    with invocation.opened() as app:
        token, secret = issue_token(app.tokens, app.clock, wanted, app.settings.actor)
    if json:
        invocation.answer({**_object(token), "secret": secret})
    else:
        say(
            f"token {token.id} of {token.actor}, good until {token.expires_at:%Y-%m-%d %H:%M} UTC; shown once:"
        )
        print(secret)


@commands.command("list")
def list_all(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Tokens shown at most, newest first.")] = 100,
    json: Json = False,
) -> None:
    """List tokens, newest first, ended ones too; secrets are kept nowhere."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        found = [(token, token.why_refused(app.clock.now())) for token in list_tokens(app.tokens, limit)]
    if json:
        invocation.answer({"tokens": [_object(token) for token, _ in found]})
    elif not found:
        print("no token is recorded")
    else:
        print("\n".join(_line(token, ended) for token, ended in found))


@commands.command()
def revoke(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="A token's id, from `autotuner token list`.")],
    reason: Annotated[str, typer.Option(help="Why; recorded in the audit.")] = "",
    json: Json = False,
) -> None:
    """End a token now. Safe to repeat."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        ended = revoke_token(app.tokens, app.clock, token, app.settings.actor, reason)
    if json:
        invocation.answer(_object(ended))
    else:
        print(f"token {ended.id} of {ended.actor} is revoked")


def _life(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,4})([hd])", text)
    if found is None:
        raise InvalidInput("--expires", text, "a number of hours or days: 12h or 90d")
    number = int(found[1])
    return timedelta(hours=number) if found[2] == "h" else timedelta(days=number)


def _line(token: Token, ended: str) -> str:
    used = f"last used {token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else "never used"
    state = ended or f"good until {token.expires_at:%Y-%m-%d %H:%M}"
    return f"{token.id}  {token.actor}  {', '.join(token.scopes)}  {state}, {used}  {token.note or '-'}"


def _object(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "actor": token.actor,
        "scopes": list(token.scopes),
        "note": token.note,
        "created_at": token.created_at.isoformat(),
        "created_by": token.created_by,
        "expires_at": token.expires_at.isoformat(),
        "last_used_at": token.last_used_at.isoformat() if token.last_used_at else None,
        "revoked_at": token.revoked_at.isoformat() if token.revoked_at else None,
    }
