"""Cursors: the mark of a page, as a text that clients pass on without looking into it.

It holds the sort key of the page's last item and the name of the list and order it belongs to, so that a cursor of
another list is refused instead of giving nonsense. Nothing in it is secret, and nothing is believed: its values are
compared with the columns they stand for, and no more.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Any

from api.schemas.questions import Paged
from autotuner.catalogue import Mark, Window
from autotuner.errors import InvalidInput

ALLOWED = "the next_cursor of a page of this list, with the same sort"
LARGEST = 2**62


def window(of_list: str, kinds: str, asked: Paged) -> Window:
    """Return the part of a list that is asked for.

    of_list: the list's name and order. kinds: one letter a part of its sort key: d(atetime), s(tring), i(nteger),
    f(loat). Raises InvalidInput for a cursor of anything else.
    """
    return Window(asked.limit, None if asked.cursor is None else _read(of_list, kinds, asked.cursor))


def cursor_of(of_list: str, mark: Mark | None) -> str | None:
    """Return the cursor of the page after `mark`; None when there is none."""
    if mark is None:
        return None
    parts = [part.isoformat() if isinstance(part, datetime) else part for part in mark]
    return base64.urlsafe_b64encode(json.dumps([of_list, *parts]).encode()).decode().rstrip("=")


def _read(of_list: str, kinds: str, cursor: str) -> Mark:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        content = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
        name, *parts = content
        mark = tuple(_part(kind, part) for kind, part in zip(kinds, parts, strict=True))
    except (binascii.Error, UnicodeError, ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("cursor", "(not shown)", ALLOWED) from error
    if name != of_list:
        raise InvalidInput("cursor", "(not shown)", ALLOWED)
    return mark


def _part(kind: str, part: Any) -> str | int | float | datetime:
    """One part of a sort key. Raises ValueError for one that is not of its kind, or that no database could hold."""
    if kind == "d" and isinstance(part, str):
        instant = datetime.fromisoformat(part)
        if instant.utcoffset() is None or not 1 < instant.year < 9999:
            raise ValueError("no instant")
        return instant
    if kind == "s" and isinstance(part, str) and "\x00" not in part and part.isprintable():
        return part
    if kind == "i" and type(part) is int and abs(part) < LARGEST:
        return part
    if kind == "f" and type(part) in (int, float) and abs(part) < LARGEST:
        return float(part)
    raise ValueError("no such part")
