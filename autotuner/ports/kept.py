"""What is kept of studies, nights and notices, as the stores give it and take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from autotuner.domain.calendar import Night
from autotuner.domain.notices import Notice
from autotuner.domain.spans import Span
from autotuner.domain.target import Target


@dataclass(frozen=True)
class JournalEntry:
    """One line of a study's journal: either a decision or the outcome of an action.

    kind: `decision` or `outcome`. observed: what was seen (the observation, or the action's outcome).
    action: what was decided, None when nothing is to be done. state: a digest of the study afterwards.
    """

    sequence: int
    kind: str
    at: datetime
    observed: Mapping[str, Any]
    action: Mapping[str, Any] | None
    reason: str
    actor: str
    state: str


@dataclass(frozen=True)
class AuditRecord:
    """One line of the append-only audit."""

    number: int
    at: datetime
    actor: str
    action: str
    subject: str
    reason: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Grant:
    """A lease on a target: while it is held nobody else may drive it.

    token grows with every grant; a write with an older token than the newest is refused (fencing).
    """

    target: str
    holder: str
    token: int
    expires_at: datetime


@dataclass(frozen=True)
class Muster:
    """Who is at work: how many workers are alive, this one included, and who drives each target that is driven."""

    workers: int
    holders: Mapping[str, str]


@dataclass(frozen=True)
class StudySummary:
    """A study as a list shows it."""

    id: str
    target: str
    phase: str
    outcome: str | None
    reason: str
    created_at: datetime
    ended_at: datetime | None
    trials: int


@dataclass(frozen=True)
class RequestKey:
    """What makes repeating a request safe: who asks, the key they chose, and a digest of what they ask for."""

    actor: str
    key: str
    digest: str


@dataclass(frozen=True)
class StartedBefore:
    """What an earlier request of the same key asked for, as a digest, and the study it started."""

    digest: str
    study_id: str


class NightState(StrEnum):
    """What became of a night."""

    STARTED = "started"
    ENDED = "ended"
    MISSED = "missed"


@dataclass(frozen=True)
class NightRecord:
    """A night that was settled: started once, or missed. outcome: its study's, once that has ended."""

    night: Night
    state: NightState
    study_id: str | None
    outcome: str | None
    reason: str
    settled_at: datetime


@dataclass(frozen=True)
class Message:
    """A notice on its way. delivered_to: the webhooks that took it. error: what the last attempt came to."""

    number: int
    notice: Notice
    state: MessageState
    attempts: int
    next_attempt_at: datetime
    delivered_to: tuple[str, ...] = ()
    error: str = ""


class MessageState(StrEnum):
    """Where a message is. A dead one was given up: a person looks, and may send it again."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"


@dataclass(frozen=True)
class Listening:
    """A target whose requests' spans are sent to this service, and above which length a request is slow."""

    target: Target
    ceiling_seconds: float


@dataclass(frozen=True)
class SlowTrace:
    """Spans of a slow request to a target, as far as one process was sent them. ended_at: when the request did."""

    target: str
    trace_id: str
    ended_at: datetime
    spans: tuple[Span, ...]
