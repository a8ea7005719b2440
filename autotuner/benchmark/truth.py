"""The true system: one Triton replica and its device, event by event.

Requests arrive, the batcher's thread forms payloads (`batcher`), idle instances take them, and instances that are busy
at the same time slow one another down. Service times scatter, and now and then a batch takes much longer. All chance
is drawn beforehand with the traffic, one factor a request of which a batch uses its first one's: two settings that
see the same traffic differ by what they do and not by luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autotuner.batching.batcher import ASLEEP, PREFETCHED, Floats, Ints, look, quiet_until, take
from autotuner.batching.compiled import compiled
from autotuner.batching.trials import Setting

NOBODY = 0
"""A limit on slow requests that switches the early end off."""


class Law(StrEnum):
    """How instances that compute at the same time slow one another down; g is the interference."""

    DISPATCH = "dispatch"
    """A batch takes 1 + g·(busy − 1) times as long, with the instances busy when it starts, itself included."""
    SHARING = "processor sharing"
    """Work is done at the rate 1 / (1 + g·(busy − 1)), with those that are busy at each moment."""


@dataclass(frozen=True)
class Device:
    """What executes batches.

    curve_seconds: compute time by batch size, index 0 unused, shape (max_batch_size + 1,). interference: g, 0 or more.
    before_seconds, after_seconds: spent on every request outside Triton's queue and compute, on the way there and back.
    slow_from, slow_factor: since when (seconds, ascending, the first at most 0) compute takes how many times as long
    because somebody else uses the device, shape (k,).
    """

    curve_seconds: Floats
    interference: float
    law: Law
    before_seconds: float
    after_seconds: float
    slow_from: Floats
    slow_factor: Floats


@dataclass(frozen=True)
class Traffic:
    """Requests: instants of arrival in seconds, ascending, and the factors on compute time, both of shape (n,)."""

    arrivals: Floats
    factors: Floats


@dataclass(frozen=True)
class Outcome:
    """What became of the traffic.

    latency, queued: seconds of each request as its client sees them, and in Triton's queue, shape (n,). size, began,
    ended: of each batch in the order of dispatch, shape (batches,); ended − began is compute as Triton reports it.
    complete: False when the run ended early because too many requests were slow; then the arrays are cut off there.
    """

    latency: Floats
    queued: Floats
    size: Ints
    began: Floats
    ended: Floats
    complete: bool

    def busy_seconds(self, until: float = math.inf) -> float:
        """Return for how long at least one instance was computing, up to an instant."""
        if not self.began.size:
            return 0.0
        began, ended = np.minimum(self.began, until), np.minimum(self.ended, until)
        covered = np.maximum.accumulate(np.concatenate(([0.0], ended[:-1])))
        return float(np.maximum(0.0, ended - np.maximum(began, covered)).sum())


def run(
    device: Device,
    setting: Setting,
    traffic: Traffic,
    *,
    ceiling_seconds: float = math.inf,
    slow_limit: int = NOBODY,
) -> Outcome:
    """Return what a replica with this setting does with the traffic.

    slow_limit: the run ends early once more requests than this were slower than the ceiling; 0: never.
    """
    count = traffic.arrivals.size
    began, ended = np.empty(count), np.empty(count)
    sizes = np.empty(count, dtype=np.int64)
    patience = ceiling_seconds - device.before_seconds - device.after_seconds
    done, batches = simulate(
        traffic.arrivals,
        traffic.factors,
        device.curve_seconds,
        preferred_at_most(setting),
        setting.delay_seconds,
        np.empty(setting.instances),
        device.interference,
        device.law is Law.SHARING,
        device.slow_from,
        device.slow_factor,
        patience,
        slow_limit,
        began,
        ended,
        sizes,
    )
    size = sizes[:batches]
    seen = int(size.sum())
    arrived = traffic.arrivals[:seen]
    latency = np.repeat(ended[:batches], size) - arrived + device.before_seconds + device.after_seconds
    queued = np.repeat(began[:batches], size) - arrived
    return Outcome(latency, queued, size, began[:batches], ended[:batches], bool(done))


def preferred_at_most(setting: Setting) -> NDArray[np.int64]:
    """Return for each batch size from 0 to the largest the largest preferred size that is no larger, 0 for none.

    No preferred size means the largest batch size, as it does to the server.
    """
    table = np.zeros(setting.max_batch_size + 1, dtype=np.int64)
    for size in setting.preferred or (setting.max_batch_size,):
        table[size] = size
    return np.maximum.accumulate(table)


@compiled
def simulate(  # noqa: PLR0913, PLR0917, C901, PLR0912, PLR0915 - one compiled loop; `run` is its only caller
    arrivals: Floats,
    factors: Floats,
    curve: Floats,
    preferred: Ints,
    delay: float,
    work: Floats,
    interference: float,
    sharing: bool,
    slow_from: Floats,
    slow_factor: Floats,
    patience: float,
    slow_limit: int,
    began: Floats,
    ended: Floats,
    sizes: Ints,
) -> tuple[bool, int]:
    """Fill began, ended and sizes batch by batch; return whether all traffic was served, and how many batches ran.

    work: one place for each instance. Under processor sharing it holds the work that is left, else the instant of
    the end. Long, because it is one loop over one state that the compiler keeps in registers.
    """
    arrived, thread = 0, ASLEEP
    queue = np.zeros(PREFETCHED * work.size, dtype=np.int64)
    batch = np.full(work.size, -1, dtype=np.int64)
    firsts = np.zeros(work.size, dtype=np.int64)
    busy, batches, slow, phase = 0, 0, 0, 0
    now, wake, finish, soonest = 0.0, math.inf, math.inf, -1
    while True:
        arriving = arrivals[arrived] if arrived < arrivals.size else math.inf
        if arriving == math.inf and busy == 0 and thread.payloads == 0 and thread.head == arrivals.size:
            return True, batches
        turning = slow_from[phase + 1] if phase + 1 < slow_from.size else math.inf
        then = min(arriving, finish, wake, turning)
        if sharing and busy > 0:
            done = (then - now) / (slow_factor[phase] * (1.0 + interference * (busy - 1)))
            for i in range(work.size):
                if batch[i] >= 0:
                    work[i] -= done
        now = then
        changed = False
        if finish <= now:
            ran, first = batch[soonest], firsts[soonest]
            ended[ran] = now
            batch[soonest] = -1
            busy -= 1
            changed = True
            if slow_limit > 0:
                for j in range(first, first + sizes[ran]):
                    if now - arrivals[j] > patience:
                        slow += 1
                if slow > slow_limit:
                    # Batches dispatched after the first that still runs are left out: their ends are not known.
                    known = batches
                    for i in range(work.size):
                        if batch[i] >= 0:
                            known = min(known, batch[i])
                    return False, known
        elif arriving <= now:
            quiet = arrived < quiet_until(arrived, thread, queue.size, arrivals.size)
            arrived += 1
            if quiet:
                continue
        elif turning <= now:
            phase += 1
            changed = True
        # Instances take what is ready, then the batcher's thread looks, until it has nothing more to do.
        looking = True
        while looking:
            while busy < work.size and thread.payloads > 0:
                first = thread.served
                size, thread = take(now, thread, queue, arrivals, delay, preferred)
                free = 0
                while batch[free] >= 0:
                    free += 1
                busy += 1
                needed = curve[size] * factors[first]
                if not sharing:
                    needed = now + needed * slow_factor[phase] * (1.0 + interference * (busy - 1))
                work[free] = needed
                batch[free], firsts[free] = batches, first
                began[batches], sizes[batches] = now, size
                batches += 1
                changed = True
            at, thread = look(now, arrived, thread, queue, arrivals, delay, preferred)
            looking = at < 0.0
            if not looking:
                wake = at
        if changed:
            finish, soonest = math.inf, -1
            for i in range(work.size):
                if batch[i] >= 0 and work[i] < finish:
                    finish, soonest = work[i], i
            if sharing and soonest >= 0:
                pace = slow_factor[phase] * (1.0 + interference * (busy - 1))
                finish = now + max(0.0, finish) * pace
