"""A complete store and its leases in memory, for tests, simulation and trying things out.

It keeps the same rules as the Postgres store and passes the same contract suite. Studies are held as the JSON
text that a database would hold, so whatever does not survive being stored shows here first.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autotuner.bookkeeping.audit import (
    FIRST_HASH,
    AuditLine,
    ChainedRecord,
    Said,
    budget_lines,
    first_broken,
    start_lines,
    step_lines,
    target_lines,
    wish_lines,
)
from autotuner.bookkeeping.rules import (
    LATEST,
    check_grant,
    check_new_id,
    check_sequence,
    check_unfinished,
    kept_entry,
    next_budget,
    summarise,
)
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.domain.target import Target
from autotuner.errors import Conflict, NotFound
from autotuner.ports import AuditRecord, Clock, Grant, JournalEntry, StudySummary
from autotuner.records import from_record, to_record


@dataclass
class _StudyRow:
    """A study as stored. ordinal: its place in the order of creation."""

    ordinal: int
    initial: str
    state: str
    study: Study
    sequence: int = 0
    wish: Wish = Wish.RUN
    journal: list[JournalEntry] = field(default_factory=list)


@dataclass
class _LeaseRow:
    holder: str | None
    session: str | None
    token: int
    expires_at: datetime


@dataclass
class Memory:
    """The tables. `lock` is held by whoever reads or writes them."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    targets: dict[str, Target] = field(default_factory=dict)
    budgets: dict[str, list[SloBudget]] = field(default_factory=dict)
    studies: dict[str, _StudyRow] = field(default_factory=dict)
    leases: dict[str, _LeaseRow] = field(default_factory=dict)
    audit: list[ChainedRecord] = field(default_factory=list)


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
        with self.memory.lock:
            versions = self.memory.budgets.get(target.name, [])
            current = versions[-1] if versions else None
            budget = next_budget(current, slo, actor, reason, now)
            kept: Target = from_record(Target, json.loads(_text(target)))
            before = self.memory.targets.get(target.name)
            said = Said(actor, reason, now)
            self.memory.targets[target.name] = kept
            if budget is not current:
                self.memory.budgets[target.name] = [*versions, budget]
            self._note(target_lines(before, kept, said))
            self._note(budget_lines(target.name, current, budget, said))
            return budget

    def target(self, name: str) -> tuple[Target, SloBudget]:
        """Return a target and its newest budget. Raises NotFound."""
        with self.memory.lock:
            if name not in self.memory.targets:
                raise NotFound("target", name)
            return self.memory.targets[name], self.memory.budgets[name][-1]

    def budgets(self, name: str) -> Sequence[SloBudget]:
        """Return every version of a target's budget, oldest first. Raises NotFound."""
        with self.memory.lock:
            if name not in self.memory.budgets:
                raise NotFound("target", name)
            return tuple(self.memory.budgets[name])

    def create_study(self, study: Study) -> None:
        """Record a new study; see `ports.Store`. Raises NotFound for an unknown target or budget version."""
        with self.memory.lock:
            check_new_id(study.id, study.id in self.memory.studies)
            name = study.plan.target.name
            if study.plan.slo.version not in {budget.version for budget in self.memory.budgets.get(name, [])}:
                raise NotFound("target with budget", f"{name} version {study.plan.slo.version}")
            for row in self.memory.studies.values():
                if row.study.plan.target.name == name and row.study.phase is not Phase.ENDED:
                    raise Conflict(f"target {name}", f"study {row.study.id} has not ended")
            text = _text(study)
            self.memory.studies[study.id] = _StudyRow(len(self.memory.studies), text, text, _study(text))
            self._note(start_lines(study))

    def study(self, study_id: str) -> Study:
        """Return a study as it stands. Raises NotFound. The name `latest` means the newest one."""
        with self.memory.lock:
            newest_first = self._newest_first()
            if study_id == LATEST and newest_first:
                return newest_first[0].study
            return self._row(study_id).study

    def unfinished(self) -> Sequence[tuple[str, str]]:
        """Return (study id, target name) of every study that has not ended, oldest first."""
        with self.memory.lock:
            studies = [row.study for row in reversed(self._newest_first())]
            return tuple((s.id, s.plan.target.name) for s in studies if s.phase is not Phase.ENDED)

    def studies(self, target: str | None = None, limit: int = 50) -> Sequence[StudySummary]:
        """Return studies, newest first."""
        with self.memory.lock:
            found = [summarise(row.study) for row in self._newest_first()]
            return tuple(s for s in found if target is None or s.target == target)[:limit]

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome; see `ports.Store`. Raises NotFound for an unknown study."""
        with self.memory.lock:
            row = self._row(after.id)
            name = row.study.plan.target.name
            lease = self.memory.leases.get(name)
            check_grant(grant, name, lease.holder if lease else None, lease.token if lease else None)
            check_sequence(after.id, row.sequence, entry.sequence)
            text, kept = _text(after), kept_entry(entry)
            row.study, row.state = _study(text), text
            row.sequence = entry.sequence
            row.journal.append(kept)
            self._note(step_lines(before, after, kept))

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
            return _study(self._row(study_id).initial)

    def wish(self, study_id: str) -> Wish:
        """Return what an operator last asked of the study. Raises NotFound."""
        with self.memory.lock:
            return self._row(study_id).wish

    def set_wish(self, study_id: str, wish: Wish, actor: str, reason: str, now: datetime) -> None:
        """Record an operator's wish; see `ports.Store`."""
        with self.memory.lock:
            row = self._row(study_id)
            check_unfinished(study_id, row.study.phase)
            row.wish = wish
            self._note(wish_lines(study_id, wish, Said(actor, reason, now)))

    def audit(self, limit: int = 100, subject: str | None = None) -> Sequence[AuditRecord]:
        """Return the newest audit records, newest first."""
        with self.memory.lock:
            newest_first = [link.record for link in reversed(self.memory.audit)]
            return tuple(r for r in newest_first if subject is None or r.subject == subject)[:limit]

    def first_broken_audit(self) -> int | None:
        """Return the number of the first audit record that does not fit the hash chain; None when all fit."""
        with self.memory.lock:
            return first_broken(self.memory.audit)

    def _row(self, study_id: str) -> _StudyRow:
        if study_id not in self.memory.studies:
            raise NotFound("study", study_id)
        return self.memory.studies[study_id]

    def _newest_first(self) -> list[_StudyRow]:
        rows = self.memory.studies.values()
        return sorted(rows, key=lambda row: (row.study.created_at, row.ordinal), reverse=True)

    def _note(self, lines: Iterable[AuditLine]) -> None:
        for line in lines:
            previous = self.memory.audit[-1].hash if self.memory.audit else FIRST_HASH
            record = AuditRecord(
                number=len(self.memory.audit) + 1,
                at=line.at,
                actor=line.actor,
                action=line.action.value,
                subject=line.subject,
                reason=line.reason,
                details=line.details,
            )
            self.memory.audit.append(ChainedRecord(record, previous, line.hash_after(previous)))


