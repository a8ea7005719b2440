"""The dynamic batcher's thread as the server's source has it (release 24.10, Triton 2.51), in compiled code.

One payload is *current*: the thread adds queued requests to it. Once it is ready it stands in the instances' queue and
may still grow there, until it is saturated or an instance takes it; then a new one begins. So a batch depends on when
the thread looks, and that is not at every arrival: a request that finds fewer requests queued than the next
preferred size needs does not wake it. The end of a batch, an instance's taking of a payload and the thread's own
time-out do. What follows from these few rules was seen on a real server:

- Without a delay every request wakes the thread; a payload is saturated as soon as it has a preferred size, so with
  [4, 8] it leaves at 4 unless more than that were queued when the thread looked.
- With a delay a payload that waits for an instance is not grown by what arrives meanwhile: that waits for the next.
- A full payload that still waits takes one request more: batches of the largest preferred size + 1.

Not modelled: the few microseconds that a thread takes to wake, queue policies, requests of more than one item.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotuner.batching.compiled import inlined

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Thread(NamedTuple):
    """What the batcher's thread knows; a value and not an array, so that compiled loops keep it in registers."""

    head: int
    """The first request that is in no payload yet."""
    size: int
    """Requests in the current payload."""
    status: int
    """Where the current payload is: EMPTY, WAITING or STALE."""
    saturated: int
    """1 when the current payload may not grow."""
    following: int
    """Requests that must be queued before an arrival wakes the thread."""
    front: int
    """Place of the first payload in the instances' queue."""
    payloads: int
    """Payloads in the instances' queue."""
    served: int
    """Requests that instances have taken."""


ASLEEP = Thread(0, 0, 0, 0, 0, 0, 0, 0)
"""Before the first request."""

EMPTY, WAITING, STALE = 0, 1, 2
"""The current payload has nothing in it; stands in the instances' queue; was taken by an instance."""

PREFETCHED = 2
"""Payloads that may stand in the instances' queue, for each instance."""

IDLE_SECONDS = 0.5
"""The thread's time-out when it has nothing queued."""

TOLERANCE_SECONDS = 1e-9


@inlined
def examine(
    queued: int, size: int, age: float, delay: float, preferred: Ints
) -> tuple[int, bool, float, int]:
    """Return what the thread does at one look: requests to take, whether they saturate, seconds to wait, next size.

    queued: requests in no payload, at least 1. size: of the current payload. age: seconds that the oldest queued one
    has waited. preferred: for each batch size from 0 to the largest allowed, the largest preferred size that is no
    larger, 0 for none. The next size is the number of queued requests that wakes the thread, -1 to leave it.
    """
    room = preferred.size - 1 - size
    largest = preferred[-1]
    pending = min(queued, room)
    best = max(0, preferred[size + pending] - size)
    saturated = size >= largest
    if saturated:
        best = 1 if queued > 1 and room > 0 else 0
    exceeded = delay > 0.0 and age >= delay - TOLERANCE_SECONDS
    if best > 0 and not exceeded:
        return best, saturated or delay == 0.0, 0.0, -1
    if pending == 0:
        return 0, True, 0.0, -1
    if queued > room or size + pending >= largest:
        return pending, True, 0.0, -1
    if exceeded or delay == 0.0:
        return pending, saturated, 0.0, -1
    following = size + pending + 1
    if preferred[largest - 1] < following:
        following = largest
    while preferred[following] != following:
        following += 1
    if size > 0 and preferred[size] != size:
        return pending, saturated, 0.0, following - size
    return 0, saturated, delay - age, following - size


@inlined
def quiet_until(arrived: int, thread: Thread, slots: int, count: int) -> int:
    """Return the next arrival of `count` that wakes the thread, if nothing else happens before; the others do not.

    arrived: requests that have arrived. slots: payloads that the instances' queue may hold.
    """
    if thread.payloads >= slots:
        return count
    if thread.saturated == 1 or thread.status == STALE:
        return arrived
    return min(count, max(arrived, thread.head + thread.following - 1))


@inlined
def look(  # noqa: PLR0913, PLR0917 - called by two compiled loops, with all that they hold
    now: float, arrived: int, thread: Thread, queue: Ints, arrivals: Floats, delay: float, preferred: Ints
) -> tuple[float, Thread]:
    """Let the thread look once; return when it looks again by itself, or -1 when it goes on at once.

    queue: sizes of the payloads in the instances' queue, a ring of as many places as it may hold.
    """
    head, size, status, closed, following, front, payloads, served = thread
    if closed == 1 or status == STALE:
        size, status, closed, following = 0, EMPTY, 0, 0
    queued = arrived - head
    if queued == 0:
        again = now + IDLE_SECONDS
    elif payloads >= queue.size:
        again = math.inf
    else:
        age = now - arrivals[head]
        taken, saturated, wait, larger = examine(queued, size, age, delay, preferred)
        if larger >= 0:
            following = larger
        if saturated:
            closed = 1
        again = -1.0 if saturated or taken > 0 else now + wait
        if taken > 0:
            head += taken
            size += taken
            if status == EMPTY:
                status = WAITING
                payloads += 1
            last = front + payloads - 1
            queue[last if last < queue.size else last - queue.size] = size
    return again, Thread(head, size, status, closed, following, front, payloads, served)


@inlined
def take(
    now: float, thread: Thread, queue: Ints, arrivals: Floats, delay: float, preferred: Ints
) -> tuple[int, Thread]:
    """Let an instance take the payload at the front, and merge following ones into it; return the batch's size.

    A payload that is too large to be merged is closed all the same.
    """
    head, current, status, closed, following, front, payloads, served = thread
    most = preferred.size - 1
    size = 0
    while payloads > 0:
        waiting = queue[front]
        last = payloads == 1 and status == WAITING
        if size > 0:
            if delay <= 0.0 or now - arrivals[served + size] <= delay:
                break
            if last:
                status = STALE
            if size + waiting > most:
                break
        elif last:
            status = STALE
        size += waiting
        front = front + 1 if front + 1 < queue.size else 0
        payloads -= 1
    return size, Thread(head, current, status, closed, following, front, payloads, served + size)
