"""What keeps production as it is, read in one transaction: the line, freezes that are not over, blackout dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Row,
    Text,
    bindparam,
    func,
    literal,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY

from autotuner.adapters.postgres.tables import freezes, line, schedules
from autotuner.domain.calendar import Freeze, Line, Standing

_NO_TIME, _NO_TEXT = literal(None, DateTime(timezone=True)), literal(None, Text)
_NO_NUMBER, _NO_DATES = literal(None, BigInteger), literal(None, ARRAY(Text))

STANDING = union_all(
    select(
        line.c.stopped_at.label("begins_at"),
        _NO_TIME.label("ends_at"),
        line.c.reason.label("reason"),
        line.c.actor.label("name"),
        _NO_NUMBER.label("number"),
        _NO_DATES.label("dates"),
    ).where(line.c.id == 1),
    select(
        freezes.c.begins_at,
        freezes.c.ends_at,
        freezes.c.reason,
        freezes.c.target,
        freezes.c.number,
        _NO_DATES,
    ).where(freezes.c.ends_at > bindparam("now")),
    select(
        _NO_TIME,
        _NO_TIME,
        schedules.c.time_zone,
        schedules.c.target,
        _NO_NUMBER,
        schedules.c.blackout_dates,
    ).where(func.cardinality(schedules.c.blackout_dates) > 0),
).order_by("number")
"""The line, freezes and blackout dates in one statement: a freeze has a number, a schedule dates, the line neither."""

LINE = select(line.c.stopped_at, line.c.reason, line.c.actor).where(line.c.id == 1)


def read_standing(connection: Connection, now: datetime) -> Standing:
    """Return what stands against studies and promotions, at `now` and later."""
    stopped, held, dated = Line(), list[Freeze](), dict[str, tuple[str, tuple[date, ...]]]()
    for row in connection.execute(STANDING, {"now": now}).all():
        if row.number is not None:
            held.append(Freeze(row.begins_at, row.ends_at, row.reason, row.name, row.number))
        elif row.dates is not None:
            dated[row.name] = (row.reason, dates(row.dates))
        else:
            stopped = Line(row.begins_at, row.reason, row.name)
    return Standing(stopped, tuple(held), dated)


def lock_line(connection: Connection) -> Line:
    """Return the line as it is, and keep it so until the transaction ends."""
    row = connection.execute(LINE.with_for_update()).one_or_none()
    return Line() if row is None else Line(row.stopped_at, row.reason, row.actor)


def freeze_of(row: Row[Any]) -> Freeze:
    """Return a freeze from its row."""
    return Freeze(row.begins_at, row.ends_at, row.reason, row.target, row.number)


def dates(texts: Sequence[str]) -> tuple[date, ...]:
    """Return dates from how they are stored."""
    return tuple(date.fromisoformat(text) for text in texts)
