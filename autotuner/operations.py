"""Use cases that every edge shares, so that a command and a request can never differ: register, start, ask, replay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autotuner.domain.access import check_four_eyes
from autotuner.domain.configuration import ModelConfig, read_configuration
from autotuner.domain.lifecycle import absorb, next_step
from autotuner.domain.observation import ActionResult, Decision, Observation
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import (
    GREYBOX,
    METHOD,
    UNKNOWN_DISPERSION,
    Action,
    Phase,
    Propose,
    SearchOver,
    Study,
    StudyPlan,
    Wish,
)
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError, Conflict, InvalidInput, Refused
from autotuner.ports import Clock, JournalEntry, Proposer, Registry, RequestKey, Store
from autotuner.records import digest, from_record, to_record
from autotuner.telemetry.traces import course_of_study, operation, span


@dataclass(frozen=True)
class Difference:
    """A recorded decision that the records do not lead to."""

    sequence: int
    field: str
    recorded: Any
    computed: Any


@dataclass(frozen=True)
class Replay:
    """A study decided again from its records.

    proposals: those that were computed again. taken: those that another version of the grey-box method made, which
    this one cannot compute: they are taken as recorded, and everything decided from them is checked.
    """

    study_id: str
    decisions: int
    outcomes: int
    proposals: int
    differences: tuple[Difference, ...]
    taken: int = 0


def start_study(
    store: Store, clock: Clock, plan: StudyPlan, actor: str, key: RequestKey | None = None
) -> Study:
    """Record a new study of `plan` and return it; a worker will carry it. key: of the request that asks for it.

    Raises Conflict when the target already has an unfinished study or the key was used, NotFound for an unknown target,
    Refused when the plan's budget is not the version in force or the target is retired.
    """
    _check_budget(plan, store.budgets(plan.target.name)[-1])
    study = new_study(plan, clock.now(), actor)
    with span("start_study", study=study.id) as open_span:
        open_span.leads_to(course_of_study(study.id))
        store.create_study(study, key)
    return study


@operation
def start_once(
    store: Store, clock: Clock, plan: StudyPlan, actor: str, key: RequestKey | None
) -> tuple[str, bool]:
    """Start a study unless a request of the same key did; return its id, and whether it was started now.

    Raises InvalidInput when the key was used for another request, and what `start_study` raises.
    """
    before = _started_under(store, key)
    if before is not None:
        return before, False
    try:
        return start_study(store, clock, plan, actor, key).id, True
    except Conflict:
        before = _started_under(store, key)
        if before is None:
            raise
        return before, False


def _started_under(store: Store, key: RequestKey | None) -> str | None:
    """The study that the same request started before. Raises InvalidInput when another request had the key."""
    before = None if key is None else store.started_before(key.actor, key.key)
    if key is None or before is None:
        return None
    if before.digest != key.digest:
        raise InvalidInput("Idempotency-Key", key.key, "a key that no other request had before")
    return before.study_id


def new_study(plan: StudyPlan, now: datetime, actor: str) -> Study:
    """Return a study of `plan` as it begins, not recorded yet."""
    name = plan.target.name
    mark = hashlib.sha256(f"{name} {now.isoformat()} {actor}".encode()).hexdigest()[:6]
    study_id = f"{name}-{now:%Y%m%d-%H%M%S}-{mark}"
    return Study(study_id, plan, now, actor, dispersion=min(UNKNOWN_DISPERSION, plan.max_dispersion))


def _check_budget(plan: StudyPlan, in_force: SloBudget) -> None:
    """A ceiling is what was registered, with its reason on record, and not what the plan happens to carry."""
    pinned = plan.slo
    differs = in_force.loosened_fields(pinned) or pinned.loosened_fields(in_force)
    if differs or pinned.version != in_force.version:
        raise Refused(
            f"the plan's SLO budget (version {pinned.version}) is not the one in force for {plan.target.name} "
            f"(version {in_force.version}): register it first, then start from what is registered"
        )


@operation
def register_target(
    store: Store, clock: Clock, target: Target, slo: SloBudget, actor: str, reason: str
) -> SloBudget:
    """Record a target and its budget; returns the budget's version in force. Raises InvalidInput."""
    return store.save_target(target, slo, actor, reason, clock.now())


