"""Counters scraped from a real Envoy and a real tritonserver are the requests that were sent, no more and no fewer."""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import numpy as np
import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.envoy import EnvoyRoute
from autotuner.adapters.scrape import ScrapedMetrics
from autotuner.adapters.triton import TritonServing
from autotuner.domain.configuration import Configuration, with_configuration
from autotuner.domain.judgement import Counts
from autotuner.domain.measurement import Sample, Window, overdue
from autotuner.domain.target import Replica, Target
from autotuner.sandbox.envoy import EnvoyProcess, Topology
from autotuner.sandbox.model_repository import write_repository
from autotuner.sandbox.processes import free_port, wait_until
from autotuner.sandbox.tritonserver import TritonProcess, install
from autotuner.sandbox.workload import parse_workload
from tests.builders import a_target, changed
from tests.integration.fake_upstream import FakeUpstream

CEILING_SECONDS = 0.1
CEILING = timedelta(seconds=CEILING_SECONDS)
LIMIT = timedelta(seconds=60)
A_SECOND = 1.0
"""An edge far beyond the route timeout: on the busiest machine nothing is slow by it."""

ALL_TO = {name: {"stable-0": 0, "canary": 0} | {name: 1000} for name in ("stable-0", "canary")}


@dataclass(frozen=True)
class Rig:
    """A gateway before two replicas, and what reads it."""

    target: Target
    url: str
    metrics: ScrapedMetrics
    route: EnvoyRoute

    def send(
        self, paths: Sequence[str], patience_seconds: float = 5.0, body: bytes = b"{}"
    ) -> list[int | None]:
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda path: self._send(path, patience_seconds, body), paths))

    def _send(self, path: str, patience_seconds: float, body: bytes) -> int | None:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=patience_seconds)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        return None

    def quiet(self) -> Sample:
        """A sample in which every request has ended and is visible."""
        found: list[Sample] = []

        def settled() -> bool:
            found.append(self.metrics.sample())
            return bool(found[-1].gateway) and all(
                counters.ended == counters.sent == counters.buckets[-1] + counters.failed_unmeasured
                for counters in found[-1].gateway.values()
            )

        wait_until(settled, within=timedelta(seconds=10), what="all requests are visible")
        return found[-1]


def rig(envoy: EnvoyProcess, *replicas: Replica, model: str = "model") -> Rig:
    stable, canary = replicas
    target = changed(a_target(), model=model, stable=(stable,), canary=canary, gateway=envoy.gateway)
    return Rig(target, envoy.url, ScrapedMetrics(target, SystemClock()), EnvoyRoute(target))


@contextlib.contextmanager
def gateway(directory: pytest.TempPathFactory, *replicas: Replica) -> Iterator[EnvoyProcess]:
    layout = Topology(
        replicas, CEILING, {"stable-0": 500, "canary": 500}, route_timeout=timedelta(seconds=0.6)
    )
    envoy = EnvoyProcess(layout, run_directory=directory.mktemp("envoy"))
    envoy.start()
    try:
        yield envoy
    finally:
        envoy.stop()