class MemoryLeases:
    """Leases beside a `MemoryStore`. Every instance stands for a process of its own.

    clock: whose time decides when a lease has expired.
    """

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._memory = store.memory
        self._clock = clock
        self._session = uuid.uuid4().hex

    def acquire(self, target: str, holder: str, ttl: timedelta) -> Grant | None:
        """Take or renew the lease on `target`; None while somebody else holds it. Raises NotFound."""
        with self._memory.lock:
            if target not in self._memory.targets:
                raise NotFound("target", target)
            now = self._clock.now()
            row = self._memory.leases.get(target) or _LeaseRow(None, None, 0, now)
            if row.holder not in (None, holder) and row.expires_at > now:
                return None
            renewed = (row.holder, row.session) == (holder, self._session)
            token = row.token if renewed else row.token + 1
            self._memory.leases[target] = _LeaseRow(holder, self._session, token, now + ttl)
            return Grant(target, holder, token, now + ttl)

    def release(self, grant: Grant) -> None:
        """Give the lease back; nothing happens when it is no longer held."""
        with self._memory.lock:
            row = self._memory.leases.get(grant.target)
            if row is not None and (row.holder, row.token) == (grant.holder, grant.token):
                self._memory.leases[grant.target] = _LeaseRow(None, None, row.token, self._clock.now())


def _text(value: object) -> str:
    return json.dumps(to_record(value), allow_nan=False)


def _study(text: str) -> Study:
    return from_record(Study, json.loads(text))
