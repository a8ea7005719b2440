"""What a look at the metrics of a simulated target shows, also when an endpoint answers nonsense.

What cannot be read as numbers is absent with an explanation, exactly as the scraping adapter reports it. Zeros
and old values are numbers, and so they are passed on: telling them from the truth is the reader's business.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from autotuner.adapters.simulated.simulation import Simulation
from autotuner.domain.measurement import GatewayCounters, Sample, ServerCounters

GATEWAY = "gateway"
"""The source of the gateway's counters, beside the replicas' names."""


class MetricsFault(StrEnum):
    """How a metrics endpoint answers nonsense."""

    NAN = "nan"
    ZEROS = "zeros"
    FROZEN = "frozen"
    """The answer of the moment the fault began, again and again."""
    HTML = "html"
    SILENT = "silent"
    """No answer in time."""


_WORDS = {
    MetricsFault.NAN: "a counter is not a number (NaN)",
    MetricsFault.HTML: "the answer is an HTML page, not metrics",
    MetricsFault.SILENT: "no answer in time",
}

_NO_REQUESTS = ServerCounters(0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)


class Reports:
    """Looks at a simulation; call everything inside its `present()`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._faults: dict[str, MetricsFault] = {}
        self._frozen_gateway: dict[str, GatewayCounters] = {}
        self._frozen_servers: dict[str, ServerCounters] = {}

    def spoil(self, source: str, fault: MetricsFault) -> None:
        """Let the endpoint of `source` (a replica or `gateway`) answer in the way of `fault` from now on."""
        self.heal(source)
        if source == GATEWAY:
            self._frozen_gateway = self._simulation.gateway.counters(self._simulation.now)
        else:
            self._frozen_servers[source] = self._simulation.servers[source].counters()
        self._faults[source] = fault

    def heal(self, source: str) -> None:
        """Let the endpoint of `source` answer truly again."""
        self._faults.pop(source, None)

    def sample(self, at: datetime) -> Sample:
        """Return everything that can be read now; no edges when the gateway cannot be read."""
        faults: dict[str, str] = {}
        servers = self._servers(faults)
        gateway = self._gateway(faults)
        edges = self._simulation.profile.edges_seconds if gateway else ()
        return Sample(at, edges, gateway, servers, faults)

    def _servers(self, faults: dict[str, str]) -> dict[str, ServerCounters]:
        read = {}
        for name, server in self._simulation.servers.items():
            fault = self._faults.get(name)
            if not server.up:
                faults[name] = "server metrics: connection refused"
            elif fault in _WORDS:
                faults[name] = f"server metrics: {_WORDS[fault]}"
            elif fault is MetricsFault.FROZEN:
                read[name] = self._frozen_servers[name]
            else:
                read[name] = _NO_REQUESTS if fault is MetricsFault.ZEROS else server.counters()
        return read

    def _gateway(self, faults: dict[str, str]) -> dict[str, GatewayCounters]:
        simulation, fault = self._simulation, self._faults.get(GATEWAY)
        words = "" if simulation.gateway.up else "connection refused"
        words = words or (_WORDS.get(fault, "") if fault else "")
        if words:
            for name in (GATEWAY, *simulation.servers):
                faults.setdefault(name, f"gateway metrics: {words}")
            return {}
        if fault is MetricsFault.FROZEN:
            return self._frozen_gateway
        if fault is MetricsFault.ZEROS:
            nothing = GatewayCounters(0, 0, 0, 0, (0,) * len(simulation.profile.edges_seconds), 0.0)
            return dict.fromkeys(simulation.servers, nothing)
        return simulation.gateway.counters(simulation.now)
