"""One Triton replica, batch by batch: the dynamic batcher's thread and three laws of how instances disturb one another.

`batcher` has the server's rules. What runs at the same time on one device slows down, and nobody can know beforehand
how; so there are three laws, each with one strength (0: none).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotuner.batching import batcher
from autotuner.batching.compiled import compiled
from autotuner.batching.trials import Floats, Setting

Counts = NDArray[np.int64]

MEDIAN, TAIL = 0.5, (0.95, 0.99, 0.995)
"""Quantiles of latency that are read."""

SAMPLED = 16
"""The largest latencies are looked for above what every so-manieth of all shows of where they begin."""

STRIDE = 8
"""Arrivals that are passed over at once where none of them wakes the thread."""


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
    complete: False where the run ended early because too many requests were slow; then nothing else is meant.
    """

    latency_seconds: Floats
    executions: Counts
    compute_seconds: Floats
    busy_seconds: float
    queue_seconds: float
    span_seconds: float
    complete: bool = True

    @cached_property
    def median(self) -> float:
        """The latency quantile .5 in seconds."""
        rank = self._rank(MEDIAN)
        return float(np.partition(self.latency_seconds, rank)[rank])

    @cached_property
    def tail(self) -> tuple[float, float, float]:
        """Latency quantiles .95, .99 and .995 in seconds: the least that at most the rest exceeds."""
        p95, p99, p995 = self._quantiles(TAIL)
        return p95, p99, p995

    @cached_property
    def far_tail(self) -> tuple[float, float]:
        """Latency quantiles .99 and .995 in seconds, as in `tail`."""
        p99, p995 = self._quantiles(TAIL[1:])
        return p99, p995

    def _quantiles(self, shares: Sequence[float]) -> list[float]:
        """Latency quantiles at ascending shares."""
        first = self._rank(shares[0])
        slowest = _largest(self.latency_seconds, len(self.latency_seconds) - first)
        return [float(slowest[self._rank(share) - first]) for share in shares]

    def _rank(self, share: float) -> int:
        count = len(self.latency_seconds)
        return min(count - 1, math.ceil(share * count))

    @property
    def mean_batch(self) -> float:
        """Requests per execution."""
        return len(self.latency_seconds) / max(1, int(self.executions.sum()))


def _largest(values: Floats, count: int) -> Floats:
    """The `count` largest values, ascending: without sorting most of the others."""
    sample = values[::SAMPLED]
    place = len(sample) - 2 * count // SAMPLED - 4
    if place > 0:
        above = values[values >= np.partition(sample, place)[place]]
        if len(above) >= count:
            above.sort()
            return np.asarray(above[-count:])
    return np.asarray(np.sort(np.partition(values, len(values) - count)[-count:]))


def simulate(
    arrivals: Floats,
    setting: Setting,
    device: Device,
    factors: Floats,
    patience_seconds: float = math.inf,
    most_slow: int = 0,
) -> Run:
    """Return what happens to requests that arrive at `arrivals` (seconds, ascending, at least one).

    factors: what each batch's compute time is multiplied by, used in turn and from the start again. The run ends early
    once more than `most_slow` requests took longer than the patience: hopeless settings cost little then.
    """
    largest = setting.max_batch_size
    latency = np.empty(len(arrivals))
    executions, compute = np.zeros(largest + 1, dtype=np.int64), np.zeros(largest + 1)
    busy, queue, end, complete = _run(
        arrivals,
        setting.delay_seconds,
        preferred_at_most(setting),
        setting.instances,
        device.curve_seconds,
        int(device.law),
        device.strength,
        factors,
        patience_seconds,
        most_slow,
        latency,
        executions,
        compute,
    )
    return Run(latency, executions, compute, busy, queue, end - float(arrivals[0]), bool(complete))


def preferred_at_most(setting: Setting) -> Counts:
    """Return for each batch size from 0 to the largest the largest preferred size that is no larger, 0 for none."""
    table = np.zeros(setting.max_batch_size + 1, dtype=np.int64)
    for size in setting.preferred or (setting.max_batch_size,):
        table[size] = size
    return np.maximum.accumulate(table)


_SHARING, _EXCLUSIVE = int(Law.SHARING), int(Law.EXCLUSIVE)


