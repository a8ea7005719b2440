"""Use cases of access: issue and revoke tokens, and tell who it is that shows one.

A secret is 256 random bits, so its plain SHA-256 is stored: slow hashing protects what people choose, because it can
be guessed; nobody guesses 256 bits, and every request pays for the hash.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from autotuner.domain.access import Identity, Scope, Token
from autotuner.errors import InvalidInput, Unauthenticated
from autotuner.ports import Clock, Issuer, Tokens

PREFIX = "autotuner_"
"""How every secret begins, so that scanners find one that was published by mistake."""

SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
"""A secret: the prefix and 256 bits in base64url."""

LONGEST_LIFE = timedelta(days=366)
"""A token that nobody renews within a year is forgotten by those who hold it, and found by others."""

NOTICE_USE_AFTER = timedelta(minutes=1)
"""The last use of a token is recorded at most so often: a write per request would cost more than it tells."""

ACTOR = re.compile(r"[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,199}")


@dataclass(frozen=True)
class Wanted:
    """A token somebody asks for. life: how long it is good."""

    actor: str
    scopes: tuple[Scope, ...]
    life: timedelta
    note: str = ""


def issue_token(tokens: Tokens, clock: Clock, wanted: Wanted, created_by: str) -> tuple[Token, str]:
    """Record a new token and return it with its secret, which nothing can show again. Raises InvalidInput."""
    if not ACTOR.fullmatch(wanted.actor):
        raise InvalidInput("actor", wanted.actor, "a name of 1 to 200 characters on one line")
    if not timedelta(0) < wanted.life <= LONGEST_LIFE:
        raise InvalidInput("expires", str(wanted.life), f"above 0, up to {LONGEST_LIFE.days} days")
    now = clock.now()
    token = Token(
        id=secrets.token_hex(4),
        actor=wanted.actor,
        scopes=wanted.scopes,
        note=wanted.note,
        created_at=now,
        created_by=created_by,
        expires_at=now + wanted.life,
    )
    secret = PREFIX + secrets.token_urlsafe(32)
    tokens.add(token, digest_of(secret))
    return token, secret


def revoke_token(tokens: Tokens, clock: Clock, token_id: str, actor: str, reason: str) -> Token:
    """End a token now and return it; nothing changes when it was ended before. Raises NotFound."""
    return tokens.revoke(token_id, actor, reason, clock.now())


def list_tokens(tokens: Tokens, limit: int) -> Sequence[Token]:
    """Return the newest tokens, newest first, ended ones too."""
    return tokens.newest(limit)


def identify(tokens: Tokens, issuer: Issuer | None, clock: Clock, shown: str) -> Identity:
    """Return whom a bearer credential stands for: one of our tokens, or a JWT of the configured issuer.

    Raises Unauthenticated, without repeating what was shown; Unavailable when it cannot be looked up.
    """
    if SECRET.fullmatch(shown):
        return _identify_token(tokens, clock.now(), shown)
    if shown.startswith(PREFIX) or issuer is None:
        raise Unauthenticated("the token is unknown")
    return issuer.identity(shown)


def _identify_token(tokens: Tokens, now: datetime, secret: str) -> Identity:
    token = tokens.by_digest(digest_of(secret))
    if token is None:
        raise Unauthenticated("the token is unknown")
    refused = token.why_refused(now)
    if refused:
        raise Unauthenticated(refused)
    if token.last_used_at is None or now - token.last_used_at >= NOTICE_USE_AFTER:
        tokens.note_use(token.id, now)
    return token.identity()


def digest_of(secret: str) -> str:
    """Return what is stored of a secret: its SHA-256, hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()
