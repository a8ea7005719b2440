"""The store of `ports.Store` in PostgreSQL: one call, one transaction.

A write is refused unless the caller's lease is the newest (fencing) and its journal entry is the next one. So a
write whose commit was never confirmed is safe to repeat: if it did happen, the repetition is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Engine,
    Row,
    Select,
    Text,
    bindparam,
    cast,
    exc,
    func,
    null,
    select,
    update,
)

from autotuner.adapters.postgres.appending import Appending, state_columns, whole
from autotuner.adapters.postgres.audit_log import add_lines, first_broken_record, newest_records
from autotuner.adapters.postgres.engine import reading, transaction
from autotuner.adapters.postgres.registry import PostgresRegistry, budget_of, retired_since
from autotuner.adapters.postgres.standing import read_standing
from autotuner.adapters.postgres.tables import journal, request_keys, slo_budgets, studies, targets, trials
from autotuner.bookkeeping.audit import kept_up_lines, start_lines, wish_lines
from autotuner.bookkeeping.rules import (
    ANY_MARK,
    LATEST,
    aware,
    check_cancellable,
    check_new_id,
    check_not_retired,
    check_request_key,
    check_unfinished,
    plain,
    storable_entry,
)
from autotuner.domain.access import Said
from autotuner.domain.calendar import Standing
from autotuner.domain.registration import Wanted
from autotuner.domain.sharing import Errand
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.domain.target import DEFAULT_SITE, Target
from autotuner.errors import Conflict, NotFound
from autotuner.ports import AuditRecord, Grant, JournalEntry, RequestKey, StartedBefore, StudySummary
from autotuner.records import from_record, study_text

BUDGETS = (
    select(slo_budgets).where(slo_budgets.c.target == bindparam("target")).order_by(slo_budgets.c.version)
)
UNFINISHED_INDEX = "uq_studies_unfinished_target"
NEWEST_FIRST = (studies.c.created_at.desc(), studies.c.ordinal.desc())


NEW_STUDY = studies.insert().values(
    initial=cast(bindparam("initial", type_=Text), JSON), state=cast(bindparam("state", type_=Text), JSON)
)
"""Takes the two records of a new study as JSON text."""


class PostgresStore:
    """Everything that is remembered. Safe to share between threads; its engine is the caller's to dispose of."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._appending = Appending(engine)

    def save_target(
        self, target: Target, slo: SloBudget, actor: str, reason: str, now: datetime
    ) -> SloBudget:
        """Create or change a target; see `ports.Store`."""
        said = Said(actor, reason, aware(now))
        return PostgresRegistry(self._engine).register(Wanted(target, slo), ANY_MARK, said).slo

    def target(self, name: str) -> tuple[Target, SloBudget]:
        """Return a target and its newest budget. Raises NotFound."""
        found = PostgresRegistry(self._engine).registration(name)
        return found.target, found.slo

    def budgets(self, name: str) -> Sequence[SloBudget]:
        """Return every version of a target's budget, oldest first. Raises NotFound."""
        with reading(self._engine) as connection:
            found = tuple(budget_of(row) for row in connection.execute(BUDGETS, {"target": name}).all())
        if not found:
            raise NotFound("target", name)
        return found

    def create_study(self, study: Study, key: RequestKey | None = None) -> None:
        """Record a new study; see `ports.Store`. Raises NotFound for an unknown target or budget version."""
        with refused_studies(study, key), transaction(self._engine) as connection:
            if key is not None:
                check_request_key(key, _started_before(connection, key.actor, key.key))
            add_study(connection, study)
            if key is not None:
                connection.execute(request_keys.insert().values(_key_row(key, study)))

    def started_before(self, actor: str, key: str) -> StartedBefore | None:
        """Return what `actor` started under a request key; None when it was never used."""
        with reading(self._engine) as connection:
            return _started_before(connection, actor, key)

    def study(self, study_id: str) -> Study:
        """Return a study as it stands. Raises NotFound. The name `latest` means the newest one."""
        query = select(studies.c.state, studies.c.window).order_by(*NEWEST_FIRST).limit(1)
        return self._study(query if study_id == LATEST else query.where(studies.c.id == study_id), study_id)

    def unfinished(self) -> Sequence[tuple[str, str]]:
        """Return (study id, target name) of every study that has not ended, oldest first."""
        query = (
            select(studies.c.id, studies.c.target)
            .where(studies.c.phase != Phase.ENDED.value)
            .order_by(studies.c.created_at, studies.c.ordinal)
        )
        with reading(self._engine) as connection:
            return tuple((row.id, row.target) for row in connection.execute(query))

    def errands(self) -> Sequence[Errand]:
        """Return every study that has not ended, as workers share them out, oldest first."""
        site = func.coalesce(targets.c.record.op("->>")("site"), DEFAULT_SITE).label("site")
        query = (
            select(studies.c.id, studies.c.target, site, studies.c.phase, studies.c.wish, studies.c.reverses)
            .join(targets, targets.c.name == studies.c.target)
            .where(studies.c.phase != Phase.ENDED.value)
            .order_by(studies.c.ordinal)
        )
        with reading(self._engine) as connection:
            found = connection.execute(query).all()
        return tuple(
            Errand(r.id, r.target, r.site, Phase(r.phase), Wish(r.wish), r.reverses is not None)
            for r in found
        )

    def studies(self, target: str | None = None, limit: int = 50) -> Sequence[StudySummary]:
        """Return studies, newest first."""
        tried = select(func.count()).where(trials.c.study_id == studies.c.id).scalar_subquery()
        query = select(*_summary_columns(), tried.label("trials")).order_by(*NEWEST_FIRST).limit(limit)
        if target is not None:
            query = query.where(studies.c.target == target)
        with reading(self._engine) as connection:
            return tuple(StudySummary(**row._mapping) for row in connection.execute(query))

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome; see `ports.Store`. Raises NotFound for an unknown study."""
        self._appending.append(before, after, storable_entry(entry), grant)

    def next_sequence(self, study_id: str) -> int:
        """Return the sequence number of the next journal entry of a study. Raises NotFound."""
        with reading(self._engine) as connection:
            newest: int = _one(connection, study_id, studies.c.sequence).sequence
            return newest + 1

    def journal(self, study_id: str, after: int = 0) -> Sequence[JournalEntry]:
        """Return the journal of a study from the entry after `after` on, in order. Raises NotFound."""
        query = (
            select(*(column for column in journal.c if column.name != "study_id"))
            .where(journal.c.study_id == study_id, journal.c.sequence > after)
            .order_by(journal.c.sequence)
        )
        with reading(self._engine) as connection:
            _one(connection, study_id, studies.c.id)
            return tuple(JournalEntry(**row._mapping) for row in connection.execute(query))

    def initial(self, study_id: str) -> Study:
        """Return a study as it was created, before its first journal entry. Raises NotFound."""
        return self._study(
            select(studies.c.initial, null().label("window")).where(studies.c.id == study_id), study_id
        )

    def wish(self, study_id: str) -> Wish:
        """Return what an operator last asked of the study. Raises NotFound."""
        with reading(self._engine) as connection:
            return Wish(_one(connection, study_id, studies.c.wish).wish)

    def set_wish(self, study_id: str, wish: Wish, actor: str, reason: str, now: datetime) -> None:
        """Record an operator's wish; see `ports.Store`."""
        said = Said(actor, reason, aware(now))
        with transaction(self._engine) as connection:
            row = _one(connection, study_id, studies.c.phase, lock=True)
            check_unfinished(study_id, Phase(row.phase))
            if wish is Wish.CANCEL and Phase(row.phase) is Phase.RESTORATION:
                found = select(studies.c.state, studies.c.window).where(studies.c.id == study_id)
                check_cancellable(from_record(Study, whole(*connection.execute(found).one())))
            connection.execute(update(studies).where(studies.c.id == study_id).values(wish=wish.value))
            add_lines(connection, wish_lines(study_id, wish, said))

    def kept_up(self, study_id: str, replica: str, said: Said) -> None:
        """Record that a replica is given again what a study promoted. Raises NotFound without the study."""
        with transaction(self._engine) as connection:
            _one(connection, study_id, studies.c.id)
            add_lines(connection, kept_up_lines(study_id, replica, replace(said, at=aware(said.at))))

    def audit(self, limit: int = 100, subject: str | None = None) -> Sequence[AuditRecord]:
        """Return the newest audit records, newest first."""
        with reading(self._engine) as connection:
            return newest_records(connection, limit, subject)

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is; see `ports.Store`."""
        with reading(self._engine) as connection:
            return read_standing(connection, now)

    def first_broken_audit(self) -> int | None:
        """Return the number of the first audit record that does not fit the hash chain; None when all fit."""
        with transaction(self._engine) as connection:
            return first_broken_record(connection)

    def _study(self, query: Select[Any], study_id: str) -> Study:
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFound("study", study_id)
        return from_record(Study, whole(*row))


def add_study(connection: Connection, study: Study) -> None:
    """Record a new study and its audit lines in the caller's transaction, within `refused_studies`."""
    name = study.plan.target.name
    connection.execute(NEW_STUDY, _study_row(study))
    check_not_retired(name, retired_since(connection, name))
    add_lines(connection, start_lines(study))


