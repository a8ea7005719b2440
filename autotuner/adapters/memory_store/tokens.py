"""Bearer tokens in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from autotuner.adapters.memory_store.tables import Memory
from autotuner.bookkeeping.audit import token_lines, token_revoked_lines
from autotuner.bookkeeping.rules import aware, check_new_token, kept_token
from autotuner.domain.access import Said, Token
from autotuner.errors import NotFound


class MemoryTokens:
    """Tokens beside a `MemoryStore`, whose tables they are given."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def add(self, token: Token, digest: str) -> None:
        """Record a new token; see `ports.Tokens`."""
        with self._memory.lock:
            known = token.id in self._memory.tokens or digest in self._memory.token_digests
            check_new_token(token.id, known)
            kept = kept_token(token)
            self._memory.tokens[token.id] = kept
            self._memory.token_digests[digest] = token.id
            self._memory.note(token_lines(kept))

    def by_digest(self, digest: str) -> Token | None:
        """Return the token whose secret has this digest, ended or not; None when there is none."""
        with self._memory.lock:
            found = self._memory.token_digests.get(digest)
            return None if found is None else self._memory.tokens[found]

    def newest(self, limit: int = 100) -> Sequence[Token]:
        """Return tokens, newest first, ended ones too."""
        with self._memory.lock:
            kept = self._memory.tokens.values()
            return tuple(sorted(kept, key=lambda each: (each.created_at, each.id), reverse=True)[:limit])

    def revoke(self, token_id: str, actor: str, reason: str, now: datetime) -> Token:
        """End a token and return it; see `ports.Tokens`."""
        said = Said(actor, reason, aware(now))
        with self._memory.lock:
            if token_id not in self._memory.tokens:
                raise NotFound("token", token_id)
            token = self._memory.tokens[token_id]
            if token.revoked_at is None:
                token = replace(token, revoked_at=now)
                self._memory.tokens[token_id] = token
                self._memory.note(token_revoked_lines(token, said))
            return token

    def note_use(self, token_id: str, now: datetime) -> None:
        """Record that the token was shown at `now`; nothing happens when it is unknown."""
        with self._memory.lock:
            if token_id in self._memory.tokens:
                token = self._memory.tokens[token_id]
                self._memory.tokens[token_id] = replace(token, last_used_at=aware(now))
