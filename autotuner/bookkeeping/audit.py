"""What goes into the audit, and the hash chain that shows afterwards whether anything was changed.

Every store writes the same lines from the same rules, in the transaction of the change they describe, so the
audit can neither miss a change nor tell of one that did not happen (guards rule 4).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from autotuner.bookkeeping.rules import plain
from autotuner.domain.access import Said, Token
from autotuner.domain.registration import Registration
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Action, Load, Propose, Restore, Study, Trial, TrialState, Wish
from autotuner.ports import AuditRecord, JournalEntry
from autotuner.records import to_record

FIRST_HASH = "0" * 64
"""What the first line of an audit names as the hash before it."""


class AuditAction(StrEnum):
    """What was done, as the audit names it."""

    TARGET_SAVED = "target_saved"
    BUDGET_SET = "budget_set"
    BUDGET_LOOSENED = "budget_loosened"
    STUDY_STARTED = "study_started"
    WISH_SET = "wish_set"
    LOAD_DECIDED = "load_decided"
    RESTORE_DECIDED = "restore_decided"
    WEIGHTS_DECIDED = "weights_decided"
    TRIAL_JUDGED = "trial_judged"
    WINNER_CHOSEN = "winner_chosen"
    WINNER_REJECTED = "winner_rejected"
    PHASE_ENTERED = "phase_entered"
    REPLICA_PROMOTED = "replica_promoted"
    REPLICA_RESTORED = "replica_restored"
    STUDY_ENDED = "study_ended"
    TARGET_RETIRED = "target_retired"
    SCHEDULE_SET = "schedule_set"
    SCHEDULE_REMOVED = "schedule_removed"
    FREEZE_SET = "freeze_set"
    FREEZE_REMOVED = "freeze_removed"
    LINE_STOPPED = "line_stopped"
    LINE_RELEASED = "line_released"
    NIGHT_STARTED = "night_started"
    NIGHT_MISSED = "night_missed"
    TOKEN_CREATED = "token_created"  # noqa: S105 - the name of an action
    TOKEN_REVOKED = "token_revoked"  # noqa: S105 - the same
    ROLLBACK_STARTED = "rollback_started"


@dataclass(frozen=True)
class AuditLine:
    """One line to be added to the audit. subject: the name of a target, the id of a study, or `token` and its id."""

    at: datetime
    actor: str
    action: AuditAction
    subject: str
    reason: str
    details: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "actor", plain(self.actor))
        object.__setattr__(self, "reason", plain(self.reason))

    def hash_after(self, previous_hash: str) -> str:
        """Return the hash of this line when it follows the one of hash `previous_hash` (hex SHA-256)."""
        return _hash(previous_hash, self)


def _line(said: Said, action: AuditAction, subject: str, details: Mapping[str, Any]) -> AuditLine:
    return AuditLine(said.at, said.actor, action, subject, said.reason, details)


def registration_lines(before: Registration | None, after: Registration, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for saving a target and its budget; none for what is as it was."""
    return (*_target_lines(before, after, said), *_budget_lines_of(before, after, said))


def _target_lines(before: Registration | None, after: Registration, said: Said) -> tuple[AuditLine, ...]:
    if before is not None and before.mark == after.mark:
        return ()
    details = {
        "created": before is None,
        "revived": before is not None and before.retired_at is not None,
        "target": to_record(after.target),
        "study": to_record(after.defaults),
    }
    return (_line(said, AuditAction.TARGET_SAVED, after.target.name, details),)


def _budget_lines_of(before: Registration | None, after: Registration, said: Said) -> tuple[AuditLine, ...]:
    return budget_lines(after.target.name, None if before is None else before.slo, after.slo, said)


