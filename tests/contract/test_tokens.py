"""What every store of tokens promises, in memory and in PostgreSQL alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autotuner.access import digest_of
from autotuner.domain.access import Scope, Token
from autotuner.errors import Conflict, NotFound
from tests.builders import START, at
from tests.contract.conftest import Backend
from tests.contract.stored import audited

DIGEST = digest_of("one")


def a_token(**changes: Any) -> Token:
    fields: dict[str, Any] = {
        "id": "3f9ac2d1",
        "actor": "anna",
        "scopes": (Scope.VIEWER, Scope.OPERATOR),
        "note": "for the night shift – “quoted”",
        "created_at": START,
        "created_by": "root@host",
        "expires_at": START + timedelta(days=90),
    }
    return Token(**{**fields, **changes})


def test_a_token_is_found_by_the_digest_of_its_secret_alone(backend: Backend) -> None:
    backend.tokens.add(a_token(), DIGEST)

    assert backend.tokens.by_digest(DIGEST) == a_token()
    assert backend.tokens.by_digest(digest_of("two")) is None


def test_a_token_and_its_end_are_audited_without_its_digest(backend: Backend) -> None:
    backend.tokens.add(a_token(), DIGEST)
    backend.tokens.revoke("3f9ac2d1", "bob", "it was on a slide", at(60))

    created, revoked = audited(backend)
    assert (created.action, created.actor, created.subject, created.reason) == (
        "token_created",
        "root@host",
        "token 3f9ac2d1",
        "for the night shift – “quoted”",
    )
    assert created.details == {
        "actor": "anna",
        "scopes": ["viewer", "operator"],
        "expires_at": (START + timedelta(days=90)).isoformat(),
    }
    assert (revoked.action, revoked.actor, revoked.reason, revoked.at) == (
        "token_revoked",
        "bob",
        "it was on a slide",
        at(60),
    )
    assert DIGEST not in repr((created, revoked))
    assert backend.store.first_broken_audit() is None


def test_a_token_is_revoked_once(backend: Backend) -> None:
    backend.tokens.add(a_token(), DIGEST)

    first = backend.tokens.revoke("3f9ac2d1", "bob", "", at(60))
    again = backend.tokens.revoke("3f9ac2d1", "carl", "", at(120))

    assert first == again == a_token(revoked_at=at(60))
    assert backend.tokens.by_digest(DIGEST) == first
    assert [record.action for record in audited(backend)] == ["token_created", "token_revoked"]


def test_an_unknown_token_cannot_be_revoked_and_its_use_is_no_news(backend: Backend) -> None:
    with pytest.raises(NotFound):
        backend.tokens.revoke("nothing", "bob", "", START)

    backend.tokens.note_use("nothing", START)

    assert audited(backend) == []


def test_the_last_use_of_a_token_is_remembered_and_not_audited(backend: Backend) -> None:
    backend.tokens.add(a_token(), DIGEST)

    backend.tokens.note_use("3f9ac2d1", at(90))

    assert backend.tokens.by_digest(DIGEST) == a_token(last_used_at=at(90))
    assert len(audited(backend)) == 1


def test_tokens_are_listed_newest_first(backend: Backend) -> None:
    for number in range(3):
        backend.tokens.add(
            a_token(id=f"token-{number}", created_at=at(number)), digest_of(f"secret {number}")
        )

    assert [token.id for token in backend.tokens.newest()] == ["token-2", "token-1", "token-0"]
    assert [token.id for token in backend.tokens.newest(1)] == ["token-2"]


@pytest.mark.parametrize(
    ("token", "digest"),
    [(a_token(), digest_of("another")), (a_token(id="another"), DIGEST)],
    ids=["the same id", "the same secret"],
)
def test_neither_id_nor_secret_is_used_twice(backend: Backend, token: Token, digest: str) -> None:
    backend.tokens.add(a_token(), DIGEST)

    with pytest.raises(Conflict, match="already recorded"):
        backend.tokens.add(token, digest)

    assert backend.tokens.newest() == (a_token(),)


def test_text_that_no_database_holds_is_kept_as_far_as_possible(backend: Backend) -> None:
    backend.tokens.add(replace(a_token(), note="a \x00 and \ud800"), DIGEST)

    assert backend.tokens.newest()[0].note == "a ? and ?"
