"""Around every request: its id, its line in the log, its metrics, and its answer when it ended in an error."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import UNEXPECTED, TooLarge, kind_of, response_to
from autotuner.ports import Clock
from autotuner.telemetry import traces
from autotuner.telemetry.logs import bound
from autotuner.telemetry.metrics import Instruments

log = logging.getLogger(__name__)

GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""A request id that a proxy may have given; anything else is replaced, so that no log line is forged."""

UNMATCHED = "unmatched"
"""The route of a request that no route fits, as metrics name it."""

LARGEST_BODY_BYTES = 1 << 20

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


@dataclass
class _Answer:
    """What became of a request. status 0: no answer was begun."""

    began: datetime
    request_id: str
    status: int = 0
    stream: bool = False
    problem: str = ""


def as_problem(_scope: Scope, error: Exception, request_id: str) -> Response:
    """Return the answer that programs get to a request that ended in `error`."""
    return response_to(error, request_id)


@dataclass(frozen=True)
class Surroundings:
    """What the context needs. respond: makes the answer to a request that ended in an error."""

    clock: Clock
    instruments: Instruments = field(default_factory=Instruments)
    respond: Callable[[Scope, Exception, str], Response] = as_problem


class Context:
    """The outermost middleware of ours. The one broad `except` of the API is here: log, answer, go on."""

    def __init__(self, app: ASGIApp, surroundings: Surroundings) -> None:
        self._app = app
        self._clock = surroundings.clock
        self._instruments = surroundings.instruments
        self._respond = surroundings.respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; whatever it raises becomes a problem, unless its answer has begun already."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(self._clock.now(), _request_id(scope))
        scope.setdefault("state", {})["request_id"] = answer.request_id

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(message, answer)
            await send(message)

        traceparent = Headers(scope=scope).get("traceparent", "")
        with (
            bound(request=answer.request_id),
            traces.request(f"{scope['method']} {UNMATCHED}", traceparent) as span,
        ):
            try:
                await self._app(scope, _limited(scope, receive), sending)
            except Exception as error:  # noqa: BLE001 - the top of a request: log, answer, go on
                await self._fail(error, answer, (scope, receive, sending))
            finally:
                told = self._note(scope, answer)
                span.rename(f"{told['method']} {told['route']}")
                span.note(**told)

    async def _fail(self, error: Exception, answer: _Answer, connection: tuple[Scope, Receive, Send]) -> None:
        kind = kind_of(error)
        answer.problem = kind.slug
        if kind is UNEXPECTED:
            log.error("request_failed", extra={"reason": type(error).__name__}, exc_info=error)
        if answer.status:
            raise error
        await self._respond(connection[0], error, answer.request_id)(*connection)

    def _note(self, scope: Scope, answer: _Answer) -> dict[str, Any]:
        """Count and log a request; return what was told."""
        state = scope["state"]
        rule, identity = state.get("rule"), state.get("identity")
        route = rule.path if rule is not None else UNMATCHED
        method = scope["method"] if rule is not None else "-"
        seconds = (self._clock.now() - answer.began).total_seconds()
        self._instruments.requests.labels(method, route, str(answer.status)).inc()
        if not answer.stream:
            self._instruments.request_seconds.labels(method, route).observe(max(0.0, seconds))
        if answer.problem:
            self._instruments.refusals.labels(answer.problem).inc()
        told = {
            "method": scope["method"],
            "route": route,
            "status": answer.status,
            "milliseconds": round(seconds * 1e3, 1),
            "actor": identity.actor if identity is not None else "",
            "problem": answer.problem,
        }
        log.info("request_served", extra=told)
        return told


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if GIVEN_ID.fullmatch(given) else uuid.uuid4().hex


def _complete(message: Message, answer: _Answer) -> None:
    """Add the headers that every answer has."""
    headers = MutableHeaders(scope=message)
    answer.status = message["status"]
    answer.stream = headers.get("content-type", "").startswith("text/event-stream")
    headers["X-Request-ID"] = answer.request_id
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Return `receive` with a limit to what it takes in. Raises TooLarge at once when the request says its length."""
    length = Headers(scope=scope).get("content-length", "0")
    if length.isdigit() and int(length) > LARGEST_BODY_BYTES:
        raise TooLarge(LARGEST_BODY_BYTES)
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > LARGEST_BODY_BYTES:
            # The framework passes this kind of exception on, and no other, from where it reads a body.
            raise HTTPException(413, str(TooLarge(LARGEST_BODY_BYTES)))
        return message

    return limited
