"""The dynamic batcher in plain Python: what the compiled simulator is measured against, by the same rules.

Written as one would without a compiler: objects, lists and floats, no arrays. Interference is fixed at dispatch.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

IDLE_SECONDS = 0.5
TOLERANCE_SECONDS = 1e-9


@dataclass
class Payload:
    """Requests that leave together. waiting: it stands in the instances' queue and nobody closed it."""

    size: int = 0
    waiting: bool = False
    taken: bool = False
    saturated: bool = False


@dataclass
class Batcher:
    """The thread that forms payloads. at_most: by batch size, the largest preferred size that is no larger."""

    arrivals: list[float]
    delay: float
    at_most: list[int]
    slots: int
    arrived: int = 0
    head: int = 0
    served: int = 0
    wanted: int = 0
    current: Payload = field(default_factory=Payload)
    ready: deque[Payload] = field(default_factory=deque)

    def wakes(self) -> bool:
        """Whether the arrival that was just counted wakes the thread."""
        begins = self.current.saturated or self.current.taken
        return len(self.ready) < self.slots and (begins or self.arrived - self.head >= self.wanted)

    def look(self, now: float) -> float:
        """Look once; return when to look again, or -1 to go on at once."""
        if self.current.saturated or self.current.taken:
            self.current, self.wanted = Payload(), 0
        queued = self.arrived - self.head
        if queued == 0:
            return now + IDLE_SECONDS
        if len(self.ready) >= self.slots:
            return math.inf
        taken, saturated, wait = self._examined(queued, now - self.arrivals[self.head])
        payload = self.current
        payload.saturated = payload.saturated or saturated
        if taken == 0:
            return -1.0 if saturated else now + wait
        self.head += taken
        payload.size += taken
        if not payload.waiting:
            payload.waiting = True
            self.ready.append(payload)
        return -1.0

    def _examined(self, queued: int, age: float) -> tuple[int, bool, float]:
        """Requests to add to the current payload, whether it is closed then, and how long to wait for more."""
        size, largest = self.current.size, self.at_most[-1]
        room = len(self.at_most) - 1 - size
        pending = min(queued, room)
        full = size >= largest
        best = int(queued > 1 and room > 0) if full else max(0, self.at_most[size + pending] - size)
        exceeded = self.delay > 0.0 and age >= self.delay - TOLERANCE_SECONDS
        if best > 0 and not exceeded:
            return best, full or self.delay == 0.0, 0.0
        if pending == 0:
            return 0, True, 0.0
        if queued > room or size + pending >= largest:
            return pending, True, 0.0
        if exceeded or self.delay == 0.0:
            return pending, full, 0.0
        following = size + pending + 1
        while self.at_most[following] != following:
            following += 1
        self.wanted = following - size
        if size > 0 and self.at_most[size] != size:
            return pending, full, 0.0
        return 0, full, self.delay - age

    def take(self, now: float) -> int:
        """Let an instance take the first payload and what is merged into it; return the batch's size."""
        size = 0
        while self.ready:
            payload = self.ready[0]
            last = payload is self.current
            if size > 0:
                if self.delay <= 0.0 or now - self.arrivals[self.served + size] <= self.delay:
                    break
                payload.taken = payload.taken or last
                if size + payload.size >= len(self.at_most):
                    break
            payload.taken = payload.taken or last
            size += payload.size
            self.ready.popleft()
        self.served += size
        return size


@dataclass
class Instances:
    """Those that execute: end, first request and size of each running batch."""

    count: int
    curve: list[float]
    strength: float
    running: list[tuple[float, int, int]] = field(default_factory=list)

    def start(self, now: float, first: int, size: int) -> None:
        """Begin a batch."""
        took = self.curve[size] * (1.0 + self.strength * len(self.running))
        self.running.append((now + took, first, size))


def simulate(
    arrivals: list[float], delay: float, preferred: tuple[int, ...], instances: Instances
) -> list[float]:
    """Return the latency of each request, in seconds."""
    largest = len(instances.curve) - 1
    sizes = preferred or (largest,)
    at_most = [max((one for one in sizes if one <= size), default=0) for size in range(largest + 1)]
    batcher = Batcher(arrivals, delay, at_most, 2 * instances.count)
    latency = [0.0] * len(arrivals)
    wake = math.inf
    while True:
        arriving = arrivals[batcher.arrived] if batcher.arrived < len(arrivals) else math.inf
        ending = min(instances.running, default=(math.inf, 0, 0))
        now = min(arriving, ending[0], wake)
        if arriving == math.inf and not instances.running and batcher.served == len(arrivals):
            return latency
        if arriving < ending[0] and arriving <= wake:
            batcher.arrived += 1
            if not batcher.wakes():
                continue
        elif ending[0] <= wake:
            instances.running.remove(ending)
            _, first, size = ending
            for request in range(first, first + size):
                latency[request] = now - arrivals[request]
        wake = -1.0
        while wake < 0.0:
            while len(instances.running) < instances.count and batcher.ready:
                first = batcher.served
                instances.start(now, first, batcher.take(now))
            wake = batcher.look(now)
