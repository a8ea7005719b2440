"""What keeps production as it is, read in one transaction: the line, freezes that are not over, blackout dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from autotuner.adapters.postgres.tables import freezes, line, schedules
from autotuner.domain.calendar import Freeze, Line, Standing

NOT_OVER = select(freezes).where(freezes.c.ends_at > bindparam("now")).order_by(freezes.c.number)
DATED = select(schedules.c.target, schedules.c.time_zone, schedules.c.blackout_dates).where(
    func.cardinality(schedules.c.blackout_dates) > 0
)
LINE = select(line.c.stopped_at, line.c.reason, line.c.actor).where(line.c.id == 1)
LOCKED_LINE = LINE.with_for_update()


def read_standing(connection: Connection, now: datetime) -> Standing:
    """Return what stands against studies and promotions, at `now` and later."""
    return Standing(
        read_line(connection),
        tuple(freeze_of(row) for row in connection.execute(NOT_OVER, {"now": now}).all()),
        {row.target: (row.time_zone, dates(row.blackout_dates)) for row in connection.execute(DATED).all()},
    )


def read_line(connection: Connection, *, lock: bool = False) -> Line:
    """Return the line as it is; lock keeps it so until the transaction ends."""
    row = connection.execute(LOCKED_LINE if lock else LINE).one_or_none()
    return Line() if row is None else Line(row.stopped_at, row.reason, row.actor)


def freeze_of(row: Row[Any]) -> Freeze:
    """Return a freeze from its row."""
    return Freeze(row.begins_at, row.ends_at, row.reason, row.target, row.number)


def dates(texts: Sequence[str]) -> tuple[date, ...]:
    """Return dates from how they are stored."""
    return tuple(date.fromisoformat(text) for text in texts)
