"""The rules every store keeps for schedules, freezes, the line and nights, and the audit lines they write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotuner.bookkeeping.audit import AuditAction, AuditLine
from autotuner.bookkeeping.rules import aware, plain
from autotuner.domain.access import Said
from autotuner.domain.calendar import Freeze, Line, Night, Schedule
from autotuner.errors import Conflict, InvalidInput, Outdated
from autotuner.ports import Message, MessageState
from autotuner.records import to_record

LINE = "line"
"""What the audit calls the switch that stops everything."""

EVERY_TARGET = "every target"
"""What the audit calls the subject of a freeze for all."""


def kept_schedule(schedule: Schedule, said: Said) -> Schedule:
    """Return a schedule as it is recorded."""
    return replace(schedule, set_by=plain(said.actor), set_at=aware(said.at))


ANY_SCHEDULE = None
"""Passed for a mark: whatever the schedule is now."""

NO_SCHEDULE = ""
"""Passed for a mark: the target has none yet."""


def schedule_mark(schedule: Schedule) -> str:
    """Return a mark of a schedule as it is recorded: equal marks mean equal schedules, set by the same at once."""
    text = json.dumps(to_record(schedule), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_schedule(target: str, before: Schedule | None, mark: str | None) -> None:
    """Raise unless a schedule may be changed by somebody who knows it under `mark`.

    Raises Conflict when there should be none and is one, Outdated when it has changed since or is gone.
    """
    subject = f"schedule of target {target}"
    if mark is ANY_SCHEDULE or (mark == NO_SCHEDULE and before is None):
        return
    if mark == NO_SCHEDULE:
        raise Conflict(subject, "it was set a moment ago")
    found = "none" if before is None else schedule_mark(before)
    if found != mark:
        raise Outdated(subject, f"it has changed since it was read: expected {mark}, found {found}")


def schedule_lines(before: Schedule | None, after: Schedule, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for setting a schedule."""
    details = {"created": before is None, "schedule": to_record(after)}
    return (_line(said, AuditAction.SCHEDULE_SET, after.target, details),)


def schedule_removed_lines(target: str, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for removing a schedule."""
    return (_line(said, AuditAction.SCHEDULE_REMOVED, target, {}),)


def stopped_line(before: Line, said: Said) -> Line:
    """Return the line after it was asked to stop: as it is when it is stopped already.

    Raises InvalidInput (field `reason`) when nobody says why.
    """
    if before.stopped_at is not None:
        return before
    if not said.reason.strip():
        raise InvalidInput("reason", said.reason, "a sentence that says why the line is stopped")
    return Line(aware(said.at), plain(said.reason), plain(said.actor))


def line_lines(before: Line, after: Line, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for the switch; empty when it stays as it was."""
    if (before.stopped_at is None) == (after.stopped_at is None):
        return ()
    action = AuditAction.LINE_RELEASED if after.stopped_at is None else AuditAction.LINE_STOPPED
    return (_line(said, action, LINE, {}),)


def freeze_lines(freeze: Freeze, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for a new freeze, which has its number."""
    details = {"freeze": to_record(freeze)}
    return (_line(said, AuditAction.FREEZE_SET, freeze.target or EVERY_TARGET, details),)


def freeze_removed_lines(freeze: Freeze, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for ending a freeze."""
    details = {"freeze": to_record(freeze)}
    return (_line(said, AuditAction.FREEZE_REMOVED, freeze.target or EVERY_TARGET, details),)


def night_started_lines(night: Night, study_id: str, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for a night that started."""
    details = {"night": night.name, "due_at": night.due_at.isoformat(), "study": study_id}
    return (_line(said, AuditAction.NIGHT_STARTED, night.target, details),)


def night_missed_lines(night: Night, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for a night that did not."""
    details = {"night": night.name, "due_at": night.due_at.isoformat()}
    return (_line(said, AuditAction.NIGHT_MISSED, night.target, details),)


def retried(message: Message, at: Any) -> Message:
    """Return a dead message that is to be tried again. Raises Conflict for one that is not dead."""
    if message.state is not MessageState.DEAD:
        raise Conflict(f"notification {message.number}", f"it is {message.state}, not dead")
    return replace(message, state=MessageState.PENDING, attempts=0, next_attempt_at=aware(at), error="")


def _line(said: Said, action: AuditAction, subject: str, details: Mapping[str, Any]) -> AuditLine:
    return AuditLine(said.at, said.actor, action, subject, said.reason, details)
