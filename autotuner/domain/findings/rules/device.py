"""Instances and memory: what the device has left, and what more or fewer instances would make of it."""

from __future__ import annotations

from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity
from autotuner.domain.findings.scene import Scene, ms, percent
from autotuner.domain.memory import DEFAULT_HEADROOM

BUSY = 0.6
"""An instance at work for less than this is not what requests wait for."""

WAITING_DEVICE = 0.7
"""A device busy for less than this share of the time that instances are at work waits for copies between batches."""

COPY_SHARE = 0.2
"""Copies that take this share of an execution are worth overlapping."""

ONE_AT_A_TIME = 0.9
"""Instances whose time at work is, up to this share, waiting for one another: the device runs one batch at a time."""

DEVICE_FULL = 0.85
"""A device busy for so much of the time has nothing left for another instance."""


def more_instances(scene: Scene) -> Finding | None:
    """Instances are at work, the device is not: another instance would compute while one copies."""
    occupancy, utilisation = scene.occupancy, scene.window.utilisation
    if occupancy is None or occupancy < BUSY or not scene.enough:
        return None
    work = scene.work
    copies = (
        (work.input_seconds + work.output_seconds) / work.compute_seconds if work.compute_seconds else 0.0
    )
    waits = utilisation is not None and utilisation < WAITING_DEVICE * min(1.0, occupancy * scene.instances)
    if not (waits or copies >= COPY_SHARE):
        return None
    if utilisation is not None and not waits:
        return None
    evidence = [f"{scene.instances} instance(s) at work {percent(occupancy)} of the time"]
    if utilisation is not None:
        evidence.append(
            f"while the device computed {percent(utilisation)} of the time: the rest is copies and waiting"
        )
    if copies >= COPY_SHARE:
        evidence.append(f"input and output copies take {percent(copies)} of an execution")
    counted = all(one.busy_counted for one in scene.window.replicas.values())
    sure = waits and counted and occupancy >= 0.75 and scene.presses
    remedy = f"try {scene.instances + 1} instances: one copies while another computes; memory permitting"
    return Finding(
        Kind.INSTANCES,
        Confidence.SURE if sure else Confidence.LIKELY if waits else Confidence.POSSIBLE,
        tuple(evidence),
        remedy,
        _severity(scene) if waits or scene.presses else Severity.NOTICE,
        1.0 - (utilisation or 0.0),
    )


def _severity(scene: Scene) -> Severity:
    p99 = scene.latency.p99_seconds
    return Severity.BREAKS if p99 is not None and p99 > scene.ceiling_seconds else Severity.COSTS


def fewer_instances(scene: Scene) -> Finding | None:
    """Instances only contend: the device is full and runs one batch at a time, so each waits for the others."""
    occupancy, utilisation = scene.occupancy, scene.window.utilisation
    if scene.instances < 2 or occupancy is None or not utilisation or not scene.enough:
        return None
    at_once = occupancy * scene.instances
    if utilisation < DEVICE_FULL or at_once < 1.5 or scene.compute_seconds is None:
        return None
    waiting = 1.0 - utilisation / at_once
    evidence = (
        (
            f"the device is busy {percent(utilisation)} of the time while {at_once:.2g} of "
            f"{scene.instances} instances are at work at once: {percent(waiting)} of their "
            f"{ms(scene.compute_seconds)} is waiting for one another"
        ),
        (
            f"batches of {scene.work.mean_batch or 0.0:.3g} on average, of {scene.max_batch_size} "
            "possible: requests that are spread over instances do not meet in a batch"
        ),
    )
    counted = all(one.busy_counted for one in scene.window.replicas.values())
    small = (scene.work.mean_batch or 0.0) < 0.5 * scene.max_batch_size
    sure = counted and small and at_once >= ONE_AT_A_TIME * 2
    remedy = (
        f"try fewer instances than {scene.instances}: larger batches do the same work in less device time"
    )
    return Finding(
        Kind.INSTANCES,
        Confidence.SURE if sure else Confidence.LIKELY,
        evidence,
        remedy,
        _severity(scene),
        waiting,
    )


def memory(scene: Scene) -> Finding | None:
    """Device memory within the headroom, or too full for a reload, in which old and new version are both loaded."""
    tightest = None
    for name, one in scene.window.replicas.items():
        if one.memory_used_bytes is None or not one.memory_total_bytes:
            continue
        used = one.memory_used_bytes / one.memory_total_bytes
        if tightest is None or used > tightest[1]:
            tightest = (name, used, one.memory_used_bytes, one.memory_total_bytes)
    if tightest is None:
        return None
    name, used, used_bytes, total_bytes = tightest
    said = f"{used_bytes / 1e9:.3g} of {total_bytes / 1e9:.3g} GB of device memory are in use on {name}"
    if used > 1.0 - DEFAULT_HEADROOM:
        crowded = f"{said}: {percent(1.0 - used)} free, less than the headroom of {percent(DEFAULT_HEADROOM)}"
        remedy = (
            "fewer instances, a smaller max_batch_size, or a device with more memory: it degrades later, "
            "when nobody looks"
        )
        return Finding(Kind.MEMORY, Confidence.SURE, (crowded,), remedy, Severity.COSTS, used)
    if 2.0 * used <= 1.0:
        return None
    alone = scene.facts.models == 1
    evidence = (
        f"{said}; a reload keeps the old version until the new one is ready, so it may need as much again",
        "how much of it is this model's is not told" if not alone else "no other model is on this server",
    )
    remedy = "before a study, make sure that old and new version fit together, or tune on a replica that is drained"
    confidence = Confidence.LIKELY if alone else Confidence.POSSIBLE
    return Finding(Kind.MEMORY, confidence, evidence, remedy, Severity.NOTICE, used)
