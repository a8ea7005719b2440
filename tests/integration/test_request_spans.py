"""A real Envoy and a real Triton send their spans to this service, which says where slow requests spent their time.

One request is held back at the gateway, sixteen come at once and queue on one instance; sixteen more go straight to
Triton, whose own trace extension is all there is of them.
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
from autotuner.domain.spans import INFERENCE, Part
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
    """Gateway and Triton, both traced, and the service that takes their spans in.

    through: the target whose gateway's spans are known; alone: the same one, of which only Triton's are asked for.
    """

    gateway_url: str
    triton_url: str
    through: Target
    alone: Target
    received: MemorySpans
    requests: ReferenceRequests

    def request(self, url: str, **headers: str) -> None:
        """Send one request to the gateway or the server."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
        with closing(connection):
            asked = self.requests
            connection.request("POST", asked.path, asked.bodies[0], {**asked.headers, **named})
            assert connection.getresponse().read()

    def request_at_once(self, url: str) -> None:
        """Send so many requests at a time that they queue on one instance."""
        with ThreadPoolExecutor(AT_ONCE) as clients:
            list(clients.map(lambda _: self.request(url), range(AT_ONCE)))

    def awaited(self, target: Target, began: datetime, longest: set[Part]) -> SlowRequests:
        """What is told of slow requests since then, once each of these parts was a request's longest.

        Nothing more is sent meanwhile: what has come is judged by itself.
        """
        found = SlowRequests("")

        def complete() -> bool:
            nonlocal found
            question = Question(began, datetime.now(UTC), CEILING.total_seconds(), ("canary",))
            found = SentTraces(target, self.received).slow_requests(question)
            return longest <= {each.part for each in found.parts if each.longest_in}

        within = timedelta(seconds=40)
        wait_until(complete, within=within, what="slow requests are explained", poll=timedelta(seconds=0.25))
        return found


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
            through = a_target(canary=canary, traces=TraceStore("otlp", gateway="gateway"))
            alone = a_target(name="alone", canary=canary, traces=TraceStore("otlp"))
            for target in (through, alone):
                slo = application.store.save_target(target, a_budget(), "tester", "", application.clock.now())
                plan = a_plan(target=target, slo=slo)
                application.store.create_study(new_study(plan, application.clock.now(), "tester"))
            assert isinstance(application.received, MemorySpans)
            yield Traced(
                envoy.url,
                triton.http_url,
                through,
                alone,
                application.received,
                reference_requests(WORKLOAD),
            )
        finally:
            envoy.stop()


def test_time_outside_inference_is_seen_where_it_was_spent(traced: Traced) -> None:
    began = datetime.now(UTC)
    traced.request(traced.gateway_url)
    traced.request(traced.gateway_url, x_envoy_fault_delay_request=str(HELD_BACK_MS))
    traced.request_at_once(traced.gateway_url)

    found = traced.awaited(traced.through, began, {Part.GATEWAY, Part.QUEUE})

    parts = {each.part: each for each in found.parts}
    assert not found.fault
    assert found.mean_seconds == pytest.approx(sum(each.mean_seconds for each in found.parts))
    assert parts[Part.GATEWAY].longest_in == 1
    assert parts[Part.GATEWAY].mean_seconds * found.requests >= HELD_BACK_MS / 1e3
    assert {Part.NETWORK, Part.TRITON, Part.INPUT, Part.INFER, Part.OUTPUT} <= set(parts)
    assert found.outside_inference is not None
    assert found.outside_inference > 0.3
    assert found.slowest[0].seconds > CEILING.total_seconds()


def test_tritons_own_trace_explains_where_there_is_none_of_a_gateway(traced: Traced) -> None:
    began = datetime.now(UTC)
    traced.request_at_once(traced.triton_url)

    found = traced.awaited(traced.alone, began, {Part.QUEUE})

    assert not found.fault
    assert {each.part for each in found.parts} == {Part.TRITON, Part.QUEUE, *INFERENCE}
    assert found.mean_seconds == pytest.approx(sum(each.mean_seconds for each in found.parts))
    assert 0 < found.requests <= AT_ONCE
    assert found.slowest[0].seconds > CEILING.total_seconds()
