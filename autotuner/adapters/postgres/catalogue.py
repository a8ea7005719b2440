"""Lists and details in PostgreSQL: keyset pages over indexes, never an offset or a study's whole state."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    select,
)

from autotuner.adapters.postgres.engine import reading
from autotuner.adapters.postgres.registry import IN_FORCE, budget_of, registration_of
from autotuner.adapters.postgres.statements import (
    AUDIT,
    BY_NAME,
    LATEST_EVIDENCE,
    LATEST_ID,
    LATEST_LIVE,
    LEDGER,
    NEWEST_PROMOTION,
    NEWEST_RECORD,
    NEWEST_STUDIES,
    NEWEST_STUDY,
    ONE_EVIDENCE,
    ONE_ID,
    ONE_LIVE,
    ONE_TOLD,
    PROGRESS,
    STUDIES,
    TARGETS,
    TELLING,
    TRIAL_ORDERS,
    TRIALS,
)
from autotuner.adapters.postgres.tables import (
    studies,
)
from autotuner.bookkeeping.rules import LATEST
from autotuner.bookkeeping.summaries import restored_by, serving
from autotuner.catalogue import (
    AuditFilter,
    Glance,
    LedgerLine,
    Mark,
    Page,
    Progress,
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
from autotuner.domain.study import StudyPlan, Trial, TrialKind, TrialState, Wish
from autotuner.errors import NotFound
from autotuner.ports import AuditRecord, StudySummary
from autotuner.records import from_record

T = TypeVar("T")

BATCH = 1_000
"""Trials read at once by whoever wants all: nobody's slow connection keeps a transaction open."""

FIRST_BATCH = 15
"""The same, to begin with, twice as many each time: whoever wants all sees the first of them soon, and whoever wanted
no more than those costs little."""

OLDEST_FIRST = TrialOrder(TrialSort.PROPOSED_AT, descending=False)

MOST_CONFIGURATIONS = 10_000
"""Configurations that are remembered: trials of a target try the same ones again and again."""

MOST_TOLD = 256
"""Studies whose records are remembered, so that a page about one that looks for news does not read it all again."""


class PostgresCatalogue:
    """Lists over the tables. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: dict[tuple[str, int], StudyStanding] = {}
        self._lock = threading.Lock()

    def targets(self, window: Window, *, retired: bool | None = None) -> Page[Registration]:
        """Return targets by name; see `catalogue.Catalogue`."""
        asked = {"retired": retired or None, "not_retired": retired is False or None}
        with reading(self._engine) as connection:
            rows, mark = TARGETS.page(connection, asked, BY_NAME, window)
        return Page(tuple(registration_of(row, budget_of(row, IN_FORCE)) for row in rows), mark)

    def studies(self, wanted: StudyFilter, window: Window) -> Page[StudySummary]:
        """Return studies, newest first."""
        asked = {
            "target": wanted.target,
            "phase": wanted.phase,
            "outcome": wanted.outcome,
            **vars(wanted.created),
        }
        with reading(self._engine) as connection:
            rows, mark = STUDIES.page(connection, asked, NEWEST_STUDY, window)
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
            found: str | None = connection.scalar(*_asked(ONE_ID, LATEST_ID, name))
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
                found = connection.execute(ONE_TOLD, {"id": row.id}).one()
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
        listing, sorted_by = TRIALS[order.by], TRIAL_ORDERS[order.by, order.descending]
        with reading(self._engine) as connection:
            rows, mark = listing.page(connection, _of_trials(wanted), sorted_by, window, _trial_mark)
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
        query, values = _asked(ONE_EVIDENCE, LATEST_EVIDENCE, study_id)
        with reading(self._engine) as connection:
            row = connection.execute(query, {**values, "number": number}).one_or_none()
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
        with reading(self._engine) as connection:
            rows, mark = LEDGER.page(connection, {"target": target}, NEWEST_PROMOTION, window)
        return Page(tuple(_ledger_line(row) for row in rows), mark)

    def progress(self, study_id: str, after: int, limit: int) -> Sequence[Progress]:
        """Return lines of a study's journal; see `catalogue.Catalogue`."""
        with reading(self._engine) as connection:
            if connection.scalar(ONE_ID, {"id": study_id}) is None:
                raise NotFound("study", study_id)
            asked = {"id": study_id, "after": after, "most": limit}
            return tuple(Progress(**row._mapping) for row in connection.execute(PROGRESS, asked))

    def audit(self, wanted: AuditFilter, window: Window) -> Page[AuditRecord]:
        """Return audit records, newest first."""
        asked = {
            "actor": wanted.actor,
            "action": wanted.action,
            "subject": wanted.subject,
            **vars(wanted.at),
        }
        with reading(self._engine) as connection:
            rows, mark = AUDIT.page(connection, asked, NEWEST_RECORD, window)
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


def _asked(one: Select[Any], latest: Select[Any], study_id: str) -> tuple[Select[Any], dict[str, str]]:
    """The statement that finds a study, or the newest one, and its values."""
    return (latest, {}) if study_id == LATEST else (one, {"id": study_id})


def _of_trials(wanted: TrialFilter) -> dict[str, Any]:
    return {
        "study": wanted.study,
        "target": wanted.target,
        "kind": wanted.kind,
        "state": wanted.state,
        "verdict": wanted.verdict,
        "preferred": None if wanted.preferred is None else list(wanted.preferred),
        "delay_least": wanted.delay_microseconds.least,
        "delay_most": wanted.delay_microseconds.most,
        "instances_least": wanted.instances.least,
        "instances_most": wanted.instances.most,
        "max_batch_size_least": wanted.max_batch_size.least,
        "max_batch_size_most": wanted.max_batch_size.most,
        **vars(wanted.proposed),
    }


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
