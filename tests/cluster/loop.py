"""One study of a workload on a cluster: the product's own doors to Kubernetes, simulated measurements, manual clock."""

from __future__ import annotations

import copy
import copyreg
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.kubernetes import (
    Cluster,
    KubernetesCanary,
    KubernetesRoute,
    LocatedMetrics,
    LocatedServing,
    Production,
    Whereabouts,
)
from autotuner.adapters.simulated.server import complete_config
from autotuner.controller import Tick
from autotuner.domain.configuration import Configuration, ModelConfig, read_configuration
from autotuner.domain.study import Outcome, Study
from autotuner.domain.target import Target
from autotuner.operations import replay
from autotuner.ports import World
from tests.closed_loop.endings import BETTER
from tests.closed_loop.loop import Loop, QuickStore, ScriptedProposer, a_short_plan
from tests.closed_loop.pooled import a_pooled_target, apart
from tests.cluster import team
from tests.cluster.client import ACCOUNT, SimulatedApi, SimulatedCluster
from tests.cluster.controllers import START, Controllers
from tests.cluster.plant import Plant, PlantMetrics, PlantServing
from tests.cluster.server import Place, SimulatedApiServer
from tests.kubernetes.api import Api

NODES = {"gpu-0": 2, "gpu-1": 2}
SETTLED = timedelta(seconds=10)
"""After so long the cluster has done what there was to do."""


@dataclass
class Site:
    """Where a study takes place. cluster: the product's client, as a new worker makes one. rest: lets the cluster come
    to rest, where it needs real time for that."""

    api: Api
    cluster: Callable[[], Cluster]
    rest: Callable[[], None] = lambda: None


@dataclass
class ClusterLoop(Loop):
    """A loop whose controller goes through the product's doors to Kubernetes.

    site: a cluster that is there already; a simulated one is made when there is none.
    """

    site: Site | None = None
    nodes: dict[str, int] = field(default_factory=lambda: dict(NODES))
    later: list[tuple[datetime, Callable[[ClusterLoop], object]]] = field(default_factory=list)
    """What happens on the cluster at a later moment of the clock."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.site is None:
            self.site = self._simulated_site()
        config = complete_config(self.plan.target.model, self.profile.incumbent)
        self.original = f"{json.dumps(config, indent=1)}\n"
        team.found(self.site.api, Path("/models"), self.original)
        self.site.rest()
        self.plant = Plant(self.target, self.site.api, self.plan.target.stable_names)
        self.before = team.snapshot(self.site.api)

    def _simulated_site(self) -> Site:
        self.server = SimulatedApiServer(self.clock)
        self.controllers = Controllers(self.server, self.nodes)
        self.server.make(Place("", "namespaces", "", team.NAMESPACE), {"kind": "Namespace"})
        self.server.roles[ACCOUNT, team.NAMESPACE] = EVERYTHING
        return Site(SimulatedApi(self.server), self._new_cluster, self._first_start)

    def _new_cluster(self) -> Cluster:
        return SimulatedCluster(server=self.server)

    def _first_start(self) -> None:
        if not hasattr(self, "plant"):
            self.clock.advance(2 * START)

    @property
    def api(self) -> Api:
        """The API server, as its administrator asks it."""
        assert self.site is not None
        return self.site.api

    def simulated_target(self) -> Target:
        """Each server by itself."""
        return apart(self.plan.target)

    def site_cluster(self) -> Cluster:
        """The product's client, new."""
        assert self.site is not None
        return self.site.cluster()

    def world(self) -> World:
        """The doors as a new worker opens them."""
        return doors(self.site_cluster(), self.plan.target, self.clock, self.plant)

    def tick(self) -> Tick:
        """One step, with pods and traffic as the cluster has them before and after it."""
        assert self.site is not None
        self.pass_on()
        self.site.rest()
        self.plant.sync()
        try:
            return super().tick()
        finally:
            self.plant.sync()

    def pass_on(self) -> None:
        """Let happen what is due."""
        due = [happens for at, happens in self.later if at <= self.clock.now()]
        self.later = [each for each in self.later if each[0] > self.clock.now()]
        for happens in due:
            happens(self)

    def served(self) -> list[Configuration]:
        """What the stable pods serve, one for each that is ready."""
        found = [
            self.target.serving.model_config(name) for name in self.plant.stable if name in self.plant.hosts
        ]
        return list(map(read_configuration, found))

    def changed(self) -> set[str]:
        """What is another one than before the study, or was not there, or is gone."""
        after = team.snapshot(self.api)
        names = self.before.keys() | after.keys()
        return {name for name in names if self.before.get(name) != after.get(name)}

    def production_starts_with(self) -> Configuration:
        """What the ConfigMap means."""
        text = self.api.get(f"{team.CORE}/configmaps/{team.CONFIG}")["data"]["config.pbtxt"]
        return read_configuration(json.loads(text))


