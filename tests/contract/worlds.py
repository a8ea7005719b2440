"""The worlds that the contract suite runs against: the simulated one, and real servers behind a real gateway."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.envoy import EnvoyRoute
from autotuner.adapters.prometheus import PrometheusMetrics
from autotuner.adapters.scrape import ScrapedMetrics, ScrapedStatistics
from autotuner.adapters.simulated import SimulatedWorld, small_vision
from autotuner.adapters.triton import TritonServing
from autotuner.domain.configuration import Configuration, fingerprint, with_configuration
from autotuner.domain.measurement import Sample
from autotuner.domain.sources import Instrumentation
from autotuner.domain.sources import PrometheusServer as Address
from autotuner.domain.target import Replica, Target
from autotuner.ports import World
from autotuner.sandbox.envoy import EnvoyProcess, Topology
from autotuner.sandbox.model_repository import reference_requests, write_repository
from autotuner.sandbox.processes import wait_until
from autotuner.sandbox.tritonserver import TritonInstallation, TritonProcess
from autotuner.sandbox.workload import Workload, parse_workload
from autotuner.secret_shelf import SecretShelf
from tests.builders import ManualClock, a_target, changed
from tests.prometheus_server import PrometheusServer, job

LIMIT = timedelta(seconds=30)
QUIET_WITHIN_SECONDS = 15.0
CEILING = timedelta(milliseconds=100)
FLUSH_INTERVAL = timedelta(milliseconds=250)
SCRAPED_EVERY = timedelta(milliseconds=250)


class Rig(Protocol):
    """A world that a test can send traffic to and break."""

    target: Target
    world: World

    def send(self, requests: int) -> int:
        """Let users send about `requests`, wait until all ended and are visible; return how many they sent."""

    def seen_from_now(self) -> Sample:
        """Return a sample of nothing earlier than this call: what another server keeps is seen a little later."""

    def crash(self, replica: str) -> None:
        """End a server as a crash would."""

    def start(self, replica: str) -> None:
        """Start a crashed server again and return when it is ready."""

    def stop_gateway(self) -> None:
        """End the gateway."""

    def restart_gateway(self) -> None:
        """Stop the gateway if it runs, and start it anew."""


def load(rig: Rig, replica: str, configuration: Configuration) -> Mapping[str, Any]:
    """Load `configuration` into the complete configuration that the replica serves; return what was sent."""
    sent = with_configuration(rig.world.serving.model_config(replica), configuration)
    rig.world.serving.load(replica, sent, LIMIT)
    return sent


class Found:
    """What a world was like when it was found, and how it gets back to that."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.configs = {name: rig.world.serving.model_config(name) for name in _names(rig.target)}
        self.weights = dict(rig.world.route.weights())

    def restore(self) -> None:
        """Put configurations and weights back where they differ."""
        world = self._rig.world
        for name, config in self.configs.items():
            if fingerprint(world.serving.model_config(name)) != fingerprint(config):
                world.serving.load(name, config, LIMIT)
        if world.route.weights() != self.weights:
            world.route.set_weights(self.weights)


def _names(target: Target) -> list[str]:
    return [replica.name for replica in target.replicas]


