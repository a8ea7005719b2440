"""Without any one permission one thing is named, and nothing begins. The chart's role: see `tests/kubernetes`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.kubernetes import reap, survey
from autotuner.adapters.kubernetes.kinds import kind_of
from autotuner.domain.needs import Answer
from autotuner.domain.permissions import NEEDS_OF_REAPER, Need, needs_of, needs_of_study
from autotuner.domain.study import Outcome
from autotuner.errors import Refused
from tests.closed_loop.pooled import a_workload
from tests.cluster import team
from tests.cluster.client import ACCOUNT
from tests.cluster.loop import ClusterLoop, a_cluster_loop, check_ending

NEEDS = needs_of(a_workload())


def rules(*needs: Need) -> list[dict[str, Any]]:
    """A role that permits these."""
    kinds = [(kind_of(need.kind), need.verb) for need in needs]
    return [{"apiGroups": [k.group], "resources": [k.plural], "verbs": [verb]} for k, verb in kinds]


def a_loop_of_an_account_without(need: Need | None) -> ClusterLoop:
    loop = a_cluster_loop()
    loop.server.roles[ACCOUNT, team.NAMESPACE] = rules(*(each for each in NEEDS if each != need))
    return loop


def words(need: Need) -> str:
    return f"not permitted: {need.verb} on {kind_of(need.kind).resource} in namespace {team.NAMESPACE}"


def test_what_is_needed_is_enough_for_a_study_that_promotes_and_for_the_reaper() -> None:
    loop = a_loop_of_an_account_without(None)
    assert [each for each in survey(loop.site_cluster(), loop.plan.target) if each.answer is Answer.NO] == []
    assert loop.run().outcome is Outcome.PROMOTED
    check_ending(loop)
    later = ManualClock(loop.clock.now() + timedelta(days=3))
    assert reap(loop.site_cluster(), later, team.NAMESPACE, lambda name: loop.world().canary) == ()


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: f"{need.verb} {need.kind}")
def test_without_one_permission_the_preflight_has_one_line_for_it(need: Need) -> None:
    loop = a_loop_of_an_account_without(need)
    found = survey(loop.site_cluster(), loop.plan.target)
    assert [(each.what, each.answer) for each in found] == [("permission", Answer.NO)]
    assert found[0].detail == f"{words(need)}, needed to {need.purpose}"


@pytest.mark.parametrize("need", needs_of_study(a_workload()), ids=lambda need: f"{need.verb} {need.kind}")
def test_a_study_that_lacks_one_permission_names_it_and_makes_nothing(need: Need) -> None:
    loop = a_loop_of_an_account_without(need)
    study = loop.run()
    assert study.outcome is Outcome.ABORTED
    assert f"there is no canary: {words(need)}, needed to {need.purpose}" in study.reason
    assert study.reason.count("not permitted") == 1
    assert loop.changed() == set()


@pytest.mark.parametrize("need", NEEDS_OF_REAPER, ids=lambda need: f"{need.verb} {need.kind}")
def test_a_reaper_that_lacks_one_permission_names_it_and_removes_nothing(need: Need) -> None:
    loop = a_loop_of_an_account_without(need)
    canary = loop.world().canary
    assert canary is not None
    canary.put_up()
    made = loop.changed()
    later = ManualClock(loop.clock.now() + timedelta(days=3))
    with pytest.raises(Refused, match=words(need)):
        reap(loop.site_cluster(), later, team.NAMESPACE, lambda name: canary)
    assert loop.changed() == made
