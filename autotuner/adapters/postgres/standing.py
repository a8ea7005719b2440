"""What keeps production as it is, read in one transaction: the line, freezes that are not over, blackout dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select

from autotuner.adapters.postgres.tables import freezes, line, schedules
from autotuner.domain.calendar import Freeze, Line, Standing


def read_standing(connection: Connection, now: datetime) -> Standing:
    """Return what stands against studies and promotions, at `now` and later."""
    query = select(freezes).where(freezes.c.ends_at > now).order_by(freezes.c.number)
    c = schedules.c
    dated = select(c.target, c.time_zone, c.blackout_dates).where(func.cardinality(c.blackout_dates) > 0)
    return Standing(
        read_line(connection),
        tuple(freeze_of(row) for row in connection.execute(query)),
        {row.target: (row.time_zone, dates(row.blackout_dates)) for row in connection.execute(dated)},
    )


def read_line(connection: Connection, *, lock: bool = False) -> Line:
    """Return the line as it is; lock keeps it so until the transaction ends."""
    query = select(line.c.stopped_at, line.c.reason, line.c.actor).where(line.c.id == 1)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return Line() if row is None else Line(row.stopped_at, row.reason, row.actor)


def freeze_of(row: Row[Any]) -> Freeze:
    """Return a freeze from its row."""
    return Freeze(row.begins_at, row.ends_at, row.reason, row.target, row.number)


def dates(texts: Sequence[str]) -> tuple[date, ...]:
    """Return dates from how they are stored."""
    return tuple(date.fromisoformat(text) for text in texts)
