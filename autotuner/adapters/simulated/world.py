"""The three doors of a simulated target, sharing one state and one clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from autotuner.adapters.simulated.background import SimulatedBackground
from autotuner.adapters.simulated.faults import Faults
from autotuner.adapters.simulated.profile import SimulatedProfile
from autotuner.adapters.simulated.reports import Reports
from autotuner.adapters.simulated.simulation import Simulation
from autotuner.domain.configuration import ModelConfig
from autotuner.domain.measurement import Sample
from autotuner.domain.provenance import Provenance
from autotuner.domain.target import Target
from autotuner.ports import Clock, World


class SimulatedServing:
    """`Serving` of a simulated target.

    Nothing here waits: `load` returns once the load is accepted, and the new configuration is served and read
    back when the profile's load time has passed on the clock. Until then, and for ever when loads hang, the old
    version serves, `model_config` returns the old configuration and `is_ready` says True. Work submitted to the
    world's `background` ends when its loads do, within their `limit`, as a thread's would on a real server.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def model_config(self, replica: str) -> ModelConfig:
        """Return the complete configuration served now. Raises Unavailable, InvalidInput."""
        with self._simulation.present():
            server = self._simulation.server(replica)
            server.require_up()
            return server.config

    def is_ready(self, replica: str) -> bool:
        """Say whether the model is ready on the replica."""
        with self._simulation.present():
            return self._simulation.server(replica).up

    def provenance(self, replica: str) -> Provenance:
        """Return what the replica runs. Raises Unavailable, InvalidInput."""
        with self._simulation.present():
            server = self._simulation.server(replica)
            server.require_up()
            return Provenance(triton=server.triton)

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """Load the complete configuration `config`. Raises Refused, Unavailable, InvalidInput."""
        with self._simulation.present():
            self._simulation.load(replica, config, limit)


class SimulatedRoute:
    """`Route` of a simulated target."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def weights(self) -> Mapping[str, int]:
        """Return the weight of each replica. Raises Unavailable."""
        with self._simulation.present():
            self._simulation.gateway.require_up()
            return self._simulation.gateway.weights

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set all weights at once. Raises Unavailable, Refused."""
        with self._simulation.present():
            self._simulation.gateway.require_up()
            self._simulation.gateway.set_weights(weights)


class SimulatedMetrics:
    """`MetricsSource` of a simulated target."""

    def __init__(self, simulation: Simulation, reports: Reports) -> None:
        self._simulation = simulation
        self._reports = reports

    def sample(self) -> Sample:
        """Read everything once."""
        with self._simulation.present():
            return self._reports.sample(self._simulation.clock.now())


class SimulatedWorld:
    """A target that exists only in memory: its three doors, and the switches of its faults.

    The same seed, the same turns of the clock and the same calls give the same counters to the last digit, and
    looking more often changes nothing. The gateway begins with all traffic on the stable replicas.
    """

    def __init__(self, target: Target, clock: Clock, profile: SimulatedProfile, seed: int = 0) -> None:
        self._simulation = simulation = Simulation(target, clock, profile, seed)
        reports = Reports(simulation)
        self.serving = SimulatedServing(simulation)
        self.route = SimulatedRoute(simulation)
        self.metrics = SimulatedMetrics(simulation, reports)
        self.faults = Faults(simulation, reports)
        self.background = SimulatedBackground(simulation)

    @property
    def offered(self) -> int:
        """Requests that users have sent until now, whatever became of them."""
        with self._simulation.present():
            return self._simulation.offered

    @property
    def world(self) -> World:
        """The three doors as the controller takes them."""
        return World(self.serving, self.route, self.metrics, at_hand=True)
