"""Adding to the audit table, and reading it back. One writer at a time, so that the hash chain has no branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from autotuner.adapters.postgres.tables import audit
from autotuner.bookkeeping.audit import FIRST_HASH, AuditLine, ChainedRecord, first_broken
from autotuner.ports import AuditRecord

LOCK_KEY = 0x6175_6469_7400
"""Names the advisory lock of the chain; held from the first line of a transaction to its commit."""

READ_ROWS = 1_000


def add_lines(connection: Connection, lines: Iterable[AuditLine]) -> None:
    """Add lines to the audit, each chained to the one before, in the caller's transaction."""
    pending = list(lines)
    if not pending:
        return
    connection.execute(select(func.pg_advisory_xact_lock(LOCK_KEY)))
    newest = select(audit.c.hash).order_by(audit.c.number.desc()).limit(1)
    previous = connection.scalar(newest) or FIRST_HASH
    rows = []
    for line in pending:
        rows.append(_row(line, previous))
        previous = rows[-1]["hash"]
    connection.execute(audit.insert(), rows)


def _row(line: AuditLine, previous_hash: str) -> dict[str, Any]:
    return {
        "at": line.at,
        "actor": line.actor,
        "action": line.action.value,
        "subject": line.subject,
        "reason": line.reason,
        "details": line.details,
        "previous_hash": previous_hash,
        "hash": line.hash_after(previous_hash),
    }


def newest_records(connection: Connection, limit: int, subject: str | None) -> Sequence[AuditRecord]:
    """Return the newest audit records, newest first."""
    query = select(audit).order_by(audit.c.number.desc()).limit(limit)
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    return tuple(_record(row) for row in connection.execute(query))


def first_broken_record(connection: Connection) -> int | None:
    """Return the number of the first record that does not fit the hash chain; None when all fit."""
    query = select(audit).order_by(audit.c.number)
    with connection.execution_options(yield_per=READ_ROWS).execute(query) as found:
        return first_broken(ChainedRecord(_record(row), row.previous_hash, row.hash) for row in found)


def _record(row: Row[Any]) -> AuditRecord:
    return AuditRecord(row.number, row.at, row.actor, row.action, row.subject, row.reason, row.details)
