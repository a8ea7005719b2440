"""A real Envoy and a real Triton send their spans to this service, which says where slow requests spent their time.

One request is held back at the gateway, sixteen come at once and queue on one instance.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.server import serve
from autotuner.adapters.clock import SystemClock
from autotuner.adapters.memory_store import MemorySpans
from autotuner.adapters.tracing import SentTraces
from autotuner.bootstrap import Application
from autotuner.domain.access import Scope
from autotuner.domain.slow_requests import Question, SlowRequests
from autotuner.domain.sources import TraceStore
from autotuner.domain.spans import Part
from autotuner.domain.target import Replica, Target
from autotuner.operations import new_study
from autotuner.sandbox.envoy import EnvoyProcess, SpanSending, Topology
from autotuner.sandbox.model_repository import ReferenceRequests, reference_requests, write_repository
from autotuner.sandbox.processes import wait_until
from autotuner.sandbox.tritonserver import TritonProcess, install
from autotuner.sandbox.workload import parse_workload
from tests.builders import a_budget, a_plan, a_target
from tests.command_line import Terminal
from tests.rest import a_secret, rest_settings

CEILING = timedelta(milliseconds=100)
HELD_BACK_MS = 150
AT_ONCE = 16
WORKLOAD = parse_workload(
    {
        "name": "quick",
        "model": "emulated-gpu",
        "max_batch_size": 8,
        "batch_latency_ms": {1: 20, 2: 24, 8: 60},
        "transfer_ms_per_item": 1,
        "instance_memory_mb": 900,
        "device_memory_mb": 5000,
        "incumbent": {"max_queue_delay_microseconds": 500, "preferred_batch_size": [2, 4]},
        "traffic": {"requests_per_second": 10, "arrivals": {"poisson": True}},
        "slo": {"p99_ms": 100},
    }
)


@dataclass
class Traced:
    """Gateway and Triton, both traced, and the service that takes their spans in."""

    envoy: EnvoyProcess
    target: Target
    received: MemorySpans
    requests: ReferenceRequests
    began: datetime

    def request(self, **headers: str) -> None:
        """Send one request through the gateway."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.envoy.url.removeprefix("http://"), timeout=20)
        with closing(connection):
            asked = self.requests
            connection.request("POST", asked.path, asked.bodies[0], {**asked.headers, **named})
            assert connection.getresponse().read()

    def told(self) -> SlowRequests:
        """What the service tells of slow requests so far."""
        question = Question(self.began, datetime.now(UTC), CEILING.total_seconds(), ("canary",))
        return SentTraces(self.target, self.received).slow_requests(question)


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, str, Application]]:
    """The REST API on loopback, over a store in memory: its address, a token that may send spans, the application."""
    terminal = Terminal()
    application = terminal.application(rest_settings())
    application = replace(application, clock=SystemClock())
    token = a_secret(application, "gateway", Scope.TRACER)
    stop, addresses = threading.Event(), list[str]()
    started = threading.Event()

    def tell(address: str) -> None:
        addresses.append(address)
        started.set()

    thread = threading.Thread(target=serve, args=(application, stop, tell, "127.0.0.1", 0), name="service")
    thread.start()
    assert started.wait(20)
    yield addresses[0], token, application
    stop.set()
    thread.join()


@pytest.fixture(scope="module")
def traced(
    service: tuple[str, str, Application], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    url, token, application = service
    folder: Path = tmp_path_factory.mktemp("spans")
    repository = write_repository(WORKLOAD, folder / "repository")
    triton = TritonProcess(
        "canary",
        install(),
        repository,
        WORKLOAD.name,
        folder,
        spans_to=f"{url}/v1/traces",
        spans_token=token,
    )
    with triton:
        canary = Replica("canary", triton.http_url, triton.metrics_url)
        topology = Topology(
            [canary], CEILING, {"canary": 1000}, spans=SpanSending(f"{url}/v1/traces", token), holds_back=True
        )
        envoy = EnvoyProcess(topology, run_directory=folder / "envoy")
        envoy.start()
        try:
            target = a_target(canary=canary, traces=TraceStore("otlp", gateway="gateway"))
            slo = application.store.save_target(target, a_budget(), "tester", "", application.clock.now())
            plan = a_plan(target=target, slo=slo)
            application.store.create_study(new_study(plan, application.clock.now(), "tester"))
            assert isinstance(application.received, MemorySpans)
            yield Traced(
                envoy, target, application.received, reference_requests(WORKLOAD), application.clock.now()
            )
        finally:
            envoy.stop()


def test_time_outside_inference_is_seen_where_it_was_spent(traced: Traced) -> None:
    traced.request()
    traced.request(x_envoy_fault_delay_request=str(HELD_BACK_MS))
    with ThreadPoolExecutor(AT_ONCE) as clients:
        list(clients.map(lambda _: traced.request(), range(AT_ONCE)))

    found = SlowRequests("")

    def complete() -> bool:
        """Whether the spans of both have come: each request that follows lets what has come be judged."""
        nonlocal found
        traced.request()
        found = traced.told()
        longest = {each.part: each.longest_in for each in found.parts}
        return bool(longest.get(Part.GATEWAY) and longest.get(Part.QUEUE))

    wait_until(
        complete,
        within=timedelta(seconds=40),
        what="slow requests are explained",
        poll=timedelta(seconds=0.5),
    )

    parts = {each.part: each for each in found.parts}
    assert not found.fault
    assert found.mean_seconds == pytest.approx(sum(each.mean_seconds for each in found.parts))
    assert parts[Part.GATEWAY].longest_in == 1
    assert parts[Part.GATEWAY].mean_seconds * found.requests >= HELD_BACK_MS / 1e3
    assert {Part.NETWORK, Part.TRITON, Part.INPUT, Part.INFER, Part.OUTPUT} <= set(parts)
    assert found.outside_inference is not None
    assert found.outside_inference > 0.3
    assert found.slowest[0].seconds > CEILING.total_seconds()
