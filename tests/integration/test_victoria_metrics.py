"""A real VictoriaMetrics in Prometheus' place: the same counts, and no wrong one when something goes wrong.

Skipped where `tests/metrics_servers/build.sh` has not built it. `AUTOTUNER_TEST_PROMETHEUS` names another server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.prometheus import PrometheusMetrics
from autotuner.cache import cache_directory
from autotuner.domain.measurement import Sample
from autotuner.domain.sources import Instrumentation
from autotuner.domain.sources import PrometheusServer as Address
from autotuner.domain.target import Replica, Target
from autotuner.sandbox.processes import wait_until
from autotuner.secret_shelf import SecretShelf
from tests.builders import a_target
from tests.native_exposition import Exporter
from tests.prometheus_server import PROGRAM_VARIABLE, PrometheusServer, job
from tests.unit.test_prometheus_source import triton_page

VERSION = "v1.151.0"
EVERY = timedelta(seconds=1)
NAMES = ("stable-0", "canary")
FAMILY = "traefik_service_request_duration_seconds"
TEXT = "text/plain; version=0.0.4"


class Stack:
    """A server that scrapes a gateway and two servers, whose pages a test writes."""

    def __init__(self, site: Exporter, server: PrometheusServer) -> None:
        self.server = server
        self._site = site
        self.jobs = [job("traefik", f"{site.url}/gateway")]
        self.jobs += [job(name, f"{site.url}/{name}", {"pod": name}) for name in NAMES]
        server.write(self.jobs)
        self.ended = 0
        self.count(100)

    def count(self, ended: int) -> None:
        """Let every replica have ended so many requests, one in ten of them slow."""
        self.ended = ended
        page = "".join(
            f'{FAMILY}_bucket{{service="{name}@file",code="200",le="{le}"}} {below}\n'
            for name in NAMES
            for le, below in (("0.1", ended - ended // 10), ("+Inf", ended))
        )
        sums = "".join(
            f'{FAMILY}_{kind}{{service="{n}@file",code="200"}} {ended}\n'
            for n in NAMES
            for kind in ("sum", "count")
        )
        self._site.pages["/gateway"] = (TEXT, (page + sums).encode())
        for name in NAMES:
            self._site.pages[f"/{name}"] = (TEXT, triton_page(ended).encode())

    def hide(self) -> None:
        """Answer no scrape of the gateway until counts are written again."""
        del self._site.pages["/gateway"]

    def target(self) -> Target:
        metrics = Instrumentation(
            Address(self.server.url),
            preset="traefik",
            server=(("pod", "{name}"),),
            gateway_pods=1,
            device="none",
        )
        replicas = [Replica(name, f"http://{name}:8000", f"http://{name}:8002/metrics") for name in NAMES]
        return replace(a_target(model="vision", metrics=metrics), stable=(replicas[0],), canary=replicas[1])

    def source(self) -> PrometheusMetrics:
        """A new source."""
        return PrometheusMetrics(self.target(), SecretShelf(), lambda: ({}, {}), SystemClock())

    def whole(self, source: PrometheusMetrics) -> Sample:
        """The first sample that has all that was counted."""
        return awaited(
            source,
            lambda sample: (
                not sample.missing(NAMES)
                and all(sample.gateway[n].sent == sample.servers[n].succeeded == self.ended for n in NAMES)
            ),
        )


def awaited(source: PrometheusMetrics, wanted: Callable[[Sample], bool]) -> Sample:
    """The first sample that is as wanted."""
    found: list[Sample] = []

    def looked() -> bool:
        found.append(source.sample())
        return wanted(found[-1])

    wait_until(looked, within=timedelta(seconds=60), what="the samples are as they should be")
    return found[-1]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    program = os.environ.get(PROGRAM_VARIABLE) or str(cache_directory() / f"victoria-metrics-{VERSION}")
    if not Path(program).is_file():
        pytest.skip(f"there is no VictoriaMetrics here: tests/metrics_servers/build.sh {VERSION} CACHE")
    folder = tmp_path_factory.mktemp("server")
    with Exporter() as site:
        made = Stack(site, PrometheusServer(folder, EVERY, [], program=program))
        with made.server:
            yield made


def test_counts_are_equal_to_the_request(stack: Stack) -> None:
    source = stack.source()
    first = stack.whole(source)
    assert first.edges_seconds[0] == 0.1
    stack.count(stack.ended + 70)
    last = stack.whole(source)
    assert last.at > first.at
    for name in NAMES:
        assert last.gateway[name].buckets[0] - first.gateway[name].buckets[0] == 63
        assert last.gateway[name].buckets[1] - first.gateway[name].buckets[1] == 70
        assert not last.gateway[name].behind(first.gateway[name])


def test_a_gateway_that_disappears_for_some_scrapes_costs_no_request(stack: Stack) -> None:
    source = stack.source()
    first, ended = stack.whole(source), stack.ended
    stack.hide()
    awaited(source, lambda sample: not sample.gateway)
    stack.count(ended + 50)
    last = stack.whole(source)
    assert last.gateway["canary"].sent - first.gateway["canary"].sent == 50
    assert not last.gateway["canary"].behind(first.gateway["canary"])


def test_counters_that_begin_anew_void_a_window(stack: Stack) -> None:
    source = stack.source()
    first, ended = stack.whole(source), stack.ended
    stack.count(5)
    stack.whole(source)
    stack.count(ended + 100)
    last = stack.whole(source)
    assert last.gateway["canary"].sent > first.gateway["canary"].sent
    assert last.gateway["canary"].behind(first.gateway["canary"])
    assert last.servers["canary"].behind(first.servers["canary"])


def test_two_series_for_one_pod_are_refused(stack: Stack) -> None:
    source = stack.source()
    stack.whole(source)
    stack.server.write([*stack.jobs, {**stack.jobs[-1], "job_name": "again"}])
    stack.server.reload()
    try:
        told = awaited(source, lambda sample: "two series for" in sample.faults.get("canary", ""))
        assert "canary" not in told.servers
    finally:
        stack.server.write(stack.jobs)
        stack.server.reload()
    stack.whole(source)


def test_a_server_that_is_down_and_lost_its_data_is_waited_for(stack: Stack) -> None:
    source = stack.source()
    first = stack.whole(source)
    stack.server.kill(forget=True)
    assert "no connection" in source.sample().faults["gateway"]
    stack.count(stack.ended + 30)
    stack.server.start()
    last = stack.whole(source)
    assert last.gateway["canary"].sent - first.gateway["canary"].sent == 30
    assert not last.gateway["canary"].behind(first.gateway["canary"])
