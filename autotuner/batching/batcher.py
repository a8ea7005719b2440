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

import numpy as np
from numpy.typing import NDArray

from autotuner.batching.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Places in the state of the batcher, an array of whole numbers.
ARRIVED = 0  # requests that have arrived
HEAD = 1  # the first request that is in no payload yet
SIZE = 2  # requests in the current payload
STATUS = 3  # where the current payload is, one of the three below
SATURATED = 4  # 1 when the current payload may not grow
NEXT = 5  # requests that must be queued before an arrival wakes the thread
FRONT = 6  # place of the first payload in the instances' queue
COUNT = 7  # payloads in the instances' queue
SERVED = 8  # requests that instances have taken
PLACES = 9

EMPTY, WAITING, STALE = 0, 1, 2
"""The current payload has nothing in it; stands in the instances' queue; was taken by an instance."""

PREFETCHED = 2
"""Payloads that may stand in the instances' queue, for each instance."""

IDLE_SECONDS = 0.5
"""The thread's time-out when it has nothing queued."""

TOLERANCE_SECONDS = 1e-9


@compiled
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
    while preferred[following] != following:
        following += 1
    if size > 0 and preferred[size] != size:
        return pending, saturated, 0.0, following - size
    return 0, saturated, delay - age, following - size


@compiled
def wakes(state: Ints, slots: int) -> bool:
    """Say whether the arrival that was just counted wakes the thread."""
    queued = state[ARRIVED] - state[HEAD]
    begins = state[SATURATED] == 1 or state[STATUS] == STALE
    return bool(state[COUNT] < slots and (begins or queued >= state[NEXT]))


@compiled
def look(now: float, state: Ints, queue: Ints, arrivals: Floats, delay: float, preferred: Ints) -> float:
    """Let the thread look once; return when it looks again by itself, or -1 when it goes on at once.

    queue: sizes of the payloads in the instances' queue, a ring of as many places as it may hold.
    """
    if state[SATURATED] == 1 or state[STATUS] == STALE:
        state[SIZE] = 0
        state[STATUS] = EMPTY
        state[SATURATED] = 0
        state[NEXT] = 0
    queued = state[ARRIVED] - state[HEAD]
    if queued == 0:
        return now + IDLE_SECONDS
    if state[COUNT] >= queue.size:
        return math.inf
    age = now - arrivals[state[HEAD]]
    taken, saturated, wait, following = examine(queued, state[SIZE], age, delay, preferred)
    if following >= 0:
        state[NEXT] = following
    if saturated:
        state[SATURATED] = 1
    if taken == 0:
        return -1.0 if saturated else now + wait
    state[HEAD] += taken
    state[SIZE] += taken
    if state[STATUS] == EMPTY:
        state[STATUS] = WAITING
        state[COUNT] += 1
    queue[(state[FRONT] + state[COUNT] - 1) % queue.size] = state[SIZE]
    return -1.0


@compiled
def take(now: float, state: Ints, queue: Ints, arrivals: Floats, delay: float, preferred: Ints) -> int:
    """Let an instance take the payload at the front, and merge following ones into it; return the batch's size.

    A payload that is too large to be merged is closed all the same.
    """
    most = preferred.size - 1
    size = 0
    while state[COUNT] > 0:
        front = queue[state[FRONT]]
        last = state[COUNT] == 1 and state[STATUS] == WAITING
        if size > 0:
            if delay <= 0.0 or now - arrivals[state[SERVED] + size] <= delay:
                break
            if last:
                state[STATUS] = STALE
            if size + front > most:
                break
        elif last:
            state[STATUS] = STALE
        size += front
        state[FRONT] = (state[FRONT] + 1) % queue.size
        state[COUNT] -= 1
    state[SERVED] += size
    return size