@operation
def ask(store: Store, clock: Clock, study_id: str, wish: Wish, actor: str, reason: str) -> Study:
    """Record an operator's wish for a study; its next tick obeys. Returns the study as it stands.

    Raises NotFound; Conflict when it has ended; Refused when there is nothing (yet, or any more) to approve, and when
    it is cancelled already: whoever asks for something else may not know of it.
    """
    study = store.study(study_id)
    cancelled = study.phase is not Phase.ENDED and store.wish(study.id) is Wish.CANCEL
    if cancelled and wish is not Wish.CANCEL:
        raise Refused(f"study {study.id} is cancelled: it ends, and cannot be asked to {wish}")
    if wish in (Wish.APPROVE, Wish.DISAPPROVE) and study.phase not in (Phase.APPROVAL, Phase.ENDED):
        raise Refused(
            f"study {study.id} is in phase {study.phase}: only a winner that waits for approval has one"
        )
    store.set_wish(study.id, wish, actor, reason, clock.now())
    return study


@operation
def approve(store: Store, registry: Registry, clock: Clock, study_id: str, said: tuple[str, str]) -> Study:
    """Let the confirmed winner of a study into production. said: who approves, and why.

    Raises Forbidden when the target asks for four eyes and this actor started the study; else what `ask` raises.
    """
    actor, reason = said
    study = store.study(study_id)
    if registry.registration(study.plan.target.name).defaults.four_eyes:
        check_four_eyes(study.actor, actor)
    return ask(store, clock, study.id, Wish.APPROVE, actor, reason)


def check_model(target: Target, config: ModelConfig) -> None:
    """Check a target's limits against the configuration its model is served with.

    Raises InvalidInput for a preferred size no batch can have; Refused for a model that cannot be tuned.
    """
    largest = read_configuration(config).max_batch_size
    for number, sizes in enumerate(target.limits.preferred_batch_sizes or ()):
        if any(size > largest for size in sizes):
            allowed = f"batch sizes up to the model's max_batch_size, {largest}"
            raise InvalidInput(f"limits.preferred_batch_sizes.{number}", list(sizes), allowed)


def replay(store: Store, study_id: str, proposers: Callable[[StudyPlan], Proposer]) -> Replay:
    """Compute every decision of a study again from its records and list the differences.

    Raises NotFound when there is no such study.
    """
    study = store.initial(store.study(study_id).id)
    counts = {"decision": 0, "outcome": 0}
    proposals, other_method = 0, _of_another_method(study.plan)
    differences: list[Difference] = []
    for entry in store.journal(study.id):
        counts[entry.kind] += 1
        proposals += int(study.pending is not None and isinstance(study.pending.action, Propose))
        try:
            computed = _decided_again(study, entry, proposers, differences)
        except AutotunerError as error:
            differences.append(Difference(entry.sequence, "error", None, str(error)))
            break
        differences += _compare(entry, computed)
        study = computed.study
    stored = store.study(study.id)
    if digest(stored) != digest(study):
        differences.append(Difference(-1, "final state", digest(stored), digest(study)))
    computed_again, taken = (0, proposals) if other_method else (proposals, 0)
    return Replay(study.id, counts["decision"], counts["outcome"], computed_again, tuple(differences), taken)


def _of_another_method(plan: StudyPlan) -> bool:
    """Whether its proposals were made by a version of the grey-box method that this release does not have."""
    return plan.sampler == GREYBOX and plan.method != METHOD


def _decided_again(
    study: Study,
    entry: JournalEntry,
    proposers: Callable[[StudyPlan], Proposer],
    differences: list[Difference],
) -> Decision:
    if entry.kind == "decision":
        return next_step(study, from_record(Observation, entry.observed))
    result: ActionResult = from_record(ActionResult, entry.observed)
    asked = study.pending is not None and isinstance(study.pending.action, Propose)
    if asked and result.done and not _of_another_method(study.plan):
        recorded = result.proposal or SearchOver(result.reason)
        proposed = proposers(study.plan).propose(study)
        if to_record(proposed) != to_record(recorded):
            differences.append(
                Difference(entry.sequence, "proposal", to_record(recorded), to_record(proposed))
            )
    return absorb(study, result)


def _compare(entry: JournalEntry, computed: Decision) -> list[Difference]:
    action = to_record(computed.action, Action) if computed.action is not None else None
    pairs: Mapping[str, tuple[Any, Any]] = {
        "action": (_plain(entry.action), action),
        "reason": (entry.reason, computed.reason),
        "state": (entry.state, digest(computed.study)),
    }
    return [Difference(entry.sequence, name, was, now) for name, (was, now) in pairs.items() if was != now]


def _plain(action: Mapping[str, Any] | None) -> Any:
    return dict(action) if action is not None else None
