"""Schedules, freezes, the line and nights in PostgreSQL. The key of a night is what keeps it from starting twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    Row,
    Select,
    bindparam,
    delete,
    exc,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from autotuner.adapters.postgres.audit_log import add_lines
from autotuner.adapters.postgres.engine import reading, transaction
from autotuner.adapters.postgres.listing import among
from autotuner.adapters.postgres.outbox import add_notices
from autotuner.adapters.postgres.standing import dates, freeze_of, lock_line, read_standing
from autotuner.adapters.postgres.store import add_study, refused_studies
from autotuner.adapters.postgres.tables import freezes, line, nights, schedules, studies
from autotuner.bookkeeping.nightly import (
    NO_SCHEDULE,
    check_schedule,
    freeze_lines,
    freeze_removed_lines,
    kept_schedule,
    line_lines,
    night_missed_lines,
    night_started_lines,
    schedule_lines,
    schedule_removed_lines,
    stopped_line,
)
from autotuner.bookkeeping.rules import aware, plain
from autotuner.domain.access import Said
from autotuner.domain.calendar import Freeze, Line, Night, Schedule, Standing
from autotuner.domain.notices import inconclusive, inconclusive_in_a_row, missed
from autotuner.domain.study import Outcome, Phase, Study
from autotuner.errors import NotFound
from autotuner.ports import NightRecord, NightState

SCHEDULES = select(schedules).order_by(schedules.c.target)
SCHEDULES_OF = SCHEDULES.where(among(schedules.c.target, "targets"))


class _SettledMeanwhile(Exception):
    """Somebody else settled the night between two statements: the study is not recorded either."""


class PostgresNights:
    """`ports.Nights` in tables of their own. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def set_schedule(self, schedule: Schedule, said: Said, mark: str | None = None) -> Schedule:
        """Create or change a target's schedule; see `ports.Nights`."""
        kept = kept_schedule(schedule, said)
        try:
            with transaction(self._engine) as connection:
                before = _schedule(connection, kept.target)
                check_schedule(kept.target, before, mark)
                _write_schedule(connection, kept, mark == NO_SCHEDULE)
                add_lines(connection, schedule_lines(before, kept, said))
        except exc.IntegrityError as error:
            raise NotFound("target", kept.target) from error
        return kept

    def remove_schedule(self, target: str, said: Said, mark: str | None = None) -> None:
        """Remove a target's schedule. Raises NotFound, Outdated."""
        with transaction(self._engine) as connection:
            before = _schedule(connection, target)
            if before is None:
                raise NotFound("schedule of target", target)
            check_schedule(target, before, mark)
            connection.execute(delete(schedules).where(schedules.c.target == target))
            add_lines(connection, schedule_removed_lines(target, said))

    def schedules(self, targets: Sequence[str] | None = None) -> Sequence[Schedule]:
        """Return the schedules of these targets, or every one, by target."""
        query = SCHEDULES if targets is None else SCHEDULES_OF
        asked = {} if targets is None else {"targets": list(targets)}
        with reading(self._engine) as connection:
            return tuple(_schedule_of(row) for row in connection.execute(query, asked).all())

    def stop_line(self, said: Said) -> Line:
        """Stop the line. Raises InvalidInput without a reason."""
        with transaction(self._engine) as connection:
            before = lock_line(connection)
            return _set_line(connection, before, stopped_line(before, said), said)

    def release_line(self, said: Said) -> Line:
        """Let the line run again."""
        with transaction(self._engine) as connection:
            return _set_line(connection, lock_line(connection), Line(), said)

    def add_freeze(self, freeze: Freeze, said: Said) -> Freeze:
        """Record a freeze and return it with its number. Raises NotFound for an unknown target."""
        row = {
            "target": freeze.target,
            "begins_at": freeze.begins_at,
            "ends_at": freeze.ends_at,
            "reason": plain(freeze.reason),
        }
        try:
            with transaction(self._engine) as connection:
                made = connection.execute(freezes.insert().values(row).returning(freezes)).one()
                kept = freeze_of(made)
                add_lines(connection, freeze_lines(kept, said))
        except exc.IntegrityError as error:
            raise NotFound("target", freeze.target) from error
        return kept

    def remove_freeze(self, number: int, said: Said) -> None:
        """End a freeze. Raises NotFound."""
        with transaction(self._engine) as connection:
            gone = connection.execute(
                delete(freezes).where(freezes.c.number == number).returning(freezes)
            ).one_or_none()
            if gone is None:
                raise NotFound("freeze", number)
            add_lines(connection, freeze_removed_lines(freeze_of(gone), said))

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is."""
        with reading(self._engine) as connection:
            return read_standing(connection, now)

    def start_night(self, night: Night, study: Study, said: Said) -> bool:
        """Record the study of a night, together with the night being started; see `ports.Nights`."""
        row = _night_row(night, NightState.STARTED, said, study.id)
        try:
            with refused_studies(study), transaction(self._engine) as connection:
                if _settled(connection, night.target, night.name):
                    return False
                add_study(connection, study)
                _settle_or_undo(connection, row)
                add_lines(connection, night_started_lines(night, study.id, said))
        except _SettledMeanwhile:
            return False
        return True

    def miss_night(self, night: Night, said: Said) -> bool:
        """Record that a night did not start; see `ports.Nights`."""
        with transaction(self._engine) as connection:
            if not _settle(connection, _night_row(night, NightState.MISSED, said, None)):
                return False
            add_notices(connection, (missed(night.target, night.name, said.reason, said.at),))
            add_lines(connection, night_missed_lines(night, said))
            return True

    def close_nights(self, inconclusive_nights: int, now: datetime) -> int:
        """Note the outcome of every started night whose study has ended; see `ports.Nights`."""
        over = (
            select(nights.c.target, nights.c.name, studies.c.outcome)
            .join(studies, studies.c.id == nights.c.study_id)
            .where(nights.c.state == NightState.STARTED.value, studies.c.phase == Phase.ENDED.value)
            .order_by(nights.c.target, nights.c.due_at)
            .with_for_update(of=nights, skip_locked=True)
        )
        with transaction(self._engine) as connection:
            found = connection.execute(over).all()
            for row in found:
                here = (nights.c.target == row.target) & (nights.c.name == row.name)
                ended = {"state": NightState.ENDED.value, "outcome": row.outcome}
                connection.execute(update(nights).where(here).values(ended))
                if row.outcome == Outcome.INCONCLUSIVE.value:
                    _tell_row(connection, row.target, row.name, inconclusive_nights, aware(now))
            return len(found)

    def settled_until(self) -> Mapping[str, datetime]:
        """Return when the newest settled night of each target was due."""
        newest = select(nights.c.target, func.max(nights.c.due_at).label("due_at")).group_by(nights.c.target)
        with reading(self._engine) as connection:
            return {row.target: row.due_at for row in connection.execute(newest)}

    def nights(
        self, target: str | None = None, limit: int = 50, after: tuple[datetime, str] | None = None
    ) -> Sequence[NightRecord]:
        """Return settled nights, newest first; see `ports.Nights`."""
        due_at, name = after or (None, None)
        asked = {"target": target, "most": limit, "due_at": due_at, "name": name}
        query = _nights(of_target=target is not None, goes_on=after is not None)
        with reading(self._engine) as connection:
            return tuple(_record(row) for row in connection.execute(query, asked).all())


@cache
def _nights(*, of_target: bool, goes_on: bool) -> Select[Any]:
    c, due_at = nights.c, bindparam("due_at", type_=nights.c.due_at.type)
    query = select(nights).order_by(c.due_at.desc(), c.target).limit(bindparam("most", type_=Integer))
    if of_target:
        query = query.where(c.target == bindparam("target"))
    if goes_on:
        # Said twice, so that an index on the instant is enough to begin at the right place.
        query = query.where(c.due_at <= due_at, (c.due_at < due_at) | (c.target > bindparam("name")))
    return query


def _tell_row(connection: Connection, target: str, name: str, wanted: int, now: datetime) -> None:
    """Write a notice where the newest nights make exactly `wanted` inconclusive ones in a row."""
    query = select(nights.c.outcome).where(nights.c.target == target, nights.c.outcome.is_not(None))
    newest = connection.scalars(query.order_by(nights.c.due_at.desc()).limit(wanted + 1))
    if inconclusive_in_a_row(tuple(newest)) == wanted:
        add_notices(connection, (inconclusive(target, name, wanted, now),))


def _set_line(connection: Connection, before: Line, after: Line, said: Said) -> Line:
    row = {"stopped_at": after.stopped_at, "reason": after.reason, "actor": after.actor}
    written = insert(line).values(id=1, **row).on_conflict_do_update(index_elements=[line.c.id], set_=row)
    connection.execute(written)
    add_lines(connection, line_lines(before, after, said))
    return after


def _settle_or_undo(connection: Connection, row: dict[str, Any]) -> None:
    """Write a night, or raise so that all of the transaction is undone."""
    if not _settle(connection, row):
        raise _SettledMeanwhile


def _settled(connection: Connection, target: str, name: str) -> bool:
    query = select(nights.c.name).where(nights.c.target == target, nights.c.name == name)
    return connection.scalar(query) is not None


def _settle(connection: Connection, row: dict[str, Any]) -> bool:
    """Write a night unless it is settled, and say whether it was written: of two at once one is told so."""
    try:
        written = insert(nights).values(row).on_conflict_do_nothing().returning(nights.c.name)
        return connection.scalar(written) is not None
    except exc.IntegrityError as error:
        raise NotFound("target", row["target"]) from error


def _night_row(night: Night, state: NightState, said: Said, study_id: str | None) -> dict[str, Any]:
    return {
        "target": night.target,
        "name": night.name,
        "due_at": night.due_at,
        "state": state.value,
        "study_id": study_id,
        "reason": plain(said.reason) if state is NightState.MISSED else "",
        "settled_at": aware(said.at),
    }


def _record(row: Row[Any]) -> NightRecord:
    night = Night(row.target, row.name, row.due_at)
    return NightRecord(night, NightState(row.state), row.study_id, row.outcome, row.reason, row.settled_at)


def _write_schedule(connection: Connection, schedule: Schedule, must_be_new: bool) -> None:
    """Write a schedule over the one there is. Raises Conflict when there should be none: of two at once one is told."""
    row = _schedule_row(schedule)
    written = insert(schedules).values(row)
    if must_be_new:
        made = connection.scalar(written.on_conflict_do_nothing().returning(schedules.c.target))
        check_schedule(schedule.target, None if made is not None else schedule, NO_SCHEDULE)
        return
    changes = {name: value for name, value in row.items() if name != "target"}
    connection.execute(written.on_conflict_do_update(index_elements=[schedules.c.target], set_=changes))


def _schedule(connection: Connection, target: str) -> Schedule | None:
    row = connection.execute(
        select(schedules).where(schedules.c.target == target).with_for_update()
    ).one_or_none()
    return None if row is None else _schedule_of(row)


def _schedule_row(schedule: Schedule) -> dict[str, Any]:
    return {
        "target": schedule.target,
        "cron": schedule.cron,
        "time_zone": schedule.time_zone,
        "window_seconds": schedule.window.total_seconds(),
        "jitter_seconds": schedule.jitter.total_seconds(),
        "blackout_dates": [each.isoformat() for each in schedule.blackout_dates],
        "paused": schedule.paused,
        "set_by": schedule.set_by,
        "set_at": schedule.set_at,
    }


def _schedule_of(row: Row[Any]) -> Schedule:
    return Schedule(
        target=row.target,
        cron=row.cron,
        time_zone=row.time_zone,
        window=timedelta(seconds=row.window_seconds),
        jitter=timedelta(seconds=row.jitter_seconds),
        blackout_dates=dates(row.blackout_dates),
        paused=row.paused,
        set_by=row.set_by,
        set_at=row.set_at,
    )
