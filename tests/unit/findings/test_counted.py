"""Where a metrics server counts for the gateway, its histogram is the one that is looked at."""

from __future__ import annotations

import math

import pytest

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.scrape.observer import Counted
from autotuner.bootstrap import target_observer
from autotuner.diagnosing import deployment_of
from autotuner.domain.measurement import GatewayCounters, Sample
from autotuner.domain.workload import RouteKind, RouteReference, Workload, WorkloadKind
from autotuner.errors import Refused
from tests.builders import START, a_target, changed


class Counts:
    """A metrics source that counts for some backends."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def sample(self) -> Sample:
        """Five requests for each."""
        counters = GatewayCounters(5, 5, 0, 0, (4, 5), 0.1)
        return Sample(START, (0.1, math.inf), dict.fromkeys(self._names, counters), {}, {"b": "no series"})


def test_the_backends_of_the_stable_replicas_are_taken() -> None:
    edges, counters = Counted(Counts("a", "b", "canary"), ("a", "b")).counters()

    assert edges == (0.1, math.inf)
    assert set(counters) == {"a", "b"}
    assert Counted(Counts("a", "b"), ("a", "b")).unread() == ()


def test_a_backend_that_is_not_counted_leaves_no_histogram_and_is_told() -> None:
    counted = Counted(Counts("a"), ("a", "b"))

    assert counted.counters() == ((), {})
    assert counted.unread()[0].why == "no series"


def test_a_target_is_looked_at_through_its_own_gateway() -> None:
    target = a_target()
    deployment = deployment_of(target)

    assert deployment.gateway_url == target.gateway.admin_url
    assert deployment.clusters == target.stable_names
    assert [place.name for place in deployment.servers] == list(target.stable_names)


def test_pods_that_have_no_address_are_refused() -> None:
    target = changed(
        a_target(),
        workload=Workload("a", WorkloadKind.DEPLOYMENT, "b", "c", RouteReference(RouteKind.HTTP_ROUTE, "d")),
    )

    with pytest.raises(Refused, match="--triton"):
        target_observer(target, ManualClock(START))
