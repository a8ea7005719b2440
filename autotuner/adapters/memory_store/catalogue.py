"""Lists and details of what is recorded, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from autotuner.adapters.memory_store.tables import Memory, StudyRow
from autotuner.bookkeeping.rules import LATEST, summarise
from autotuner.bookkeeping.summaries import (
    GLANCED_AT,
    ledger_line,
    restored_by,
    serving,
    standing_of,
    trial_summaries,
    trial_summary,
)
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
from autotuner.domain.registration import Registration
from autotuner.domain.study import Outcome, Study
from autotuner.errors import NotFound
from autotuner.ports import AuditRecord, StudySummary

T = TypeVar("T")

OLDEST_FIRST = TrialOrder(TrialSort.PROPOSED_AT, descending=False)


class MemoryCatalogue:
    """Lists over the tables of a `MemoryStore`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def targets(self, window: Window, *, retired: bool | None = None) -> Page[Registration]:
        """Return targets by name; see `catalogue.Catalogue`."""
        with self._memory.lock:
            found = [
                each
                for each in self._memory.targets.values()
                if retired is None or (each.retired_at is not None) is retired
            ]
        return _page(found, lambda each: (each.target.name,), window)

    def studies(self, wanted: StudyFilter, window: Window) -> Page[StudySummary]:
        """Return studies, newest first."""
        with self._memory.lock:
            rows = [row for row in self._memory.studies.values() if _is_wanted(row.study, wanted)]

        def key(row: StudyRow) -> Mark:
            return row.study.created_at, row.ordinal

        page = _page(rows, key, window, descending=True)
        return Page(tuple(summarise(row.study) for row in page.items), page.mark)

    def glances(self, targets: Sequence[str]) -> Mapping[str, Glance]:
        """Return targets at a glance; see `catalogue.Catalogue`."""
        with self._memory.lock:
            newest_first = [row.study for row in self._memory.newest_first()]
        found: dict[str, Glance] = {}
        for name in targets:
            newest = [each for each in newest_first if each.plan.target.name == name][:GLANCED_AT]
            if newest:
                restored = {
                    k: v for each in newest for k, v in restored_by(each.id, each.plan, each.outcome).items()
                }
                ids = [each.id for each in newest]
                found[name] = Glance(summarise(newest[0]), serving(ids, restored, trial_summaries(newest)))
        return found

    def study_id(self, name: str) -> str:
        """Return the id of a study; see `catalogue.Catalogue`."""
        with self._memory.lock:
            return self._row(name).study.id

    def standing(self, study_id: str) -> StudyStanding:
        """Return a study without its trials; see `catalogue.Catalogue`."""
        with self._memory.lock:
            row = self._row(study_id)
            return standing_of(row.study, row.wish, row.sequence)

    def trials(self, wanted: TrialFilter, order: TrialOrder, window: Window) -> Page[TrialSummary]:
        """Return trials in the order asked for."""

        def key(trial: TrialSummary) -> Mark:
            return _sorted_by(trial, order.by), trial.study, trial.number

        return _page(self._trials(wanted), key, window, descending=order.descending)

    def every_trial(self, wanted: TrialFilter) -> Iterator[TrialSummary]:
        """Yield every trial there is, oldest first."""
        found = self._trials(wanted)
        yield from sorted(found, key=lambda trial: (trial.proposed_at, trial.study, trial.number))

    def evidence(self, study_id: str, number: int) -> TrialEvidence:
        """Return a trial with all its evidence. Raises NotFound."""
        with self._memory.lock:
            study = self._row(study_id).study
        if not 0 <= number < len(study.trials):
            raise NotFound("trial", f"{study.id}/{number}")
        trial = study.trials[number]
        return TrialEvidence(trial_summary(study, trial), trial, study.plan)

    def ledger(self, target: str | None, window: Window) -> Page[LedgerLine]:
        """Return promotions and their worth, newest first."""
        with self._memory.lock:
            known = [row.study for row in self._memory.studies.values()]
        back = {
            study.plan.reverses.study_id: study
            for study in known
            if study.plan.reverses is not None and study.outcome is Outcome.ROLLED_BACK
        }
        found = []
        for line in map(ledger_line, known):
            if line is not None and target in (None, line.target):
                undone = back.get(line.study_id)
                ended = (None, None) if undone is None else (undone.id, undone.ended_at)
                found.append(replace(line, rolled_back_by=ended[0], rolled_back_at=ended[1]))
        return _page(found, lambda line: (line.promoted_at, line.study_id), window, descending=True)

    def progress(self, study_id: str, after: int, limit: int) -> Sequence[Progress]:
        """Return lines of a study's journal; see `catalogue.Catalogue`."""
        with self._memory.lock:
            found = [entry for entry in self._row(study_id).journal if entry.sequence > after]
        return tuple(
            Progress(each.sequence, each.at, each.kind, each.reason, each.actor) for each in found[:limit]
        )

    def audit(self, wanted: AuditFilter, window: Window) -> Page[AuditRecord]:
        """Return audit records, newest first."""
        with self._memory.lock:
            found = [link.record for link in self._memory.audit if _is_told(link.record, wanted)]
        return _page(found, lambda record: (record.at, record.number), window, descending=True)

    def _row(self, study_id: str) -> StudyRow:
        if study_id == LATEST and self._memory.studies:
            return self._memory.newest_first()[0]
        if study_id not in self._memory.studies:
            raise NotFound("study", study_id)
        return self._memory.studies[study_id]

    def _trials(self, wanted: TrialFilter) -> list[TrialSummary]:
        with self._memory.lock:
            studies = [row.study for row in self._memory.studies.values()]
        found = (trial_summary(study, trial) for study in studies for trial in study.trials)
        return [trial for trial in found if _is_among(trial, wanted)]


