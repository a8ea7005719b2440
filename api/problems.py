"""Errors as problem+json (RFC 9457): a stable type, a status, the field and what is allowed, for each of our errors.

Types are URNs and never change; texts may. `docs/api.md` shows the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from api.schemas.problem import FieldProblem, Problem
from autotuner.errors import (
    AutotunerError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Outdated,
    Refused,
    Unauthenticated,
    Unavailable,
)
from autotuner.sections import InvalidFields
from autotuner.telemetry.logs import starred

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:autotuner:problem:"
RETRY_SECONDS = 2
"""When to ask again what could not be answered because another system did not answer."""


class PreconditionMissing(AutotunerError):
    """A change was asked for without saying what it is a change of: read, then ask again with If-Match."""

    def __str__(self) -> str:
        return "this change needs If-Match with the ETag of what was read, so that nobody's change is lost"


class TooManyRequests(AutotunerError):
    """Somebody asks too often: wait. retry_seconds: how long, at least 1."""

    def __init__(self, retry_seconds: int) -> None:
        super().__init__(retry_seconds)
        self.retry_seconds = retry_seconds

    def __str__(self) -> str:
        return f"too many requests: ask again in {self.retry_seconds} s"


class NotAllowed(AutotunerError):
    """The address exists, the method on it does not. allowed: the methods it has."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(allowed)
        self.allowed = allowed

    def __str__(self) -> str:
        return f"this address takes {', '.join(self.allowed)}"


class TooLarge(AutotunerError):
    """The body is larger than any request's needs to be. limit_bytes: how large it may be."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return f"the body is larger than {self.limit_bytes} bytes"


@dataclass(frozen=True)
class Kind:
    """What an error is to a client: the end of its type's URN, its HTTP status, its title."""

    slug: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The stable type."""
        return TYPE_PREFIX + self.slug


UNEXPECTED = Kind("unexpected", 500, "An error nobody foresaw")

KINDS: tuple[tuple[type[Exception], Kind], ...] = (
    (PreconditionMissing, Kind("precondition-required", 428, "Read before you change")),
    (Outdated, Kind("outdated", 412, "Changed since it was read")),
    (Conflict, Kind("conflict", 409, "Somebody else did it first")),
    (InvalidInput, Kind("invalid-input", 422, "The input cannot be used")),
    (Unauthenticated, Kind("unauthenticated", 401, "Not authenticated")),
    (Forbidden, Kind("forbidden", 403, "Not permitted")),
    (NotFound, Kind("not-found", 404, "Not found")),
    (NotAllowed, Kind("method-not-allowed", 405, "No such method here")),
    (TooLarge, Kind("too-large", 413, "The body is too large")),
    (TooManyRequests, Kind("too-many-requests", 429, "Too many requests")),
    (Refused, Kind("refused", 409, "A rule says no")),
    (Unavailable, Kind("unavailable", 503, "A system does not answer")),
)
"""Every error that a client can be told of; the first that fits counts."""


def kind_of(error: Exception) -> Kind:
    """Return what an error is to a client."""
    return next((kind for each, kind in KINDS if isinstance(error, each)), UNEXPECTED)


def problem_of(error: Exception, request_id: str) -> Problem:
    """Return an error as a problem. Of what nobody foresaw nothing is told but the request's id, which is logged."""
    kind = kind_of(error)
    detail = str(error) if kind is not UNEXPECTED else "the log has more under this request's id"
    fields = _fields(error)
    first = fields[0] if fields else None
    return Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=starred(detail),
        request_id=request_id,
        field=first.field if first else None,
        allowed=first.allowed if first else None,
        problems=fields if len(fields) > 1 else None,
    )


def _fields(error: Exception) -> list[FieldProblem]:
    found = error.problems if isinstance(error, InvalidFields) else (error,)
    return [
        FieldProblem(field=each.field, allowed=each.allowed, detail=starred(str(each)))
        for each in found
        if isinstance(each, InvalidInput)
    ]


def response_to(error: Exception, request_id: str) -> Response:
    """Return the answer to a request that ended in `error`."""
    problem = problem_of(error, request_id)
    content: dict[str, Any] = problem.model_dump(exclude_none=True)
    return JSONResponse(content, problem.status, headers=dict(headers_of(error)), media_type=MEDIA_TYPE)


def headers_of(error: Exception) -> Mapping[str, str]:
    """Return the headers that tell a client what to do about an error."""
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(error.retry_seconds)}
    if isinstance(error, Unavailable):
        return {"Retry-After": str(RETRY_SECONDS)}
    if isinstance(error, NotAllowed):
        return {"Allow": ", ".join(error.allowed)}
    return {}
