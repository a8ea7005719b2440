"""The chart's account may do what is needed and no more; without one permission one thing is named, and not begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from autotuner.adapters.clock import ManualClock, SystemClock
from autotuner.adapters.kubernetes import (
    Cluster,
    KubernetesCanary,
    KubernetesRoute,
    Production,
    Whereabouts,
    reap,
    survey,
)
from autotuner.adapters.kubernetes.kinds import kind_of
from autotuner.domain.needs import Answer
from autotuner.domain.permissions import NEEDS_OF_PREFLIGHT, NEEDS_OF_REAPER, Need, needs_of
from autotuner.domain.target import Target
from autotuner.domain.workload import CANARY, STABLE, RouteKind, RouteReference, Workload, WorkloadKind
from autotuner.errors import AutotunerError, Refused
from autotuner.target_file import parse_target_file
from tests.closed_loop.pooled import a_workload
from tests.cluster.team import NAME, NAMESPACE
from tests.kubernetes.account import EVERY_ROUTE, Account, installed, of_kind, singles
from tests.kubernetes.chart import rendered
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.test_routes import GROUPS, OTHERS, PLURALS
from tests.kubernetes.town import Town, until


def workloads(*kinds: RouteKind) -> list[Workload]:
    """Workloads of every kind behind routes of these."""
    routes = [RouteReference(kind, NAME) for kind in kinds]
    return [a_workload(kind=kind, route=route) for kind in WorkloadKind for route in routes]


def places() -> dict[Need, Workload]:
    """Every need that there is, with the first workload that has it."""
    found: dict[Need, Workload] = {}
    for workload in workloads(*RouteKind):
        for need in needs_of(workload):
            found.setdefault(need, workload)
    unique: dict[tuple[str, str], Need] = {}
    for need in found:
        unique.setdefault((need.verb, need.kind), need)
    return {need: found[need] for need in unique.values()}


PLACES = places()


@pytest.mark.parametrize("kind", RouteKind)
def test_the_role_has_every_permission_that_is_needed_and_no_other(kind: RouteKind) -> None:
    role = of_kind(rendered(f"--set=targets.routes={{{kind}}}"), "Role")[0]
    needs = {need for workload in workloads(kind) if _may_be(workload) for need in needs_of(workload)}
    needed = {(kind_of(need.kind).group, kind_of(need.kind).plural, need.verb) for need in needs}
    given = singles(role["rules"])
    assert set(given) == needed
    assert len(given) == len(set(given))


def _may_be(workload: Workload) -> bool:
    """Whether there is such a workload: an InferenceService stands behind no other route than itself."""
    own = workload.route.kind is RouteKind.INFERENCE_SERVICE
    return own or workload.kind is not WorkloadKind.INFERENCE_SERVICE


@dataclass
class Unwarned(Cluster):
    """A client whose reviews are always answered with yes: what is missing shows when it is used."""

    def lacks(self, verb: str, kind: str, namespace: str) -> str:
        """Nothing."""
        return ""


@dataclass
class Rig:
    """The account in a town with a route of each kind."""

    town: Town
    account: Account
    target: Target

    def of(self, workload: Workload) -> Target:
        """The town's target behind another route, or of another kind."""
        mine = self.target.workload
        assert mine is not None
        return replace(self.target, workload=replace(mine, kind=workload.kind, route=workload.route))


@pytest.fixture(scope="module")
def rig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("account")
    with Town(control_plane.api, folder).standing() as town:
        for kind, manifest in OTHERS.items():
            town.api.create(f"/{GROUPS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}", manifest)
        account = installed(control_plane, folder, EVERY_ROUTE)
        yield Rig(town, account, parse_target_file(town.target()).target())


