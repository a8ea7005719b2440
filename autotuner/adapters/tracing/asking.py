"""Asking a trace store over HTTP: within one deadline, up to a largest size, without redirects or the environment."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx

from autotuner.domain.sources import TraceStore
from autotuner.domain.spans import Services
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError
from autotuner.instruments.readings import Unreadable
from autotuner.ports import Clock

Secrets = Callable[[str], str]
"""Returns the secret of a name. Raises InvalidInput when there is none."""

LARGEST_ANSWER_BYTES = 20_000_000


class Asking:
    """One window's questions to one store."""

    def __init__(self, client: httpx.Client, store: TraceStore, clock: Clock, until: datetime) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._until = until

    def json(self, path: str, parameters: Mapping[str, str]) -> Any:
        """Return the JSON that a path answers with. Raises Unreadable with the reason."""
        try:
            return json.loads(self._body(path, parameters))
        except RecursionError:
            raise Unreadable("JSON that is nested too deeply") from None
        except ValueError:
            raise Unreadable(
                f"something that is not JSON: no {self._store.kind.capitalize()} answers there"
            ) from None

    def _body(self, path: str, parameters: Mapping[str, str]) -> bytes:
        limit = self._left().total_seconds()
        body = bytearray()
        try:
            with self._client.stream("GET", path, params=dict(parameters), timeout=limit) as answer:
                for part in answer.iter_bytes():
                    body += part
                    self._left()
                    if len(body) > LARGEST_ANSWER_BYTES:
                        raise Unreadable(f"more than {LARGEST_ANSWER_BYTES / 1e6:g} MB")
                _require_success(answer, bytes(body))
        except httpx.TimeoutException:
            raise Unreadable(self._late) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreadable(f"no answer ({str(error) or type(error).__name__})"[:300]) from error
        return bytes(body)

    def _left(self) -> timedelta:
        """How much of the deadline is left. Raises Unreadable when nothing is."""
        left = self._until - self._clock.now()
        if left <= timedelta(0):
            raise Unreadable(self._late)
        return left

    @property
    def _late(self) -> str:
        return f"no answer within {self._store.deadline.total_seconds():g} s"


def _require_success(answer: httpx.Response, body: bytes) -> None:
    if answer.is_redirect:
        raise Unreadable(f"HTTP {answer.status_code}, a redirect, which is not followed")
    if not answer.is_success:
        text = " ".join(body[:500].decode(errors="replace").split())
        said = "a web page" if "<html" in text.lower() or "<!doctype" in text.lower() else text[:200]
        raise Unreadable(f"HTTP {answer.status_code}: {said or 'no text'}")


@contextlib.contextmanager
def asking(store: TraceStore, secrets: Secrets, clock: Clock) -> Iterator[Asking]:
    """Ask a store inside the block, until its deadline. Raises Unreadable, also for secrets that there are none of."""
    until = clock.now() + store.deadline
    try:
        headers, trusted = _headers(store, secrets), _trusted(store, secrets)
        user = (store.user, secrets(store.password)) if store.user else None
    except AutotunerError as error:
        raise Unreadable(str(error)) from error
    with httpx.Client(
        base_url=store.url,
        headers=headers,
        auth=user,
        verify=trusted,
        trust_env=False,
        follow_redirects=False,
    ) as client:
        yield Asking(client, store, clock, until)


def _headers(store: TraceStore, secrets: Secrets) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "autotuner"}
    if store.tenant:
        headers["X-Scope-OrgID"] = store.tenant
    if store.bearer:
        secret = secrets(store.bearer)
        if not secret.isascii() or not secret.isprintable():
            raise Unreadable(f"the secret {store.bearer} has characters that no header can have")
        headers["Authorization"] = f"Bearer {secret}"
    return headers


def _trusted(store: TraceStore, secrets: Secrets) -> ssl.SSLContext | bool:
    if not store.ca or urlsplit(store.url).scheme != "https":
        return True
    try:
        return ssl.create_default_context(cadata=secrets(store.ca))
    except ssl.SSLError as error:
        raise Unreadable(f"the secret {store.ca} is no certificate in PEM") from error


class Asker:
    """What every store that is asked has of its target. Implementations answer `Traces.slow_requests`."""

    def __init__(self, target: Target, secrets: Secrets, clock: Clock) -> None:
        assert target.traces is not None
        self._target = target
        self._store = target.traces
        self._services = Services(self._store.gateway, self._store.triton)
        self._secrets = secrets
        self._clock = clock

    def _asking(self) -> contextlib.AbstractContextManager[Asking]:
        """Ask the store inside the block; see `asking`."""
        return asking(self._store, self._secrets, self._clock)
