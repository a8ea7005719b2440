"""Targets, their budgets and their defaults in PostgreSQL. A target's row is locked from its reading to the commit."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, Row, Text, bindparam, cast, select, true, update
from sqlalchemy.dialects.postgresql import insert

from autotuner.adapters.postgres.audit_log import add_lines
from autotuner.adapters.postgres.engine import reading, transaction
from autotuner.adapters.postgres.tables import slo_budgets, studies, targets
from autotuner.bookkeeping.audit import registration_lines, retire_lines
from autotuner.bookkeeping.rules import (
    check_version,
    mark_of,
    next_budget,
    next_registration,
    plain,
    retired_registration,
)
from autotuner.domain.access import Said
from autotuner.domain.registration import Registration, StudyDefaults, Wanted
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Phase
from autotuner.domain.target import Target
from autotuner.errors import NotFound
from autotuner.records import from_record, to_record


class PostgresRegistry:
    """What is registered of targets. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def registration(self, name: str) -> Registration:
        """Return a target with its newest budget and its defaults, retired or not. Raises NotFound."""
        with reading(self._engine) as connection:
            return _known(connection, name)

    def register(self, wanted: Wanted, mark: str | None, said: Said) -> Registration:
        """Create, change or revive a target; see `ports.Registry`."""
        name = wanted.target.name
        with transaction(self._engine) as connection:
            before = _found(connection, name, lock=True)
            after = next_registration(before, wanted, mark, said)
            if before is None and not _insert(connection, after):
                before = _known(connection, name, lock=True)
                after = next_registration(before, wanted, mark, said)
            _write(connection, before, after)
            add_lines(connection, registration_lines(before, after, said))
            return after

    def set_budget(self, name: str, slo: SloBudget, version: int, said: Said) -> SloBudget:
        """Make a new version of a budget; see `ports.Registry`."""
        with transaction(self._engine) as connection:
            before = _known(connection, name, lock=True)
            check_version(name, before.slo.version, version)
            budget = next_budget(before.slo, slo, said.actor, said.reason, said.at)
            after = replace(before, slo=budget)
            _write(connection, before, after)
            add_lines(connection, registration_lines(before, after, said))
            return budget

    def retire(self, name: str, mark: str | None, said: Said) -> Registration:
        """Let no study of a target start any more; see `ports.Registry`."""
        running = select(studies.c.id).where(studies.c.target == name, studies.c.phase != Phase.ENDED.value)
        with transaction(self._engine) as connection:
            before = _known(connection, name, lock=True)
            after = retired_registration(before, mark, said, connection.scalar(running))
            _write(connection, before, after)
            add_lines(connection, retire_lines(before, after, said))
            return after


def retired_since(connection: Connection, name: str) -> datetime | None:
    """Return since when a target is retired; its row then stays as it is until the transaction ends."""
    query = select(targets.c.retired_at).where(targets.c.name == name).with_for_update(read=True)
    since: datetime | None = connection.scalar(query)
    return since


REGISTERED = (
    *(column for column in targets.c if column.name not in ("record", "defaults")),
    cast(targets.c.record, Text).label("record"),
    cast(targets.c.defaults, Text).label("defaults"),
)
"""What is read of a target: its records as text, by which `_read` knows them."""

_newest = (
    select(slo_budgets)
    .where(slo_budgets.c.target == targets.c.name)
    .order_by(slo_budgets.c.version.desc())
    .limit(1)
    .lateral("in_force")
)
IN_FORCE = "slo_"
"""How the columns of the budget in force are told from the target's."""

WHOLE = select(*REGISTERED, *(each.label(IN_FORCE + each.name) for each in _newest.c)).select_from(
    targets.join(_newest, true())
)
"""Targets with their budgets in force, in one statement."""

FOUND = WHOLE.where(targets.c.name == bindparam("name"))
LOCKED = select(*REGISTERED).where(targets.c.name == bindparam("name")).with_for_update(key_share=True)
NEWEST_BUDGET = (
    select(slo_budgets)
    .where(slo_budgets.c.target == bindparam("target"))
    .order_by(slo_budgets.c.version.desc())
    .limit(1)
)

