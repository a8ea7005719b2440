"""Lists and details in PostgreSQL: keyset pages over indexes, never an offset or a study's whole state."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Integer,
    Row,
    Select,
    Text,
    bindparam,
    case,
    column,
    func,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY

from autotuner.adapters.postgres.engine import reading
from autotuner.adapters.postgres.registry import IN_FORCE, WHOLE, budget_of, registration_of
from autotuner.adapters.postgres.tables import (
    audit,
    journal,
    ledger,
    studies,
    targets,
    trials,
)
from autotuner.bookkeeping.rules import LATEST, plain
from autotuner.bookkeeping.summaries import GLANCED_AT, restored_by, serving
from autotuner.catalogue import (
    AuditFilter,
    Glance,
    LedgerLine,
    Mark,
    Page,
    Progress,
    Span,
    StudyFilter,
    StudyStanding,
    TrialEvidence,
    TrialFilter,
    TrialOrder,
    TrialSort,
    TrialSummary,
    Window,
)
from autotuner.domain.benefit import Benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.registration import Registration
from autotuner.domain.study import Outcome, StudyPlan, Trial, TrialKind, TrialState, Wish
from autotuner.errors import NotFound
from autotuner.ports import AuditRecord, StudySummary
from autotuner.records import from_record

T = TypeVar("T")

BATCH = 1_000
"""Trials read at once by whoever wants all: nobody's slow connection keeps a transaction open."""

FIRST_BATCH = 15
"""The same, to begin with, twice as many each time: whoever wants all sees the first of them soon, and whoever wanted
no more than those costs little."""

LISTED = tuple(column for column in trials.c if column is not trials.c.record)
"""What a list shows of a trial; its record is read for the one that is looked at."""

CAPACITY_KEY = func.coalesce(trials.c.capacity_per_second, 0.0)
"""A trial without a capacity sorts as having none; an index is on exactly this expression."""

SORT_KEYS: dict[TrialSort, ColumnElement[Any]] = {
    TrialSort.PROPOSED_AT: trials.c.proposed_at,
    TrialSort.CAPACITY: CAPACITY_KEY,
    TrialSort.HARM: trials.c.harm_requests,
}
OLDEST_FIRST = TrialOrder(TrialSort.PROPOSED_AT, descending=False)
TRIED = (
    select(func.coalesce(func.max(trials.c.number) + 1, 0))
    .where(trials.c.study_id == studies.c.id)
    .scalar_subquery()
)
"""How many trials a study has: they are numbered from 0 without gaps, and the last is found without reading all."""
SUMMARY = (
    studies.c.id,
    studies.c.target,
    studies.c.phase,
    studies.c.outcome,
    studies.c.reason,
    studies.c.created_at,
    studies.c.ended_at,
    TRIED.label("trials"),
)


MOST_CONFIGURATIONS = 10_000
"""Configurations that are remembered: trials of a target try the same ones again and again."""

MOST_TOLD = 256
"""Studies whose records are remembered, so that a page about one that looks for news does not read it all again."""

LIVE = (*SUMMARY, studies.c.wish, studies.c.sequence)
"""What changes of a study without its record, or is cheap to read."""

_TOLD = (
    func.json_to_record(studies.c.state)
    .table_valued(
        column("winner", Integer),
        column("promoted", JSON),
        column("dispersion", Double),
        column("reference_rate_per_second", Double),
        name="told",
    )
    .render_derived(with_types=True)
)
_HARM = select(func.coalesce(func.sum(trials.c.harm_requests), 0.0)).where(trials.c.study_id == studies.c.id)
TOLD = select(
    *LIVE,
    studies.c.actor,
    studies.c.initial["plan"].label("plan"),
    _HARM.scalar_subquery().label("harm_requests"),
    *_TOLD.c,
).select_from(studies.join(_TOLD, true()))
"""A study's whole record, as far as it is told without its trials: the database reads through all of it."""


