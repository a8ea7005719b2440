"""The faults of the page on Kubernetes on a real control plane, under the chart's account; measurements are simulated.

That they end restored whenever they strike is tested in memory, in `tests/closed_loop/test_cluster_faults.py`; here it
is seen that real controllers, a real scheduler and a real API server come to the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.domain.study import Outcome, TrialKind, Wish
from autotuner.operations import ask
from tests.closed_loop.endings import at
from tests.cluster import team
from tests.cluster.loop import ClusterLoop, a_cluster_loop, check_ending
from tests.cluster.trouble import FAULTS, LASTS
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.site import RealSite

HERE = (
    "canary's pod evicted",
    "node of a stable pod drained",
    "an autoscaler adds a pod",
    "route sent elsewhere",
    "weights of the route changed",
    "canary deleted",
    "canary's Service deleted",
    "another image rolled out",
    "workload deleted",
    "autotuner uninstalled",
)

OR_ELSE = {
    "canary's pod evicted": "the counters of canary went backwards: it restarted",
    "node of a stable pod drained": "not scheduled",
    "namespace deleted": "Deployment prod/vision is gone",
}
"""What is said instead where real controllers replaced a pod before a look, gave its GPU to the other one, or took the
workload out of a namespace before the permissions."""


@pytest.fixture(scope="module")
def real(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSite]:
    with RealSite(control_plane, tmp_path_factory.mktemp("site")).standing() as standing:
        yield standing


def told(loop: ClusterLoop, says: tuple[str, ...]) -> bool:
    """Say whether one of these sentences was said."""
    return any(words in said for said in [*loop.said, loop.study.reason] for words in says)


def carried(loop: ClusterLoop, says: tuple[str, ...]) -> None:
    """Go on until the fault has been told and, where the study survives it, is over; then end the study."""
    for _ in range(300):
        if loop.tick().ended:
            return
        if told(loop, says) and not loop.later and at(TrialKind.BASELINE)(loop.study):
            ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "tester", "seen enough")
    raise AssertionError(loop.said[-5:])


@pytest.mark.parametrize("name", HERE)
def test_a_fault_is_told_in_a_sentence_and_ends_restored(real: RealSite, name: str) -> None:
    fault = FAULTS[name]
    loop = a_cluster_loop(site=real.site())
    loop.run(until=at(TrialKind.BASELINE, level=0))
    loop.said.clear()
    fault.strike(loop)
    says = (fault.says, *OR_ELSE.get(name, "").splitlines())
    carried(loop, says)
    check_ending(loop, fault.theirs)
    assert told(loop, says), loop.said


@pytest.mark.parametrize(
    ("name", "room"), [("no GPU free", {"spec": {"unschedulable": True}}), ("image cannot be pulled", None)]
)
def test_a_canary_that_cannot_rise_says_why_and_is_taken_away(
    real: RealSite, name: str, room: dict[str, object] | None
) -> None:
    loop = a_cluster_loop(site=real.site())
    if room is None:
        real.kubelet.unpullable = (team.CANARY,)
    else:
        for node in real.nodes:
            real.api.merge(f"/api/v1/nodes/{node}", room)
    loop.run(most_ticks=100)
    study = check_ending(loop)
    assert study.outcome is Outcome.ABORTED
    assert FAULTS[name].says in study.reason


def test_an_api_server_that_is_away_for_a_minute_voids_windows_and_changes_nothing(
    real: RealSite, control_plane: ControlPlane
) -> None:
    loop = a_cluster_loop(site=real.site())
    loop.run(until=at(TrialKind.BASELINE, level=0))
    control_plane.parts["kube-apiserver"].stop()
    gone = loop.clock.now()
    try:
        while loop.clock.now() - gone < LASTS:
            assert not loop.tick().ended
    finally:
        control_plane.start_api_server()
    assert any("no answer from the API server" in said for said in loop.said)
    loop.run(until=lambda study: any(t.kind is TrialKind.BASELINE and t.accepted for t in study.trials))
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "tester", "seen enough")
    loop.run()
    check_ending(loop)


def test_a_whole_study_promotes_under_the_charts_account_alone(real: RealSite) -> None:
    loop = a_cluster_loop(site=real.site())
    study = loop.run()
    assert study.outcome is Outcome.PROMOTED, study.reason
    check_ending(loop)


def test_a_namespace_that_is_deleted_ends_the_study_with_the_reason(
    control_plane: ControlPlane, real: RealSite
) -> None:
    """The last one of this module: the namespace does not come back."""
    fault = FAULTS["namespace deleted"]
    loop = a_cluster_loop(site=real.site())
    loop.run(until=at(TrialKind.BASELINE, level=0))
    fault.strike(loop)
    loop.run(most_ticks=600)
    study = check_ending(
        loop, (*fault.theirs, "ConfigMap/kube-root-ca.crt")
    )  # the cluster's own, in every namespace
    assert study.outcome is Outcome.ABORTED
    assert told(loop, (fault.says, OR_ELSE["namespace deleted"])), study.reason
    assert control_plane.api.find(f"{team.APPS}/deployments/{team.CANARY}") is None
