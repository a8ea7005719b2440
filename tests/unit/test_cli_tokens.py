"""`autotuner token …`: tokens are made, listed and ended, and a secret is seen once."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from autotuner.access import SECRET, identify
from autotuner.domain.access import Scope
from tests.builders import START
from tests.command_line import Terminal


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_a_token_is_made_and_its_secret_is_good(terminal: Terminal) -> None:
    ran = terminal.run("token", "create", "anna", "--scope", "operator", "--scope", "viewer")

    secret = ran.out.strip()
    application = terminal.application(terminal.settings)
    who = identify(application.tokens, None, terminal.clock, secret)
    assert (ran.code, SECRET.fullmatch(secret) is not None) == (0, True)
    assert (who.actor, who.scopes) == ("anna", frozenset({Scope.VIEWER, Scope.OPERATOR}))


def test_a_secret_is_shown_once_and_recorded_nowhere(terminal: Terminal) -> None:
    secret = terminal.run("token", "create", "anna", "--scope", "admin").out.strip()

    listed = terminal.run("token", "list")
    listed_json = terminal.run("token", "list", "--json")
    audited = terminal.run("audit", "--json")

    for later in (listed, listed_json, audited):
        assert secret not in later.out + later.err
    assert secret not in repr(terminal.store.memory)


def test_a_token_is_listed_with_what_it_may_and_how_long(terminal: Terminal) -> None:
    made = terminal.run(
        "token", "create", "anna", "--scope", "operator", "--expires", "12h", "--note", "ci", "--json"
    )

    line = terminal.run("token", "list").out
    (told,) = terminal.run("token", "list", "--json").answer["tokens"]

    assert re.fullmatch(
        rf"{made.answer['id']}  anna  operator  good until 2026-01-05 14:00, never used  ci\n", line
    )
    assert told["expires_at"] == (terminal.clock.now() + timedelta(hours=12)).isoformat()
    assert terminal.clock.now() - START < timedelta(minutes=1)
    assert "secret" not in told


def test_no_token_is_said(terminal: Terminal) -> None:
    assert terminal.run("token", "list").out == "no token is recorded\n"


def test_a_revoked_token_is_good_no_more(terminal: Terminal) -> None:
    made = terminal.run("token", "create", "anna", "--scope", "viewer", "--json").answer

    ran = terminal.run("token", "revoke", made["id"], "--reason", "it was on a slide")

    assert (ran.code, ran.out) == (0, f"token {made['id']} of anna is revoked\n")
    assert "the token was revoked" in terminal.run("token", "list").out
    newest = json.loads(terminal.run("audit", "--limit", "1", "--json").out)["records"][0]
    assert (newest["action"], newest["reason"], newest["actor"]) == (
        "token_revoked",
        "it was on a slide",
        "tester",
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("create", "anna", "--scope", "root"), 2, "viewer, operator, approver, admin"),
        (("create", "anna", "--scope", "viewer", "--expires", "soon"), 2, "12h or 90d"),
        (("create", "anna", "--scope", "viewer", "--expires", "367d"), 2, "up to 366 days"),
        (("create", "anna", "--scope", "viewer", "--expires", "0d"), 2, "above 0"),
        (("create", " ", "--scope", "viewer"), 2, "a name of 1 to 200 characters"),
        (("create", "a\nb", "--scope", "viewer"), 2, "on one line"),
        (("revoke", "nothing"), 9, "no token is known"),
    ],
)
def test_what_cannot_be_done_is_said(
    terminal: Terminal, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = terminal.run("token", *words)

    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert terminal.store.memory.tokens == {}
