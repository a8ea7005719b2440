"""Parameters that several routes take, each with its bounds: what is beyond them is refused at the door."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Header, Path
from pydantic import AfterValidator, AwareDatetime

from api.problems import PreconditionMissing
from autotuner.errors import Outdated
from autotuner.sections import NAME_PATTERN

STUDY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"
LARGEST_NUMBER = 1_000_000


def _sane(instant: datetime) -> datetime:
    if not 1970 <= instant.year <= 9000:
        raise ValueError("an instant of the years 1970 to 9000 with its zone")
    return instant.astimezone(UTC)


TargetName = Annotated[
    str, Path(pattern=NAME_PATTERN, description="The target's name.", examples=["small-vision"])
]
StudyId = Annotated[
    str,
    Path(
        pattern=STUDY_PATTERN,
        description="The study's id, or `latest` for the newest.",
        examples=["small-vision-20260105-020000-1f2e3d"],
    ),
]
TrialNumber = Annotated[
    int, Path(ge=0, le=LARGEST_NUMBER, description="The trial's number in its study, from 0.", examples=[3])
]
Instant = Annotated[AwareDatetime, AfterValidator(_sane)]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=200,
        description="The ETag of what was read. Without it the answer is 428; when it has changed since, 412.",
        examples=['"2"'],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,200}$",
        description="A text of your own; a request repeated with it starts nothing twice.",
        examples=["night-2026-01-05"],
    ),
]


def etag(mark: str | int) -> str:
    """Return an entity tag."""
    return f'"{mark}"'


def expected_mark(subject: str, header: str | None) -> str:
    """Return what If-Match names. Raises PreconditionMissing without one, Outdated for what is no ETag of ours."""
    if header is None:
        raise PreconditionMissing
    text = header.strip()
    if len(text) < 3 or text[0] != '"' or text[-1] != '"':
        raise Outdated(subject, "If-Match must be one ETag as it was read, in its quotes")
    return text[1:-1]