class PostgresCatalogue:
    """Lists over the tables. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: dict[tuple[str, int], StudyStanding] = {}
        self._lock = threading.Lock()

    def targets(self, window: Window, *, retired: bool | None = None) -> Page[Registration]:
        """Return targets by name; see `catalogue.Catalogue`."""
        chosen = WHOLE.order_by(targets.c.name)
        if retired is not None:
            chosen = chosen.where(
                targets.c.retired_at.is_not(None) if retired else targets.c.retired_at.is_(None)
            )
        with reading(self._engine) as connection:
            rows, mark = _rows(connection, chosen, (targets.c.name,), window)
        return Page(tuple(registration_of(row, budget_of(row, IN_FORCE)) for row in rows), mark)

    def studies(self, wanted: StudyFilter, window: Window) -> Page[StudySummary]:
        """Return studies, newest first."""
        query = select(*SUMMARY, studies.c.ordinal).where(*_study_conditions(wanted))
        keys = (studies.c.created_at, studies.c.ordinal)
        with reading(self._engine) as connection:
            rows, mark = _rows(connection, query, keys, window, descending=True)
        return Page(tuple(_summary(row) for row in rows), mark)

    def glances(self, targets: Sequence[str]) -> Mapping[str, Glance]:
        """Return targets at a glance; see `catalogue.Catalogue`."""
        with reading(self._engine) as connection:
            newest = connection.execute(NEWEST_STUDIES, {"names": list(targets)}).all()
            telling = connection.execute(TELLING, {"studies": [row.id for row in newest]}).all()
        restored: dict[str, Configuration] = {}
        for row in newest:
            if row.plan is not None:
                restored |= restored_by(row.id, from_record(StudyPlan, row.plan), row.outcome)
        told = [_trial(row) for row in telling]
        found: dict[str, Glance] = {}
        for name in dict.fromkeys(row.target for row in newest):
            of_target = [row for row in newest if row.target == name]
            ids = [row.id for row in of_target]
            found[name] = Glance(_summary(of_target[0]), serving(ids, restored, told))
        return found

    def study_id(self, name: str) -> str:
        """Return the id of a study; see `catalogue.Catalogue`."""
        with reading(self._engine) as connection:
            found: str | None = connection.scalar(_one_study(select(studies.c.id), name))
        if found is None:
            raise NotFound("study", name)
        return found

    def standing(self, study_id: str) -> StudyStanding:
        """Return a study without its trials; see `catalogue.Catalogue`."""
        with reading(self._engine) as connection:
            row = connection.execute(*_asked(ONE_LIVE, LATEST_LIVE, study_id)).one_or_none()
            if row is None:
                raise NotFound("study", study_id)
            known = self._told.get((row.id, row.sequence))
            if known is None:
                found = connection.execute(_one_study(TOLD, row.id)).one()
                known = _told(found)
                self._remember((row.id, found.sequence), known)
        return replace(known, summary=_summary(row), wish=Wish(row.wish), sequence=row.sequence)

    def _remember(self, key: tuple[str, int], known: StudyStanding) -> None:
        """Keep what a study's record says: it is the same for as long as its journal has no newer entry."""
        with self._lock:
            self._told[key] = known
            if len(self._told) > MOST_TOLD:
                del self._told[next(iter(self._told))]

    def trials(self, wanted: TrialFilter, order: TrialOrder, window: Window) -> Page[TrialSummary]:
        """Return trials in the order asked for."""
        key = SORT_KEYS[order.by]
        query = select(*LISTED, key.label("sort_key")).where(*_trial_conditions(wanted))
        keys = (key, trials.c.study_id, trials.c.number)
        with reading(self._engine) as connection:
            rows, mark = _rows(
                connection, query, keys, window, descending=order.descending, key_of=_trial_mark
            )
        return Page(tuple(_trial(row) for row in rows), mark)

    def every_trial(self, wanted: TrialFilter) -> Iterator[TrialSummary]:
        """Yield every trial there is, oldest first, a batch a statement."""
        window: Window | None = Window(FIRST_BATCH)
        while window is not None:
            page = self.trials(wanted, OLDEST_FIRST, window)
            yield from page.items
            window = None if page.mark is None else Window(min(2 * window.limit, BATCH), page.mark)

    def evidence(self, study_id: str, number: int) -> TrialEvidence:
        """Return a trial with all its evidence. Raises NotFound."""
        here = (trials.c.study_id == studies.c.id) & (trials.c.number == number)
        known = select(studies.c.id, studies.c.initial["plan"].label("plan"), *trials.c)
        query = _one_study(known.select_from(studies.outerjoin(trials, here)), study_id)
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                raise NotFound("study", study_id)
            record = row.record and json.loads(row.record)
            if row.number is not None and record is None:
                record = _record_in_study(connection, row)
        if record is None:
            raise NotFound("trial", f"{row.id}/{number}")
        return TrialEvidence(_trial(row), from_record(Trial, record), from_record(StudyPlan, row.plan))

    def ledger(self, target: str | None, window: Window) -> Page[LedgerLine]:
        """Return promotions and their worth, newest first."""
        c, back = ledger.c, studies.alias("back")
        undone = (back.c.reverses == c.study_id) & (back.c.outcome == Outcome.ROLLED_BACK.value)
        query = (
            select(ledger, back.c.id.label("rolled_back_by"), back.c.ended_at.label("rolled_back_at"))
            .select_from(ledger.outerjoin(back, undone))
            .where(*_equal((c.target, target)))
        )
        with reading(self._engine) as connection:
            rows, mark = _rows(connection, query, (c.promoted_at, c.study_id), window, descending=True)
        return Page(tuple(_ledger_line(row) for row in rows), mark)

    def progress(self, study_id: str, after: int, limit: int) -> Sequence[Progress]:
        """Return lines of a study's journal; see `catalogue.Catalogue`."""
        c = journal.c
        query = (
            select(c.sequence, c.at, c.kind, c.reason, c.actor)
            .where(c.study_id == study_id, c.sequence > after)
            .order_by(c.sequence)
            .limit(limit)
        )
        with reading(self._engine) as connection:
            if connection.scalar(select(studies.c.id).where(studies.c.id == study_id)) is None:
                raise NotFound("study", study_id)
            return tuple(Progress(**row._mapping) for row in connection.execute(query))

    def audit(self, wanted: AuditFilter, window: Window) -> Page[AuditRecord]:
        """Return audit records, newest first."""
        c = audit.c
        query = select(c.number, c.at, c.actor, c.action, c.subject, c.reason, c.details).where(
            *_equal((c.actor, wanted.actor), (c.action, wanted.action), (c.subject, wanted.subject)),
            *_within(c.at, wanted.at),
        )
        with reading(self._engine) as connection:
            rows, mark = _rows(connection, query, (c.at, c.number), window, descending=True)
        return Page(tuple(AuditRecord(**row._mapping) for row in rows), mark)


