"""The rules every store keeps, whatever it is made of: what is refused, and what a change becomes.

The in-memory store and the Postgres store call these same functions, so they can only differ in how they
remember, never in what they allow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study
from autotuner.errors import Conflict, InvalidInput
from autotuner.ports import Grant, JournalEntry, StudySummary
from autotuner.records import to_record

LATEST = "latest"
"""The name under which the newest study is found."""


def next_budget(
    current: SloBudget | None, wanted: SloBudget, actor: str, reason: str, now: datetime
) -> SloBudget:
    """Return the version in force after `wanted` was asked for: `current` itself when it promises the same.

    Raises InvalidInput (field `reason`) when `wanted` promises users less than `current` and nobody says why.
    """
    aware(now)
    reason = plain(reason)
    version = 1
    if current is not None:
        if _promises(current) == _promises(wanted):
            return current
        loosened = current.loosened_fields(wanted)
        if loosened and not reason.strip():
            allowed = f"a sentence that says why {', '.join(loosened)} may be loosened"
            raise InvalidInput("reason", reason, allowed)
        version = current.version + 1
    return replace(wanted, version=version, actor=plain(actor), reason=reason, created_at=now)


def _promises(budget: SloBudget) -> tuple[float, float, float, int]:
    return (
        budget.p99_ceiling_seconds,
        budget.error_ratio_ceiling,
        budget.max_canary_share,
        budget.harm_budget_requests,
    )


def check_grant(grant: Grant, target: str, holder: str | None, token: int | None) -> None:
    """Raise Conflict unless `grant` is the newest one for `target`, given its present holder and token."""
    subject = f"lease of target {target}"
    if grant.target != target:
        raise Conflict(subject, f"the grant is for target {grant.target}")
    if holder is None or token is None:
        raise Conflict(subject, f"{grant.holder} (token {grant.token}) holds it no longer")
    if (holder, token) != (grant.holder, grant.token):
        expected = f"{grant.holder} (token {grant.token})"
        raise Conflict(subject, f"expected {expected}, found {holder} (token {token})")


def check_sequence(study_id: str, stored: int, given: int) -> None:
    """Raise Conflict unless journal entry `given` follows the newest stored one (0 before the first)."""
    if given != stored + 1:
        raise Conflict(f"study {study_id}", f"journal entry {given} does not follow entry {stored}")


def check_new_id(study_id: str, known: bool) -> None:
    """Raise Conflict when a study of that id is recorded, InvalidInput when the id has another meaning."""
    if study_id == LATEST:
        raise InvalidInput("study.id", study_id, f"any name but {LATEST}, which means the newest study")
    if known:
        raise Conflict(f"study {study_id}", "a study of that id is already recorded")


def check_unfinished(study_id: str, phase: Phase) -> None:
    """Raise Conflict when the study has ended."""
    if phase is Phase.ENDED:
        raise Conflict(f"study {study_id}", "it has already ended")


def kept_entry(entry: JournalEntry) -> JournalEntry:
    """Return a journal entry as it comes back from a store."""
    return replace(
        entry,
        at=aware(entry.at),
        observed=plain_json(entry.observed) or {},
        action=plain_json(entry.action),
        reason=plain(entry.reason),
        actor=plain(entry.actor),
    )


def summarise(study: Study) -> StudySummary:
    """Return a study as a list shows it."""
    return StudySummary(
        id=study.id,
        target=study.plan.target.name,
        phase=study.phase.value,
        outcome=None if study.outcome is None else study.outcome.value,
        reason=plain(study.reason),
        created_at=study.created_at,
        ended_at=study.ended_at,
        trials=len(study.trials),
    )


def aware(instant: datetime) -> datetime:
    """Return `instant`; raises InvalidInput when it has no time zone, for then nobody knows when it was."""
    if instant.tzinfo is None:
        raise InvalidInput("now", instant.isoformat(), "an instant with its time zone")
    return instant


def plain(text: str) -> str:
    """Return `text` as every store can hold it: NUL and lone surrogates are replaced by `?`.

    Reasons may quote whatever a foreign server answered, bytes that are not text included.
    """
    return text.replace("\x00", "?").encode("utf-8", "replace").decode("utf-8")


def plain_json(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a mapping as it comes back from JSON: tuples as lists, instants as text, `inf` as text."""
    if values is None:
        return None
    made: dict[str, Any] = json.loads(json.dumps(to_record(dict(values)), allow_nan=False))
    return made