def retire_lines(before: Registration, after: Registration, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for retiring a target; empty when it was retired before."""
    if before.retired_at == after.retired_at:
        return ()
    return (_line(said, AuditAction.TARGET_RETIRED, after.target.name, {}),)


def budget_lines(
    target: str, before: SloBudget | None, budget: SloBudget, said: Said
) -> tuple[AuditLine, ...]:
    """Return the lines for the budget in force; empty when it is the version that was in force before."""
    if before == budget:
        return ()
    loosened = before.loosened_fields(budget) if before is not None else ()
    action = AuditAction.BUDGET_LOOSENED if loosened else AuditAction.BUDGET_SET
    details = {"budget": to_record(budget), "loosened_fields": list(loosened)}
    return (_line(said, action, target, details),)


def start_lines(study: Study) -> tuple[AuditLine, ...]:
    """Return the lines for a new study."""
    plan = study.plan
    details = {
        "target": plan.target.name,
        "slo_version": plan.slo.version,
        "max_trials": plan.max_trials,
        "approval": plan.approval.value,
        "sampler": plan.sampler,
        "seed": plan.seed,
    }
    said = Said(study.actor, study.reason, study.created_at)
    started = _line(said, AuditAction.STUDY_STARTED, study.id, details)
    if plan.reverses is None:
        return (started,)
    told = {"study": study.id, "configuration": to_record(plan.reverses.before.configuration)}
    return started, _line(said, AuditAction.ROLLBACK_STARTED, plan.reverses.study_id, told)


def kept_up_lines(study_id: str, replica: str, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for a replica that is given again what a study promoted."""
    details = {"replica": replica, "again": True}
    return (AuditLine(said.at, said.actor, AuditAction.REPLICA_PROMOTED, study_id, said.reason, details),)


def wish_lines(study_id: str, wish: Wish, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for an operator's wish."""
    return (_line(said, AuditAction.WISH_SET, study_id, {"wish": wish.value}),)


def token_lines(token: Token) -> tuple[AuditLine, ...]:
    """Return the lines for a new token."""
    details = {
        "actor": token.actor,
        "scopes": [scope.value for scope in token.scopes],
        "expires_at": token.expires_at.isoformat(),
    }
    said = Said(token.created_by, token.note, token.created_at)
    return (_line(said, AuditAction.TOKEN_CREATED, token_subject(token.id), details),)


def token_revoked_lines(token: Token, said: Said) -> tuple[AuditLine, ...]:
    """Return the lines for the end of a token before its time."""
    return (_line(said, AuditAction.TOKEN_REVOKED, token_subject(token.id), {"actor": token.actor}),)


def token_subject(token_id: str) -> str:
    """Return what the audit calls a token; no target and no study is called so."""
    return f"token {token_id}"


def step_lines(before: Study, after: Study, entry: JournalEntry) -> tuple[AuditLine, ...]:
    """Return what a person cares about in the step from `before` to `after`, in the order it was decided."""
    return tuple(
        AuditLine(entry.at, entry.actor, action, after.id, reason or entry.reason, details)
        for action, reason, details in _step(before, after)
    )


_Told = tuple[AuditAction, str, dict[str, Any]]


def _step(before: Study, after: Study) -> Iterator[_Told]:
    judged = {trial.number for trial in before.trials if trial.state is TrialState.JUDGED}
    for trial in after.trials:
        if trial.state is TrialState.JUDGED and trial.number not in judged:
            yield AuditAction.TRIAL_JUDGED, trial.reason, _trial_details(trial)
    yield from _winner(before, after)
    if before.phase is not after.phase:
        yield AuditAction.PHASE_ENTERED, "", {"from": before.phase.value, "phase": after.phase.value}
    for name in after.promoted:
        if name not in before.promoted:
            yield AuditAction.REPLICA_PROMOTED, "", {"replica": name, "trial": after.winner}
    for name in before.promoted:
        if name not in after.promoted:
            yield AuditAction.REPLICA_RESTORED, "", {"replica": name}
    if after.pending is not None and after.pending != before.pending:
        yield from _decided(after.pending.action)
    if after.outcome is not None and before.outcome is not after.outcome:
        yield AuditAction.STUDY_ENDED, after.reason, _outcome_details(after)


def _winner(before: Study, after: Study) -> Iterator[_Told]:
    for number in after.rejected_winners:
        if number not in before.rejected_winners:
            yield AuditAction.WINNER_REJECTED, "", {"trial": number}
    if after.winner is not None and after.winner != before.winner:
        chosen = [to_record(trial.configuration) for trial in after.trials if trial.number == after.winner]
        details = {"trial": after.winner, "configuration": chosen[0] if chosen else None}
        yield AuditAction.WINNER_CHOSEN, "", details


def _decided(action: Action) -> Iterator[_Told]:
    if isinstance(action, Propose):
        return
    kind = AuditAction.WEIGHTS_DECIDED
    if isinstance(action, Load):
        kind = AuditAction.LOAD_DECIDED
    elif isinstance(action, Restore):
        kind = AuditAction.RESTORE_DECIDED
    yield kind, "", to_record(action, Action)


def _trial_details(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "kind": trial.kind.value,
        "verdict": None if trial.verdict is None else trial.verdict.value,
        "limited_by": trial.limited_by,
        "configuration": to_record(trial.configuration),
        "harm_requests": trial.harm_requests,
    }


def _outcome_details(study: Study) -> dict[str, Any]:
    return {
        "outcome": None if study.outcome is None else study.outcome.value,
        "winner": study.winner,
        "trials": len(study.trials),
        "harm_requests": study.harm_requests,
        "promoted": list(study.promoted),
    }


@dataclass(frozen=True)
class ChainedRecord:
    """An audit record as stored, with its place in the hash chain (hexadecimal SHA-256)."""

    record: AuditRecord
    previous_hash: str
    hash: str


def first_broken(chain: Iterable[ChainedRecord]) -> int | None:
    """Return the number of the first record that does not fit those before it; None when the chain is whole.

    chain: every record, oldest first. A record changed, added or taken out in the middle shows; a tail that
    was cut off does not, unless its last hash was noted elsewhere.
    """
    previous = FIRST_HASH
    for link in chain:
        if link.previous_hash != previous or link.hash != _hash(previous, link.record):
            return link.record.number
        previous = link.hash
    return None


def _hash(previous: str, line: AuditLine | AuditRecord) -> str:
    at = line.at.astimezone(UTC).isoformat()
    told = [previous, at, line.actor, line.action, line.subject, line.reason, line.details]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