def _record_in_study(connection: Connection, trial: Row[Any]) -> dict[str, Any] | None:
    """The record of a trial that has none of its own: it may still change, or an earlier release saw to it.

    The database reads through the whole record of its study for it.
    """
    query = select(studies.c.state[("trials", str(trial.number))].label("record"), studies.c.window)
    found = connection.execute(query.where(studies.c.id == trial.id)).one()
    if found.record is None:
        return None
    record = dict(found.record)
    if found.window is not None and trial.state != TrialState.JUDGED.value:
        record["window"] = found.window  # only the newest trial is not judged, and may have one
    return record


_TELLS_PRODUCTION = (trials.c.kind == TrialKind.PRODUCTION.value) | (
    (trials.c.kind == TrialKind.WATCH.value) & (trials.c.verdict == Verdict.ACCEPT.value)
)


def _newest_studies() -> Select[Any]:
    """The newest studies of each target, newest first: a short walk of an index for each name."""
    order = (studies.c.created_at.desc(), studies.c.ordinal.desc())
    rolled_back = studies.c.outcome == Outcome.ROLLED_BACK.value
    restoring = case((rolled_back, studies.c.initial["plan"]))
    of_target = (
        select(*SUMMARY, studies.c.ordinal, restoring.label("plan"))
        .where(studies.c.target == targets.c.name)
        .order_by(*order)
        .limit(GLANCED_AT)
        .lateral("newest")
    )
    chosen = (
        select(of_target).select_from(targets.join(of_target, true())).where(_among(targets.c.name, "names"))
    )
    return chosen.order_by(of_target.c.created_at.desc(), of_target.c.ordinal.desc())


def _among(known: ColumnElement[str], name: str) -> ColumnElement[bool]:
    return known == func.any(bindparam(name, type_=ARRAY(Text)))


NEWEST_STUDIES = _newest_studies()
TELLING = select(*LISTED).where(_among(trials.c.study_id, "studies"), _TELLS_PRODUCTION)
"""Statements that are the same but for their values are made once: to make one costs as much as to run it."""


def _rows(
    connection: Connection,
    query: Select[Any],
    keys: tuple[ColumnElement[Any], ...],
    window: Window,
    *,
    descending: bool = False,
    key_of: Callable[[Row[Any]], Mark] | None = None,
) -> tuple[list[Row[Any]], Mark | None]:
    """The rows of one page and the mark of the next: one row more is read than the page holds."""
    if window.after is not None:
        here, there = tuple_(*keys), tuple_(*window.after)
        query = query.where(here < there if descending else here > there)
    ordered = query.order_by(*(key.desc() if descending else key for key in keys)).limit(window.limit + 1)
    found = connection.execute(ordered).all()
    rows = list(found[: window.limit])
    if len(found) <= window.limit:
        return rows, None
    last = rows[-1]
    mark = key_of(last) if key_of else tuple(last._mapping[key] for key in keys)
    return rows, mark


