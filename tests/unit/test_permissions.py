"""What an account needs on a cluster: every verb once, with what it is for."""

from __future__ import annotations

import pytest

from autotuner.adapters.kubernetes.kinds import KINDS
from autotuner.domain.permissions import needs_of, needs_of_study
from autotuner.domain.workload import RouteKind, RouteReference, WorkloadKind
from tests.closed_loop.pooled import a_workload


@pytest.mark.parametrize("route", RouteKind)
@pytest.mark.parametrize("kind", WorkloadKind)
def test_every_need_is_named_once_of_a_kind_that_is_known(kind: WorkloadKind, route: RouteKind) -> None:
    needs = needs_of(a_workload(kind=kind, route=RouteReference(route, "vision")))
    named = [(need.verb, need.kind) for need in needs]
    assert len(named) == len(set(named))
    assert {need.kind for need in needs} <= KINDS.keys()
    assert all(need.purpose for need in needs)


def test_what_can_be_made_can_be_removed_again() -> None:
    needs = {(need.verb, need.kind) for need in needs_of_study(a_workload())}
    made = {kind for verb, kind in needs if verb == "create"}
    assert made == {kind for verb, kind in needs if verb == "delete"}
