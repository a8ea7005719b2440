"""Spans of slow requests that were sent here: a table that never grows beyond a bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, select

from autotuner.adapters.postgres.engine import transaction
from autotuner.adapters.postgres.tables import request_spans, slo_budgets, studies, targets
from autotuner.bookkeeping.received import APART, KEPT_FOR, MOST_KEPT, whole
from autotuner.domain.sources import OTLP
from autotuner.domain.spans import Span
from autotuner.domain.study import Phase
from autotuner.domain.target import Target
from autotuner.ports import Listening, SlowTrace
from autotuner.records import from_record, to_record


class PostgresSpans:
    """`ports.ReceivedSpans` in the table `request_spans`. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listening(self) -> Sequence[Listening]:
        """Return the targets with a study that has not ended whose spans are sent here."""
        t, b, s = targets.c, slo_budgets.c, studies.c
        ceiling = (
            select(b.p99_ceiling_seconds)
            .where(b.target == t.name)
            .order_by(b.version.desc())
            .limit(1)
            .scalar_subquery()
        )
        running = select(s.id).where(s.target == t.name, s.phase != Phase.ENDED.value).exists()
        traced = t.record["traces"]["kind"].as_string() == OTLP
        with transaction(self._engine) as connection:
            found = connection.execute(select(t.record, ceiling).where(traced, running).order_by(t.name))
            return tuple(Listening(from_record(Target, record), above) for record, above in found)

    def keep(self, traces: Sequence[SlowTrace], now: datetime) -> None:
        """Keep slow requests, and drop what is old or more than is kept of a target."""
        rows = [
            {
                "target": trace.target,
                "trace_id": trace.trace_id,
                "ended_at": trace.ended_at,
                "received_at": now,
                "spans": [to_record(span) for span in trace.spans],
            }
            for trace in traces
        ]
        with transaction(self._engine) as connection:
            if rows:
                connection.execute(request_spans.insert(), rows)
            _drop_old(connection, now)
            for name in sorted({trace.target for trace in traces}):
                _drop_surplus(connection, name)

    def forget(self, now: datetime) -> None:
        """Drop what is old."""
        with transaction(self._engine) as connection:
            _drop_old(connection, now)

    def slow(self, target: str, began: datetime, ended: datetime) -> Sequence[SlowTrace]:
        """Return the slow requests of a target that ended between two instants, each whole, newest first."""
        c = request_spans.c
        about = c.ended_at.between(began - APART, ended + APART)
        with transaction(self._engine) as connection:
            found = connection.execute(
                select(request_spans).where(c.target == target, about).order_by(c.number)
            )
            return whole([_trace(row) for row in found], began, ended)


def _drop_old(connection: Connection, now: datetime) -> None:
    connection.execute(delete(request_spans).where(request_spans.c.received_at <= now - KEPT_FOR))


def _drop_surplus(connection: Connection, target: str) -> None:
    c = request_spans.c
    newest_surplus = (
        select(c.number).where(c.target == target).order_by(c.number.desc()).offset(MOST_KEPT).limit(1)
    )
    number = connection.scalar(newest_surplus)
    if number is not None:
        connection.execute(delete(request_spans).where(c.target == target, c.number <= number))


def _trace(row: Row[Any]) -> SlowTrace:
    return SlowTrace(
        row.target, row.trace_id, row.ended_at, tuple(from_record(Span, each) for each in row.spans)
    )
