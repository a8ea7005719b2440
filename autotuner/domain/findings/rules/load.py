"""Too much for the model, too much traffic, too little of it, or batches that do not form."""

from __future__ import annotations

import math

from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity
from autotuner.domain.findings.reading import Batch
from autotuner.domain.findings.scene import LEAST_EXECUTIONS, Scene, ms, percent

COMPUTE_SHARE = 0.95
"""A smallest batch that takes this share of the ceiling leaves no time for any queue."""

NEARLY_SHARE = 0.7
"""From this share on, one batch that is still running makes the next one late: two do not fit."""

FULL = 0.92
"""An instance at work for this share of the time is as good as always: a look's edges cost a few percent."""

NEAR_LIMIT = 0.9
"""Share of the highest throughput the batch times allow from which arrivals are at capacity."""

LARGEST_BATCHES = 0.8
"""A mean batch of this share of the largest allowed one: batching has little left to give."""

GROWING = 0.1
"""Requests that are left waiting at the end, as a share of those finished, from which the queue grew by more than
chance: the square root of some hundred requests."""

SMALL_BATCHES = 0.5
"""A mean batch below half of what is configured is far from it."""

ROOM = 0.7
"""An instance at work for less than this has room: at random arrivals queues stay short up to about here."""

WAITS = 1.5
"""Queue time over compute time that a busy instance does not explain: below ROOM a request finds, on average, less
than one batch before it."""

TOGETHER = 2.0
"""Requests that must be expected within the longest wait the ceiling allows for a batch of two to be usual."""


def too_slow(fastest_batch_seconds: float, ceiling_seconds: float) -> bool:
    """Say whether compute alone takes the ceiling, so that no configuration can hold it.

    The one meaning of it: a study's preflight asks here too.
    """
    return fastest_batch_seconds >= COMPUTE_SHARE * ceiling_seconds


def model(scene: Scene) -> Finding | None:
    """Compute alone exceeds the ceiling, or nearly: no batching can help."""
    fastest, ceiling = scene.fastest_batch_seconds, scene.ceiling_seconds
    if fastest is None or fastest < NEARLY_SHARE * ceiling:
        return None
    # Instances that ran at once slowed one another: the smallest batch is not seen alone.
    contended = scene.instances > 1 and (scene.occupancy or 0.0) > 0.5
    sure = too_slow(fastest, ceiling) and not contended
    evidence = (
        (
            f"the smallest batch takes {ms(fastest)} of compute alone: {percent(fastest / ceiling)} of the "
            f"ceiling of {ms(ceiling)}, with no queue at all"
        ),
    )
    remedy = (
        "no batching can help: a faster model (TensorRT, lower precision, a smaller network), faster "
        "hardware, or a higher ceiling"
    )
    return Finding(
        Kind.MODEL,
        Confidence.SURE if sure else Confidence.LIKELY,
        evidence,
        remedy,
        Severity.BREAKS,
        1.0,
    )


def throughput_limit(scene: Scene) -> float | None:
    """Items per second that a replica could execute at most, in the best batches its times allow; None if unknown.

    The line through the times of batches that ran, up to the largest that may form, times the instances: an upper
    bound, because instances slow one another.
    """
    ran = [one for one in scene.work.batches if one.executions >= LEAST_EXECUTIONS]
    if not ran or not scene.max_batch_size:
        return None
    fixed, each = _line(ran)
    sizes = {*(one.size for one in ran), scene.max_batch_size} if len(ran) > 1 else {ran[0].size}
    return scene.instances * max(size / (fixed + each * size) for size in sizes)


def _line(ran: list[Batch]) -> tuple[float, float]:
    """Seconds of a batch as fixed + each × size: least squares weighted by executions, neither below zero."""
    weight = sum(one.executions for one in ran)
    size = sum(one.size * one.executions for one in ran) / weight
    time = sum(one.seconds for one in ran) / weight
    spread = sum(one.executions * (one.size - size) ** 2 for one in ran)
    rise = sum(one.executions * (one.size - size) * (one.mean_seconds - time) for one in ran)
    each = min(max(0.0, rise / spread if spread else 0.0), time / size)
    return time - each * size, each


def saturation(scene: Scene) -> Finding | None:
    """Arrivals above capacity: instances never rest, and larger batches would bring little or are not allowed."""
    occupancy, queue, compute = scene.occupancy, scene.queue_seconds, scene.compute_seconds
    batch = scene.work.mean_batch
    if occupancy is None or occupancy < FULL or queue is None or not compute or batch is None:
        return None
    limit = throughput_limit(scene)
    items = scene.work.inferences / scene.window.seconds / len(scene.window.replicas)
    at_limit = limit is not None and items >= NEAR_LIMIT * limit
    largest = batch >= LARGEST_BATCHES * scene.max_batch_size
    if not (at_limit or largest) or queue < compute:
        return None
    evidence = [
        (
            f"instances were at work {percent(occupancy)} of the time, in batches of {batch:.3g} on "
            f"average (max_batch_size {scene.max_batch_size}), and still requests waited {ms(queue)} for "
            f"{ms(compute)} of compute"
        ),
    ]
    if limit is not None:
        evidence.append(
            f"{items:.3g} items/s on a replica, where batch times allow at most about {limit:.3g}"
        )
    if grown := _grown(scene):
        evidence.append(grown)
    sure = scene.enough and largest and (at_limit or bool(grown) or queue > 2 * compute)
    remedy = (
        "more replicas or a faster model; then tuning. Larger batches cannot carry it: shed load, or add "
        "capacity first"
    )
    return Finding(
        Kind.SATURATION,
        Confidence.SURE if sure else Confidence.LIKELY,
        tuple(evidence),
        remedy,
        Severity.BREAKS,
        queue / (queue + compute),
    )


