"""One look through a metrics server: the newest scrapes of gateway and servers that belong together, as they were.

A sample is dated by the gateway's scrape, in our clock. Each server's counters are of its first scrape at or after
that, so that within one level of traffic two samples bound the same window everywhere. What is stale, doubled, partial
or not there yet is absent, and `faults` says why (guards rule 1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotuner.adapters.prometheus.client import PrometheusClient, Secrets
from autotuner.adapters.prometheus.scrapes import MISSED, Source, newest_of, series_in
from autotuner.adapters.prometheus.watch import SERVERS, Seen, Watch, note
from autotuner.domain.findings.reading import Device
from autotuner.domain.measurement import GatewayCounters, Sample, ServerCounters
from autotuner.domain.sources import Instrumentation
from autotuner.domain.target import Target
from autotuner.errors import InvalidInput
from autotuner.instruments import devices, envoy, triton
from autotuner.instruments.presets import preset_of
from autotuner.instruments.promql import samples_of
from autotuner.instruments.readings import Readings, Unreadable
from autotuner.instruments.series import Measured, TargetSeries
from autotuner.instruments.work import WANTED, Scraped
from autotuner.ports import Clock

Statistics = Callable[[], tuple[Mapping[str, triton.Statistics], Mapping[str, str]]]
"""Returns statistics by replica, and why those of the others could not be read."""


@dataclass(frozen=True)
class Looked:
    """What one look came to: counters that belong together, and the scrapes they are from, by replica."""

    sample: Sample
    pages: Mapping[str, Scraped]


class PrometheusSource:
    """Scrapes of one deployment that belong together, look by look. Not shared between threads."""

    def __init__(
        self,
        measured: Measured,
        plan: Instrumentation,
        secrets: Secrets,
        clock: Clock,
        more: Collection[str] = (),
    ) -> None:
        self._model = measured.model
        self._plan = plan
        preset = preset_of(plan)
        self._reading = preset.reading
        self._series = TargetSeries(measured, plan, preset, more)
        self._client = PrometheusClient(plan.prometheus, secrets, clock)
        self._clock = clock
        self.watch = Watch(plan, self._series, self._reading, self._client, clock)
        self._kept: tuple[tuple[object, ...], Looked] | None = None
        self.backlogs: dict[str, triton.Backlog] = {}
        """What each server said at the newest sample of requests that it has not answered well."""

    def look(self, seen: Seen, told: Mapping[str, triton.Statistics], unread: Mapping[str, str]) -> Looked:
        """Return what is there and why the rest is not; never raises."""
        faults = dict(seen.faults)
        at, times = self._together(seen)
        moment: tuple[object, ...] = (at, tuple(sorted(times.items())), tuple(sorted(faults)))
        if self._kept is not None and self._kept[0] == moment:
            kept = self._kept[1]
            return replace(kept, sample=replace(kept.sample, faults=faults))
        edges, counters = self._counters(seen, at, faults)
        devices_told = self._devices(seen, times, faults)
        servers, pages = {}, {}
        for name, when in times.items():
            page = seen.servers[name].scrape(when)
            pages[name] = Scraped(self._our_time(when), page, devices_told.get(name))
            try:
                with suppress(
                    Unreadable
                ):  # told to a person, and no evidence: an odd value of it voids nothing
                    self.backlogs[name] = triton.read_backlog(page, self._model)
                counted = triton.read_server(page, self._model, told.get(name, triton.UNTOLD))
                servers[name] = self._with_memory(counted, pages[name])
                servers[name] = replace(
                    servers[name], counted_by=self.watch.continuity.who([seen.servers[name]])
                )
            except Unreadable as reason:
                note(faults, name, self.watch.told(f"the server {name}: {reason}"))
        for name, why in unread.items():
            note(faults, name, why)
        dated = self._our_time(at) if at is not None else self._clock.now()
        look = Looked(Sample(dated, edges, counters, servers, faults), pages)
        if at is not None:
            self._kept = (moment, look)
        return look

    def _together(self, seen: Seen) -> tuple[float | None, dict[str, float]]:
        """The gateway's scrape, and for each server its first scrape at or after that; None without a gateway.

        The newest one of the gateway's that every server has an answer to, no later than its usual next scrape: one
        after a gap would bound another window.
        """
        within = MISSED * self.watch.interval_seconds(SERVERS)
        newest = {name: source.times[-1] for name, source in seen.servers.items()}
        if not seen.gateway:
            return None, newest
        limit = min(source.times[-1] for source in seen.gateway)
        candidates = sorted(
            {at for source in seen.gateway for at in source.times if at <= limit}, reverse=True
        )
        for at in candidates:
            found = {name: _first_from(source, at) for name, source in seen.servers.items()}
            if all(when is not None and when - at <= within for when in found.values()):
                return at, {name: when for name, when in found.items() if when is not None}
        return None, newest

    def _counters(
        self, seen: Seen, at: float | None, faults: dict[str, str]
    ) -> tuple[tuple[float, ...], dict[str, GatewayCounters]]:
        if at is None:
            if seen.gateway:
                for name in self._series.doors:
                    note(
                        faults,
                        name,
                        self.watch.told("gateway and servers have no scrapes yet that belong together"),
                    )
            return (), {}
        replicas = list(self._series.gateway.values())
        try:
            pages = [_scrape_from(source, at) for source in seen.gateway]
            edges = _shared([self._reading.edges(page, replicas) for page in pages])
        except Unreadable as reason:
            for name in self._series.doors:
                note(faults, name, self.watch.told(f"the gateway: {reason}"))
            return (), {}
        who = self.watch.continuity.who(seen.gateway)
        counters: dict[str, GatewayCounters] = {}
        for name, labels in self._series.gateway.items():
            try:
                counted = [self._reading.counters(page, labels, edges) for page in pages]
                counters[name] = replace(self._steadied(name, _added(counted)), counted_by=who)
            except Unreadable as reason:
                note(faults, name, self.watch.told(f"the gateway's counters of {name}: {reason}"))
        return edges, counters

    def _steadied(self, name: str, now: GatewayCounters) -> GatewayCounters:
        return envoy.steadied(self._kept[1].sample.gateway.get(name) if self._kept is not None else None, now)

    def _with_memory(self, counted: ServerCounters, scraped: Scraped) -> ServerCounters:
        if self._plan.device == devices.TRITON:
            return counted
        told = scraped.device or Device()
        return replace(
            counted, memory_used_bytes=told.memory_used_bytes, memory_total_bytes=told.memory_total_bytes
        )

    def _devices(self, seen: Seen, times: Mapping[str, float], faults: dict[str, str]) -> dict[str, Device]:
        """Devices by replica, where somebody else than its Triton is asked for them."""
        if self._plan.device == devices.DCGM:
            return self._by_dcgm(seen, times, faults)
        if self._plan.device == devices.TRITON:
            return {}
        found = dict.fromkeys(times, Device())
        if self._plan.device == devices.CPU:
            for name, at in times.items():
                used, total = devices.cpu_memory(seen.servers[name].scrape(at))
                found[name] = Device(memory_used_bytes=used, memory_total_bytes=total)
        return found

    def _by_dcgm(self, seen: Seen, times: Mapping[str, float], faults: dict[str, str]) -> dict[str, Device]:
        """Memory and utilisation by replica from DCGM's exporters; a replica of which nothing is told is left out."""
        if not times:
            return {}
        uuids = {name: devices.uuids_of(seen.servers[name].scrape(at)) for name, at in times.items()}
        found = {}
        try:
            exported = self._exported(frozenset(uuid for some in uuids.values() for uuid in some))
        except Unreadable as reason:
            for name in times:
                note(faults, name, self.watch.told(f"the device memory of {name}: {reason}"))
            return {}
        for name in times:
            try:
                pod = self._series.servers[name].get("pod", "")
                used, total = devices.dcgm_memory(exported, pod, uuids[name])
                busy = devices.dcgm_utilisation(exported, pod, uuids[name])
                found[name] = Device(busy, None, used, total)
            except Unreadable as reason:
                note(faults, name, self.watch.told(f"the device memory of {name}: {reason}"))
        return found

    def _exported(self, uuids: frozenset[str]) -> Readings:
        """The newest samples of DCGM's exporters. Raises Unreadable."""
        span = self.watch.span_seconds()
        queries = {key: samples_of(text, span) for key, text in self._series.device_selectors(uuids).items()}
        if not queries:
            raise Unreadable(
                "its Triton tells no device, and metrics.server names no pod to join DCGM's series by"
            )
        answers = self._client.ask(queries, self._plan.prometheus.deadline / 2)
        return newest_of([one for answer in answers.values() for one in series_in(answer.read())])

    def _our_time(self, theirs: float) -> datetime:
        return datetime.fromtimestamp(theirs - self.watch.server_clock.ahead_seconds, UTC)


