"""One Triton replica, batch by batch: the dynamic batcher's rules and three laws of how instances disturb one another.

The batcher's rules, as seen on the real server and read in its source (`dynamic_batch_scheduler.cc`, `payload`):

- Without a delay a waiting payload grows until an instance takes it, up to the largest preferred size.
- With a delay a preferred size is sent at once while the oldest request has not waited longer than the delay; once it
  has, everything queued goes, up to max_batch_size.
- A full payload that had to wait for an instance takes one request more: batches of max(preferred) + 1 occur.

What runs at the same time on one device slows down; nobody can know beforehand how. So there are three laws, each with
one strength (0: none).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from autotuner.batching.compiled import compiled
from autotuner.batching.trials import Floats, Setting

Counts = NDArray[np.int64]


class Law(IntEnum):
    """How a batch is slowed by the others that run."""

    DISPATCH = 0
    """By `1 + strength × (running − 1)`, fixed when it starts."""
    SHARING = 1
    """By the same factor, but of what runs at each moment: processor sharing."""
    EXCLUSIVE = 2
    """The share `strength` of its time is exclusive, one batch after the other; the rest overlaps."""


@dataclass(frozen=True)
class Device:
    """What executes the batches.

    curve_seconds: compute time by batch size when nothing else runs, index 0 unused, shape (max_batch_size + 1,).
    """

    curve_seconds: Floats
    law: Law
    strength: float


@dataclass(frozen=True)
class Run:
    """One simulated window.

    latency_seconds: of each request from its arrival to its answer, in order of arrival, shape (n,).
    executions, compute_seconds: by batch size, shape (max_batch_size + 1,); compute as Triton reports it, from
    the start of a batch to its end. busy_seconds: time in which the device did anything.
    queue_seconds: summed over the requests. span_seconds: from the first arrival to the last answer.
    """

    latency_seconds: Floats
    executions: Counts
    compute_seconds: Floats
    busy_seconds: float
    queue_seconds: float
    span_seconds: float

    @property
    def mean_batch(self) -> float:
        """Requests per execution."""
        return len(self.latency_seconds) / max(1, int(self.executions.sum()))


def simulate(arrivals: Floats, setting: Setting, device: Device, factors: Floats) -> Run:
    """Return what happens to requests that arrive at `arrivals` (seconds, ascending, at least one).

    factors: what each batch's compute time is multiplied by, used in turn and from the start again.
    """
    largest = setting.max_batch_size
    preferred = np.array(setting.preferred or (largest,), dtype=np.int64)
    latency = np.empty(len(arrivals))
    executions, compute = np.zeros(largest + 1, dtype=np.int64), np.zeros(largest + 1)
    kernel = _run_sharing if device.law is Law.SHARING else _run_dispatch
    busy, queue, end = kernel(
        arrivals,
        setting.delay_seconds,
        preferred,
        largest,
        setting.instances,
        device.curve_seconds,
        device.law == Law.EXCLUSIVE,
        device.strength,
        factors,
        latency,
        executions,
        compute,
    )
    return Run(latency, executions, compute, busy, queue, end - float(arrivals[0]))


@compiled
def _form(  # noqa: PLR0913, PLR0917 - compiled: numbers in, numbers out
    arrivals: Floats,
    head: int,
    tail: int,
    ready: float,
    waited: bool,
    delay: float,
    preferred: Counts,
    largest: int,
) -> tuple[float, int, int]:
    """When the next batch starts, its size, and the first request that has not arrived by then.

    ready: when an instance can take it and at least one request is there. waited: whether it waited for an instance.
    """
    count = len(arrivals)
    while tail < count and arrivals[tail] <= ready:
        tail += 1
    queued, cap = tail - head, preferred[-1]
    if delay <= 0.0:
        return ready, min(queued, cap), tail
    due = arrivals[head] + delay
    if ready >= due:
        return ready, min(queued, largest), tail
    if queued >= preferred[0]:
        size = preferred[0]
        for wanted in preferred:
            if wanted <= queued:
                size = wanted
        if waited and size == cap and queued > cap and size < largest:
            size += 1
        return ready, size, tail
    last = head + preferred[0] - 1
    if last < count and arrivals[last] < due:
        return arrivals[last], preferred[0], last + 1
    while tail < count and arrivals[tail] <= due:
        tail += 1
    return due, min(tail - head, largest), tail


@compiled
def _run_dispatch(  # noqa: PLR0913, PLR0917 - one compiled loop; `simulate` is its only caller
    arrivals: Floats,
    delay: float,
    preferred: Counts,
    largest: int,
    instances: int,
    curve: Floats,
    exclusive: bool,
    strength: float,
    factors: Floats,
    latency: Floats,
    executions: Counts,
    compute: Floats,
) -> tuple[float, float, float]:
    """Simulate the two laws under which a batch's end is known when it starts."""
    count, draws = len(arrivals), len(factors)
    free = np.full(instances, -1.0)
    head, tail, number = 0, 0, 0
    device_free, busy, queue, last_start, end = -1.0, 0.0, 0.0, -1.0, 0.0
    while head < count:
        at = 0
        for i in range(1, instances):
            if free[i] < free[at]:
                at = i
        ready = max(free[at], arrivals[head], last_start)
        start, size, tail = _form(
            arrivals, head, tail, ready, free[at] > arrivals[head], delay, preferred, largest
        )
        spent = curve[size] * factors[number % draws]
        number += 1
        if exclusive:
            begun = max(start + spent * (1.0 - strength), device_free)
            done = begun + spent * strength
            busy += spent * strength
            device_free = done
        else:
            running = 1
            for i in range(instances):
                if free[i] > start:
                    running += 1
            done = start + spent * (1.0 + strength * (running - 1))
            busy += max(0.0, done - max(start, device_free))
            device_free = max(device_free, done)
        free[at] = done
        last_start = start
        end = max(end, done)
        executions[size] += 1
        compute[size] += done - start
        for i in range(head, head + size):
            latency[i] = done - arrivals[i]
            queue += start - arrivals[i]
        head += size
    return busy, queue, end


