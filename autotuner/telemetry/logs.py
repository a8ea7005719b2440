"""Logs: an event name and fields, as a line for people on a terminal and as a line of JSON for machines.

Whatever a log call passes in `extra` becomes a field. `bound` adds fields, such as the study, to every event of a
block. Values that are secret are wrapped in pydantic's `SecretStr` where settings are read and print as stars;
a password inside a database URL is starred here, whoever put it into a message.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

_NONE: Mapping[str, object] = MappingProxyType({})
_BOUND: ContextVar[Mapping[str, object]] = ContextVar("autotuner_log_fields", default=_NONE)

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
"""What every record has; any other attribute is a field."""

_PASSWORD = re.compile(r"(?<=://)([^\s:/@]*):[^\s/]*@")


def starred(text: str) -> str:
    """Return `text` with the password of every URL in it replaced by stars."""
    return _PASSWORD.sub(r"\1:***@", text)


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add `fields` to every event logged inside the block, in this thread."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


class _Formatter(logging.Formatter):
    """What text and JSON have in common."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The event's fields: the bound ones, then its own."""
        own = {name: value for name, value in record.__dict__.items() if name not in _OWN}
        found = {**_BOUND.get(), **own}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return found


class JsonLines(_Formatter):
    """One JSON object a line: at, level, event, logger and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as a line of JSON."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"at": at, "level": record.levelname, "event": record.getMessage(), "logger": record.name}
        return starred(json.dumps({**self.fields(record), **head}, default=str, ensure_ascii=False))


class TextLines(_Formatter):
    """One line for people: time of day, level, event, fields; a traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as a line of text."""
        fields = self.fields(record)
        trace = fields.pop("traceback", "")
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        line = f"{at} {record.levelname.lower()} {record.getMessage()} {told}".rstrip()
        return starred(f"{line}\n{trace}" if trace else line)


def start_logging(level: str, style: str, stream: TextIO | None = None) -> None:
    """Log events of at least `level` to `stream` (standard error), as `text`, `json` or `auto`."""
    stream = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(stream)
    people = style == "text" or (style == "auto" and stream.isatty())
    handler.setFormatter(TextLines() if people else JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