class PrometheusMetrics:
    """`MetricsSource` of one target, through its metrics server. Not shared between threads."""

    def __init__(self, target: Target, secrets: Secrets, statistics: Statistics, clock: Clock) -> None:
        if target.metrics is None:
            raise InvalidInput("metrics", None, "a section with prometheus")
        self._source = PrometheusSource(Measured.of(target), target.metrics, secrets, clock)
        self._statistics = statistics

    @property
    def watch(self) -> Watch:
        """What is known of who is scraped, and how often."""
        return self._source.watch

    @property
    def backlogs(self) -> dict[str, triton.Backlog]:
        """What each server said at the newest sample of requests that it has not answered well."""
        return self._source.backlogs

    def sample(self) -> Sample:
        """Return the newest counters that belong together. What there is not is absent and explained; never raises."""
        with ThreadPoolExecutor(1, thread_name_prefix="statistics") as pool:
            reading = pool.submit(self._statistics)
            seen = self.watch.look()
            told, unread = reading.result()
        return self._source.look(seen, told, unread).sample


class PrometheusPages:
    """Counters of the gateway and whole pages of the servers, for a diagnosis. Not shared between threads."""

    def __init__(self, measured: Measured, plan: Instrumentation, secrets: Secrets, clock: Clock) -> None:
        self._source = PrometheusSource(measured, plan, secrets, clock, WANTED)

    def looked(self) -> tuple[Sample, Mapping[str, Scraped]]:
        """Return the gateway's newest counters and each server's page of that moment; never raises."""
        look = self._source.look(self._source.watch.look(), {}, {})
        return look.sample, look.pages


def _first_from(source: Source, at: float) -> float | None:
    return next((when for when in source.times if when >= at), None)


def _scrape_from(source: Source, at: float) -> Readings:
    when = _first_from(source, at)
    assert when is not None, "at is no later than the newest scrape of any gateway"
    return source.scrape(when)


def _added(counters: list[GatewayCounters]) -> GatewayCounters:
    first, *others = counters
    for each in others:
        first = GatewayCounters(
            sent=first.sent + each.sent,
            ended=first.ended + each.ended,
            failed=first.failed + each.failed,
            failed_unmeasured=first.failed_unmeasured + each.failed_unmeasured,
            buckets=tuple(a + b for a, b in zip(first.buckets, each.buckets, strict=True)),
            latency_sum_seconds=first.latency_sum_seconds + each.latency_sum_seconds,
        )
    return first


def _shared(edges: list[tuple[float, ...]]) -> tuple[float, ...]:
    """The edges that all gateways have which measured anything. Raises Unreadable when they differ."""
    found = {each for each in edges if each}
    if len(found) > 1:
        raise Unreadable("different histogram buckets at different gateways")
    return found.pop() if found else ()
