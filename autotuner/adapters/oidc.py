"""OpenID Connect: whom a signed JWT of the configured issuer stands for.

The issuer's keys are read when they are needed, kept for minutes, and read again when a token names one that is not
known; not more often than every half minute, or anybody could make the service ask the issuer at will. While the
issuer does not answer, the keys that are known go on being used.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx
import jwt

from autotuner.domain.access import Identity, Scope
from autotuner.errors import Unauthenticated, Unavailable
from autotuner.ports import Clock

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are believed: asymmetric ones, so that who can check a token cannot make one."""

KEYS_LAST = timedelta(minutes=10)
ASK_AGAIN_AFTER = timedelta(seconds=30)
TIMEOUT_SECONDS = 5.0
SCOPE_PREFIX = "autotuner:"
"""May stand before a scope's name in a token that other services read too."""

REASONS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token is from another issuer"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim that is needed"),
    (jwt.InvalidSignatureError, "the token's signature does not hold"),
)


@dataclass(frozen=True)
class OidcRules:
    """What is believed. actor_claim, scope_claim: where a token says who somebody is and what they may."""

    issuer: str
    audience: str
    clock_skew: timedelta
    actor_claim: str
    scope_claim: str


class OidcIssuer:
    """The issuer of `rules`. client: for its pages; made when none is given."""

    def __init__(self, rules: OidcRules, clock: Clock, client: httpx.Client | None = None) -> None:
        self._rules = rules
        self._clock = clock
        self._client = client or httpx.Client(timeout=TIMEOUT_SECONDS)
        self._lock = threading.Lock()
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._read_at: datetime | None = None
        self._asked_at: datetime | None = None

    def identity(self, credential: str) -> Identity:
        """Return whom a signed JWT stands for. Raises Unauthenticated, Unavailable when its keys cannot be read."""
        try:
            header = jwt.get_unverified_header(credential)
        except jwt.PyJWTError as error:
            raise Unauthenticated("the token is unknown") from error
        if header.get("alg") not in ALGORITHMS:
            raise Unauthenticated("the token is signed in a way that is not believed")
        claims = self._claims(credential, self._key(str(header.get("kid", ""))), header["alg"])
        actor = claims.get(self._rules.actor_claim)
        if not isinstance(actor, str) or not actor.strip():
            raise Unauthenticated(f"the token's claim {self._rules.actor_claim} names nobody")
        return Identity(actor, self._scopes(claims), self._rules.issuer)

    def close(self) -> None:
        """Close the connections to the issuer."""
        self._client.close()

    def _claims(self, credential: str, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
        try:
            return jwt.decode(
                credential,
                key,
                algorithms=[algorithm],
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                leeway=self._rules.clock_skew,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            told = next((why for kind, why in REASONS if isinstance(error, kind)), "the token does not hold")
            raise Unauthenticated(told) from error

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """The scopes a token names, among other words; a text or a list."""
        said = claims.get(self._rules.scope_claim, ())
        words = said.split() if isinstance(said, str) else said if isinstance(said, list) else ()
        names = {str(word).removeprefix(SCOPE_PREFIX) for word in words}
        return frozenset(scope for scope in Scope if scope.value in names)

    def _key(self, key_id: str) -> jwt.PyJWK:
        with self._lock:
            now = self._clock.now()
            old = self._read_at is None or now - self._read_at >= KEYS_LAST
            rested = self._asked_at is None or now - self._asked_at >= ASK_AGAIN_AFTER
            if rested and (old or key_id not in self._keys):
                self._asked_at = now
                self._read_keys(now)
            if key_id in self._keys:
                return self._keys[key_id]
            if self._read_at is None:
                raise Unavailable(f"issuer {self._rules.issuer}", "its keys were not read yet")
        raise Unauthenticated("the token is signed with a key that its issuer does not show")

    def _read_keys(self, now: datetime) -> None:
        """Read the issuer's keys; what is known stays in use when it does not answer. Raises Unavailable otherwise."""
        try:
            configuration = self._json(f"{self._rules.issuer.rstrip('/')}/.well-known/openid-configuration")
            if configuration.get("issuer") != self._rules.issuer:
                raise Unavailable(f"issuer {self._rules.issuer}", "its configuration names another issuer")
            found = jwt.PyJWKSet.from_dict(dict(self._json(str(configuration.get("jwks_uri")))))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError, jwt.PyJWTError) as error:
            if not self._keys:
                raise Unavailable(f"issuer {self._rules.issuer}", type(error).__name__) from error
            return
        self._keys = {key.key_id or "": key for key in found.keys if key.algorithm_name in ALGORITHMS}
        self._read_at = now

    def _json(self, url: str) -> Mapping[str, Any]:
        answer = self._client.get(url).raise_for_status().json()
        if not isinstance(answer, dict):
            raise httpx.DecodingError("no JSON object")
        return answer
