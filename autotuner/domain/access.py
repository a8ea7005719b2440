"""Who may do what: scopes, the tokens that carry them, and what a scope includes.

A token is known by the digest of its secret alone; nothing here or in any store can give the secret back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotuner.errors import Forbidden, InvalidInput


class Scope(StrEnum):
    """What somebody may do. Every scope but `tracer` may look; only `admin` includes the others."""

    VIEWER = "viewer"
    """Look at everything that is recorded."""
    OPERATOR = "operator"
    """Change targets and budgets; start, pause, resume and cancel studies."""
    APPROVER = "approver"
    """Let a confirmed winner into production, or keep it out."""
    ADMIN = "admin"
    """All of it, and retire targets."""
    TRACER = "tracer"
    """Send spans of requests, and nothing else: its tokens stand in the configuration of gateways and servers."""


INCLUDED: dict[Scope, frozenset[Scope]] = {
    Scope.VIEWER: frozenset({Scope.VIEWER}),
    Scope.OPERATOR: frozenset({Scope.VIEWER, Scope.OPERATOR}),
    Scope.APPROVER: frozenset({Scope.VIEWER, Scope.APPROVER}),
    Scope.ADMIN: frozenset(Scope),
    Scope.TRACER: frozenset({Scope.TRACER}),
}
"""What each scope lets somebody do. Who operates does not therefore approve: four eyes are two people."""


@dataclass(frozen=True)
class Identity:
    """Somebody who has shown who they are.

    actor: the name that the audit records. source: what vouched for it (`token 3f9ac2d1`, or an issuer's address).
    """

    actor: str
    scopes: frozenset[Scope]
    source: str

    def may(self, scope: Scope) -> bool:
        """Say whether `scope` is among what the identity's scopes include."""
        return any(scope in INCLUDED[held] for held in self.scopes)

    def require(self, scope: Scope) -> None:
        """Raise Forbidden unless the identity may do what needs `scope`."""
        if not self.may(scope):
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs the scope {scope}; {self.actor} has: {held}")


@dataclass(frozen=True)
class Said:
    """Who asked for something, why and when."""

    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class Token:
    """A bearer token as it is recorded, without its secret.

    id: a public name to list and revoke it by. actor: who acts when it is shown. Instants are aware.
    """

    id: str
    actor: str
    scopes: tuple[Scope, ...]
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def why_refused(self, now: datetime) -> str:
        """Return why the token is not good any more; empty when it is."""
        if self.revoked_at is not None:
            return "the token was revoked"
        return "the token has expired" if now >= self.expires_at else ""

    def identity(self) -> Identity:
        """Return whom the token stands for."""
        return Identity(self.actor, frozenset(self.scopes), f"token {self.id}")


def read_scopes(names: Iterable[str]) -> tuple[Scope, ...]:
    """Return the scopes of these names, each once, in the order of `Scope`. Raises InvalidInput for none or others."""
    asked = set(names)
    if not asked or asked - set(Scope):
        raise InvalidInput("scopes", sorted(asked), f"at least one of {', '.join(Scope)}")
    return tuple(scope for scope in Scope if scope in asked)


def check_four_eyes(starter: str, approver: str) -> None:
    """Raise Forbidden when the one who would approve a study's winner is the one who started the study."""
    if starter == approver:
        raise Forbidden(
            f"{approver} started this study, and its target asks for four eyes: another approver must decide"
        )
