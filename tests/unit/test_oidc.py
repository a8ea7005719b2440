"""JWTs of an OpenID Connect issuer: whom they stand for, and everything that makes one worthless."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from autotuner.adapters.oidc import OidcIssuer, OidcRules
from autotuner.domain.access import Scope
from autotuner.errors import Unauthenticated, Unavailable
from tests.builders import ManualClock

ISSUER = "https://issuer.example/realm"
KEY = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)


def public(key: rsa.RSAPrivateKey, name: str) -> dict[str, Any]:
    made = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return {**made, "kid": name, "alg": "RS256", "use": "sig"}


@dataclass
class Pages:
    """The issuer's pages. asked: which were read; down: it does not answer."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [public(KEY, "one")])
    named: str = ISSUER
    down: bool = False
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if self.down:
            raise httpx.ConnectError("refused")
        if request.url.path.endswith("openid-configuration"):
            return httpx.Response(200, json={"issuer": self.named, "jwks_uri": f"{ISSUER}/keys"})
        return httpx.Response(200, json={"keys": self.keys})


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def an_issuer(pages: Pages, clock: ManualClock, **changes: Any) -> OidcIssuer:
    fields: dict[str, Any] = {
        "issuer": ISSUER,
        "audience": "autotuner",
        "clock_skew": timedelta(seconds=60),
        "actor_claim": "sub",
        "scope_claim": "scope",
    }
    client = httpx.Client(transport=httpx.MockTransport(pages))
    return OidcIssuer(OidcRules(**{**fields, **changes}), clock, client)


def a_jwt(key: Any = KEY, name: str = "one", algorithm: str = "RS256", **changes: Any) -> str:
    now = datetime.now(UTC)
    claims = {
        "iss": ISSUER,
        "aud": "autotuner",
        "sub": "anna",
        "exp": now + timedelta(minutes=5),
        "scope": "openid autotuner:operator viewer",
    }
    kept = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    return jwt.encode(kept, key, algorithm, headers={"kid": name})


def test_a_jwt_stands_for_its_subject_with_the_scopes_it_names(pages: Pages, clock: ManualClock) -> None:
    who = an_issuer(pages, clock).identity(a_jwt())

    assert (who.actor, who.scopes, who.source) == (
        "anna",
        frozenset({Scope.OPERATOR, Scope.VIEWER}),
        ISSUER,
    )


def test_actor_and_scopes_are_read_from_the_claims_that_are_set(pages: Pages, clock: ManualClock) -> None:
    issuer = an_issuer(pages, clock, actor_claim="email", scope_claim="roles")

    who = issuer.identity(a_jwt(email="anna@example.com", roles=["approver", "root", 7]))

    assert (who.actor, who.scopes) == ("anna@example.com", frozenset({Scope.APPROVER}))


def unsigned(claims: dict[str, Any]) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'kid': 'one'})}.{part(claims)}."


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("credential", "why"),
    [
        (lambda: "nonsense", "unknown"),
        (lambda: unsigned({"iss": ISSUER, "aud": "autotuner", "sub": "anna"}), "not believed"),
        (lambda: a_jwt("a shared secret of at least 32 bytes!", algorithm="HS256"), "not believed"),
        (lambda: a_jwt(OTHER), "signature does not hold"),
        (lambda: a_jwt(exp=ago(61)), "has expired"),
        (lambda: a_jwt(nbf=ago(-120)), "not valid yet"),
        (lambda: a_jwt(aud="another"), "another audience"),
        (lambda: a_jwt(iss="https://evil.example"), "another issuer"),
        (lambda: a_jwt(exp=None), "lacks a claim"),
        (lambda: a_jwt(aud=None), "lacks a claim"),
        (lambda: a_jwt(sub=None), "names nobody"),
        (lambda: a_jwt(sub="  "), "names nobody"),
        (lambda: a_jwt(name="two"), "does not show"),
    ],
)
def test_what_does_not_hold_is_refused_with_why(
    pages: Pages, clock: ManualClock, credential: Any, why: str
) -> None:
    shown = credential()

    with pytest.raises(Unauthenticated, match=why) as refused:
        an_issuer(pages, clock).identity(shown)

    assert shown not in str(refused.value)


def test_clocks_may_differ_by_as_much_as_is_set(pages: Pages, clock: ManualClock) -> None:
    assert an_issuer(pages, clock).identity(a_jwt(exp=ago(30))).actor == "anna"


def test_a_jwt_that_names_no_scope_may_nothing(pages: Pages, clock: ManualClock) -> None:
    who = an_issuer(pages, clock).identity(a_jwt(scope=None))

    assert not any(who.may(scope) for scope in Scope)


def test_keys_are_read_once_and_kept(pages: Pages, clock: ManualClock) -> None:
    issuer = an_issuer(pages, clock)

    for _ in range(5):
        issuer.identity(a_jwt())

    assert len(pages.asked) == 2


def test_a_new_key_is_found_and_strangers_do_not_make_us_ask(pages: Pages, clock: ManualClock) -> None:
    issuer = an_issuer(pages, clock)
    issuer.identity(a_jwt())
    pages.keys.append(public(OTHER, "two"))

    for _ in range(5):
        with pytest.raises(Unauthenticated):
            issuer.identity(a_jwt(OTHER, "two"))
    clock.turn(31)

    assert issuer.identity(a_jwt(OTHER, "two")).actor == "anna"
    assert len(pages.asked) == 4


def test_a_key_that_was_withdrawn_is_forgotten_within_minutes(pages: Pages, clock: ManualClock) -> None:
    issuer = an_issuer(pages, clock)
    issuer.identity(a_jwt())
    pages.keys[:] = [public(OTHER, "two")]
    clock.turn(601)

    with pytest.raises(Unauthenticated, match="does not show"):
        issuer.identity(a_jwt())


def test_known_keys_outlive_an_issuer_that_is_away(pages: Pages, clock: ManualClock) -> None:
    issuer = an_issuer(pages, clock)
    issuer.identity(a_jwt())
    pages.down = True
    clock.turn(601)

    assert issuer.identity(a_jwt()).actor == "anna"


@pytest.mark.parametrize("changes", [{"down": True}, {"named": "https://evil.example"}, {"keys": []}])
def test_an_issuer_that_cannot_be_used_is_unavailable_and_nobody_is_believed(
    clock: ManualClock, changes: dict[str, Any]
) -> None:
    issuer = an_issuer(Pages(**changes), clock)

    for _ in range(2):
        with pytest.raises(Unavailable, match=ISSUER):
            issuer.identity(a_jwt())
