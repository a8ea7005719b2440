"""The audit on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.schemas.wire import Answer
from autotuner.bookkeeping.audit import AuditAction
from autotuner.ports import AuditRecord


class AuditItem(Answer):
    """One record of the append-only audit."""

    number: int = Field(
        description="Its number; gaps are harmless, the hash chain is what counts.", examples=[17]
    )
    at: datetime = Field(description="When it was done.", examples=["2026-01-05T02:00:00Z"])
    actor: str = Field(description="Who did it: a person, a program, or a worker.", examples=["anna"])
    action: AuditAction = Field(description="What was done.", examples=["budget_loosened"])
    subject: str = Field(
        description="To what: a target's name, a study's id, or `token` and its id.",
        examples=["small-vision"],
    )
    reason: str = Field(description="Why.", examples=["agreed with the search team"])
    details: dict[str, Any] = Field(
        description="What else is recorded of it; names carry the units.",
        examples=[{"loosened_fields": ["p99_ceiling_seconds"]}],
    )


class Verification(Answer):
    """Whether the audit's hash chain is whole."""

    intact: bool = Field(description="Whether every record fits those before it.")
    first_broken: int | None = Field(
        description="Number of the first record that does not fit; null when all do.", examples=[17]
    )


def audit_item(record: AuditRecord) -> AuditItem:
    """Return one audit record."""
    return AuditItem(
        **{**vars(record), "action": AuditAction(record.action), "details": dict(record.details)}
    )
