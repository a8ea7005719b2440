"""Journal entries of many studies, written together: what waits while one transaction commits goes into the next.

A thousand studies that are looked at every second are a thousand writes a second, and a commit of its own for each
would cost more than all else. Whoever comes first commits for all that wait (guards rule 4: an entry, the study it
leads to and its audit lines are still in one transaction, or not written at all). One entry that is refused, or that
the database will not take, holds up none of the others.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import JSON, Connection, Engine, Text, bindparam, cast, func, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from autotuner.adapters.postgres.audit_log import add_lines
from autotuner.adapters.postgres.engine import transaction
from autotuner.adapters.postgres.outbox import add_notices
from autotuner.adapters.postgres.projections import changed_steps, changed_trials
from autotuner.adapters.postgres.tables import leases, ledger, steps, studies, trials
from autotuner.bookkeeping.audit import AuditLine, step_lines
from autotuner.bookkeeping.rules import check_grant, check_sequence, plain
from autotuner.bookkeeping.summaries import ledger_line
from autotuner.domain.notices import Notice, notices_of
from autotuner.domain.study import Study
from autotuner.errors import AutotunerError, NotFound, Unavailable
from autotuner.ports import Grant, JournalEntry
from autotuner.records import head_text, only_looked, to_record, window_text

MOST_TOGETHER = 128
"""So many entries at most in one transaction: its locks are short."""


@dataclass
class _Writing:
    """One entry to be written. written, error: what became of it, set by whoever committed it."""

    before: Study
    after: Study
    entry: JournalEntry
    grant: Grant
    head: dict[str, Any] | None = None
    """The columns of the study, None when nothing but the open window has changed."""
    window: str | None = None
    lines: Sequence[AuditLine] = ()
    notices: Sequence[Notice] = ()
    written: bool = False
    error: BaseException | None = field(default=None)

    @property
    def harmed(self) -> bool:
        """Whether the newest trial has done harm since."""
        return self.before.trials[-1].harm_requests != self.after.trials[-1].harm_requests

    @property
    def settled(self) -> bool:
        return self.written or self.error is not None


class Appending:
    """Writes journal entries for all threads of a process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[_Writing] = []
        self._door = threading.Lock()
        self._commit = threading.Lock()

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Write one entry and the study it leads to, together with whatever else waits; see `ports.Store`."""
        writing = _Writing(before, after, entry, grant)
        writing.head = None if only_looked(before, after) else state_columns(after)
        writing.window = window_text(after)
        writing.lines = step_lines(before, after, entry)
        writing.notices = notices_of(before, after, entry.at)
        with self._door:
            self._waiting.append(writing)
        with self._commit:
            while not writing.settled:
                self._write_waiting()
        if writing.error is not None:
            raise writing.error

    def _write_waiting(self) -> None:
        """Commit what waits. Whoever calls this is among the first that wait."""
        with self._door:
            batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        try:
            self._write(batch)
        except Unavailable as error:
            for each in batch:
                each.error = each.error or _own(error)
        except Exception as error:  # noqa: BLE001 - it belongs to one entry: each is tried alone, and told its own
            self._write_one_by_one(batch, error)

    def _write_one_by_one(self, batch: Sequence[_Writing], error: Exception) -> None:
        if len(batch) == 1:
            batch[0].error = error
            return
        for each in batch:
            if each.error is not None:
                continue
            try:
                self._write([each])
            except Exception as own:  # noqa: BLE001 - raised where the entry was asked for
                each.error = own

    def _write(self, batch: Sequence[_Writing]) -> None:
        with transaction(self._engine) as connection:
            good = _unrefused(connection, batch)
            if good:
                _write_all(connection, good)
        for each in good:
            each.written = True


def _own(error: Unavailable) -> Unavailable:
    """Return the same error for one of many that wait: each raises its own, in a thread of its own."""
    made = Unavailable(error.system, error.detail)
    made.__cause__ = error
    return made


LOCKED = (
    select(studies.c.id, studies.c.target, studies.c.sequence, leases.c.holder, leases.c.token)
    .join(leases, leases.c.target == studies.c.target)
    .where(studies.c.id == func.any(bindparam("ids", type_=ARRAY(Text))))
    .order_by(studies.c.target)
    .with_for_update(of=[leases, studies])
)
"""The studies to be written, with the leases on their targets; without those whose target nobody ever drove.