EVERYTHING: list[dict[str, Any]] = [
    {
        "apiGroups": ["", "apps", "autoscaling", "policy", "gateway.networking.k8s.io", "networking.k8s.io"],
        "resources": [
            "pods",
            "events",
            "services",
            "configmaps",
            "deployments",
            "horizontalpodautoscalers",
            "poddisruptionbudgets",
            "httproutes",
            "ingresses",
        ],
        "verbs": ["get", "list", "create", "patch", "delete"],
    }
]


def doors(cluster: Cluster, target: Target, clock: ManualClock, plant: Plant) -> World:
    """The doors of a target on a cluster, as `bootstrap` makes them, but for what is measured."""
    whereabouts = Whereabouts(cluster, target, clock)
    route = KubernetesRoute(cluster, target)
    production = Production(cluster, target, clock, _text)
    return World(
        LocatedServing(whereabouts, production, lambda located: PlantServing(plant, located)),
        route,
        LocatedMetrics(whereabouts, lambda located: PlantMetrics(plant, located), clock),
        KubernetesCanary(cluster, target, route, clock),
        whereabouts,
        at_hand=True,
    )


def _text(config: ModelConfig) -> str:
    return json.dumps(config)


def a_cluster_loop(*proposed: Configuration, site: Site | None = None, **changes: Any) -> ClusterLoop:
    """A short study on a cluster that tries `proposed`, `BETTER` if none is named."""
    tried = proposed or (BETTER,)
    nodes = changes.pop("nodes", dict(NODES))
    store = changes.pop("store", None) or QuickStore()
    plan = a_short_plan(max_trials=len(tried), target=a_pooled_target(), **changes)
    return ClusterLoop(plan, proposer=ScriptedProposer(*tried), store=store, site=site, nodes=nodes)


def check_ending(loop: ClusterLoop, apart_from: tuple[str, ...] = (), *, replayed: bool = True) -> Study:
    """Assert what must hold at every end on a cluster, and return the study.

    apart_from: objects that somebody else changed or removed. replayed: whether it is decided again from its records.
    """
    assert loop.site is not None
    loop.clock.advance(SETTLED)
    loop.pass_on()
    loop.site.rest()
    loop.plant.sync()
    study = loop.study
    assert study.pending is None
    assert len(study.reason) > 10
    there = loop.api.find(f"/api/v1/namespaces/{team.NAMESPACE}") is not None
    assert study.canary_since is None or not there
    promoted = study.outcome is Outcome.PROMOTED
    allowed = {*apart_from, *({f"ConfigMap/{team.CONFIG}"} if promoted else ())}
    assert loop.changed() <= allowed, (loop.changed(), study.reason)
    assert team.CANARY not in json.dumps(team.snapshot(loop.api))
    assert study.harm_requests <= study.plan.slo.harm_budget_requests
    if study.incumbent is not None and f"Deployment/{team.NAME}" not in apart_from:
        wanted = study.incumbent.configuration
        if promoted:
            assert study.winner is not None
            wanted = study.trials[study.winner].configuration
        assert loop.served() == [wanted, wanted], study.reason
        if f"ConfigMap/{team.CONFIG}" not in apart_from:
            assert loop.production_starts_with() == wanted
    if replayed:
        assert replay(loop.store, loop.study_id, loop.proposers).differences == ()
    return study


def renewed(loop: ClusterLoop) -> None:
    """Another worker goes on: it knows nothing but what is recorded."""
    loop.controller = loop.new_controller()


def forked(loop: ClusterLoop) -> ClusterLoop:
    """Return the same world once more, with a new worker, so that several things can be tried from one moment on."""
    made = copy.deepcopy(loop, {id(loop.controller): None})
    renewed(made)
    return made


copyreg.pickle(type(threading.RLock()), lambda lock: (threading.RLock, ()))