def _asked(one: Select[Any], latest: Select[Any], study_id: str) -> tuple[Select[Any], dict[str, str]]:
    """The statement that finds a study, or the newest one, and its values."""
    return (latest, {}) if study_id == LATEST else (one, {"id": study_id})


def _one_study(query: Select[Any], study_id: str) -> Select[Any]:
    if study_id == LATEST:
        return query.order_by(studies.c.created_at.desc(), studies.c.ordinal.desc()).limit(1)
    return query.where(studies.c.id == study_id)


ONE_LIVE = select(*LIVE).where(studies.c.id == bindparam("id"))
LATEST_LIVE = _one_study(select(*LIVE), LATEST)


def _equal(*pairs: tuple[ColumnElement[Any], Any]) -> list[ColumnElement[bool]]:
    return [
        known == (plain(value) if isinstance(value, str) else value)
        for known, value in pairs
        if value is not None
    ]


def _within(instant: ColumnElement[Any], span: Span) -> list[ColumnElement[bool]]:
    found = []
    if span.since is not None:
        found.append(instant >= span.since)
    if span.until is not None:
        found.append(instant < span.until)
    return found


def _study_conditions(wanted: StudyFilter) -> list[ColumnElement[bool]]:
    c = studies.c
    pairs = (c.target, wanted.target), (c.phase, wanted.phase), (c.outcome, wanted.outcome)
    return [*_equal(*pairs), *_within(c.created_at, wanted.created)]


def _trial_conditions(wanted: TrialFilter) -> list[ColumnElement[bool]]:
    c = trials.c
    found = _equal(
        (c.study_id, wanted.study),
        (c.target, wanted.target),
        (c.kind, wanted.kind),
        (c.state, wanted.state),
        (c.verdict, wanted.verdict),
    )
    ranges = (
        (c.max_queue_delay_microseconds, wanted.delay_microseconds),
        (c.instance_count, wanted.instances),
        (c.max_batch_size, wanted.max_batch_size),
    )
    for known, between in ranges:
        if between.least is not None:
            found.append(known >= between.least)
        if between.most is not None:
            found.append(known <= between.most)
    if wanted.preferred is not None:
        found.append(c.preferred_batch_size == list(wanted.preferred))
    return [*found, *_within(c.proposed_at, wanted.proposed)]


def _ledger_line(row: Row[Any]) -> LedgerLine:
    return LedgerLine(
        study_id=row.study_id,
        target=row.target,
        promoted_at=row.promoted_at,
        reason=row.reason,
        worth=from_record(Benefit, row.worth),
        currency=row.currency,
        rolled_back_by=row.rolled_back_by,
        rolled_back_at=row.rolled_back_at,
    )


def _trial_mark(row: Row[Any]) -> Mark:
    return row.sort_key, row.study_id, row.number


def _summary(row: Row[Any]) -> StudySummary:
    return StudySummary(
        id=row.id,
        target=row.target,
        phase=row.phase,
        outcome=row.outcome,
        reason=row.reason,
        created_at=row.created_at,
        ended_at=row.ended_at,
        trials=row.trials,
    )


def _told(row: Row[Any]) -> StudyStanding:
    return StudyStanding(
        summary=_summary(row),
        plan=from_record(StudyPlan, row.plan),
        actor=row.actor,
        wish=Wish(row.wish),
        sequence=row.sequence,
        winner=row.winner,
        promoted=tuple(row.promoted),
        harm_requests=row.harm_requests,
        dispersion=row.dispersion,
        reference_rate_per_second=row.reference_rate_per_second,
    )


_configuration = lru_cache(MOST_CONFIGURATIONS)(Configuration)


_KINDS, _STATES = {each.value: each for each in TrialKind}, {each.value: each for each in TrialState}
_VERDICTS: dict[str | None, Verdict | None] = {None: None, **{each.value: each for each in Verdict}}
_cells = attrgetter(
    "study_id",
    "target",
    "number",
    "kind",
    "state",
    "replicas",
    "max_queue_delay_microseconds",
    "preferred_batch_size",
    "instance_count",
    "max_batch_size",
    "verdict",
    "limited_by",
    "reason",
    "capacity_per_second",
    "harm_requests",
    "proposed_at",
    "ended_at",
)
"""A row's cells in one call, and members of an enumeration from a table: both a third of the time for each alone."""


def _trial(row: Row[Any]) -> TrialSummary:
    study, target, number, kind, state, replicas, delay, preferred, instances, largest, verdict, *rest = (
        _cells(row)
    )
    return TrialSummary(
        study,
        target,
        number,
        _KINDS[kind],
        _STATES[state],
        tuple(replicas),
        _configuration(delay, tuple(preferred), instances, largest),
        _VERDICTS[verdict],
        *rest,
    )
