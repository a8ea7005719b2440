"""The tables in memory, and what every part of the store does with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from autotuner.bookkeeping.audit import (
    FIRST_HASH,
    AuditLine,
    ChainedRecord,
)
from autotuner.bookkeeping.rules import plain, plain_json
from autotuner.domain.access import Token
from autotuner.domain.allowance import Bucket
from autotuner.domain.calendar import Freeze, Line, Schedule, Standing
from autotuner.domain.notices import Notice
from autotuner.domain.registration import Registration
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.ports import (
    AuditRecord,
    JournalEntry,
    Message,
    MessageState,
    NightRecord,
    SlowTrace,
    StartedBefore,
)
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
    schedules: dict[str, Schedule] = field(default_factory=dict)
    freezes: dict[int, Freeze] = field(default_factory=dict)
    line: Line = field(default_factory=Line)
    nights: dict[tuple[str, str], NightRecord] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    leader: object | None = None
    """The scheduler that leads."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers of freezes and messages: none is given twice."""
    workers: dict[str, datetime] = field(default_factory=dict)
    """Until when each worker is taken to be alive."""
    audit: list[ChainedRecord] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    token_digests: dict[str, str] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """How often each caller may still ask."""
    request_keys: dict[tuple[str, str], StartedBefore] = field(default_factory=dict)
    slow_traces: list[tuple[datetime, SlowTrace]] = field(default_factory=list)
    """Spans of slow requests, each with when it was received."""

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

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is."""
        return Standing(
            self.line,
            tuple(freeze for freeze in self.freezes.values() if freeze.ends_at > now),
            {s.target: (s.time_zone, s.blackout_dates) for s in self.schedules.values() if s.blackout_dates},
        )

    def tell(self, notices: Iterable[Notice]) -> None:
        """Add notices to the outbox."""
        for notice in notices:
            kept = replace(notice, text=plain(notice.text), details=plain_json(notice.details) or {})
            number = next(self.numbers)
            self.messages[number] = Message(number, kept, MessageState.PENDING, 0, notice.at)

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
