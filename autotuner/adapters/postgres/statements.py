"""What the catalogue asks PostgreSQL: every statement, made once. Values are bound when it is sent."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Double,
    Integer,
    Select,
    bindparam,
    case,
    column,
    func,
    select,
    true,
)

from autotuner.adapters.postgres.listing import Listing, Order, among, between, equal, within
from autotuner.adapters.postgres.registry import WHOLE
from autotuner.adapters.postgres.tables import audit, journal, ledger, studies, targets, trials
from autotuner.bookkeeping.summaries import GLANCED_AT
from autotuner.catalogue import TrialSort
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, TrialKind

LISTED = tuple(column for column in trials.c if column is not trials.c.record)
"""What a list shows of a trial; its record is read for the one that is looked at."""

CAPACITY_KEY = func.coalesce(trials.c.capacity_per_second, 0.0)
"""A trial without a capacity sorts as having none; an index is on exactly this expression."""

SORT_KEYS: dict[TrialSort, ColumnElement[Any]] = {
    TrialSort.PROPOSED_AT: trials.c.proposed_at,
    TrialSort.CAPACITY: CAPACITY_KEY,
    TrialSort.HARM: trials.c.harm_requests,
}

TRIED = (
    select(func.coalesce(func.max(trials.c.number) + 1, 0))
    .where(trials.c.study_id == studies.c.id)
    .scalar_subquery()
)
"""How many trials a study has: they are numbered from 0 without gaps, and the last is found without reading all."""
SUMMARY = (
    studies.c.id,
    studies.c.target,
    studies.c.phase,
    studies.c.outcome,
    studies.c.reason,
    studies.c.created_at,
    studies.c.ended_at,
    TRIED.label("trials"),
)

LIVE = (*SUMMARY, studies.c.wish, studies.c.sequence)
"""What changes of a study without its record, or is cheap to read."""

_TOLD = (
    func.json_to_record(studies.c.state)
    .table_valued(
        column("winner", Integer),
        column("promoted", JSON),
        column("dispersion", Double),
        column("reference_rate_per_second", Double),
        name="told",
    )
    .render_derived(with_types=True)
)
_HARM = select(func.coalesce(func.sum(trials.c.harm_requests), 0.0)).where(trials.c.study_id == studies.c.id)
TOLD = select(
    *LIVE,
    studies.c.actor,
    studies.c.initial["plan"].label("plan"),
    _HARM.scalar_subquery().label("harm_requests"),
    *_TOLD.c,
).select_from(studies.join(_TOLD, true()))
"""A study's whole record, as far as it is told without its trials: the database reads through all of it."""


_TELLS_PRODUCTION = (trials.c.kind == TrialKind.PRODUCTION.value) | (
    (trials.c.kind == TrialKind.WATCH.value) & (trials.c.verdict == Verdict.ACCEPT.value)
)


def _newest_studies() -> Select[Any]:
    """The newest studies of each target, newest first: a short walk of an index for each name."""
    order = (studies.c.created_at.desc(), studies.c.ordinal.desc())
    rolled_back = studies.c.outcome == Outcome.ROLLED_BACK.value
    restoring = case((rolled_back, studies.c.initial["plan"]))
    of_target = (
        select(*SUMMARY, studies.c.ordinal, restoring.label("plan"))
        .where(studies.c.target == targets.c.name)
        .order_by(*order)
        .limit(GLANCED_AT)
        .lateral("newest")
    )
    chosen = (
        select(of_target).select_from(targets.join(of_target, true())).where(among(targets.c.name, "names"))
    )
    return chosen.order_by(of_target.c.created_at.desc(), of_target.c.ordinal.desc())


NEWEST_STUDIES = _newest_studies()
TELLING = select(*LISTED).where(among(trials.c.study_id, "studies"), _TELLS_PRODUCTION)


def _one_latest(query: Select[Any]) -> Select[Any]:
    return query.order_by(studies.c.created_at.desc(), studies.c.ordinal.desc()).limit(1)


_ONE = studies.c.id == bindparam("id")

ONE_ID = select(studies.c.id).where(_ONE)
LATEST_ID = _one_latest(select(studies.c.id))
ONE_LIVE = select(*LIVE).where(_ONE)
LATEST_LIVE = _one_latest(select(*LIVE))
ONE_TOLD: Select[Any] = TOLD.where(_ONE)

_EVIDENCE = select(studies.c.id, studies.c.initial["plan"].label("plan"), *trials.c).select_from(
    studies.outerjoin(trials, (trials.c.study_id == studies.c.id) & (trials.c.number == bindparam("number")))
)
ONE_EVIDENCE, LATEST_EVIDENCE = _EVIDENCE.where(_ONE), _one_latest(_EVIDENCE)

PROGRESS = (
    select(journal.c.sequence, journal.c.at, journal.c.kind, journal.c.reason, journal.c.actor)
    .where(journal.c.study_id == bindparam("id"), journal.c.sequence > bindparam("after"))
    .order_by(journal.c.sequence)
    .limit(bindparam("most", type_=Integer))
)

TARGETS = Listing(
    WHOLE, {"retired": targets.c.retired_at.is_not(None), "not_retired": targets.c.retired_at.is_(None)}
)
BY_NAME = Order((targets.c.name,))

STUDIES = Listing(
    select(*SUMMARY, studies.c.ordinal),
    equal(target=studies.c.target, phase=studies.c.phase, outcome=studies.c.outcome)
    | within(studies.c.created_at),
)
NEWEST_STUDY = Order((studies.c.created_at, studies.c.ordinal), descending=True)

_OF_TRIALS = (
    equal(
        study=trials.c.study_id,
        target=trials.c.target,
        kind=trials.c.kind,
        state=trials.c.state,
        verdict=trials.c.verdict,
        preferred=trials.c.preferred_batch_size,
    )
    | between("delay", trials.c.max_queue_delay_microseconds)
    | between("instances", trials.c.instance_count)
    | between("max_batch_size", trials.c.max_batch_size)
    | within(trials.c.proposed_at)
)
TRIALS = {by: Listing(select(*LISTED, key.label("sort_key")), _OF_TRIALS) for by, key in SORT_KEYS.items()}
TRIAL_ORDERS = {
    (by, descending): Order((key, trials.c.study_id, trials.c.number), descending)
    for by, key in SORT_KEYS.items()
    for descending in (False, True)
}


def _ledger_and_what_became_of_it() -> Select[Any]:
    back = studies.alias("back")
    undone = (back.c.reverses == ledger.c.study_id) & (back.c.outcome == Outcome.ROLLED_BACK.value)
    return select(
        ledger, back.c.id.label("rolled_back_by"), back.c.ended_at.label("rolled_back_at")
    ).select_from(ledger.outerjoin(back, undone))


LEDGER = Listing(_ledger_and_what_became_of_it(), equal(target=ledger.c.target))
NEWEST_PROMOTION = Order((ledger.c.promoted_at, ledger.c.study_id), descending=True)

AUDIT = Listing(
    select(
        audit.c.number,
        audit.c.at,
        audit.c.actor,
        audit.c.action,
        audit.c.subject,
        audit.c.reason,
        audit.c.details,
    ),
    equal(actor=audit.c.actor, action=audit.c.action, subject=audit.c.subject) | within(audit.c.at),
)
NEWEST_RECORD = Order((audit.c.at, audit.c.number), descending=True)