def things(cluster: Cluster, target: Target) -> dict[str, Callable[[], object]]:
    """Everything the product does on a cluster, by name, in an order in which each can be done."""
    clock = SystemClock()
    route = KubernetesRoute(cluster, target)
    canary = KubernetesCanary(cluster, target, route, clock)
    production = Production(cluster, target, clock, str)
    later = ManualClock(clock.now() + timedelta(days=3))
    served, winner = {"name": "quick"}, {"name": "quick", "max_batch_size": 4}
    return {
        "preflight": lambda: survey(cluster, target),
        # Before the canary: events are read only while its pod is not ready, and one that is up is ready soon.
        "look for pods": lambda: Whereabouts(cluster, target, clock).now(),
        "put up the canary": canary.put_up,
        "look for a rollout": canary.objection,
        "set weights": lambda: divide(cluster, target, route),
        "keep the configuration": lambda: production.keep(served),
        "promote": lambda: production.write(winner),
        "give the configuration back": lambda: production.write(served),
        "take the canary down": canary.take_down,
        "reap": lambda: reap(cluster, later, NAMESPACE, lambda name: canary),
    }


def divide(cluster: Cluster, target: Target, route: KubernetesRoute) -> None:
    """Give the canary half of the requests, or what a Service can give once its pod is ready."""
    assert target.workload is not None
    if target.workload.route.kind.has_weights:
        route.set_weights({STABLE: 500, CANARY: 500})
        return
    pods = Whereabouts(cluster, target, SystemClock())
    until(lambda: CANARY not in pods.now().faults, "the canary's pod is ready", 30)
    route.set_weights({STABLE: 667, CANARY: 333})


def refused(cluster: Cluster, target: Target) -> tuple[str, str] | None:
    """Do everything in order up to the first thing that is refused; return its name and the sentence."""
    for name, thing in things(cluster, target).items():
        try:
            thing()
        except AutotunerError as error:
            return name, str(error)
    return None


@pytest.mark.parametrize("kind", RouteKind)
def test_the_account_of_the_chart_can_do_everything(rig: Rig, kind: RouteKind) -> None:
    before = rig.town.snapshot()
    target = rig.of(a_workload(route=RouteReference(kind, NAME)))
    assert refused(rig.account.cluster(), target) is None
    assert rig.town.snapshot() == before


@pytest.mark.parametrize("need", PLACES, ids=lambda need: f"{need.verb} {need.kind}")
def test_without_one_permission_one_thing_fails_and_names_it(rig: Rig, need: Need) -> None:
    target, before = rig.of(PLACES[need]), rig.town.snapshot()
    words = f"not permitted: {need.verb} on {kind_of(need.kind).resource} in namespace {NAMESPACE}"
    rig.account.without(need)
    try:
        cluster = rig.account.cluster()
        found = survey(cluster, target)
        assert [(each.what, each.answer) for each in found] == [("permission", Answer.NO)]
        assert found[0].detail == f"{words}, needed to {need.purpose}"
        _nothing_begins(cluster, target, need, words)
        assert rig.town.snapshot() == before
        used = refused(Unwarned(str(rig.account.kubeconfig)), target)
        assert used is not None, "nothing needs it"
        assert words in used[1]
    finally:
        rig.account.with_all(need)
        whole = things(Cluster(str(rig.account.kubeconfig)), rig.of(a_workload(route=target_route(target))))
        for name in ("give the configuration back", "take the canary down"):
            whole[name]()
    assert rig.town.snapshot() == before


def target_route(target: Target) -> RouteReference:
    """The route of a target on Kubernetes."""
    assert target.workload is not None
    return target.workload.route


def _nothing_begins(cluster: Cluster, target: Target, need: Need, words: str) -> None:
    """A study is refused before anything is made, or the reaper before anything is removed."""
    if need in NEEDS_OF_PREFLIGHT:
        return
    thing = "reap" if need in NEEDS_OF_REAPER else "put up the canary"
    with pytest.raises(Refused) as refusal:
        things(cluster, target)[thing]()
    assert str(refusal.value).count("not permitted") == 1
    assert f"{words}, needed to {need.purpose}" in str(refusal.value)