class SimulatedRig:
    """The simulated world; users send 100 requests a second while they send."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self.target = a_target(stable=1)
        self._simulated = SimulatedWorld(self.target, self._clock, small_vision(), seed=1)
        self._simulated.faults.traffic(0.0)
        self.world = self._simulated.world

    def send(self, requests: int) -> int:
        before = self._simulated.offered
        self._simulated.faults.traffic(100.0)
        self._clock.turn(requests / 100)
        self._simulated.faults.traffic(0.0)
        self._clock.turn(5)
        return self._simulated.offered - before

    def seen_from_now(self) -> Sample:
        return self.world.metrics.sample()

    def crash(self, replica: str) -> None:
        self._simulated.faults.crash(replica)

    def start(self, replica: str) -> None:
        self._simulated.faults.start(replica)

    def stop_gateway(self) -> None:
        self._simulated.faults.gateway_down()

    def restart_gateway(self) -> None:
        self._simulated.faults.gateway_restart()


class SandboxRig:
    """Two real servers with an emulated device behind a real Envoy."""

    def __init__(self, installation: TritonInstallation, directory: Path) -> None:
        self._workload = a_quick_workload()
        self._requests = reference_requests(self._workload)
        repository = write_repository(self._workload, directory / "models")
        self._servers = {
            name: TritonProcess(name, installation, repository, self._workload.name, directory / name)
            for name in ("stable-0", "canary")
        }
        stable, canary = (Replica(s.name, s.http_url, s.metrics_url) for s in self._servers.values())
        self._envoy = EnvoyProcess(
            Topology(
                (stable, canary), CEILING, {"stable-0": 1000, "canary": 0}, flush_interval=FLUSH_INTERVAL
            ),
            run_directory=directory / "envoy",
        )
        self.target = a_target(
            model=self._workload.name, stable=(stable,), canary=canary, gateway=self._envoy.gateway
        )
        self.world = World(
            TritonServing(self.target),
            EnvoyRoute(self.target),
            ScrapedMetrics(self.target, SystemClock()),
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[SandboxRig]:
        """The rig while everything runs."""
        with contextlib.ExitStack() as stack:
            for server in self._servers.values():
                stack.callback(server.kill)
                server.start(within=None)
            for server in self._servers.values():
                server.wait_ready(timedelta(seconds=60))
            stack.callback(self._envoy.stop)
            self._envoy.start()
            yield self

    def send(self, requests: int) -> int:
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(self._send_one, range(requests)))
        give_up = time.monotonic() + QUIET_WITHIN_SECONDS
        while not _quiet(self.world.metrics.sample()):
            assert time.monotonic() < give_up, "not all requests became visible in the gateway's counters"
            time.sleep(0.1)
        return requests

    def seen_from_now(self) -> Sample:
        return self.world.metrics.sample()

    def crash(self, replica: str) -> None:
        self._servers[replica].kill()

    def start(self, replica: str) -> None:
        self._servers[replica].start()

    def stop_gateway(self) -> None:
        self._envoy.stop()

    def restart_gateway(self) -> None:
        self._envoy.restart()

    def _send_one(self, number: int) -> None:
        bodies = self._requests.bodies
        place = urlsplit(self._envoy.url).netloc
        with contextlib.closing(http.client.HTTPConnection(place, timeout=10)) as connection:
            headers = dict(self._requests.headers)
            connection.request("POST", self._requests.path, bodies[number % len(bodies)], headers)
            connection.getresponse().read()


class PrometheusRig(SandboxRig):
    """The same servers and gateway, counted by a real Prometheus: what happened is seen a few scrapes later."""

    def __init__(self, installation: TritonInstallation, directory: Path) -> None:
        super().__init__(installation, directory)
        pages = {"envoy": f"{self._envoy.admin_url}/stats/prometheus"}
        pages |= {replica.name: replica.metrics_url for replica in self.target.replicas}
        jobs = [job(name, url, {"pod": name}) for name, url in pages.items()]
        self._prometheus = PrometheusServer(directory / "prometheus", SCRAPED_EVERY, jobs)
        plan = Instrumentation(Address(self._prometheus.url), server=(("pod", "{name}"),))
        self.target = changed(self.target, metrics=plan)
        statistics = ScrapedStatistics(self.target, timedelta(seconds=2))
        metrics = PrometheusMetrics(self.target, SecretShelf(), statistics, SystemClock())
        self.world = World(self.world.serving, self.world.route, metrics)

    @contextlib.contextmanager
    def running(self) -> Iterator[SandboxRig]:
        with super().running(), self._prometheus:
            self._await(lambda sample: set(sample.servers) == set(_names(self.target)))
            yield self

    def send(self, requests: int) -> int:
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(self._send_one, range(requests)))
        self._await_from_now(_quiet)
        return requests

    def seen_from_now(self) -> Sample:
        self._await_from_now(lambda _: True)
        return self.world.metrics.sample()

    def crash(self, replica: str) -> None:
        super().crash(replica)
        self._await(lambda sample: replica not in sample.servers)

    def start(self, replica: str) -> None:
        super().start(replica)
        self._await_from_now(lambda sample: replica in sample.servers)

    def stop_gateway(self) -> None:
        super().stop_gateway()
        self._await(lambda sample: not sample.gateway)

    def restart_gateway(self) -> None:
        super().restart_gateway()
        self._await_from_now(lambda sample: set(sample.servers) == set(_names(self.target)))

    def _await_from_now(self, wanted: Callable[[Sample], bool]) -> None:
        since = SystemClock().now()
        self._await(lambda sample: sample.at > since and wanted(sample))

    def _await(self, wanted: Callable[[Sample], bool]) -> None:
        limit = timedelta(seconds=QUIET_WITHIN_SECONDS)
        wait_until(lambda: wanted(self.world.metrics.sample()), within=limit, what="Prometheus has seen it")


def _quiet(sample: Sample) -> bool:
    counters = sample.gateway.values()
    return bool(counters) and all(
        c.ended == c.sent and c.buckets[-1] + c.failed_unmeasured == c.ended for c in counters
    )


def a_quick_workload() -> Workload:
    """A model that answers within milliseconds, in batches of at most 8."""
    return parse_workload(
        {
            "name": "quick",
            "model": "emulated-gpu",
            "max_batch_size": 8,
            "batch_latency_ms": {1: 2, 8: 4},
            "transfer_ms_per_item": 0,
            "instance_memory_mb": 100,
            "device_memory_mb": 2000,
            "incumbent": {"preferred_batch_size": [4]},
            "traffic": {"requests_per_second": 100, "arrivals": {"poisson": True}},
            "slo": {"p99_ms": CEILING / timedelta(milliseconds=1)},
        }
    )
