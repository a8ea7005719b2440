"""Who is let through: everybody on open routes, else whoever shows a token with the scope of the route.

It stands before the router, so a body is not even read from somebody who may not send it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.limits import Limiter
from api.scopes import Rule, RuleBook
from autotuner.domain.access import Identity
from autotuner.errors import Unauthenticated
from autotuner.ports import Clock

LONGEST_CREDENTIAL = 16_384
"""Characters of a bearer credential that are looked at; a JWT with many groups takes a few thousand."""


KNOWN_FOR = timedelta(seconds=2)
"""How long somebody who was let in is let in again unasked: a revocation counts after so long at the latest."""

MOST_KNOWN = 1_000


class Known:
    """Who was let in a moment ago, by the digest of what they showed. For one thread: the event loop's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[Identity, datetime]] = OrderedDict()

    def find(self, credential: str) -> Identity | None:
        """Return who showed this a moment ago; None when nobody did."""
        found = self._kept.get(_digest(credential))
        if found is None or not timedelta(0) <= self._clock.now() - found[1] < KNOWN_FOR:
            return None
        return found[0]

    def keep(self, credential: str, identity: Identity) -> None:
        """Remember for a moment who showed this."""
        key = _digest(credential)
        self._kept.pop(key, None)
        self._kept[key] = (identity, self._clock.now())
        if len(self._kept) > MOST_KNOWN:
            self._kept.popitem(last=False)


def _digest(credential: str) -> bytes:
    """What is kept of a credential: nothing that could be shown again."""
    return hashlib.sha256(credential.encode()).digest()


def bearer(scope: Scope) -> str:
    """Return the credential of a request's Authorization header. Raises Unauthenticated."""
    kind, _, credential = Headers(scope=scope).get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not credential.strip():
        raise Unauthenticated("a bearer token is needed: Authorization: Bearer TOKEN")
    return credential.strip()


@dataclass(frozen=True)
class Gate:
    """What the guard goes by.

    identify: whom a credential stands for; callers, failures: how often they may ask. shown: the credential that a
    request shows; raises Unauthenticated without one.
    """

    rules: RuleBook
    identify: Callable[[str], Identity]
    known: Known
    callers: Limiter
    failures: Limiter
    shown: Callable[[Scope], str] = bearer

    async def identified(self, scope: Scope, credential: str) -> Identity:
        """Return whom a credential stands for. Raises Unauthenticated, TooManyRequests, Unavailable."""
        if len(credential) > LONGEST_CREDENTIAL:
            raise Unauthenticated("the token is unknown")
        client = scope.get("client")
        address = client[0] if client else "unknown"
        self.failures.check(address)
        try:
            return await run_in_threadpool(self.identify, credential)
        except Unauthenticated:
            await self.failures.take(address)
            raise


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
                state["admitted_still"] = lambda: self._check_still(scope, rule)
        await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope, rule: Rule) -> Identity:
        credential = self._gate.shown(scope)
        identity = self._gate.known.find(credential)
        if identity is None:
            identity = await self._gate.identified(scope, credential)
            self._gate.known.keep(credential, identity)
        await self._gate.callers.take(identity.actor)
        assert rule.scope is not None
        identity.require(rule.scope)
        return identity

    def _check_still(self, scope: Scope, rule: Rule) -> None:
        """Raise Unauthenticated or Forbidden when who was admitted would be no longer; Unavailable: nobody knows."""
        assert rule.scope is not None
        self._gate.identify(self._gate.shown(scope)).require(rule.scope)