@contextmanager
def refused_studies(study: Study, key: RequestKey | None = None) -> Iterator[None]:
    """Say why a new study is refused: raises NotFound, Conflict, InvalidInput."""
    name, version = study.plan.target.name, study.plan.slo.version
    check_new_id(study.id, known=False)
    try:
        yield
    except exc.IntegrityError as error:
        violated = getattr(getattr(error.orig, "diag", None), "constraint_name", None) or ""
        if violated.startswith("fk_"):
            raise NotFound("target with budget", f"{name} version {version}") from error
        if violated == UNFINISHED_INDEX:
            raise Conflict(f"target {name}", "another study of it has not ended") from error
        if key is not None and violated == "pk_request_keys":
            raise Conflict(f"request {key.key}", "the same request is under way") from error
        check_new_id(study.id, known=True)
        raise


def _one(connection: Connection, study_id: str, column: Any, *, lock: bool = False) -> Row[Any]:
    """Return one column of a study's row; lock keeps the row from changing until the transaction ends."""
    query = select(column).where(studies.c.id == study_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound("study", study_id)
    return row


def _study_row(study: Study) -> dict[str, Any]:
    return {
        "id": study.id,
        "target": study.plan.target.name,
        "slo_version": study.plan.slo.version,
        "actor": plain(study.actor),
        "seed": study.plan.seed,
        "wish": Wish.RUN.value,
        "sequence": 0,
        "initial": study_text(study),
        "created_at": study.created_at,
        "reverses": None if study.plan.reverses is None else study.plan.reverses.study_id,
        **state_columns(study),
        "state": study_text(study),
    }


def _started_before(connection: Connection, actor: str, key: str) -> StartedBefore | None:
    c = request_keys.c
    query = select(c.digest, c.study_id).where(c.actor == plain(actor), c.key == key)
    row = connection.execute(query).one_or_none()
    return None if row is None else StartedBefore(row.digest, row.study_id)


def _key_row(key: RequestKey, study: Study) -> dict[str, Any]:
    return {
        "actor": plain(key.actor),
        "key": key.key,
        "digest": key.digest,
        "study_id": study.id,
        "created_at": study.created_at,
    }


def _summary_columns() -> tuple[Any, ...]:
    c = studies.c
    return (c.id, c.target, c.phase, c.outcome, c.reason, c.created_at, c.ended_at)
