"""The store in memory.

Studies are held as the JSON text that a database would hold, so whatever does not survive being stored shows here
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from autotuner.adapters.memory_store.registry import MemoryRegistry
from autotuner.adapters.memory_store.tables import Memory, StudyRow, study_of, text_of
from autotuner.bookkeeping.audit import (
    first_broken,
    kept_up_lines,
    start_lines,
    step_lines,
    wish_lines,
)
from autotuner.bookkeeping.rules import (
    ANY_MARK,
    LATEST,
    aware,
    check_cancellable,
    check_grant,
    check_new_id,
    check_not_overtaken,
    check_not_retired,
    check_request_key,
    check_sequence,
    check_unfinished,
    kept_entry,
    summarise,
)
from autotuner.domain.access import Said
from autotuner.domain.calendar import Standing
from autotuner.domain.notices import notices_of
from autotuner.domain.registration import Wanted
from autotuner.domain.sharing import Errand
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.domain.target import Target
from autotuner.errors import Conflict, NotFound
from autotuner.ports import AuditRecord, Grant, JournalEntry, RequestKey, StartedBefore, StudySummary


class MemoryStore:
    """Everything that is remembered, for as long as this process lives. Safe to share between threads.

    memory: the tables, to be given to `MemoryLeases` too.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory if memory is not None else Memory()

    def save_target(
        self, target: Target, slo: SloBudget, actor: str, reason: str, now: datetime
    ) -> SloBudget:
        """Create or change a target; see `ports.Store`."""
        said = Said(actor, reason, aware(now))
        return MemoryRegistry(self.memory).register(Wanted(target, slo), ANY_MARK, said).slo

    def target(self, name: str) -> tuple[Target, SloBudget]:
        """Return a target and its newest budget. Raises NotFound."""
        with self.memory.lock:
            if name not in self.memory.targets:
                raise NotFound("target", name)
            kept = self.memory.targets[name]
            return kept.target, kept.slo

    def budgets(self, name: str) -> Sequence[SloBudget]:
        """Return every version of a target's budget, oldest first. Raises NotFound."""
        with self.memory.lock:
            if name not in self.memory.budgets:
                raise NotFound("target", name)
            return tuple(self.memory.budgets[name])

    def create_study(self, study: Study, key: RequestKey | None = None) -> None:
        """Record a new study; see `ports.Store`. Raises NotFound for an unknown target or budget version."""
        with self.memory.lock:
            if key is not None:
                check_request_key(key, self.started_before(key.actor, key.key))
            check_new_id(study.id, study.id in self.memory.studies)
            name = study.plan.target.name
            if study.plan.slo.version not in {budget.version for budget in self.memory.budgets.get(name, [])}:
                raise NotFound("target with budget", f"{name} version {study.plan.slo.version}")
            check_not_retired(name, self.memory.targets[name].retired_at)
            unfinished = self.memory.unfinished_of(name)
            if unfinished is not None:
                raise Conflict(f"target {name}", f"study {unfinished} has not ended")
            text = text_of(study)
            self.memory.studies[study.id] = StudyRow(len(self.memory.studies), text, text, study_of(text))
            if key is not None:
                self.memory.request_keys[key.actor, key.key] = StartedBefore(key.digest, study.id)
            self.memory.note(start_lines(study))

    def started_before(self, actor: str, key: str) -> StartedBefore | None:
        """Return what `actor` started under a request key; None when it was never used."""
        with self.memory.lock:
            return self.memory.request_keys.get((actor, key))

    def study(self, study_id: str) -> Study:
        """Return a study as it stands. Raises NotFound. The name `latest` means the newest one."""
        with self.memory.lock:
            newest_first = self.memory.newest_first()
            if study_id == LATEST and newest_first:
                return newest_first[0].study
            return self._row(study_id).study

    def unfinished(self) -> Sequence[tuple[str, str]]:
        """Return (study id, target name) of every study that has not ended, oldest first."""
        with self.memory.lock:
            studies = [row.study for row in reversed(self.memory.newest_first())]
            return tuple((s.id, s.plan.target.name) for s in studies if s.phase is not Phase.ENDED)

    def errands(self) -> Sequence[Errand]:
        """Return every study that has not ended, as workers share them out, oldest first."""
        with self.memory.lock:
            rows = [row for row in self.memory.studies.values() if row.study.phase is not Phase.ENDED]
            return tuple(self._errand(row) for row in sorted(rows, key=lambda row: row.ordinal))

    def _errand(self, row: StudyRow) -> Errand:
        name = row.study.plan.target.name
        site = self.memory.targets[name].target.site
        restores = row.study.plan.reverses is not None
        return Errand(row.study.id, name, site, row.study.phase, row.wish, restores)

    def studies(self, target: str | None = None, limit: int = 50) -> Sequence[StudySummary]:
        """Return studies, newest first."""
        with self.memory.lock:
            found = [summarise(row.study) for row in self.memory.newest_first()]
            return tuple(s for s in found if target is None or s.target == target)[:limit]

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome; see `ports.Store`. Raises NotFound for an unknown study."""
        with self.memory.lock:
            row = self._row(after.id)
            name = row.study.plan.target.name
            lease = self.memory.leases.get(name)
            check_grant(grant, name, lease.holder if lease else None, lease.token if lease else None)
            check_sequence(after.id, row.sequence, entry.sequence)
            check_not_overtaken(before, after, entry, row.wish)
            text, kept = text_of(after), kept_entry(entry)
            row.study, row.state = study_of(text), text
            row.sequence = entry.sequence
            row.journal.append(kept)
            self.memory.tell(notices_of(before, after, kept.at))
            self.memory.note(step_lines(before, after, kept))

    def next_sequence(self, study_id: str) -> int:
        """Return the sequence number of the next journal entry of a study. Raises NotFound."""
        with self.memory.lock:
            return self._row(study_id).sequence + 1

    def journal(self, study_id: str, after: int = 0) -> Sequence[JournalEntry]:
        """Return the journal of a study from the entry after `after` on, in order. Raises NotFound."""
        with self.memory.lock:
            return tuple(entry for entry in self._row(study_id).journal if entry.sequence > after)

    def initial(self, study_id: str) -> Study:
        """Return a study as it was created, before its first journal entry. Raises NotFound."""
        with self.memory.lock:
            return study_of(self._row(study_id).initial)

    def wish(self, study_id: str) -> Wish:
        """Return what an operator last asked of the study. Raises NotFound."""
        with self.memory.lock:
            return self._row(study_id).wish

    def set_wish(self, study_id: str, wish: Wish, actor: str, reason: str, now: datetime) -> None:
        """Record an operator's wish; see `ports.Store`."""
        with self.memory.lock:
            row = self._row(study_id)
            check_unfinished(study_id, row.study.phase)
            if wish is Wish.CANCEL:
                check_cancellable(row.study)
            row.wish = wish
            self.memory.note(wish_lines(study_id, wish, Said(actor, reason, now)))

    def kept_up(self, study_id: str, replica: str, said: Said) -> None:
        """Record that a replica is given again what a study promoted. Raises NotFound without the study."""
        with self.memory.lock:
            self._row(study_id)
            self.memory.note(kept_up_lines(study_id, replica, said))

    def audit(self, limit: int = 100, subject: str | None = None) -> Sequence[AuditRecord]:
        """Return the newest audit records, newest first."""
        with self.memory.lock:
            newest_first = [link.record for link in reversed(self.memory.audit)]
            return tuple(r for r in newest_first if subject is None or r.subject == subject)[:limit]

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is; see `ports.Store`."""
        with self.memory.lock:
            return self.memory.standing(now)

    def first_broken_audit(self) -> int | None:
        """Return the number of the first audit record that does not fit the hash chain; None when all fit."""
        with self.memory.lock:
            return first_broken(self.memory.audit)

    def _row(self, study_id: str) -> StudyRow:
        if study_id not in self.memory.studies:
            raise NotFound("study", study_id)
        return self.memory.studies[study_id]