def _grown(scene: Scene) -> str:
    """How many more requests wait at the end than at the beginning, where that is more than chance."""
    more = sum(
        one.pending[-1] - one.pending[0] for one in scene.window.replicas.values() if len(one.pending) > 1
    )
    if more < GROWING * max(1, scene.work.requests):
        return ""
    return (
        f"{more:.0f} more requests wait at the end of the window than at its beginning: they come faster "
        "than they go"
    )


def batching(scene: Scene) -> Finding | None:
    """Requests wait far longer than they compute while batches stay small and instances have room."""
    queue, compute, batch, occupancy = (
        scene.queue_seconds,
        scene.compute_seconds,
        scene.work.mean_batch,
        scene.occupancy,
    )
    if queue is None or not compute or batch is None or scene.max_batch_size < 2:
        return None
    utilisation = scene.window.utilisation
    busy = max(occupancy or 0.0, utilisation or 0.0)
    small = batch < SMALL_BATCHES * scene.max_batch_size
    if queue < compute or not small or busy >= FULL or not scene.presses:
        return None
    waits_on_purpose = scene.delay_seconds > 0.0 and queue <= 1.3 * scene.delay_seconds
    sure = scene.enough and busy < ROOM and queue >= WAITS * compute and waits_on_purpose
    evidence = [
        f"requests waited {ms(queue)} in the queue for {ms(compute)} of compute",
        f"in batches of {batch:.3g} on average where {scene.max_batch_size} are configured, with instances "
        f"at work {percent(occupancy or 0.0)} of the time"
        + (f" and the device {percent(utilisation)}" if utilisation is not None else ""),
    ]
    if waits_on_purpose:
        evidence.append(
            f"the wait is the configured delay of {ms(scene.delay_seconds)}, which gathers little here"
        )
        remedy = "shorten max_queue_delay_microseconds; what a busy instance gathers by itself costs no wait"
    elif scene.batcher is None:
        remedy = "add a dynamic_batching section: requests that wait would run together"
    else:
        remedy = "tune delay, preferred sizes and instances together: bursts wait behind small batches"
    return Finding(
        Kind.BATCHING,
        Confidence.SURE if sure else Confidence.LIKELY,
        tuple(evidence),
        remedy,
        Severity.BREAKS if _over(scene) else Severity.COSTS,
        queue / (queue + compute),
    )


def _over(scene: Scene) -> bool:
    p99 = scene.latency.p99_seconds
    return p99 is not None and p99 > scene.ceiling_seconds


def idle(scene: Scene) -> Finding | None:
    """No request in the window: nothing about load can be said."""
    if scene.work.requests:
        return None
    evidence = (f"no request of {scene.model} finished within {scene.window.seconds:.0f} s",)
    remedy = "look again when there is traffic, or longer (--for 10m)"
    return Finding(Kind.IDLE, Confidence.SURE, evidence, remedy, Severity.DECIDES, 0.5)


def thin_traffic(scene: Scene) -> Finding | None:
    """Too few requests for batches, however long the ceiling lets them wait."""
    work, window = scene.work, scene.window
    if not work.requests or scene.max_batch_size < 2 or scene.batcher is None:
        return None
    room = scene.ceiling_seconds - (scene.fastest_batch_seconds or 0.0)
    if room <= 0.0 or (work.mean_batch or 1.0) >= 2.0:
        return None
    expected = window.rate_per_second * room
    # The most that chance allows the true rate to be: two standard deviations of a Poisson count.
    at_most = expected * (1.0 + 2.0 / math.sqrt(work.requests))
    if expected >= TOGETHER:
        return None
    evidence = [
        (
            f"{window.rate_per_second:.3g} requests/s on a replica: within {ms(room)}, the longest wait "
            f"the ceiling leaves, {expected:.2g} more come on average, so batches stay near one"
        ),
    ]
    if scene.delay_seconds:
        evidence.append(f"a delay of {ms(scene.delay_seconds)} is then waited for nothing")
    remedy = (
        "set the delay to 0 and keep one instance; to batch, send the traffic to fewer replicas or let "
        "other models share the device"
    )
    return Finding(
        Kind.THIN_TRAFFIC,
        Confidence.SURE if at_most < TOGETHER else Confidence.LIKELY,
        tuple(evidence),
        remedy,
        Severity.COSTS,
        0.3,
    )
