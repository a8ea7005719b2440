"""One server's dynamic batcher and device, request by request.

The rules are those seen on the real server: a preferred size is sent as soon as it can be formed and caps the
batch while the queue delay is not exceeded; once the oldest request has waited longer than the delay everything
queued goes, up to the largest batch; without a delay batches form only while the instances are busy.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotuner.adapters.simulated.profile import SimulatedProfile, SlowClusters
from autotuner.domain.configuration import Configuration

_DRAW = 1024


class Batch(NamedTuple):
    """One execution; instants and durations in seconds. waited: for the device, behind other instances."""

    size: int
    started: float
    done: float
    transfer: float
    waited: float
    compute: float


@dataclass(frozen=True)
class Finished:
    """Batches that were done, and the requests in them, in order.

    arrived, done: instants of each request, shape (n,); queued: its seconds until its batch started, shape (n,);
    routed: whether the gateway still waits for it, shape (n,). given_up: how many requests, done or not, the
    gateway gave up waiting for meanwhile; the server computes those all the same.
    """

    batches: list[Batch]
    arrived: NDArray[np.float64]
    queued: NDArray[np.float64]
    done: NDArray[np.float64]
    routed: NDArray[np.bool_]
    given_up: int


class Batcher:
    """The queue, the instances and the device of one server."""

    def __init__(
        self, profile: SimulatedProfile, configuration: Configuration, seed: np.random.SeedSequence
    ) -> None:
        noise, clusters = seed.spawn(2)
        self._profile = profile
        self._patience = profile.route_timeout.total_seconds()
        self._noise = _Noise(profile.noise, np.random.default_rng(noise))
        self._clusters = _Clusters(profile.slow_clusters, np.random.default_rng(clusters))
        self._cluster = next(self._clusters)
        self._arrived: list[float] = []
        self._routed: list[bool] = []
        self._head = 0
        """Index of the first request that is in no batch yet; those before it are in `_running`."""
        self._running: list[Batch] = []
        self._device_free = 0.0
        self._cold_until = 0.0
        self.slowdown = 1.0
        """Factor on compute time from now on."""
        self._use(configuration, 0.0)

    def serve(self, configuration: Configuration, at: float, *, cold: bool) -> None:
        """Serve with `configuration` from `at` on; batches that already run finish as they began."""
        self._use(configuration, at)
        self._cold_until = at + self._profile.cold_time.total_seconds() if cold else 0.0

    def offer(self, routed: list[float], direct: list[float]) -> None:
        """Queue requests of the gateway and others sent directly, neither before any offered earlier."""
        if not direct:
            self._arrived.extend(routed)
            self._routed.extend([True] * len(routed))
            return
        both = sorted([*((at, True) for at in routed), *((at, False) for at in direct)])
        self._arrived.extend(at for at, _ in both)
        self._routed.extend(ours for _, ours in both)

    def forget_gateway(self) -> None:
        """Treat everything in the server as sent directly: the gateway that sent it is gone."""
        self._routed = [False] * len(self._routed)

    def drop_all(self) -> int:
        """Lose everything queued and running; return how many of those requests came through the gateway."""
        lost = sum(self._routed)
        self._arrived, self._routed, self._running, self._head = [], [], [], 0
        return lost

    def run(self, until: float) -> Finished:
        """Let the time pass up to `until` and return what was done by then."""
        while (formed := self._form(until)) is not None:
            start, size = formed
            self._running.append(self._execute(start, size))
            self._head += size
        return self._collect(until)

    def _use(self, configuration: Configuration, at: float) -> None:
        used = self._profile.incumbent if self._profile.ignores_configuration else configuration
        self._delay = used.queue_delay_seconds
        self._largest = used.max_batch_size
        self._curve = self._profile.compute_curve_seconds(used.max_batch_size)
        self._preferred = used.preferred_batch_size or (used.max_batch_size,)
        self._free = [at] * used.instance_count

    def _form(self, until: float) -> tuple[float, int] | None:
        """Return when the next batch starts and its size; None when that is not decided by `until`."""
        if self._head >= len(self._arrived):
            return None
        oldest = self._arrived[self._head]
        ready = max(self._free[0], oldest)
        if ready > until:
            return None
        queued = bisect_right(self._arrived, ready, self._head) - self._head
        if queued >= self._preferred[0] and (self._delay == 0.0 or ready < oldest + self._delay):
            return ready, self._preferred[bisect_right(self._preferred, queued) - 1]
        due = oldest + self._delay
        if ready >= due:
            return ready, min(queued, self._largest)
        return self._wait(due, until)

    def _wait(self, due: float, until: float) -> tuple[float, int] | None:
        """Wait for the smallest preferred size, at most until `due`."""
        last = self._head + self._preferred[0] - 1
        if last < len(self._arrived) and self._arrived[last] < due:
            return self._arrived[last], self._preferred[0]
        if due > until:
            return None
        return due, min(bisect_right(self._arrived, due, self._head) - self._head, self._largest)

    def _execute(self, start: float, size: int) -> Batch:
        transfer = size * self._profile.transfer_seconds_per_item
        begun = max(start + transfer, self._device_free)
        compute = self._curve[size] * next(self._noise) * self.slowdown
        if start < self._cold_until:
            compute *= self._profile.cold_factor
        while start >= self._cluster[1]:
            self._cluster = next(self._clusters)
        if start >= self._cluster[0]:
            compute *= self._cluster[2]
        done = begun + compute
        self._device_free = done
        heapq.heapreplace(self._free, done)
        return Batch(size, start, done, transfer, begun - start - transfer, compute)

    def _collect(self, until: float) -> Finished:
        count = sum(1 for batch in self._running if batch.done <= until)
        batches, self._running = self._running[:count], self._running[count:]
        sizes = [batch.size for batch in batches]
        total = sum(sizes)
        arrived = np.array(self._arrived[:total], dtype=np.float64)
        done = np.repeat(np.array([batch.done for batch in batches]), sizes)
        routed = np.array(self._routed[:total], dtype=np.bool_)
        late = routed & (done - arrived > self._patience)
        finished = Finished(
            batches=batches,
            arrived=arrived,
            queued=np.repeat(np.array([batch.started for batch in batches]), sizes) - arrived,
            done=done,
            routed=routed & ~late,
            given_up=int(late.sum()) + self._give_up(total, until),
        )
        del self._arrived[:total], self._routed[:total]
        self._head -= total
        return finished

    def _give_up(self, begin: int, until: float) -> int:
        """Stop the gateway's waiting for requests from index `begin` on that are too old by `until`."""
        end = bisect_left(self._arrived, until - self._patience, begin)
        count = sum(self._routed[begin:end])
        if count:
            self._routed[begin:end] = [False] * (end - begin)
        return count


class _Noise:
    """Factors of mean 1 on compute time, one after another."""

    def __init__(self, sigma: float, draws: np.random.Generator) -> None:
        self._sigma = sigma
        self._draws = draws
        self._left: list[float] = []

    def __next__(self) -> float:
        if not self._left:
            drawn = np.exp(self._sigma * self._draws.standard_normal(_DRAW) - self._sigma**2 / 2)
            self._left = drawn[::-1].tolist()
        return self._left.pop()


class _Clusters:
    """(begin, end, factor on compute time) of one slow stretch after the other, in seconds."""

    def __init__(self, clusters: SlowClusters | None, draws: np.random.Generator) -> None:
        self._clusters = clusters
        self._draws = draws
        self._end = 0.0

    def __next__(self) -> tuple[float, float, float]:
        if self._clusters is None:
            return float("inf"), float("inf"), 1.0
        begin = self._end + float(self._draws.exponential(self._clusters.every.total_seconds()))
        self._end = begin + self._clusters.lasting.total_seconds()
        return begin, self._end, self._clusters.factor
