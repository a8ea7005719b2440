"""The rules every store keeps, whatever it is made of: what is refused, and what a change becomes.

The in-memory store and the Postgres store call these same functions, so they can only differ in how they
remember, never in what they allow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from autotuner.domain.access import Said, Token
from autotuner.domain.registration import Registration, StudyDefaults, Wanted
from autotuner.domain.rollout import too_late_to_cancel
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.domain.target import Target
from autotuner.errors import Conflict, InvalidInput, NotFound, Outdated, Overtaken, Refused
from autotuner.ports import Grant, JournalEntry, RequestKey, StartedBefore, StudySummary
from autotuner.records import Written, to_record

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


ANY_MARK = None
"""Passed for a mark: whatever the target is now."""

NEW_MARK = ""
"""Passed for a mark: there is no such target yet, or it is retired."""


def next_registration(
    before: Registration | None, wanted: Wanted, mark: str | None, said: Said
) -> Registration:
    """Return a target as it is registered after `wanted` was asked for, given how it was before.

    Raises as `ports.Registry.register` does.
    """
    name = wanted.target.name
    retired = before is not None and before.retired_at is not None
    check_mark(name, None if before is None else before.mark, retired, mark)
    slo, defaults = wanted.slo, wanted.defaults
    if before is None:
        if slo is None:
            raise InvalidInput("slo", None, "a budget: a new target has none to keep")
        slo, defaults = next_budget(None, slo, said.actor, said.reason, said.at), defaults or StudyDefaults()
        since, by, created = said.at, plain(said.actor), said.at
    else:
        slo = before.slo if slo is None else next_budget(before.slo, slo, said.actor, said.reason, said.at)
        defaults = defaults or before.defaults
        created, since, by = before.created_at, before.changed_at, before.changed_by
        if retired or (wanted.target, defaults) != (before.target, before.defaults):
            since, by = aware(said.at), plain(said.actor)
    return Registration(
        wanted.target, slo, defaults, mark_of(wanted.target, defaults, None), created, since, by
    )


def retired_registration(
    before: Registration, mark: str | None, said: Said, unfinished: str | None
) -> Registration:
    """Return a target as it is registered once it is retired. unfinished: a study of it that has not ended.

    Raises as `ports.Registry.retire` does.
    """
    if before.retired_at is not None:
        return before
    name = before.target.name
    check_mark(name, before.mark, False, mark)
    if unfinished is not None:
        raise Conflict(f"target {name}", f"study {unfinished} has not ended")
    return replace(
        before,
        mark=mark_of(before.target, before.defaults, said.at),
        changed_at=aware(said.at),
        changed_by=plain(said.actor),
        retired_at=said.at,
    )


def mark_of(target: Target, defaults: StudyDefaults, retired_at: datetime | None) -> str:
    """Return a mark of a target as it is registered: equal marks mean equal registrations."""
    told = [to_record(target), to_record(defaults), None if retired_at is None else retired_at.isoformat()]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_mark(name: str, current: str | None, retired: bool, expected: str | None) -> None:
    """Raise unless a target may be saved by somebody who knows it under `expected`.

    current: its mark now, None when there is none. Raises Conflict when it is not new, NotFound when it does not exist,
    Refused when it is retired, Outdated when it has changed since.
    """
    if expected is ANY_MARK or (expected == NEW_MARK and (current is None or retired)):
        return
    if expected == NEW_MARK:
        raise Conflict(f"target {name}", "it is registered already")
    if current is None:
        raise NotFound("target", name)
    if retired:
        raise Refused(f"target {name} is retired: register it anew to tune it again")
    if current != expected:
        raise Outdated(
            f"target {name}", f"it has changed since it was read: expected {expected}, found {current}"
        )


def check_version(name: str, current: int, expected: int) -> None:
    """Raise Outdated unless version `expected` of a target's budget is the one in force."""
    if current != expected:
        raise Outdated(
            f"SLO budget of target {name}", f"expected version {expected}, found version {current}"
        )


def check_not_retired(name: str, retired_at: datetime | None) -> None:
    """Raise Refused when the target is retired."""
    if retired_at is not None:
        raise Refused(
            f"target {name} is retired since {retired_at:%Y-%m-%d %H:%M} UTC: no study of it may start"
        )


def check_request_key(key: RequestKey, known: StartedBefore | None) -> None:
    """Raise InvalidInput when the key was used for another request, Conflict when it was used at all."""
    if known is None:
        return
    if known.digest != key.digest:
        raise InvalidInput("Idempotency-Key", key.key, "a key that was not used for another request before")
    raise Conflict(f"request {key.key}", f"it started study {known.study_id}")


def kept_token(token: Token) -> Token:
    """Return a token as it comes back from a store."""
    aware(token.created_at)
    return replace(
        token, actor=plain(token.actor), note=plain(token.note), created_by=plain(token.created_by)
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


def check_new_token(token_id: str, known: bool) -> None:
    """Raise Conflict when a token of that id or secret is recorded."""
    if known:
        raise Conflict(f"token {token_id}", "a token of that id or secret is already recorded")


def check_unfinished(study_id: str, phase: Phase) -> None:
    """Raise Conflict when the study has ended."""
    if phase is Phase.ENDED:
        raise Conflict(f"study {study_id}", "it has already ended")


def check_cancellable(study: Study) -> None:
    """Raise Conflict when a cancellation would come too late."""
    late = too_late_to_cancel(study)
    if late:
        raise Conflict(f"study {study.id}", late)


def check_not_overtaken(before: Study, after: Study, entry: JournalEntry, wish: Wish) -> None:
    """Raise Overtaken when a cancellation is recorded that this decision did not know of, and would make too late."""
    if wish is not Wish.CANCEL or too_late_to_cancel(before) or not too_late_to_cancel(after):
        return
    if entry.observed.get("wish") != Wish.CANCEL:
        raise Overtaken(f"study {after.id}", "it was cancelled meanwhile")


def storable_entry(entry: JournalEntry) -> JournalEntry:
    """Return a journal entry that every store can hold, JSON-ready."""
    return replace(
        entry,
        at=aware(entry.at),
        observed=entry.observed if isinstance(entry.observed, Written) else to_record(dict(entry.observed)),
        action=None if entry.action is None else to_record(dict(entry.action)),
        reason=plain(entry.reason),
        actor=plain(entry.actor),
    )


def kept_entry(entry: JournalEntry) -> JournalEntry:
    """Return a journal entry as it comes back from a store."""
    return replace(
        storable_entry(entry),
        observed=plain_json(entry.observed) or {},
        action=plain_json(entry.action),
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
