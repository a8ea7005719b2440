"""A simulated target behind the same three doors as a real one, driven by a clock that somebody turns.

It exists so that the whole loop can be rehearsed in seconds, seeded and repeatable, with every fault of the
real parts one call away. Requests are simulated one by one through a dynamic batcher; nothing sleeps.
"""

from autotuner.adapters.simulated.faults import Faults
from autotuner.adapters.simulated.profile import (
    Bursts,
    SimulatedProfile,
    SlowClusters,
    already_best,
    flat,
    no_help,
    small_vision,
    thin_traffic,
)
from autotuner.adapters.simulated.reports import MetricsFault
from autotuner.adapters.simulated.world import SimulatedWorld

__all__ = [
    "Bursts",
    "Faults",
    "MetricsFault",
    "SimulatedProfile",
    "SimulatedWorld",
    "SlowClusters",
    "already_best",
    "flat",
    "no_help",
    "small_vision",
    "thin_traffic",
]
