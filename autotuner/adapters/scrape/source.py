"""One look at everything: Envoy's statistics and each server's metrics and statistics, all at the same moment.

Nothing here raises and nothing unread becomes zero: what cannot be read is left out of the sample, and `faults`
says why in words for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

from autotuner.adapters.scrape.reading import Answer, read_all
from autotuner.adapters.scrape.statistics import read_statistics, statistics_url
from autotuner.domain.measurement import GatewayCounters, Sample, ServerCounters
from autotuner.domain.target import Replica, Target
from autotuner.instruments import envoy, triton
from autotuner.instruments.exposition import Page
from autotuner.instruments.readings import Unreadable
from autotuner.ports import Clock

DEADLINE = timedelta(seconds=2)


class ScrapedMetrics:
    """`MetricsSource` of one target. Holds no connection between two looks, so there is nothing to close."""

    def __init__(self, target: Target, clock: Clock, deadline: timedelta = DEADLINE) -> None:
        self._target = target
        self._clock = clock
        self._deadline = deadline
        backends = target.backends(replica.name for replica in target.replicas)
        self._clusters = {backend: target.gateway.cluster(backend) for backend in backends}
        self._before: Mapping[str, GatewayCounters] = {}
        self.backlogs: dict[str, triton.Backlog] = {}
        """What each server said at the newest sample of requests that it has not answered well."""

    def sample(self) -> Sample:
        """Read everything once. What cannot be read is absent and explained in `Sample.faults`; never raises."""
        answers = read_all(self._urls, self._deadline)
        at = self._clock.now()
        faults: dict[str, str] = {}
        edges, counters = self._gateway(answers[self._gateway_url], faults)
        servers = {
            replica.name: counted
            for replica in self._target.replicas
            if (counted := self._server(replica, answers, faults)) is not None
        }
        return Sample(at=at, edges_seconds=edges, gateway=counters, servers=servers, faults=faults)

    def _gateway(
        self, answer: Answer, faults: dict[str, str]
    ) -> tuple[tuple[float, ...], dict[str, GatewayCounters]]:
        try:
            page = Page(answer.read(), envoy.WANTED)
            edges = envoy.read_edges(page, self._clusters.values())
        except Unreadable as reason:
            for name in ("gateway", *self._clusters):
                _note(faults, name, f"the gateway's statistics ({_place(self._gateway_url)}): {reason}")
            return (), {}
        counters = {}
        for name, cluster in self._clusters.items():
            try:
                read = envoy.read_gateway(page, cluster, edges)
                counters[name] = envoy.steadied(self._before.get(name), read)
            except Unreadable as reason:
                _note(faults, name, f"the gateway's statistics of {name}: {reason}")
        self._before = counters
        return edges, counters

    def _server(
        self, replica: Replica, answers: Mapping[str, Answer], faults: dict[str, str]
    ) -> ServerCounters | None:
        try:
            page = Page(answers[self._metrics_url(replica)].read(), triton.WANTED)
            with suppress(Unreadable):  # told to a person, and no evidence: an odd value of it voids nothing
                self.backlogs[replica.name] = triton.read_backlog(page, self._target.model)
            return triton.read_server(page, self._target.model, self._statistics(replica, answers, faults))
        except Unreadable as reason:
            _note(faults, replica.name, f"the server's metrics ({self._metrics_url(replica)}): {reason}")
            return None

    def _statistics(
        self, replica: Replica, answers: Mapping[str, Answer], faults: dict[str, str]
    ) -> triton.Statistics:
        """The model's statistics; without them the rest of the server's counters is still good."""
        try:
            url = self._statistics_url(replica)
            return read_statistics(answers[url], url)
        except Unreadable as reason:
            _note(faults, replica.name, str(reason))
            return triton.UNTOLD

    @property
    def _urls(self) -> list[str]:
        replicas = self._target.replicas
        servers = [url for r in replicas for url in (self._metrics_url(r), self._statistics_url(r))]
        return [self._gateway_url, *servers]

    @property
    def _gateway_url(self) -> str:
        return self._target.gateway.admin_url.rstrip("/") + envoy.statistics_path(self._clusters.values())

    def _metrics_url(self, replica: Replica) -> str:
        return replica.metrics_url if urlsplit(replica.metrics_url).path else f"{replica.metrics_url}/metrics"

    def _statistics_url(self, replica: Replica) -> str:
        return statistics_url(replica, self._target.model)


def _note(faults: dict[str, str], name: str, sentence: str) -> None:
    faults[name] = f"{faults[name]}; {sentence}" if name in faults else sentence


def _place(url: str) -> str:
    return url.partition("?")[0]
