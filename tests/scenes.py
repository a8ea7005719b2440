"""A simulated target with its clock, as the tests of the simulation turn and look at it."""

from __future__ import annotations

import math
from datetime import timedelta

from autotuner.adapters.simulated import (
    SimulatedProfile,
    SimulatedWorld,
)
from autotuner.domain.configuration import Configuration, read_configuration, with_configuration
from autotuner.domain.measurement import Sample, Window
from tests.builders import ManualClock, a_configuration, a_target

CANARY = "canary"
STABLE = ("stable-0", "stable-1")
LIMIT = timedelta(seconds=30)
FINE_EDGES = (*(milliseconds / 1000 for milliseconds in range(1, 2000)), math.inf)
SIMPLE = SimulatedProfile(
    requests_per_second=200.0,
    batch_compute_seconds=((1, 0.004), (32, 0.0133)),
    incumbent=a_configuration(),
    transfer_seconds_per_item=0.0,
    network_seconds=0.0,
    noise=0.0,
    cold_time=timedelta(0),
    edges_seconds=FINE_EDGES,
)


class Scene:
    """A simulated world with its clock."""

    def __init__(self, profile: SimulatedProfile, seed: int = 1, stable: int = 2) -> None:
        self.clock = ManualClock()
        self.sim = SimulatedWorld(a_target(stable=stable), self.clock, profile, seed)

    def load(self, replica: str, configuration: Configuration) -> None:
        config = with_configuration(self.sim.serving.model_config(replica), configuration)
        self.sim.serving.load(replica, config, LIMIT)

    def loaded(self, replica: str) -> Configuration:
        return read_configuration(self.sim.serving.model_config(replica))

    def share_canary(self, weight: int) -> None:
        rest = (1000 - weight) // 2
        self.sim.route.set_weights({"stable-0": rest, "stable-1": 1000 - weight - rest, CANARY: weight})

    def window(self, seconds: float) -> Window:
        first = self.sim.metrics.sample()
        self.clock.turn(seconds)
        return Window(first, self.sim.metrics.sample())

    def after(self, seconds: float) -> Sample:
        self.clock.turn(seconds)
        return self.sim.metrics.sample()
