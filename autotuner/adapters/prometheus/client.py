"""The door to a Prometheus through prometheus-api-client: answers or reasons, within one deadline, never an exception.

The library waits without end, follows redirects, drops the server's warnings and raises what `requests` raises; so its
session is ours: every attempt ends with the deadline, an answer that the server itself calls incomplete is none, no
redirect is followed, and no proxy or password is taken from the environment.
"""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.retry import Retry

from autotuner.domain.sources import PrometheusServer
from autotuner.errors import AutotunerError
from autotuner.instruments.readings import Unreadable
from autotuner.ports import Clock

# Each retry would be a warning, at every look while a server is down; what it came to is in the answer.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

Secrets = Callable[[str], str]
"""Returns the secret of a name. Raises InvalidInput when there is none."""

RETRIES = 2
BACKOFF_SECONDS = 0.1
RETRIED_STATUS = (429, 502, 503, 504)
PART_BYTES = 262_144
LARGEST_ANSWER_BYTES = 50_000_000
COMPLETE_OR_NOTHING = {"partial_response": "false", "dedup": "true", "nocache": "1"}
"""Thanos answers with an error instead of a part, and with one of several replicas; VictoriaMetrics tells the time that
it is, not that of half a minute ago. Others ignore what is not theirs."""


@dataclass(frozen=True)
class Answer:
    """What one query gave, between two moments of our clock; or why it gave nothing."""

    result: Any = None
    fault: str = ""
    asked: datetime | None = None
    answered: datetime | None = None

    def read(self) -> Any:
        """Return the result. Raises Unreadable with the fault."""
        if self.fault:
            raise Unreadable(self.fault)
        return self.result


@dataclass
class _Patience:
    """Ends what another thread waits for."""

    given_up: bool = False


class PrometheusClient:
    """Asks one server several queries at the same moment. Holds no connection in between."""

    def __init__(self, server: PrometheusServer, secrets: Secrets, clock: Clock) -> None:
        self._server = server
        self._secrets = secrets
        self._clock = clock

    def ask(self, queries: Mapping[str, str], deadline: timedelta) -> Mapping[str, Answer]:
        """Return the answer of each query by its key, at the latest a moment after `deadline`; never raises."""
        seconds = deadline.total_seconds()
        patience = _Patience()
        pool = ThreadPoolExecutor(max_workers=len(queries), thread_name_prefix="prometheus")
        try:
            futures = {
                key: pool.submit(self._answer, query, seconds, patience) for key, query in queries.items()
            }
            wait(futures.values(), timeout=seconds)
            late = Answer(fault=f"no answer within {seconds:g} s")
            return {key: future.result() if future.done() else late for key, future in futures.items()}
        finally:
            patience.given_up = True
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, query: str, seconds: float, patience: _Patience) -> Answer:
        asked = self._clock.now()
        try:
            with requests.Session() as session, self._trusted() as verify:
                connection = self._connection(session, _Adapter(seconds, patience, verify))
                result = connection.custom_query(query, params=COMPLETE_OR_NOTHING)
        except (AutotunerError, Unreadable, PrometheusApiClientException, OSError, HTTPError) as error:
            return Answer(fault=_why(error, seconds))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return Answer(fault="an answer in an unknown form: no Prometheus answers there")
        return Answer(result, asked=asked, answered=self._clock.now())

    def _connection(self, session: requests.Session, adapter: _Adapter) -> PrometheusConnect:
        session.trust_env = False
        session.max_redirects = 0
        session.hooks["response"].append(_complete)
        connection = PrometheusConnect(url=self._server.url, headers=self._headers(), session=session)
        session.mount(self._server.url, adapter)
        return connection

    @contextlib.contextmanager
    def _trusted(self) -> Iterator[str | bool]:
        """The file of the authority that vouches for the server; True for those the system trusts."""
        if not self._server.ca:
            yield True
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(self._secrets(self._server.ca))
            file.flush()
            yield file.name

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "gzip", "User-Agent": "autotuner"}
        if self._server.tenant:
            headers["X-Scope-OrgID"] = self._server.tenant
        if self._server.bearer:
            headers["Authorization"] = f"Bearer {self._sendable(self._server.bearer)}"
        elif self._server.user:
            password = self._secrets(self._server.password) if self._server.password else ""
            pair = base64.b64encode(f"{self._server.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return headers

    def _sendable(self, name: str) -> str:
        """A secret that fits into a header: the library would show another one in its error. Raises Unreadable."""
        secret = self._secrets(name)
        if not secret.isascii() or not secret.isprintable() or secret != secret.strip():
            raise Unreadable(f"the secret {name} has characters that no header can have")
        return secret


class _Adapter(HTTPAdapter):
    """Sends with a time limit and a few quick retries, and reads the body itself: whole, not too long, not for ever."""

    def __init__(self, seconds: float, patience: _Patience, verify: str | bool) -> None:
        retries = Retry(
            total=RETRIES,
            read=0,
            backoff_factor=BACKOFF_SECONDS,
            status_forcelist=RETRIED_STATUS,
            respect_retry_after_header=False,
            raise_on_status=False,
            redirect=False,
        )
        super().__init__(max_retries=retries)
        self._seconds = seconds
        self._patience = patience
        self._verify = verify

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        response = super().send(request, stream=True, timeout=self._seconds, verify=self._verify)
        if response.is_redirect:
            response.close()
            raise Unreadable(f"HTTP {response.status_code}, a redirect to another address")
        response.raw = io.BytesIO(self._body(response))
        return response

    def _body(self, response: requests.Response) -> bytes:
        body = bytearray()
        with response.raw as raw:
            while part := raw.read1(PART_BYTES, decode_content=True):
                body += part
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise Unreadable(f"more than {LARGEST_ANSWER_BYTES / 1e6:g} MB")
                if self._patience.given_up:
                    raise requests.Timeout
        return bytes(body)


def _why(error: Exception, seconds: float) -> str:
    """Why there is no answer, as the end of a sentence."""
    match error:
        case PrometheusApiClientException():
            return _said(str(error))
        case requests.exceptions.SSLError():
            return f"its certificate is not trusted ({_reason(error)})"
        case requests.Timeout() | ReadTimeoutError():
            return f"no answer within {seconds:g} s"
        case requests.JSONDecodeError():
            return "something that is not JSON: no Prometheus answers there"
        case requests.ConnectionError():
            return f"no connection ({_reason(error)})"
        case OSError() | HTTPError():
            return f"the answer broke off ({_reason(error)})"
    return str(error)


def _complete(response: requests.Response, *_: Any, **__: Any) -> None:
    """Refuse an answer that the server itself calls incomplete. Raises Unreadable."""
    if b'"warnings"' not in response.content and b'"isPartial"' not in response.content:
        return
    said = response.json()
    if said.get("isPartial"):
        raise Unreadable("an answer that the server calls partial")
    if said.get("warnings"):
        raise Unreadable(f"an answer with a warning, so perhaps incomplete: {str(said['warnings'][0])[:200]}")


def _said(error: str) -> str:
    """What the server said in place of an answer, on one line."""
    text = " ".join(error.split())
    code = text.removeprefix("HTTP Status Code ")[:3]
    if "<html" in text.lower() or "<!doctype" in text.lower():
        return f"HTTP {code} and a web page: no Prometheus answers there"
    return f"HTTP {code} instead of an answer: {text.partition('(')[2].rstrip(')')[:200]}"


def _reason(error: BaseException) -> str:
    """The innermost reason, without addresses of objects."""
    while error.__context__ is not None:
        error = error.__context__
    return (str(error) or type(error).__name__)[:200]
