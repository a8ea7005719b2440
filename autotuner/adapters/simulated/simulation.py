"""The shared state behind the three doors of a simulated target, and the passing of its time.

Time passes only when somebody looks: everything between the last look and the clock's present is then simulated
in one go, stopping at each planned moment (a load that becomes effective, a fault) to let it happen. How often
one looks changes nothing in what happens.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

import numpy as np

from autotuner.adapters.simulated.arrivals import Arrivals
from autotuner.adapters.simulated.gateway import Gateway, initial_weights
from autotuner.adapters.simulated.profile import SimulatedProfile
from autotuner.adapters.simulated.server import Server
from autotuner.domain.configuration import ModelConfig
from autotuner.domain.target import Target
from autotuner.errors import Unavailable
from autotuner.ports import Clock

Happening = Callable[[], None]


@dataclass
class Loading:
    """A load that `server` accepted in its process number `process`, `since` when in seconds.

    limit: how long whoever asked for it waits. effective: whether its configuration has been served.
    """

    server: Server
    process: int
    since: float
    limit: timedelta
    effective: bool = False

    @property
    def alive(self) -> bool:
        """Whether the process that accepted it still runs."""
        return self.server.up and self.server.process == self.process


class Simulation:
    """Servers, gateway and traffic of one target. Use everything inside `present()`."""

    def __init__(self, target: Target, clock: Clock, profile: SimulatedProfile, seed: int) -> None:
        self.profile = profile
        self.clock = clock
        traffic, direct, gateway, *servers = np.random.SeedSequence(seed).spawn(3 + len(target.replicas))
        self.servers = {
            replica.name: Server(replica.name, target.model, profile, own)
            for replica, own in zip(target.replicas, servers, strict=True)
        }
        self.target = target
        self.canary = target.canary.name
        self.gateway = Gateway(
            initial_weights(target.stable_names, self.canary, target.gateway.total_weight),
            profile.edges_seconds,
            profile.flush_interval.total_seconds(),
            gateway,
        )
        self.traffic = Arrivals(profile.requests_per_second, profile.bursts, traffic)
        self.direct = Arrivals(0.0, None, direct)
        """Requests that reach the canary without the gateway."""
        self.loadings: list[Loading] = []
        """Every load that was accepted."""
        self.offered = 0
        """Requests that users have sent to the gateway since the simulation began."""
        self.now = 0.0
        """Seconds since the simulation began."""
        self._began = clock.now()
        self._planned: list[tuple[float, int, Happening]] = []
        self._order = count()
        self._lock = threading.RLock()

    @contextmanager
    def present(self) -> Iterator[None]:
        """Simulate up to the clock's present and keep other threads out meanwhile."""
        with self._lock:
            present = (self.clock.now() - self._began).total_seconds()
            while self._planned and self._planned[0][0] <= present:
                moment, _, happening = heapq.heappop(self._planned)
                self._pass(moment)
                happening()
            self._pass(present)
            yield

    def server(self, replica: str) -> Server:
        """Return the server of a replica. Raises InvalidInput for a name that is none."""
        return self.servers[self.target.replica(replica).name]

    def plan(self, after: timedelta, happening: Happening) -> None:
        """Let `happening` take place `after` the present; at once when that is zero. Call inside `present()`."""
        if after <= timedelta(0):
            happening()
        else:
            heapq.heappush(self._planned, (self.now + after.total_seconds(), next(self._order), happening))

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """Accept a load, to become effective after the profile's load time.

        Raises Refused, Unavailable, InvalidInput.
        """
        server = self.server(replica)
        accepted = server.accept(config)
        loading = Loading(server, server.process, self.now, limit)
        self.loadings.append(loading)

        def effective() -> None:
            if loading.alive:
                server.serve(accepted, self.now)
                loading.effective = True

        if not server.hangs:
            self.plan(self.profile.load_time, effective)

    def fault(self, loading: Loading) -> Unavailable | None:
        """Return why whoever waits for a load should give it up now; None when there is no reason to."""
        if loading.effective:
            return None
        system = f"triton {loading.server.name}"
        if not loading.alive:
            return Unavailable(system, "the connection was lost while the model was loaded")
        if self.now - loading.since >= loading.limit.total_seconds():
            return Unavailable(system, f"no answer within {loading.limit.total_seconds():g} s")
        return None

    def _pass(self, to: float) -> None:
        """Simulate the traffic up to `to`."""
        if to <= self.now:
            return
        arrived, direct = self.traffic.until(to), self.direct.until(to)
        self.offered += len(arrived)
        given = self.gateway.split(arrived) if self.gateway.up else {}
        for name, server in self.servers.items():
            self._serve(server, given.get(name, []), direct.tolist() if name == self.canary else [], to)
        self.now = to

    def _serve(self, server: Server, routed: list[float], direct: list[float], to: float) -> None:
        if not server.up:
            self.gateway.break_off(server.name, len(routed))
            return
        server.batcher.offer(routed, direct)
        finished = server.batcher.run(to)
        failed = server.count(finished)
        ours = finished.routed
        latency_seconds = finished.done - finished.arrived + self.profile.network_seconds
        self.gateway.end(server.name, finished.done[ours], latency_seconds[ours], int(failed[ours].sum()))
        self.gateway.break_off(server.name, finished.given_up)
