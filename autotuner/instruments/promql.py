"""Plain selectors of PromQL, in which nothing that somebody wrote can be anything but the text of a label.

No functions and no operators are ever asked for: a verdict rests on samples as they were scraped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

SERVER_TIME = "time()"
"""The one expression that is no selector: what the server's clock says."""


def quoted(value: str) -> str:
    """Return a text as a PromQL string. Everything outside printable ASCII and letters is escaped."""
    return '"' + "".join(_character(character) for character in value) + '"'


def selector(names: Collection[str], labels: Mapping[str, Collection[str]]) -> str:
    """Return what selects the series with one of `names` whose labels each have one of the given values.

    Raises ValueError for a label that is no label, or without a name.
    """
    wanted = {"__name__": names, **labels}
    return "{" + ",".join(_matcher(label, sorted(set(values))) for label, values in wanted.items()) + "}"


def samples_of(selected: str, seconds: float) -> str:
    """Return the query for the raw samples of a selector in the last `seconds`."""
    return f"{selected}[{math.ceil(seconds * 1000)}ms]"


def _matcher(label: str, values: list[str]) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) or not values:
        raise ValueError(f"no label with values: {label!r}")
    if len(values) == 1:
        return f"{label}={quoted(values[0])}"
    return f"{label}=~{quoted('|'.join(map(re.escape, values)))}"


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