@compiled
def _run(  # noqa: PLR0913, PLR0917, C901, PLR0912, PLR0915 - one compiled loop; `simulate` is its only caller
    arrivals: Floats,
    delay: float,
    preferred: Counts,
    instances: int,
    curve: Floats,
    law: int,
    strength: float,
    factors: Floats,
    patience: float,
    most_slow: int,
    latency: Floats,
    executions: Counts,
    compute: Floats,
) -> tuple[float, float, float, bool]:
    """Fill latency, executions and compute; return busy seconds, summed queue seconds, the last end, whether complete.

    `ahead` holds the end of each running batch, or under processor sharing the work that is left of it, as of the
    instant `since` at which the number of running batches last changed.
    """
    count, draws = len(arrivals), len(factors)
    at, thread = 0, batcher.ASLEEP
    queue = np.zeros(batcher.PREFETCHED * instances, dtype=np.int64)
    ahead = np.full(instances, np.inf)
    began = np.zeros(instances)
    firsts, sizes = np.zeros(instances, dtype=np.int64), np.zeros(instances, dtype=np.int64)
    running, drawn, done, slow = 0, 0, -1, 0
    now, wake, finish, since, device_free = 0.0, np.inf, np.inf, 0.0, 0.0
    busy, queued, end = 0.0, 0.0, 0.0
    while True:
        # Arrivals that find the thread asleep and leave it so.
        quiet = batcher.quiet_until(at, thread, len(queue), count)
        while (
            at + STRIDE <= quiet and arrivals[at + STRIDE - 1] < finish and arrivals[at + STRIDE - 1] <= wake
        ):
            at += STRIDE
        while at < quiet and arrivals[at] < finish and arrivals[at] <= wake:
            at += 1
        arriving = arrivals[at] if at < count else np.inf
        changed = False
        if arriving < finish and arriving <= wake:
            now = arriving
            at += 1
        elif finish <= wake:
            if finish == np.inf and thread.head == count:
                return busy, queued, end, True
            now, changed = finish, True
        else:
            if thread.head == count and running == 0 and thread.payloads == 0:
                return busy, queued, end, True
            now = wake
        # The work done since the last change, before the number of running batches changes again.
        slowness = 1.0 + strength * max(0, running - 1)
        old, moved = running, now - since
        if changed:
            size = sizes[done]
            executions[size] += 1
            compute[size] += now - began[done]
            first = firsts[done]
            for i in range(np.uint64(first), np.uint64(first + size)):
                latency[i] = now - arrivals[i]
            while size > 0 and now - arrivals[first] > patience:
                slow, first, size = slow + 1, first + 1, size - 1
            if slow > most_slow and patience < np.inf:
                return busy, queued, end, False
            ahead[done], sizes[done] = np.inf, 0
            running -= 1
            end = max(end, now)
        looking = True
        while looking:
            while running < instances and thread.payloads > 0:
                first = thread.served
                size, thread = batcher.take(now, thread, queue, arrivals, delay, preferred)
                free = 0
                while sizes[free] > 0:
                    free += 1
                running += 1
                needed = curve[size] * factors[drawn]
                drawn = drawn + 1 if drawn + 1 < draws else 0
                if law == _SHARING:
                    # Counted from `since` like the others, so that one subtraction below serves them all.
                    ahead[free] = needed + moved / slowness if old > 0 else needed
                elif law == _EXCLUSIVE:
                    device_free = max(now + needed * (1.0 - strength), device_free) + needed * strength
                    busy += needed * strength
                    ahead[free] = device_free
                else:
                    ahead[free] = now + needed * (1.0 + strength * (running - 1))
                began[free], firsts[free], sizes[free] = now, first, size
                for i in range(first, first + size):
                    queued += now - arrivals[i]
                changed = True
            wake, thread = batcher.look(now, at, thread, queue, arrivals, delay, preferred)
            looking = wake < 0.0
        if changed:
            if old > 0 and law != _EXCLUSIVE:
                busy += moved
            finish, done = np.inf, -1
            for i in range(instances):
                if sizes[i] > 0:
                    if law == _SHARING and old > 0:
                        ahead[i] -= moved / slowness
                    if ahead[i] < finish:
                        finish, done = ahead[i], i
            if law == _SHARING and done >= 0:
                finish = now + max(0.0, finish) * (1.0 + strength * max(0, running - 1))
            since = now
