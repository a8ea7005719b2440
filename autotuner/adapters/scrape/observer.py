"""Looks at one model on a deployment, again and again, and only ever reads.

What a diagnosis cannot do without (a server that answers, the model's counts from one source or the other) raises;
everything else that cannot be read is told with what is lost by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import quote

from autotuner.adapters.scrape.reading import PLAIN, Access, Answer, read_all
from autotuner.domain.configuration import misshapen_field
from autotuner.domain.findings.reading import Facts, Look, ReplicaLook, RouteSeen, Unread, Work
from autotuner.domain.measurement import GatewayCounters, Sample
from autotuner.errors import AutotunerError, InvalidInput, NotFound, Refused, Unavailable
from autotuner.instruments import envoy
from autotuner.instruments import work as counted_work
from autotuner.instruments.exposition import Page
from autotuner.instruments.readings import Readings, Unreadable
from autotuner.instruments.work import Scraped
from autotuner.ports import Clock, ServerApi

DEADLINE = timedelta(seconds=5)
METRICS_EVERY = 4
"""Of so many looks one reads the metrics pages too: they are larger, and only gauges need several of them."""

ALL_CLUSTERS = f"/stats/prometheus?filter={quote('^cluster[.].*[.]upstream_(rq|cx_(destroy|none|protocol))')}"
ROUTES = "/config_dump"


@dataclass(frozen=True)
class Watched:
    """One server. metrics_url: of its metrics page."""

    name: str
    api: ServerApi
    metrics_url: str


@dataclass(frozen=True)
class Gateway:
    """The Envoy in front: its admin address, and the clusters that lead to the servers; none: all with traffic."""

    admin_url: str
    clusters: tuple[str, ...] = ()


class MetricsServer(Protocol):
    """Whoever has scraped gateway and servers already."""

    def looked(self) -> tuple[Sample, Mapping[str, Scraped]]:
        """Return the gateway's newest counters and each server's page of that moment; never raises."""


@dataclass
class Counted:
    """A metrics server that counts for the gateway and in place of the servers' own pages.

    backends: what it calls the servers at the gateway; none where nobody told.
    """

    source: MetricsServer
    backends: tuple[str, ...]
    _sample: Sample | None = None
    _scraped: Mapping[str, Scraped] = field(default_factory=dict)

    def look(self) -> None:
        """Ask it once; what follows tells of this moment."""
        self._sample, self._scraped = self.source.looked()

    def counters(self) -> tuple[tuple[float, ...], dict[str, GatewayCounters]]:
        """Return the counters of the backends; none where one of them is not there."""
        assert self._sample is not None, "it was looked at before"
        sample = self._sample
        found = {name: sample.gateway[name] for name in self.backends if name in sample.gateway}
        return (sample.edges_seconds, found) if found and len(found) == len(self.backends) else ((), {})

    def page(self, name: str) -> Scraped | str:
        """Return a server's page, or why there is none."""
        assert self._sample is not None, "it was looked at before"
        return self._scraped.get(name) or self._sample.faults.get(name, "the metrics server does not have it")

    def unread(self) -> tuple[Unread, ...]:
        """Return why there are no counters of the gateway, if there are none."""
        assert self._sample is not None, "it was looked at before"
        if self.counters()[1]:
            return ()
        faults = self._sample.faults
        why = next((faults[name] for name in self.backends if name in faults), "nothing is counted for it")
        if not self.backends:
            why = "its name for the servers was not told with --gateway-cluster"
        return (Unread("the gateway's histogram", why, "what clients see, and the time before Triton"),)


