"""Bearer tokens in PostgreSQL, found by the digest of their secret."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, bindparam, exc, select, update

from autotuner.adapters.postgres.audit_log import add_lines
from autotuner.adapters.postgres.engine import reading, transaction
from autotuner.adapters.postgres.tables import tokens
from autotuner.bookkeeping.audit import token_lines, token_revoked_lines
from autotuner.bookkeeping.rules import aware, check_new_token, kept_token
from autotuner.domain.access import Said, Scope, Token
from autotuner.errors import NotFound

COLUMNS = tuple(column for column in tokens.c if column.name != "digest")

BY_DIGEST = select(*COLUMNS).where(tokens.c.digest == bindparam("digest"))


class PostgresTokens:
    """Tokens in the table `tokens`. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, token: Token, digest: str) -> None:
        """Record a new token; see `ports.Tokens`."""
        kept = kept_token(token)
        row = {
            "id": token.id,
            "digest": digest,
            "actor": kept.actor,
            "scopes": [scope.value for scope in token.scopes],
            "note": kept.note,
            "created_at": token.created_at,
            "created_by": kept.created_by,
            "expires_at": token.expires_at,
        }
        try:
            with transaction(self._engine) as connection:
                connection.execute(tokens.insert().values(row))
                add_lines(connection, token_lines(kept))
        except exc.IntegrityError as error:
            violated = getattr(getattr(error.orig, "diag", None), "constraint_name", None) or ""
            if violated.startswith(("pk_", "uq_")):
                check_new_token(token.id, known=True)
            raise

    def by_digest(self, digest: str) -> Token | None:
        """Return the token whose secret has this digest, ended or not; None when there is none."""
        with reading(self._engine) as connection:
            row = connection.execute(BY_DIGEST, {"digest": digest}).one_or_none()
        return None if row is None else _token(row)

    def newest(self, limit: int = 100) -> Sequence[Token]:
        """Return tokens, newest first, ended ones too."""
        query = select(*COLUMNS).order_by(tokens.c.created_at.desc(), tokens.c.id.desc()).limit(limit)
        with reading(self._engine) as connection:
            return tuple(_token(row) for row in connection.execute(query))

    def revoke(self, token_id: str, actor: str, reason: str, now: datetime) -> Token:
        """End a token and return it; see `ports.Tokens`."""
        said = Said(actor, reason, aware(now))
        here = tokens.c.id == token_id
        with transaction(self._engine) as connection:
            ended = update(tokens).where(here, tokens.c.revoked_at.is_(None)).values(revoked_at=now)
            row = connection.execute(ended.returning(*COLUMNS)).one_or_none()
            if row is not None:
                token = _token(row)
                add_lines(connection, token_revoked_lines(token, said))
                return token
            row = connection.execute(select(*COLUMNS).where(here)).one_or_none()
        if row is None:
            raise NotFound("token", token_id)
        return _token(row)

    def note_use(self, token_id: str, now: datetime) -> None:
        """Record that the token was shown at `now`; nothing happens when it is unknown."""
        with transaction(self._engine) as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=aware(now)))


def _token(row: Row[Any]) -> Token:
    fields = dict(row._mapping)
    fields["scopes"] = tuple(Scope(scope) for scope in fields["scopes"])
    return Token(**fields)
