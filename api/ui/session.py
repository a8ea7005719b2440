"""Sessions of the web UI: the token somebody signed in with, sealed in a cookie that only this service can open.

Nothing is kept here, so any process with the same key knows the session. The token is looked up again at every
request: one that is revoked or expires ends its sessions. The cookie is no bearer token: the REST API takes none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

from cryptography.fernet import Fernet, InvalidToken
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from autotuner.errors import Forbidden, InvalidInput, Unauthenticated
from autotuner.ports import Clock

COOKIE = "autotuner_session"
PATH = "/ui"
LIFE = timedelta(hours=12)
"""A session ends after so long, a working day, however much it is used."""

LONGEST_COOKIE = 3_800
"""Characters of a cookie that every browser keeps, its name and attributes left out."""


@dataclass(frozen=True)
class Sessions:
    """Seals and opens sessions. secret: what they are sealed with; empty for one that nobody else has."""

    clock: Clock
    secret: str = field(default="", repr=False)
    _key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        secret = self.secret.encode() or secrets.token_bytes(32)
        object.__setattr__(self, "_key", hashlib.sha256(b"autotuner ui session\0" + secret).digest())

    def seal(self, credential: str) -> str:
        """Return a session for a credential. Raises InvalidInput when no cookie could hold it."""
        sealed = self._fernet.encrypt_at_time(credential.encode(), self._seconds).decode()
        if len(sealed) > LONGEST_COOKIE:
            allowed = "a shorter token: make one with `autotuner token create`"
            raise InvalidInput("token", "(not shown)", allowed)
        return sealed

    def credential(self, scope: Scope) -> str:
        """Return the credential of a request's session. Raises Unauthenticated without one that is good."""
        sealed = cookie_of(scope)
        if not sealed:
            raise Unauthenticated("sign in first")
        try:
            life = int(LIFE.total_seconds())
            return self._fernet.decrypt_at_time(sealed.encode(), life, self._seconds).decode()
        except InvalidToken as error:
            raise Unauthenticated("the session has ended: sign in again") from error

    def form_token(self, scope: Scope) -> str:
        """Return what every form of this session carries, so that no other site can send one."""
        return hmac.new(self._key, b"form\0" + cookie_of(scope).encode(), hashlib.sha256).hexdigest()

    def check_form(self, scope: Scope, token: str) -> None:
        """Raise Forbidden unless a form was made for this session."""
        if not hmac.compare_digest(self.form_token(scope).encode(), token.encode()):
            raise Forbidden("this form is not of your session: open the page again and send it from there")

    @property
    def _fernet(self) -> Fernet:
        return Fernet(base64.urlsafe_b64encode(self._key))

    @property
    def _seconds(self) -> int:
        return int(self.clock.now().timestamp())


def cookie_of(scope: Scope) -> str:
    """Return the session's cookie as a request brought it; empty when it brought none."""
    return cookie_parser(Headers(scope=scope).get("cookie", "")).get(COOKIE, "")


def check_same_site(scope: Scope) -> None:
    """Raise Forbidden for a write that a browser says another site's page has sent."""
    headers = Headers(scope=scope)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    elsewhere = site not in (None, "same-origin", "none")
    if site is None and origin is not None:
        elsewhere = origin.partition("://")[2] != headers.get("host", "")
    if elsewhere:
        raise Forbidden("this was sent from another site's page")


def begin(response: Response, sealed: str, *, secure: bool) -> None:
    """Let a response begin a session. secure: whether the browser came over TLS."""
    response.set_cookie(
        COOKIE,
        sealed,
        max_age=int(LIFE.total_seconds()),
        path=PATH,
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def end(response: Response) -> None:
    """Let a response end the session in this browser."""
    response.delete_cookie(COOKIE, path=PATH, httponly=True, samesite="strict")
