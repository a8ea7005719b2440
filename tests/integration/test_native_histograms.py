"""A native histogram that a real Prometheus has scraped is counted to the request at every edge of its scale."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.prometheus import PrometheusMetrics
from autotuner.domain.measurement import Sample, Window, edges_around
from autotuner.domain.sources import Instrumentation
from autotuner.domain.sources import PrometheusServer as Address
from autotuner.domain.target import Replica
from autotuner.sandbox.processes import wait_until
from autotuner.secret_shelf import SecretShelf
from tests.builders import a_target
from tests.native_exposition import MEDIA_TYPE, Exporter, family
from tests.prometheus_server import PrometheusServer, installed, is_victoria, job
from tests.unit.test_prometheus_source import triton_page

EVERY = timedelta(milliseconds=500)
NAMES = ("stable-0", "canary")
FAMILY = "traefik_service_request_duration_seconds"
SCHEMA = 5
"""Finer than what is kept: every fourth edge is one that a count is kept for."""


class Traffic:
    """Latencies that were observed so far, in seconds, by replica and status; seeded."""

    def __init__(self, site: Exporter) -> None:
        self._site = site
        self._dice = random.Random(7)
        self.seen: dict[tuple[str, str], list[float]] = {(n, c): [] for n in NAMES for c in ("200", "503")}

    def more(self, requests: int) -> None:
        """Let every replica answer so many requests more; one in fifty fails."""
        for name in NAMES:
            for number in range(requests):
                code = "503" if number % 50 == 0 else "200"
                self.seen[name, code].append(self._dice.lognormvariate(-3.0, 0.6))
        self.publish(SCHEMA)

    def publish(self, schema: int) -> None:
        """Expose what was observed, on a scale."""
        series = [
            ({"service": f"{name}@file", "code": code, "method": "POST", "protocol": "http"}, values)
            for (name, code), values in self.seen.items()
        ]
        self._site.pages["/gateway"] = (MEDIA_TYPE, family(FAMILY, series, schema))

    def of(self, name: str) -> list[float]:
        """Every latency of a replica."""
        return [*self.seen[name, "200"], *self.seen[name, "503"]]


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with Exporter() as site:
        page = triton_page(100).encode()
        site.pages |= {f"/{name}": ("text/plain; version=0.0.4", page) for name in NAMES}
        yield site


@pytest.fixture(scope="module")
def traffic(exporter: Exporter) -> Traffic:
    made = Traffic(exporter)
    made.more(200)
    return made


@pytest.fixture(scope="module")
def source(
    exporter: Exporter, traffic: Traffic, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusMetrics]:
    if is_victoria(installed()):
        pytest.skip("VictoriaMetrics keeps no native histograms")
    jobs = [job("traefik", f"{exporter.url}/gateway")]
    jobs += [job(name, f"{exporter.url}/{name}", {"pod": name}) for name in NAMES]
    folder = tmp_path_factory.mktemp("prometheus")
    with PrometheusServer(folder, EVERY, jobs, native_histograms=True) as server:
        metrics = Instrumentation(
            Address(server.url), preset="traefik", server=(("pod", "{name}"),), gateway_pods=1, device="none"
        )
        replicas = [Replica(name, f"http://{name}:8000", f"http://{name}:8002/metrics") for name in NAMES]
        target = replace(a_target(model="vision", metrics=metrics), stable=(replicas[0],), canary=replicas[1])
        yield PrometheusMetrics(target, SecretShelf(), lambda: ({}, {}), SystemClock())


def scraped(source: PrometheusMetrics, traffic: Traffic) -> Sample:
    """The first sample that has everything that was observed."""
    found: list[Sample] = []

    def whole() -> bool:
        found.append(source.sample())
        gateway = found[-1].gateway
        return all(n in gateway and gateway[n].buckets[-1] == len(traffic.of(n)) for n in NAMES)

    wait_until(whole, within=timedelta(seconds=20), what="everything was scraped")
    return found[-1]


def test_a_window_has_exactly_the_requests_below_every_edge(
    source: PrometheusMetrics, traffic: Traffic
) -> None:
    first, before = scraped(source, traffic), {name: len(traffic.of(name)) for name in NAMES}
    then = {name: traffic.of(name) for name in NAMES}
    traffic.more(500)
    last = scraped(source, traffic)
    assert last.edges_seconds == first.edges_seconds
    assert len(last.edges_seconds) == 130
    assert 0.125 in last.edges_seconds
    for name in NAMES:
        assert not last.gateway[name].behind(first.gateway[name])
        for number, edge in enumerate(last.edges_seconds):
            now, was = last.gateway[name].buckets[number], first.gateway[name].buckets[number]
            expected = sum(v <= edge for v in traffic.of(name)) - sum(v <= edge for v in then[name])
            assert now - was == expected, edge
        assert last.gateway[name].failed - first.gateway[name].failed == 10
        assert last.gateway[name].sent - before[name] == 500


def test_a_ceiling_at_an_edge_is_exact_and_any_other_is_bounded_on_both_sides(
    source: PrometheusMetrics, traffic: Traffic
) -> None:
    first, then = scraped(source, traffic), traffic.of("canary")
    traffic.more(300)
    window, now = Window(first, scraped(source, traffic)), traffic.of("canary")
    for ceiling, exact in ((0.125, True), (0.1, False)):
        low, high = edges_around(window.last.edges_seconds, ceiling)
        assert (low == high) is exact
        counts = window.counts(["canary"], ceiling)
        slow = sum(v > ceiling for v in now) - sum(v > ceiling for v in then)
        assert counts.total == 300
        assert counts.bad_at_least <= slow + counts.failed
        assert counts.bad_at_most >= slow
        if exact:
            assert counts.bad_at_most == slow + counts.failed


def test_a_scale_that_becomes_coarser_voids_the_window(source: PrometheusMetrics, traffic: Traffic) -> None:
    first = scraped(source, traffic)
    traffic.publish(1)
    coarser: list[Sample] = []

    def seen() -> bool:
        coarser.append(source.sample())
        return bool(coarser[-1].gateway) and len(coarser[-1].edges_seconds) < len(first.edges_seconds)

    wait_until(seen, within=timedelta(seconds=20), what="the coarser scale is seen")
    assert coarser[-1].gateway["canary"].behind(first.gateway["canary"])
    assert len(coarser[-1].edges_seconds) == 34
