"""Where a metrics server counts for the gateway, its histogram is the one that is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotuner.adapters.scrape.observer import Counted
from autotuner.diagnosing import deployment_of
from autotuner.domain.measurement import GatewayCounters, Sample
from autotuner.instruments.work import Scraped
from tests.builders import START, a_target


class Counts:
    """A metrics source that counts for some backends."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def looked(self) -> tuple[Sample, Mapping[str, Scraped]]:
        """Five requests for each, and no server's page."""
        counters = GatewayCounters(5, 5, 0, 0, (4, 5), 0.1)
        seen = Sample(START, (0.1, math.inf), dict.fromkeys(self._names, counters), {}, {"b": "no series"})
        return seen, {}


def counted(source: Counts, *backends: str) -> Counted:
    """Who counts for these backends, looked at once."""
    made = Counted(source, backends)
    made.look()
    return made


def test_the_backends_of_the_stable_replicas_are_taken() -> None:
    found = counted(Counts("a", "b", "canary"), "a", "b")
    edges, counters = found.counters()

    assert edges == (0.1, math.inf)
    assert set(counters) == {"a", "b"}
    assert found.unread() == ()


def test_a_backend_that_is_not_counted_leaves_no_histogram_and_is_told() -> None:
    found = counted(Counts("a"), "a", "b")

    assert found.counters() == ((), {})
    assert found.unread()[0].why == "no series"
    assert found.page("b") == "no series"


def test_a_target_is_looked_at_through_its_own_gateway() -> None:
    target = a_target()
    deployment = deployment_of(target)

    assert deployment.gateway_url == target.gateway.admin_url
    assert deployment.clusters == target.stable_names
    assert [place.name for place in deployment.servers] == list(target.stable_names)
