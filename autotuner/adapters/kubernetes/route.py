"""Weights at whatever divides the traffic: set, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.ways import way_of
from autotuner.adapters.kubernetes.whereabouts import workload_of
from autotuner.domain.manifests import Manifest
from autotuner.domain.target import Target
from autotuner.domain.workload import CANARY, STABLE
from autotuner.errors import Refused


class KubernetesRoute:
    """`Route` of one target, over any kind of route. Safe to use from several threads at once."""

    def __init__(self, cluster: Cluster, target: Target) -> None:
        self._cluster = cluster
        self._workload = workload_of(target)
        self._total = target.gateway.total_weight
        self._way = way_of(cluster, target, self._workload)

    def read(self) -> Manifest:
        """Return the route as it is. Raises NotFound, Refused, Unavailable."""
        route = self._workload.route
        return self._cluster.get(route.kind, self._workload.namespace, route.name)

    def weights(self) -> Mapping[str, int]:
        """Return the weight of each backend as the route has it now. Raises Unavailable, Refused."""
        return self._way.weights()

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set all weights at once and read them back; idempotent. Raises Unavailable, Refused."""
        if set(weights) != {STABLE, CANARY}:
            raise Refused(f"the route's weights need one for {STABLE} and one for {CANARY}: {_list(weights)}")
        if min(weights.values()) < 0 or sum(weights.values()) != self._total:
            raise Refused(f"the route's weights must add up to {self._total}: {_list(weights)}")
        self._way.weigh(weights)
        held = self.weights()
        if held != weights:
            raise Refused(
                f"the route took other weights than it was given: {_list(held)} for {_list(weights)}"
            )

    def before(self) -> str:
        """Return what the route is like without a canary, as `dismiss` wants it. Raises Refused, Unavailable."""
        return self._way.before()

    def admit(self, before: str, stable: Manifest, until: datetime) -> None:
        """Give the canary a place without traffic; idempotent. before: so that it is certain to be remembered."""
        if not before:
            raise Refused("the route is not changed before it is remembered what it was")
        self._way.admit(stable, until)

    def dismiss(self, before: str) -> None:
        """Put back what was before; idempotent. Raises Unavailable while that is not finished, Refused."""
        self._way.dismiss(before)


def _list(weights: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {weight}" for name, weight in weights.items())