@pytest.fixture(scope="module")
def faked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Stable: an upstream that does what a path says. Canary: a port where nobody listens."""
    with FakeUpstream() as upstream:
        stable = Replica("stable-0", upstream.url, f"{upstream.url}/status/404")
        canary = Replica("canary", f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:9/metrics")
        with gateway(tmp_path_factory, stable, canary) as envoy:
            made = rig(envoy, stable, canary)
            made.route.set_weights(ALL_TO["stable-0"])
            assert made.send(["/status/200"]) == [200]
            yield made


IN_TIME = Counts(total=20, bad_at_most=0, bad_at_least=0, failed=0)
SLOW = Counts(total=20, bad_at_most=20, bad_at_least=20, failed=0)
FAILED = Counts(total=20, bad_at_most=20, bad_at_least=20, failed=20)
KINDS = [
    ("/status/200", A_SECOND, IN_TIME),
    ("/slow/101", A_SECOND, IN_TIME),
    ("/slow/101", CEILING_SECONDS, SLOW),
    ("/status/500", CEILING_SECONDS, FAILED),
    ("/status/400", CEILING_SECONDS, FAILED),
    ("/hang", CEILING_SECONDS, FAILED),
    ("/reset", CEILING_SECONDS, FAILED),
    ("/close", CEILING_SECONDS, FAILED),
    ("/garbage", CEILING_SECONDS, FAILED),
    ("/cut", CEILING_SECONDS, FAILED),
]


@pytest.mark.parametrize(("path", "ceiling_seconds", "expected"), KINDS)
def test_every_kind_of_end_is_counted_once_on_its_side_of_the_ceiling(
    faked: Rig, path: str, ceiling_seconds: float, expected: Counts
) -> None:
    faked.route.set_weights(ALL_TO["stable-0"])
    first = faked.quiet()
    faked.send([path] * 20)
    window = Window(first, faked.quiet())
    assert window.counts(["stable-0"], ceiling_seconds) == expected
    assert window.sent("stable-0") == 20
    assert window.sent("canary") == 0


def test_requests_to_a_replica_that_accepts_no_connection_are_failed(faked: Rig) -> None:
    first = faked.quiet()
    faked.route.set_weights(ALL_TO["canary"])
    faked.send(["/"] * 20)
    counts = Window(first, faked.quiet()).counts(["canary"], CEILING_SECONDS)
    assert counts == Counts(total=20, bad_at_most=20, bad_at_least=20, failed=20)


def test_clients_that_gave_up_are_failed(faked: Rig) -> None:
    faked.route.set_weights(ALL_TO["stable-0"])
    first = faked.quiet()
    assert faked.send(["/hang"] * 10, patience_seconds=0.2) == [None] * 10
    counts = Window(first, faked.quiet()).counts(["stable-0"], CEILING_SECONDS)
    assert counts == Counts(total=10, bad_at_most=10, bad_at_least=10, failed=10)


def test_all_kinds_together_are_each_counted_once(faked: Rig) -> None:
    faked.route.set_weights(ALL_TO["stable-0"])
    first = faked.quiet()
    paths = ["/status/200", "/slow/101", "/status/500", "/hang", "/reset", "/cut"] * 6
    answers = faked.send(paths)
    assert answers.count(200) == 12
    counts = Window(first, faked.quiet()).counts(["stable-0"], A_SECOND)
    assert counts == Counts(total=36, bad_at_most=24, bad_at_least=24, failed=24)


def test_requests_that_wait_beyond_the_ceiling_are_overdue_before_they_end(faked: Rig) -> None:
    faked.route.set_weights(ALL_TO["stable-0"])
    faked.quiet()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(faked.send, ["/hang"] * 8)
        samples = [faked.metrics.sample()]
        while samples[-1].at - samples[0].at < timedelta(seconds=0.45):
            samples.append(faked.metrics.sample())
        sending.result()
    late = [overdue(samples[:n], sample, "stable-0", CEILING_SECONDS) for n, sample in enumerate(samples)]
    assert max(late) == 8
    assert overdue(samples, faked.quiet(), "stable-0", CEILING_SECONDS) == 0


def test_what_the_servers_lack_is_explained(faked: Rig) -> None:
    sample = faked.metrics.sample()
    assert sample.servers == {}
    assert "HTTP 404" in sample.faults["stable-0"]
    assert "nothing accepts connections" in sample.faults["canary"]


# ---- with a real server ----


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two names for one real server, so that both replicas answer."""
    workload = parse_workload(
        {
            "name": "quick",
            "model": "emulated-gpu",
            "max_batch_size": 8,
            "batch_latency_ms": {1: 5, 8: 12},
            "transfer_ms_per_item": 0,
            "instance_memory_mb": 300,
            "device_memory_mb": 2000,
            "traffic": {"requests_per_second": 10, "arrivals": {"poisson": True}},
            "slo": {"p99_ms": 100},
        }
    )
    directory = tmp_path_factory.mktemp("triton")
    repository = write_repository(workload, directory / "models")
    with TritonProcess("both", install(), repository, workload.name, directory / "both") as triton:
        replicas = [Replica(name, triton.http_url, triton.metrics_url) for name in ("stable-0", "canary")]
        with gateway(tmp_path_factory, *replicas) as envoy:
            made = rig(envoy, *replicas, model="quick")
            infer(made, 1, 1)
            yield made


def infer(rig: Rig, items: int, requests: int) -> None:
    """Send `requests` one after another, each a batch of `items`."""
    data = np.ones((items, 4), dtype=np.float32).ravel().tolist()
    tensor = {"name": "INPUT0", "shape": [items, 4], "datatype": "FP32", "data": data}
    connection = http.client.HTTPConnection(urlsplit(rig.url).netloc, timeout=10)
    with contextlib.closing(connection):
        for _ in range(requests):
            connection.request("POST", "/v2/models/quick/infer", json.dumps({"inputs": [tensor]}))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200


def test_statistics_count_each_execution_once_with_its_compute_time(served: Rig) -> None:
    serving = TritonServing(served.target)
    gathering = Configuration(2_000_000, (8,), 1, 8)
    serving.load("canary", with_configuration(serving.model_config("canary"), gathering), LIMIT)
    assert served.quiet().servers["canary"].batches == ()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: infer(served, 1, 1), range(8)))
    infer(served, 8, 2)
    [batch] = served.quiet().servers["canary"].batches
    assert (batch.size, batch.executions) == (8, 3)
    assert 3 * 0.012 <= batch.compute_seconds < 3 * 8 * 0.012  # summed over executions, not over requests
    serving.load(
        "canary", with_configuration(serving.model_config("canary"), Configuration(0, (), 1, 8)), LIMIT
    )


def test_device_and_requests_of_a_real_server_are_counted(served: Rig) -> None:
    wait_until(
        lambda: served.metrics.sample().servers["canary"].memory_used_bytes == 300e6,
        within=timedelta(seconds=15),
        what="a version loaded before has given its memory back",
    )
    first = served.quiet()
    infer(served, 4, 20)
    rejected = served.send(["/v2/models/quick/infer"] * 3)
    time.sleep(0.3)  # the emulated device publishes ten times a second
    window = Window(first, served.quiet())
    now, then = window.last.servers["canary"], window.first.servers["canary"]
    use = window.use("canary")
    assert all(status is not None and status >= 400 for status in rejected)
    assert now.succeeded - then.succeeded == 20
    assert now.inferences - then.inferences == 80
    assert now.executions - then.executions == 20
    assert now.device_busy_seconds is not None
    assert then.device_busy_seconds is not None
    assert now.device_busy_seconds - then.device_busy_seconds >= 20 * 0.008
    assert (use.memory_used_bytes, use.memory_total_bytes) == (300e6, 2000e6)
    assert use.realised_batch == 4
    counts = window.counts(["stable-0", "canary"], CEILING_SECONDS)
    assert (counts.total, counts.failed) == (23, 3)


def test_a_look_at_everything_takes_a_moment(served: Rig) -> None:
    """About 15 ms on an idle machine; bounded loosely, for busy ones."""
    durations = []
    for _ in range(10):
        started = time.perf_counter()
        assert served.metrics.sample().faults == {}
        durations.append(time.perf_counter() - started)
    assert statistics.median(durations) < 0.25
