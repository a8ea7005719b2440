"""Figures as people read them: few digits, a dash for what is not known, never a zero for it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

UNKNOWN = "–"
"""Shown where a figure was not measured."""

PLAIN_EVIDENCE = 10_000.0
"""Evidence beyond this is given as a power of ten."""

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def figure(value: float | None, digits: int = 3) -> str:
    """Return `value` with about `digits` significant digits and thousands separated; UNKNOWN for None."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "unbounded"
    if value == 0:
        return "0"
    whole = math.floor(math.log10(abs(value))) + 1
    return f"{value:,.{max(0, min(digits - whole, digits))}f}"


def tick(value: float) -> str:
    """Return a round value as an axis shows it."""
    return f"{value:,.6g}"


def milliseconds(seconds: float | None) -> str:
    """Return a duration in milliseconds, without the unit."""
    return figure(None if seconds is None else seconds * 1e3)


def whole(value: float | None, prefix: str = "") -> str:
    """Return `value` rounded to a whole number, thousands separated."""
    return UNKNOWN if value is None else f"{prefix}{value:,.0f}"


def percent(share: float | None, digits: int = 3) -> str:
    """Return a share, 0 to 1, as a percentage with at most `digits` significant digits, more where it is large."""
    if share is None:
        return UNKNOWN
    value = 100 * share
    return f"{value:,.0f} %" if value >= 10 ** (digits - 1) else f"{value:.{digits}g} %"


def evidence(log_e: float) -> str:
    """Return an e-value from its natural logarithm; a power of ten where it is very large or very small."""
    if abs(log_e) <= math.log(PLAIN_EVIDENCE):
        return figure(math.exp(log_e))
    return "10" + f"{log_e / math.log(10):.0f}".translate(RAISED)


def instant(at: datetime | None) -> str:
    """Return an instant in UTC, to the second."""
    return UNKNOWN if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def length(duration: timedelta | None) -> str:
    """Return how long something took: `45 s`, `12 min 30 s`, `3 h 5 min`."""
    if duration is None:
        return UNKNOWN
    seconds = round(duration.total_seconds())
    hours, minutes = divmod(seconds // 60, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def change(old: float | None, new: float | None) -> str:
    """Return the relative change from `old` to `new`: `−18 %`, `+3 %`; UNKNOWN where either is."""
    if not old or new is None:
        return UNKNOWN
    relative = round(100 * (new - old) / old)
    return f"{'−' if relative < 0 else '+'}{abs(relative)} %" if relative else "the same"
