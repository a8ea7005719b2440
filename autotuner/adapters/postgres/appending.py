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

from sqlalchemy import JSON, Connection, Engine, Table, Text, bindparam, cast, func, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from autotuner.adapters.postgres.audit_log import add_lines
from autotuner.adapters.postgres.engine import transaction
from autotuner.adapters.postgres.outbox import add_notices
from autotuner.adapters.postgres.projections import Row, changed_steps, changed_trials
from autotuner.adapters.postgres.tables import leases, ledger, steps, studies, trials
from autotuner.bookkeeping.audit import AuditLine, step_lines
from autotuner.bookkeeping.rules import check_grant, check_not_overtaken, check_sequence, plain
from autotuner.bookkeeping.summaries import ledger_line
from autotuner.domain.notices import Notice, notices_of
from autotuner.domain.study import Study, Wish
from autotuner.errors import AutotunerError, NotFound, Unavailable
from autotuner.ports import Grant, JournalEntry
from autotuner.records import Written, head_text, only_looked, to_record, window_text

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
    trials: Sequence[Row] = ()
    """Rows of the projection that are new or differ; so `steps`."""
    steps: Sequence[Row] = ()
    lines: Sequence[AuditLine] = ()
    notices: Sequence[Notice] = ()
    written: bool = False
    error: BaseException | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held until the entry is settled, or until it is its thread's turn to commit."""

    @property
    def harmed(self) -> bool:
        """Whether the newest trial has done harm since."""
        return self.before.trials[-1].harm_requests != self.after.trials[-1].harm_requests

    @property
    def settled(self) -> bool:
        return self.written or self.error is not None


class Appending:
    """Writes journal entries for all threads of a process: one commits at a time, and then gives the turn away."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[_Writing] = []
        self._committing = False
        self._door = threading.Lock()

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Write one entry and the study it leads to, together with whatever else waits; see `ports.Store`."""
        writing = _prepared(_Writing(before, after, entry, grant))
        writing.turn.acquire()
        with self._door:
            self._waiting.append(writing)
            first, self._committing = not self._committing, True
        if not first:
            writing.turn.acquire()
        if not writing.settled:
            self._take_turn()
        if writing.error is not None:
            raise writing.error

    def _take_turn(self) -> None:
        """Commit what waits, tell those whose entries were among it, and let the first of the others go on.

        Whoever calls this is the first that waits.
        """
        with self._door:
            batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        try:
            self._write_or_say_why(batch)
        finally:
            with self._door:
                self._committing = bool(self._waiting)
                following = self._waiting[:1]
            for each in batch:
                each.error = each.error or (None if each.written else _interrupted())
            for each in (*following, *batch):
                if each.turn.locked():
                    each.turn.release()

    def _write_or_say_why(self, batch: Sequence[_Writing]) -> None:
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


def _prepared(writing: _Writing) -> _Writing:
    """Return an entry with all that is to be written of it, so that whoever commits has only that to do."""
    before, after, entry = writing.before, writing.after, writing.entry
    writing.window = window_text(after)
    if not only_looked(before, after):
        writing.head = state_columns(after)
        writing.trials, writing.steps = changed_trials(before, after), changed_steps(before, after)
        writing.lines = step_lines(before, after, entry)
        writing.notices = notices_of(before, after, entry.at)
    return writing


def _interrupted() -> Unavailable:
    """What those are told whose entry was about to be written when the thread that did it was ended."""
    return Unavailable("postgres", "the writing was interrupted")


def _own(error: Unavailable) -> Unavailable:
    """Return the same error for one of many that wait: each raises its own, in a thread of its own."""
    made = Unavailable(error.system, error.detail)
    made.__cause__ = error
    return made


LOCKED = (
    select(
        studies.c.id, studies.c.target, studies.c.sequence, studies.c.wish, leases.c.holder, leases.c.token
    )
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
    """Raise NotFound for an unknown study, Conflict for a grant or a sequence that is not the newest, Overtaken."""
    study_id = writing.after.id
    if row is None:
        target = connection.scalar(select(studies.c.target).where(studies.c.id == study_id))
        if target is None:
            raise NotFound("study", study_id)
        check_grant(writing.grant, target, None, None)
        return
    check_grant(writing.grant, row.target, row.holder, row.token)
    check_sequence(study_id, sequences[study_id], writing.entry.sequence)
    check_not_overtaken(writing.before, writing.after, writing.entry, Wish(row.wish))


def _write_all(connection: Connection, batch: Sequence[_Writing]) -> None:
    connection.execute(ENTRIES, _arrays([_entry_row(each) for each in batch]))
    looks = [each for each in batch if each.head is None]
    if looks:
        connection.execute(LOOKS, _arrays([_look_row(each) for each in looks]))
    harmed = [_harm_row(each) for each in looks if each.harmed]
    if harmed:
        connection.execute(HARM, _arrays(harmed))
    _execute(connection, STEP, [_step_values(each, each.head) for each in batch if each.head is not None])
    _execute(connection, TRIALS, [row for each in batch for row in each.trials])
    _execute(connection, STEPS, [row for each in batch for row in each.steps])
    for each in batch:
        if each.head is not None:
            _write_ledger(connection, each)
    add_notices(connection, (notice for each in batch for notice in each.notices))
    add_lines(connection, (line for each in batch for line in each.lines))


def _write_ledger(connection: Connection, writing: _Writing) -> None:
    line = ledger_line(writing.after) if writing.before.outcome is None else None
    if line is not None:
        row = {"study_id": line.study_id, "target": line.target, "promoted_at": line.promoted_at}
        worth = {"reason": line.reason, "currency": line.currency, "worth": to_record(line.worth)}
        connection.execute(ledger.insert().values({**row, **worth}))


def _execute(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(statement, rows)


def _json(name: str) -> Any:
    """A column's value that is JSON text already."""
    return cast(bindparam(name, type_=Text), JSON)


HARM = text(
    """
    UPDATE trials SET harm_requests = given.harm_requests
    FROM unnest(
        CAST(:study_id AS text[]), CAST(:number AS integer[]), CAST(:harm_requests AS double precision[])
    ) AS given(study_id, number, harm_requests)
    WHERE trials.study_id = given.study_id AND trials.number = given.number
    """
)
"""What a look may change of the projection of its trial."""


def _upsert(table: Table) -> Any:
    """Return the statement that writes rows of a projection, new or changed."""
    keys = [column.name for column in table.primary_key]
    new = insert(table)
    rest = {column.name: new.excluded[column.name] for column in table.c if column.name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=rest)


TRIALS, STEPS = _upsert(trials), _upsert(steps)

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


def _harm_row(writing: _Writing) -> dict[str, Any]:
    trial = writing.after.trials[-1]
    return {"study_id": writing.after.id, "number": trial.number, "harm_requests": trial.harm_requests}


def _step_values(writing: _Writing, head: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "study": writing.after.id,
        "to_sequence": writing.entry.sequence,
        "to_window": writing.window,
        **{f"to_{name}": value for name, value in head.items()},
    }


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
    return value.text if isinstance(value, Written) else json.dumps(value, allow_nan=False)


def whole(record: dict[str, Any], window: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a study's record with the open window of its newest trial back in its place."""
    if window is not None:
        record["trials"][-1]["window"] = window
    return record
