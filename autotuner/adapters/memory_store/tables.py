"""The tables in memory, and what every part of the store does with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from autotuner.bookkeeping.audit import (
    FIRST_HASH,
    AuditLine,
    ChainedRecord,
)
from autotuner.domain.access import Token
from autotuner.domain.registration import Registration
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.ports import AuditRecord, JournalEntry, StartedBefore
from autotuner.records import from_record, study_text, to_record


@dataclass
class StudyRow:
    """A study as stored. ordinal: its place in the order of creation."""

    ordinal: int
    initial: str
    state: str
    study: Study
    sequence: int = 0
    wish: Wish = Wish.RUN
    journal: list[JournalEntry] = field(default_factory=list)


@dataclass
class LeaseRow:
    """A lease as stored."""

    holder: str | None
    session: str | None
    token: int
    expires_at: datetime


@dataclass
class Memory:
    """The tables. `lock` is held by whoever reads or writes them."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    targets: dict[str, Registration] = field(default_factory=dict)
    budgets: dict[str, list[SloBudget]] = field(default_factory=dict)
    studies: dict[str, StudyRow] = field(default_factory=dict)
    leases: dict[str, LeaseRow] = field(default_factory=dict)
    workers: dict[str, datetime] = field(default_factory=dict)
    """Until when each worker is taken to be alive."""
    audit: list[ChainedRecord] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    token_digests: dict[str, str] = field(default_factory=dict)
    request_keys: dict[tuple[str, str], StartedBefore] = field(default_factory=dict)

    def unfinished_of(self, target: str) -> str | None:
        """Return the id of the study of a target that has not ended; None when there is none."""
        for row in self.studies.values():
            if row.study.plan.target.name == target and row.study.phase is not Phase.ENDED:
                return row.study.id
        return None

    def newest_first(self) -> list[StudyRow]:
        """Return every study, newest first."""
        return sorted(
            self.studies.values(), key=lambda row: (row.study.created_at, row.ordinal), reverse=True
        )

    def note(self, lines: Iterable[AuditLine]) -> None:
        """Add lines to the audit, each chained to the one before."""
        for line in lines:
            previous = self.audit[-1].hash if self.audit else FIRST_HASH
            record = AuditRecord(
                number=len(self.audit) + 1,
                at=line.at,
                actor=line.actor,
                action=line.action.value,
                subject=line.subject,
                reason=line.reason,
                details=line.details,
            )
            self.audit.append(ChainedRecord(record, previous, line.hash_after(previous)))


def text_of(value: object) -> str:
    """Return the JSON text that a database would hold."""
    return study_text(value) if isinstance(value, Study) else json.dumps(to_record(value), allow_nan=False)


def study_of(text: str) -> Study:
    """Return the study that a JSON text holds."""
    return from_record(Study, json.loads(text))
