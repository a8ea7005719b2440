"""Values that people write in sections: durations with their unit, and URLs without surprises."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = timedelta(days=7)

DURATION_PATTERN = r"^\d+(\.\d+)? ?(ms|s|m|h)$"


def duration_text(duration: timedelta) -> str:
    """Return a duration as a file has it: a number with the largest unit that needs no fraction, `90s`, `1.5ms`."""
    seconds = duration.total_seconds()
    for unit in ("h", "m", "s"):
        if seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{round(seconds * 1e3, 3):g}ms"


def _duration(value: object) -> timedelta:
    """The duration that a text with its unit means. Raises ValueError."""
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("not a duration")
    seconds = float(found[1]) * UNITS[found[2]]
    if not 0.0 < seconds <= LONGEST.total_seconds():
        raise ValueError("out of range")
    return timedelta(seconds=seconds)


def _url(value: str) -> str:
    """The URL without a slash at its end. Raises ValueError."""
    parts = urlsplit(value)
    usable = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    if not usable or parts.port == 0 or parts.query or parts.fragment or re.search(r"\s", value):
        raise ValueError("not a URL")
    return value.rstrip("/")


Url = Annotated[
    str,
    AfterValidator(_url),
    Field(description="a URL with its host: http://HOST:PORT or https://…, without user, password or query"),
]
Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(duration_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["30s"]}),
]
DURATION_ALLOWED = "a duration above 0 with its unit, up to 7 days: 500ms, 30s, 5m or 2h"
