"""Notices in PostgreSQL, written in the transaction of what they tell and delivered from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update

from autotuner.adapters.postgres.engine import transaction
from autotuner.adapters.postgres.tables import notifications
from autotuner.bookkeeping.nightly import retried
from autotuner.bookkeeping.rules import plain
from autotuner.domain.notices import Notice, NoticeKind
from autotuner.errors import NotFound
from autotuner.ports import Message, MessageState
from autotuner.records import to_record


class PostgresOutbox:
    """`ports.Outbox` in the table `notifications`. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def due(self, now: datetime, limit: int) -> Sequence[Message]:
        """Return pending messages whose next attempt is due, oldest first."""
        c = notifications.c
        query = select(notifications).where(c.state == MessageState.PENDING.value, c.next_attempt_at <= now)
        with transaction(self._engine) as connection:
            found = connection.execute(query.order_by(c.next_attempt_at, c.number).limit(limit))
            return tuple(_message(row) for row in found)

    def settle(self, message: Message) -> None:
        """Record what an attempt came to; nothing happens when the message was settled meanwhile."""
        c = notifications.c
        here = (c.number == message.number) & (c.state == MessageState.PENDING.value)
        with transaction(self._engine) as connection:
            connection.execute(update(notifications).where(here).values(_progress(message)))

    def messages(self, state: MessageState | None = None, limit: int = 50) -> Sequence[Message]:
        """Return messages, newest first."""
        query = select(notifications).order_by(notifications.c.number.desc()).limit(limit)
        if state is not None:
            query = query.where(notifications.c.state == state.value)
        with transaction(self._engine) as connection:
            return tuple(_message(row) for row in connection.execute(query))

    def retry(self, number: int, now: datetime) -> Message:
        """Let a dead message be tried again. Raises NotFound, Conflict when it is not dead."""
        here = notifications.c.number == number
        with transaction(self._engine) as connection:
            row = connection.execute(select(notifications).where(here).with_for_update()).one_or_none()
            if row is None:
                raise NotFound("notification", number)
            after = retried(_message(row), now)
            connection.execute(update(notifications).where(here).values(_progress(after)))
            return after


def add_notices(connection: Connection, notices: Iterable[Notice]) -> None:
    """Add notices in the caller's transaction."""
    rows = [
        {
            "kind": notice.kind.value,
            "target": notice.target,
            "subject": notice.subject,
            "at": notice.at,
            "text": plain(notice.text),
            "details": to_record(dict(notice.details)),
            "state": MessageState.PENDING.value,
            "attempts": 0,
            "next_attempt_at": notice.at,
            "delivered_to": [],
            "error": "",
        }
        for notice in notices
    ]
    if rows:
        connection.execute(notifications.insert(), rows)


def _progress(message: Message) -> dict[str, Any]:
    return {
        "state": message.state.value,
        "attempts": message.attempts,
        "next_attempt_at": message.next_attempt_at,
        "delivered_to": list(message.delivered_to),
        "error": plain(message.error),
    }


def _message(row: Row[Any]) -> Message:
    notice = Notice(NoticeKind(row.kind), row.target, row.subject, row.at, row.text, row.details)
    return Message(
        number=row.number,
        notice=notice,
        state=MessageState(row.state),
        attempts=row.attempts,
        next_attempt_at=row.next_attempt_at,
        delivered_to=tuple(row.delivered_to),
        error=row.error,
    )
