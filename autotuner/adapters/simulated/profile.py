"""What a simulated target is like: its traffic, its model and its device, and a few named ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from autotuner.domain.configuration import Configuration

MEGABYTE = 1e6


@dataclass(frozen=True)
class Bursts:
    """Arrivals that alternate between a busy and a quiet state, each of exponential length.

    high, low: rate in the two states as a multiple of the mean rate, `low < 1 < high`.
    mean_seconds: mean length of a state, averaged over both kinds.
    """

    high: float = 1.75
    low: float = 0.5
    mean_seconds: float = 1.2

    @property
    def high_share(self) -> float:
        """Share of the time spent in the busy state, so that the mean rate is the nominal one."""
        return (1.0 - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class SlowClusters:
    """Moments at which one replica alone is slow: why slow requests come in clusters.

    every: mean time between two of them on one replica; lasting: their length; factor: on compute time.
    """

    every: timedelta = timedelta(seconds=60)
    lasting: timedelta = timedelta(milliseconds=200)
    factor: float = 3.0


@dataclass(frozen=True)
class SimulatedProfile:
    """A simulated target.

    requests_per_second: mean over all replicas. bursts: None for Poisson arrivals.
    batch_compute_seconds: (batch size, seconds) points of the compute time, linear between and beyond the last
    two; compute is exclusive on a replica's device, the transfer before it overlaps between instances.
    network_seconds: what the gateway adds to every latency. noise: standard deviation of log compute time.
    route_timeout: after this long without an answer the gateway gives a request up; no histogram has it then.
    error_ratio: share of requests that the server answers with an error.
    load_time: from the acceptance of a load until the new version serves; zero makes loads instant.
    cold_time, cold_factor: for how long after a load or a start compute is slow, and by how much.
    flush_interval: how often the gateway merges its histograms; edges_seconds: their bucket edges.
    reports_device: whether servers report memory and busy time of the device.
    ignores_configuration: every replica behaves as the incumbent, whatever is loaded.
    """

    requests_per_second: float
    batch_compute_seconds: tuple[tuple[int, float], ...]
    incumbent: Configuration
    bursts: Bursts | None = None
    transfer_seconds_per_item: float = 0.0002
    network_seconds: float = 0.001
    noise: float = 0.03
    slow_clusters: SlowClusters | None = None
    route_timeout: timedelta = timedelta(seconds=2)
    error_ratio: float = 0.0
    instance_memory_bytes: float = 900 * MEGABYTE
    device_memory_bytes: float = 16_000 * MEGABYTE
    load_time: timedelta = timedelta(0)
    cold_time: timedelta = timedelta(seconds=1)
    cold_factor: float = 4.0
    flush_interval: timedelta = timedelta(seconds=1)
    edges_seconds: tuple[float, ...] = (
        *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
        math.inf,
    )
    reports_device: bool = True
    ignores_configuration: bool = False

    def compute_curve_seconds(self, largest: int) -> list[float]:
        """Return compute seconds by batch size, from 0 (unused) to `largest`."""
        (size, seconds), (last_size, last_seconds) = self.batch_compute_seconds[-2:]
        slope = (last_seconds - seconds) / (last_size - size)
        points = (*self.batch_compute_seconds, (last_size + largest, last_seconds + slope * largest))
        curve = np.interp(np.arange(largest + 1), [at for at, _ in points], [s for _, s in points])
        return [float(value) for value in curve]


_VISION_CURVE = ((1, 0.012), (2, 0.013), (4, 0.0155), (8, 0.021), (16, 0.032), (32, 0.054))


def _configuration(preferred: tuple[int, ...], max_batch_size: int = 32) -> Configuration:
    return Configuration(0, preferred, instance_count=1, max_batch_size=max_batch_size)


def small_vision() -> SimulatedProfile:
    """Preferred sizes copied from an example cap the batch.

    Within 100 ms a replica carries about 280 requests per second, and about 380 with no preferred sizes.
    """
    return SimulatedProfile(460.0, _VISION_CURVE, _configuration((4, 8)), bursts=Bursts(1.2, 0.85, 1.0))


def no_help() -> SimulatedProfile:
    """Compute alone takes 98 of the 100 ms that are usually allowed: no configuration can help."""
    curve = ((1, 0.097), (2, 0.099), (4, 0.103), (8, 0.112))
    return SimulatedProfile(40.0, curve, _configuration((), 8), transfer_seconds_per_item=0.001)


def already_best() -> SimulatedProfile:
    """A batch costs as much as its items one by one, and the incumbent sends them so: nothing is better."""
    curve = ((1, 0.004), (32, 0.128))
    return SimulatedProfile(300.0, curve, _configuration((1,)), transfer_seconds_per_item=0.0)


def thin_traffic() -> SimulatedProfile:
    """The small vision model with three requests a second over all replicas: too few to batch or to judge."""
    return SimulatedProfile(3.0, _VISION_CURVE, _configuration((4, 8)))


def flat() -> SimulatedProfile:
    """All configurations behave exactly as the incumbent: whatever is promoted here is noise."""
    return SimulatedProfile(
        400.0,
        _VISION_CURVE,
        _configuration(()),
        slow_clusters=SlowClusters(),
        ignores_configuration=True,
    )
