"""What a store is given before a test asks something of it: a target, a study, a lease."""

from __future__ import annotations

from typing import Any

from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Study
from autotuner.ports import AuditRecord, Grant
from tests.builders import START, a_budget, a_plan, a_study, a_target
from tests.contract.conftest import Backend
from tests.studies import TTL

LOOSER = {
    "p99_ceiling_seconds": 0.2,
    "error_ratio_ceiling": 0.002,
    "max_canary_share": 0.9,
    "harm_budget_requests": 300,
}
"""What each field of a budget is when it promises users less than `a_budget`."""


def registered(backend: Backend, name: str = "vision") -> SloBudget:
    """Save the target and return its budget."""
    return backend.store.save_target(a_target(name=name), a_budget(), "operator", "first", START)


def created(backend: Backend, name: str = "vision", **changes: Any) -> Study:
    """Create a study of a new target and return it."""
    study = a_study(plan=a_plan(target=a_target(name=name), slo=registered(backend, name)), **changes)
    backend.store.create_study(study)
    return study


def granted(backend: Backend, name: str = "vision") -> Grant:
    """Return a fresh lease."""
    grant = backend.new_process().acquire(name, "worker-1", TTL)
    assert grant is not None
    return grant


def audited(backend: Backend) -> list[AuditRecord]:
    """Return the whole audit, oldest first."""
    return list(reversed(backend.store.audit(1000)))