Both stay locked until the commit: whoever takes a lease over afterwards reads what was written under it. Everybody
locks leases in the order of their targets, so that nobody waits for one another in a circle.
"""

ENTRIES = text(
    """
    INSERT INTO journal (study_id, sequence, kind, at, actor, reason, observed, action, state)
    SELECT study_id, sequence, kind, at, actor, reason, CAST(observed AS json), CAST(action AS json), state
    FROM unnest(
        CAST(:study_id AS text[]), CAST(:sequence AS bigint[]), CAST(:kind AS text[]),
        CAST(:at AS timestamptz[]), CAST(:actor AS text[]), CAST(:reason AS text[]),
        CAST(:observed AS text[]), CAST(:action AS text[]), CAST(:state AS text[])
    ) AS given(study_id, sequence, kind, at, actor, reason, observed, action, state)
    """
)
"""Many entries in one statement, an array a column: that costs hardly more than one entry."""

LOOKS = text(
    """
    UPDATE studies SET sequence = given.sequence, "window" = CAST(given.open_window AS json)
    FROM unnest(
        CAST(:study_id AS text[]), CAST(:sequence AS bigint[]), CAST(:open_window AS text[])
    ) AS given(study_id, sequence, open_window)
    WHERE studies.id = given.study_id
    """
)
"""What a look changes that leads to nothing yet: the number of the newest entry, and the open window."""


def _unrefused(connection: Connection, batch: Sequence[_Writing]) -> list[_Writing]:
    """Lock studies and leases and return the entries whose grant and sequence are the newest."""
    ids = sorted({each.after.id for each in batch})
    found = {row.id: row for row in connection.execute(LOCKED, {"ids": ids})}
    sequences = {study_id: row.sequence for study_id, row in found.items()}
    good = []
    for each in batch:
        try:
            _check(connection, each, found.get(each.after.id), sequences)
        except AutotunerError as error:
            each.error = error
        else:
            sequences[each.after.id] = each.entry.sequence
            good.append(each)
    return good


def _check(connection: Connection, writing: _Writing, row: Any, sequences: Mapping[str, int]) -> None:
    """Raise NotFound for an unknown study, Conflict for a grant or a sequence that is not the newest."""
    study_id = writing.after.id
    if row is None:
        target = connection.scalar(select(studies.c.target).where(studies.c.id == study_id))
        if target is None:
            raise NotFound("study", study_id)
        check_grant(writing.grant, target, None, None)
        return
    check_grant(writing.grant, row.target, row.holder, row.token)
    check_sequence(study_id, sequences[study_id], writing.entry.sequence)


def _write_all(connection: Connection, batch: Sequence[_Writing]) -> None:
    connection.execute(ENTRIES, _arrays([_entry_row(each) for each in batch]))
    looks = [each for each in batch if each.head is None]
    if looks:
        connection.execute(LOOKS, _arrays([_look_row(each) for each in looks]))
    _update(connection, HARM, [_harm_values(each) for each in looks if each.harmed])
    for each in batch:
        if each.head is not None:
            _update(connection, STEP, [_look_values(each) | _named(each.head)])
            _write_projections(connection, each)
    add_notices(connection, (notice for each in batch for notice in each.notices))
    add_lines(connection, (line for each in batch for line in each.lines))


def _write_projections(connection: Connection, writing: _Writing) -> None:
    for table, changed in ((trials, changed_trials), (steps, changed_steps)):
        for row in changed(writing.before, writing.after):
            connection.execute(upsert(table, row))
    line = ledger_line(writing.after) if writing.before.outcome is None else None
    if line is not None:
        row = {"study_id": line.study_id, "target": line.target, "promoted_at": line.promoted_at}
        worth = {"reason": line.reason, "currency": line.currency, "worth": to_record(line.worth)}
        connection.execute(ledger.insert().values({**row, **worth}))


def _update(connection: Connection, statement: Any, values: Sequence[Mapping[str, Any]]) -> None:
    if values:
        connection.execute(statement, values)


def _json(name: str) -> Any:
    """A column's value that is JSON text already."""
    return cast(bindparam(name, type_=Text), JSON)


HARM = (
    update(trials)
    .where(trials.c.study_id == bindparam("study"), trials.c.number == bindparam("trial"))
    .values(harm_requests=bindparam("to_harm"))
)
"""What a look may change of the projection of its trial."""

HEAD = ("phase", "outcome", "reason", "ended_at")

STEP = (
    update(studies)
    .where(studies.c.id == bindparam("study"))
    .values(
        sequence=bindparam("to_sequence"),
        window=_json("to_window"),
        state=_json("to_state"),
        **{name: bindparam(f"to_{name}", type_=studies.c[name].type) for name in HEAD},
    )
)


def _arrays(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows, at least one, as an array a column."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def _look_row(writing: _Writing) -> dict[str, Any]:
    return {
        "study_id": writing.after.id,
        "sequence": writing.entry.sequence,
        "open_window": writing.window,
    }


def _look_values(writing: _Writing) -> dict[str, Any]:
    return {
        "study": writing.after.id,
        "to_sequence": writing.entry.sequence,
        "to_window": writing.window,
    }


def _harm_values(writing: _Writing) -> dict[str, Any]:
    trial = writing.after.trials[-1]
    return {"study": writing.after.id, "trial": trial.number, "to_harm": trial.harm_requests}


def _named(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {f"to_{name}": value for name, value in columns.items()}


def state_columns(study: Study) -> dict[str, Any]:
    """Return the columns of a study that change as it goes on; `state` as JSON text, without the open window."""
    return {
        "phase": study.phase.value,
        "outcome": None if study.outcome is None else study.outcome.value,
        "reason": plain(study.reason),
        "ended_at": study.ended_at,
        "state": head_text(study),
    }


def _entry_row(writing: _Writing) -> dict[str, Any]:
    entry = writing.entry
    return {
        "study_id": writing.after.id,
        "sequence": entry.sequence,
        "kind": entry.kind,
        "at": entry.at,
        "actor": entry.actor,
        "reason": entry.reason,
        "observed": _json_text(entry.observed),
        "action": None if entry.action is None else _json_text(entry.action),
        "state": entry.state,
    }


def _json_text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, allow_nan=False)


def upsert(table: Any, row: Any) -> Any:
    """Return the statement that writes a row of a projection, new or changed."""
    keys = [column.name for column in table.primary_key]
    values = {name: value for name, value in row.items() if name not in keys}
    return insert(table).values(row).on_conflict_do_update(index_elements=keys, set_=values)


def whole(record: dict[str, Any], window: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a study's record with the open window of its newest trial back in its place."""
    if window is not None:
        record["trials"][-1]["window"] = window
    return record
