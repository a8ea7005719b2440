"""What can go wrong with a target, one line each, now or at a later moment of the simulated time.

Every method takes `after`: how long after the present it happens; at once by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from autotuner.adapters.simulated.reports import MetricsFault, Reports
from autotuner.adapters.simulated.simulation import Happening, Simulation
from autotuner.domain.configuration import Configuration, ModelConfig, with_configuration

NOW = timedelta(0)


class Faults:
    """The switches of one simulated target. `source` is a replica's name or `gateway`."""

    def __init__(self, simulation: Simulation, reports: Reports) -> None:
        self._simulation = simulation
        self._reports = reports

    def crash(self, replica: str, after: timedelta = NOW) -> None:
        """The server ends: connections are refused and everything in it is lost."""
        server, gateway = self._simulation.server(replica), self._simulation.gateway
        self._plan(after, lambda: gateway.break_off(replica, server.crash()))

    def start(self, replica: str, after: timedelta = NOW) -> None:
        """A crashed server comes back with its repository's configuration and counters at zero."""
        server = self._simulation.server(replica)
        self._plan(after, lambda: server.start(self._simulation.now))

    def repository(self, replica: str, config: ModelConfig, after: timedelta = NOW) -> None:
        """Another complete configuration is in the repository: what the server comes back with when it starts."""
        server = self._simulation.server(replica)
        self._plan(after, lambda: setattr(server, "repository", dict(config)))

    def gateway_down(self, after: timedelta = NOW) -> None:
        """The gateway ends: no request reaches a server through it, and it cannot be read or changed."""
        self._plan(after, self._end_gateway)

    def gateway_restart(self, after: timedelta = NOW) -> None:
        """The gateway starts anew: counters at zero, the initial weights; what it had under way is forgotten."""

        def restart() -> None:
            self._end_gateway()
            self._simulation.gateway.restart()

        self._plan(after, restart)

    def metrics(self, source: str, fault: MetricsFault, after: timedelta = NOW) -> None:
        """The metrics of `source` become unusable in the way of `fault`."""
        self._plan(after, lambda: self._reports.spoil(source, fault))

    def metrics_well(self, source: str, after: timedelta = NOW) -> None:
        """The metrics of `source` are good again."""
        self._plan(after, lambda: self._reports.heal(source))

    def refuse_loads(
        self, replica: str, words: str = "failed to load, no such device", after: timedelta = NOW
    ) -> None:
        """The server refuses every load in these words, and serves on; empty words end it."""
        server = self._simulation.server(replica)
        self._plan(after, lambda: setattr(server, "refuses", words))

    def hang_loads(self, replica: str, hangs: bool = True, after: timedelta = NOW) -> None:
        """The server accepts loads from then on and never finishes them; the old version serves on."""
        server = self._simulation.server(replica)
        self._plan(after, lambda: setattr(server, "hangs", hangs))

    def slow(
        self,
        *replicas: str,
        factor: float = 4.0,
        lasting: timedelta | None = None,
        after: timedelta = NOW,
    ) -> None:
        """Compute takes `factor` times as long on `replicas` (none named: on all), for good or for `lasting`.

        All of them together is the shared burst of which no configuration is to blame.
        """
        batchers = [self._simulation.server(name).batcher for name in replicas or self._simulation.servers]

        def begin(value: float) -> None:
            for batcher in batchers:
                batcher.slowdown = value

        self._plan(after, lambda: begin(factor))
        if lasting is not None:
            self._plan(after + lasting, lambda: begin(1.0))

    def traffic(self, requests_per_second: float, after: timedelta = NOW) -> None:
        """The mean rate over all replicas changes; 0 stops the traffic."""
        simulation = self._simulation
        self._plan(after, lambda: simulation.traffic.set_rate(requests_per_second, simulation.now))

    def direct_traffic(self, requests_per_second: float, after: timedelta = NOW) -> None:
        """Somebody sends requests straight to the canary, past the gateway; 0 ends it."""
        simulation = self._simulation
        self._plan(after, lambda: simulation.direct.set_rate(requests_per_second, simulation.now))

    def foreign_weights(self, weights: Mapping[str, int], after: timedelta = NOW) -> None:
        """Somebody else changes the gateway's weights."""
        self._plan(after, lambda: self._simulation.gateway.set_weights(weights))

    def foreign_configuration(
        self, replica: str, configuration: Configuration, after: timedelta = NOW
    ) -> None:
        """Somebody else loads `configuration` on the server; effective at once."""
        server = self._simulation.server(replica)
        self._plan(
            after,
            lambda: server.serve(with_configuration(server.config, configuration), self._simulation.now),
        )

    def another_version(self, replica: str, *versions: str, after: timedelta = NOW) -> None:
        """The server has other versions of the model loaded; none named: it no longer tells which."""
        server = self._simulation.server(replica)
        self._plan(after, lambda: setattr(server, "model_versions", versions))

    def take_memory(self, replica: str, memory_bytes: float, after: timedelta = NOW) -> None:
        """Something else occupies device memory; loads that no longer fit are refused; 0 gives it back."""
        server = self._simulation.server(replica)
        self._plan(after, lambda: setattr(server, "memory_taken_bytes", memory_bytes))

    def _end_gateway(self) -> None:
        self._simulation.gateway.up = False
        for server in self._simulation.servers.values():
            server.batcher.forget_gateway()

    def _plan(self, after: timedelta, happening: Happening) -> None:
        with self._simulation.present():
            self._simulation.plan(after, happening)