@dataclass
class Observer:
    """`ports.Observer` of a deployment. model: empty for the busiest one; known after `facts`."""

    servers: Sequence[Watched]
    clock: Clock
    model: str = ""
    gateway: Gateway | None = None
    access: Access = PLAIN
    counted: Counted | None = None
    route: RouteSeen | None = None
    _members: tuple[str, ...] = ()
    _clusters: tuple[str, ...] = ()
    _without_statistics: set[str] = field(default_factory=set)
    _looks: int = 0

    # ---- once

    def facts(self) -> Facts:
        """Read what does not change. Raises Unavailable, Refused, NotFound, InvalidInput."""
        unread: list[Unread] = []
        versions = {one.name: version for one in self.servers if (version := self._version(one, unread))}
        self.model = self.model or self._busiest(unread)
        configs = self._configs(unread)
        if self.counted is not None:
            self.counted.look()
        metrics = self._metrics_pages()
        loaded = self._check_counts(metrics, unread)
        pages = [one.page for one in metrics.values() if isinstance(one, Scraped)]
        route = self._gateway_facts(unread)
        unread.extend(route.unread)
        return Facts(
            model=self.model,
            configs=configs,
            versions=versions,
            model_versions=loaded,
            models=max((counted_work.models_in(page) for page in pages), default=None),
            weighted_route=route.weighted,
            unread=tuple(unread),
            route=route.detail,
        )

    def _version(self, one: Watched, unread: list[Unread]) -> str:
        try:
            told = one.api.metadata()
        except Refused as error:
            unread.append(Unread(f"metadata of {one.name}", str(error), "the server's version stays unknown"))
            return ""
        if not isinstance(told.get("version"), str) or "name" not in told:
            raise Unavailable(f"triton {one.name}", "it answers, but its metadata are not those of a Triton")
        return str(told["version"])

    def _busiest(self, unread: list[Unread]) -> str:
        """The model with most compute time on the first server. Raises NotFound when none is loaded."""
        found = _parsed(self.servers[0].api.statistics(""), self.servers[0].name)
        if not found:
            raise NotFound("model", "any: none is loaded")
        chosen = max(found, key=lambda name: (found[name].compute_seconds, found[name].requests))
        if len(found) > 1:
            lost = f"it has {len(found)} models; {chosen} computed most so far and is the one looked at"
            unread.append(Unread("which model is meant", "none was named with --model", lost))
        return chosen

    def _configs(self, unread: list[Unread]) -> dict[str, Mapping[str, Any]]:
        """The model's configuration and those of its members, which are remembered for the looks."""
        api = self.servers[0].api
        try:
            config = api.model_config(self.model)
            if field := misshapen_field(config):
                raise Unavailable(
                    f"triton {self.servers[0].name}", f"{field} has no form that Triton gives it"
                )
        except Refused as error:
            lost = "batch sizes, delay and instances are unknown, so nothing can be predicted"
            unread.append(Unread("the model's configuration", str(error), lost))
            return {}
        steps = (config.get("ensemble_scheduling") or {}).get("step") or []
        self._members = tuple(dict.fromkeys(str(step.get("model_name", "")) for step in steps))
        return {self.model: config}

    def _check_counts(
        self, metrics: Mapping[str, Scraped | str], unread: list[Unread]
    ) -> dict[str, tuple[str, ...]]:
        """See what each server counts, from its statistics or else from its metrics. Raises when it is neither.

        Returns the versions of the model that each has loaded; those that do not tell are left out.
        """
        loaded: dict[str, tuple[str, ...]] = {}
        for one in self.servers:
            page = metrics[one.name]
            if isinstance(page, str):
                lost = "no quantiles from Triton, no device utilisation and no memory"
                where = "" if self.counted is not None else f" ({one.metrics_url})"
                unread.append(Unread(f"metrics of {one.name}{where}", page, lost))
            try:
                told = one.api.statistics(self.model)
                _parsed(told, one.name)
                loaded[one.name] = counted_work.versions_in(told, self.model)
            except (Refused, Unavailable) as error:
                if isinstance(page, str) or counted_work.work_of_metrics(page.page, self.model) is None:
                    raise
                self._without_statistics.add(one.name)
                lost = "no times by batch size: no histogram of batches, and nothing can be predicted"
                unread.append(Unread(f"statistics of {one.name}", str(error), lost))
        return {name: versions for name, versions in loaded.items() if versions}

    # ---- at every look

    def look(self) -> Look:
        """Read all counters once. Raises Unavailable when no server could be read at all."""
        full = self._looks % METRICS_EVERY == 0 or self._looks < 2
        self._looks += 1
        return self._looked(full)

    def last_look(self) -> Look:
        """Read all counters once, the metrics pages and the gateway in any case."""
        return self._looked(True)

    def _looked(self, full: bool) -> Look:
        if full and self.counted is not None:
            self.counted.look()
        pages: Mapping[str, Scraped | str] = self._metrics_pages() if full else {}
        at = self.clock.now()
        replicas: dict[str, ReplicaLook] = {}
        troubles = []
        for one in self.servers:
            try:
                replicas[one.name] = self._replica(one, pages.get(one.name, ""))
            except (AutotunerError, Unreadable) as error:
                troubles.append(str(error))
        if not replicas:
            raise Unavailable("triton", "; ".join(troubles))
        edges, counters = self._gateway_counters() if full else ((), {})
        return Look(at, replicas, counters, edges)

    def _replica(self, one: Watched, scraped: Scraped | str) -> ReplicaLook:
        work: dict[str, Work] = {}
        if one.name not in self._without_statistics:
            for name in (self.model, *self._members):
                work |= _parsed(one.api.statistics(name), one.name)
        if not isinstance(scraped, Scraped):
            return ReplicaLook(work=work)
        page = scraped.page
        by_page = one.name in self._without_statistics
        if by_page and (counted := counted_work.work_of_metrics(page, self.model)):
            work = {self.model: counted}
        return ReplicaLook(
            work=work,
            metrics=True,
            device=scraped.device or counted_work.device_of(page, self.model),
            pending=counted_work.pending_of(page, self.model),
            quantiles=counted_work.quantiles_of(page, self.model),
            page_at=scraped.at if self.counted is not None else None,
            work_of_page=by_page,
        )

    def _metrics_pages(self) -> dict[str, Scraped | str]:
        """Each server's metrics, or why there are none."""
        if self.counted is not None:
            found = {one.name: self.counted.page(one.name) for one in self.servers}
            return {name: _believed(page, self.model) for name, page in found.items()}
        answers = read_all([one.metrics_url for one in self.servers], DEADLINE, self.access)
        at = self.clock.now()
        read = {one.name: _page(answers[one.metrics_url]) for one in self.servers}
        return {
            name: _believed(page if isinstance(page, str) else Scraped(at, page), self.model)
            for name, page in read.items()
        }

    # ---- the gateway

    def _gateway_facts(self, unread: list[Unread]) -> RouteSeen:
        """Whether weights could be set. Raises Unavailable when the gateway that was named cannot be read."""
        if self.counted is not None:
            unread.extend(self.counted.unread())
        if self.gateway is None:
            return self.route or RouteSeen(None, "")
        page = self._gateway_page()
        known = sorted(
            {labels.get("envoy_cluster_name", "") for labels, _ in page.samples(envoy.CLUSTER + envoy.BUCKET)}
        )
        wanted = self.gateway.clusters or tuple(known)
        if missing := [name for name in wanted if name not in known]:
            allowed = f"clusters with a latency histogram: {', '.join(known) or 'there are none yet'}"
            raise InvalidInput("--gateway-cluster", ", ".join(missing), allowed)
        self._clusters = wanted
        return self.route or RouteSeen(self._weighted_route(unread), "")

    def _weighted_route(self, unread: list[Unread]) -> bool | None:
        assert self.gateway is not None
        url = self.gateway.admin_url.rstrip("/") + ROUTES
        try:
            return _has_weights(json.loads(read_all([url], DEADLINE, self.access)[url].read()))
        except (Unreadable, ValueError, RecursionError) as error:
            unread.append(
                Unread("the gateway's routes", str(error), "whether weights can be set stays unknown")
            )
            return None

    def _gateway_page(self) -> Page:
        assert self.gateway is not None
        url = self.gateway.admin_url.rstrip("/") + ALL_CLUSTERS
        try:
            return Page(read_all([url], DEADLINE, self.access)[url].read(), envoy.WANTED)
        except Unreadable as error:
            raise Unavailable(
                "gateway", f"{self.gateway.admin_url} does not answer as an Envoy would: {error}"
            ) from error

    def _gateway_counters(self) -> tuple[tuple[float, ...], dict[str, GatewayCounters]]:
        if self.counted is not None:
            return self.counted.counters()
        if self.gateway is None:
            return (), {}
        page = self._gateway_page()
        try:
            edges = envoy.read_edges(page, self._clusters)
            return edges, {name: envoy.read_gateway(page, name, edges) for name in self._clusters}
        except Unreadable as error:
            raise Unavailable(
                "gateway", f"its histograms cannot be read: {error}; name one with --gateway-cluster"
            ) from error


def _page(answer: Answer) -> Readings | str:
    try:
        return Page(answer.read(), counted_work.WANTED)
    except Unreadable as reason:
        return str(reason)


def _believed(scraped: Scraped | str, model: str) -> Scraped | str:
    """The page, or why it cannot be believed."""
    if isinstance(scraped, str):
        return scraped
    try:
        counted_work.device_of(scraped.page, model)
        if model:
            counted_work.work_of_metrics(scraped.page, model)
    except Unreadable as reason:
        return str(reason)
    return scraped


def _parsed(told: Mapping[str, Any], name: str) -> dict[str, Work]:
    try:
        return counted_work.read_work(told)
    except Unreadable as reason:
        raise Unavailable(f"triton {name}", str(reason)) from reason


def _has_weights(value: Any) -> bool:
    """Whether any route, wherever it came from, has weighted clusters whose weights the runtime may set."""
    if isinstance(value, Mapping):
        weighted = value.get("weighted_clusters")
        if isinstance(weighted, Mapping) and weighted.get("runtime_key_prefix"):
            return True
        return any(_has_weights(item) for item in value.values())
    return isinstance(value, list) and any(_has_weights(item) for item in value)