@compiled
def _run_sharing(  # noqa: PLR0913, PLR0917, C901, PLR0912, PLR0915 - one compiled loop, as above
    arrivals: Floats,
    delay: float,
    preferred: Counts,
    largest: int,
    instances: int,
    curve: Floats,
    exclusive: bool,  # noqa: ARG001 - one signature for both kernels
    strength: float,
    factors: Floats,
    latency: Floats,
    executions: Counts,
    compute: Floats,
) -> tuple[float, float, float]:
    """Simulate processor sharing: what runs advances together, each the slower the more there are."""
    count, draws = len(arrivals), len(factors)
    left, started = np.zeros(instances), np.zeros(instances)
    first, sizes = np.zeros(instances, dtype=np.int64), np.zeros(instances, dtype=np.int64)
    head, tail, number, running = 0, 0, 0, 0
    now, busy, queue, last_start, idle_since = arrivals[0], 0.0, 0.0, -1.0, -1.0
    while head < count or running > 0:
        slowness = 1.0 + strength * (running - 1)
        at, soonest = -1, np.inf
        for i in range(instances):
            if sizes[i] > 0 and left[i] < soonest:
                at, soonest = i, left[i]
        completion = now + soonest * slowness if at >= 0 else np.inf
        if running < instances and head < count:
            ready = max(now, arrivals[head], last_start)
            start, size, seen = _form(
                arrivals, head, tail, ready, idle_since > arrivals[head], delay, preferred, largest
            )
            if start <= completion:
                if running > 0:
                    busy += start - now
                    for i in range(instances):
                        if sizes[i] > 0:
                            left[i] -= (start - now) / slowness
                now, tail, last_start = start, seen, start
                for i in range(instances):
                    if sizes[i] == 0:
                        left[i], started[i] = curve[size] * factors[number % draws], start
                        first[i], sizes[i] = head, size
                        break
                number += 1
                running += 1
                for i in range(head, head + size):
                    queue += start - arrivals[i]
                head += size
                continue
        busy += completion - now
        for i in range(instances):
            if sizes[i] > 0:
                left[i] -= (completion - now) / slowness
        now = completion
        executions[sizes[at]] += 1
        compute[sizes[at]] += now - started[at]
        for i in range(first[at], first[at] + sizes[at]):
            latency[i] = now - arrivals[i]
        sizes[at] = 0
        running -= 1
        if running == instances - 1:
            idle_since = now
    return busy, queue, now