def _page(
    found: Iterable[T], key: Callable[[T], Mark], window: Window, *, descending: bool = False
) -> Page[T]:
    """The items after the window's mark, in order."""
    ordered = sorted(found, key=key, reverse=descending)
    after = window.after
    if after is not None:
        ordered = [each for each in ordered if (key(each) < after if descending else key(each) > after)]
    items = tuple(ordered[: window.limit])
    return Page(items, key(items[-1]) if len(ordered) > len(items) else None)


def _is_wanted(study: Study, wanted: StudyFilter) -> bool:
    return (
        wanted.target in (None, study.plan.target.name)
        and wanted.phase in (None, study.phase)
        and (wanted.outcome is None or wanted.outcome is study.outcome)
        and wanted.created.holds(study.created_at)
    )


def _is_among(trial: TrialSummary, wanted: TrialFilter) -> bool:
    configuration = trial.configuration
    return (
        wanted.study in (None, trial.study)
        and wanted.target in (None, trial.target)
        and wanted.kind in (None, trial.kind)
        and wanted.state in (None, trial.state)
        and (wanted.verdict is None or wanted.verdict is trial.verdict)
        and wanted.delay_microseconds.holds(configuration.max_queue_delay_microseconds)
        and wanted.instances.holds(configuration.instance_count)
        and wanted.max_batch_size.holds(configuration.max_batch_size)
        and wanted.preferred in (None, configuration.preferred_batch_size)
        and wanted.proposed.holds(trial.proposed_at)
    )


def _is_told(record: AuditRecord, wanted: AuditFilter) -> bool:
    return (
        wanted.actor in (None, record.actor)
        and wanted.action in (None, record.action)
        and wanted.subject in (None, record.subject)
        and wanted.at.holds(record.at)
    )


def _sorted_by(trial: TrialSummary, by: TrialSort) -> float | datetime:
    if by is TrialSort.PROPOSED_AT:
        return trial.proposed_at
    return trial.harm_requests if by is TrialSort.HARM else trial.capacity_per_second or 0.0