MOST_READ = 1_000
"""Texts of targets whose meaning is remembered."""


def registration_of(row: Row[Any], slo: SloBudget) -> Registration:
    """Return a row of `REGISTERED` and the budget in force as one value."""
    target, defaults, mark = _read(row.record, row.defaults, row.retired_at)
    return Registration(
        target=target,
        slo=slo,
        defaults=defaults,
        mark=mark,
        created_at=row.created_at,
        changed_at=row.changed_at,
        changed_by=row.changed_by,
        retired_at=row.retired_at,
    )


@lru_cache(MOST_READ)
def _read(
    record: str, defaults: str | None, retired_at: datetime | None
) -> tuple[Target, StudyDefaults, str]:
    """What a target's records say, with its mark. The same texts mean the same for good: this is never out of date."""
    target: Target = from_record(Target, json.loads(record))
    known = None if defaults is None else json.loads(defaults)
    made = StudyDefaults() if known is None else from_record(StudyDefaults, known)
    return target, made, mark_of(target, made, retired_at)


BUDGET = (
    "p99_ceiling_seconds",
    "error_ratio_ceiling",
    "max_canary_share",
    "harm_budget_requests",
    "version",
    "actor",
    "reason",
    "created_at",
)


def budget_of(row: Row[Any], prefix: str = "") -> SloBudget:
    """Return a row of `slo_budgets` as a value. prefix: how its columns' names begin."""
    return SloBudget(**{name: getattr(row, prefix + name) for name in BUDGET})


def _known(connection: Connection, name: str, *, lock: bool = False) -> Registration:
    found = _found(connection, name, lock=lock)
    if found is None:
        raise NotFound("target", name)
    return found


def _found(connection: Connection, name: str, *, lock: bool = False) -> Registration | None:
    row = connection.execute(LOCKED if lock else FOUND, {"name": name}).one_or_none()
    if row is None:
        return None
    if not lock:
        return registration_of(row, budget_of(row, IN_FORCE))
    # Only once the target is locked: while that was waited for, there may have come another one.
    return registration_of(row, budget_of(connection.execute(NEWEST_BUDGET, {"target": name}).one()))


def _insert(connection: Connection, made: Registration) -> bool:
    """Insert the row of a new target; False when somebody else just did."""
    row = {**_row(made), "created_at": made.created_at}
    inserted = insert(targets).values(row).on_conflict_do_nothing().returning(targets.c.name)
    return connection.scalar(inserted) is not None


def _write(connection: Connection, before: Registration | None, after: Registration) -> None:
    if before is not None and before.mark != after.mark:
        here = targets.c.name == after.target.name
        connection.execute(update(targets).where(here).values(_row(after)))
    if before is None or after.slo is not before.slo:
        old = None if before is None else before.slo
        connection.execute(slo_budgets.insert().values(_budget_row(after.target.name, old, after.slo)))


def _row(kept: Registration) -> dict[str, Any]:
    return {
        "name": kept.target.name,
        "model": kept.target.model,
        "objective": kept.target.objective.value,
        "record": to_record(kept.target),
        "defaults": to_record(kept.defaults),
        "changed_at": kept.changed_at,
        "changed_by": plain(kept.changed_by),
        "retired_at": kept.retired_at,
    }


def _budget_row(target: str, before: SloBudget | None, budget: SloBudget) -> dict[str, Any]:
    loosened = before.loosened_fields(budget) if before is not None else ()
    return {
        "target": target,
        "version": budget.version,
        "p99_ceiling_seconds": budget.p99_ceiling_seconds,
        "error_ratio_ceiling": budget.error_ratio_ceiling,
        "max_canary_share": budget.max_canary_share,
        "harm_budget_requests": budget.harm_budget_requests,
        "loosened": bool(loosened),
        "loosened_fields": list(loosened),
        "actor": budget.actor,
        "reason": budget.reason,
        "created_at": budget.created_at,
    }
