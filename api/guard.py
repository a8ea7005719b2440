"""Who is let through: everybody on open routes, else whoever shows a token with the scope of the route.

It stands before the router, so a body is not even read from somebody who may not send it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.limits import Limiter
from api.scopes import Rule, RuleBook
from autotuner.domain.access import Identity
from autotuner.errors import Unauthenticated

LONGEST_CREDENTIAL = 16_384
"""Characters of a bearer credential that are looked at; a JWT with many groups takes a few thousand."""


@dataclass(frozen=True)
class Gate:
    """What the guard goes by. identify: whom a credential stands for; callers, failures: how often they may ask."""

    rules: RuleBook
    identify: Callable[[str], Identity]
    callers: Limiter
    failures: Limiter


class Guard:
    """The guard, as ASGI middleware: what it refuses it raises; rule and identity go into the request's state."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or raise what is wrong with it."""
        if scope["type"] == "http":
            rule = self._gate.rules.rule_for(scope["method"], scope["path"])
            state = scope.setdefault("state", {})
            state["rule"] = rule
            if rule.scope is not None:
                state["identity"] = await self._admitted(scope, rule)
        await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope, rule: Rule) -> Identity:
        client = scope.get("client")
        address = client[0] if client else "unknown"
        credential = _bearer(Headers(scope=scope).get("authorization"))
        self._gate.failures.check(address)
        try:
            identity = await run_in_threadpool(self._gate.identify, credential)
        except Unauthenticated:
            self._gate.failures.take(address)
            raise
        self._gate.callers.take(identity.actor)
        assert rule.scope is not None
        identity.require(rule.scope)
        return identity


def _bearer(header: str | None) -> str:
    """Return the credential of an Authorization header. Raises Unauthenticated."""
    kind, _, credential = (header or "").partition(" ")
    if kind.lower() != "bearer" or not credential.strip():
        raise Unauthenticated("a bearer token is needed: Authorization: Bearer TOKEN")
    if len(credential) > LONGEST_CREDENTIAL:
        raise Unauthenticated("the token is unknown")
    return credential.strip()
