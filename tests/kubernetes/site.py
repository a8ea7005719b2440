"""A namespace on the real control plane for studies whose measurements are simulated, under the chart's own account."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.cluster import team
from tests.cluster.loop import NODES, Site
from tests.kubernetes.account import Account, installed
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import removed, until

AT_REST_WITHIN_SECONDS = 30.0


@dataclass
class RealSite:
    """One namespace with nodes whose pods only seem to run."""

    control_plane: ControlPlane
    directory: Path
    nodes: dict[str, int] = field(default_factory=lambda: dict(NODES))
    kubelet: Kubelet = field(init=False)
    account: Account = field(init=False)

    @property
    def api(self) -> Api:
        """The administrator's."""
        return self.control_plane.api

    @contextmanager
    def standing(self) -> Iterator[RealSite]:
        """The namespace while it lives."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": team.NAMESPACE}})
        try:
            self.api.wait_for(f"{team.CORE}/serviceaccounts/default", timedelta(seconds=30))
            self.account = installed(self.control_plane, self.directory)
            with Kubelet(self.api, None, self.directory / "pods", self.nodes) as self.kubelet:
                yield self
        finally:
            removed(self.api, self.nodes)

    def site(self) -> Site:
        """Where a study can take place; what an earlier one left of the team's is made anew."""
        self._clear()
        return Site(self.api, self.account.cluster, self.rest)

    def _clear(self) -> None:
        self.kubelet.unpullable = ()
        for path in (f"{team.APPS}/deployments", f"{team.CORE}/services", team.ROUTES):
            self.api.delete(f"{path}/{team.NAME}")
        self.api.delete(f"{team.CORE}/configmaps/{team.CONFIG}")
        for name in self.nodes:
            self.api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None, "taints": None}})
        until(lambda: self.api.items(f"{team.CORE}/pods") == [], "no pods are left", 30)

    def rest(self) -> None:
        """Return when controllers, scheduler and nodes have nothing to do; at once while the API server is away."""
        give_up = time.monotonic() + AT_REST_WITHIN_SECONDS
        while not self._at_rest():
            assert time.monotonic() < give_up, "the cluster does not come to rest"
            time.sleep(0.05)

    def _at_rest(self) -> bool:
        try:
            deployments = self.api.items(f"{team.APPS}/deployments")
            pods = self.api.items(f"{team.CORE}/pods")
        except (ApiError, OSError):
            return True
        seen = all(
            each.get("status", {}).get("observedGeneration") == each["metadata"]["generation"]
            for each in deployments
        )
        wanted = sum(each["spec"]["replicas"] for each in deployments)
        return seen and len(pods) == wanted and all(map(_told, pods))


def _told(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready, or says what it waits for."""
    status = pod.get("status", {})
    unscheduled = any(
        each["type"] == "PodScheduled" and each["status"] == "False" for each in status.get("conditions", [])
    )
    waiting = any("waiting" in each["state"] for each in status.get("containerStatuses", []))
    return team.is_ready(pod) or unscheduled or waiting
