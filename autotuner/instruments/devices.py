"""Where a device's memory is read: Triton's own gauges, NVIDIA's DCGM exporter, or the machine's memory on a CPU.

DCGM's series are joined to a replica by its pod, else by the UUID of the device that its Triton tells. Of a MIG
instance the series of that instance counts, never the whole card's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotuner.instruments.readings import Labelled, Readings, Unreadable, sensible

TRITON, DCGM, CPU, NONE = "triton", "dcgm", "cpu", "none"
DEVICES = (TRITON, DCGM, CPU, NONE)

MIB = 1024.0 * 1024.0
DCGM_USED, DCGM_FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
DCGM_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
DCGM_ACTIVE, DCGM_UTILISATION = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
"""Share of the time that the device computed, 0 to 1, also of a MIG instance; and the older one, in percent."""

DCGM_WANTED = frozenset({DCGM_USED, DCGM_FREE, DCGM_RESERVED, DCGM_ACTIVE, DCGM_UTILISATION})
CPU_USED, CPU_TOTAL = "nv_cpu_memory_used_bytes", "nv_cpu_memory_total_bytes"
CPU_WANTED = frozenset({CPU_USED, CPU_TOTAL})
UUID_SAMPLE = "nv_gpu_memory_used_bytes"
POD_LABELS = ("exported_pod", "pod")
"""`exported_pod` where Prometheus keeps the exporter's own pod in `pod`."""

NOT_MIG = ""


def cpu_memory(server: Readings) -> tuple[float | None, float | None]:
    """Return used and total memory of the machine in bytes, as its Triton tells them; None where it does not."""
    return server.total_or_none([CPU_USED]), server.total_or_none([CPU_TOTAL])


def dcgm_memory(exporter: Readings, pod: str, uuids: Sequence[str]) -> tuple[float, float]:
    """Return used and total framebuffer memory in bytes of the devices of one replica. Raises Unreadable.

    pod: the replica's pod, empty where it has none; uuids: of the devices its Triton sees.
    """
    used = _of_replica(exporter.samples(DCGM_USED), pod, uuids)
    if not used:
        raise Unreadable(
            f"{DCGM_USED} has no series of pod {pod or '(unknown)'} nor of the UUIDs of its devices"
        )
    wanted = {_device(labels) for labels, _ in used}
    if len(wanted) < len(used):
        raise Unreadable(f"{DCGM_USED} has two series for one device: two exporters are scraped for it")
    rest = sum(_sum(exporter.samples(name), wanted) for name in (DCGM_FREE, DCGM_RESERVED))
    if not {_device(labels) for labels, _ in exporter.samples(DCGM_FREE)} >= wanted:
        raise Unreadable(
            f"{DCGM_FREE} is missing beside {DCGM_USED}: add it to the exporter's list of counters"
        )
    total_used = _sum(used, wanted)
    return total_used * MIB, (total_used + rest) * MIB


def dcgm_utilisation(exporter: Readings, pod: str, uuids: Sequence[str]) -> float | None:
    """Return how busy the devices of one replica are, 0 to 1, as `dcgm_memory` finds them; None where it is not told.

    A share that none can be is passed over: nothing is refused for it. Raises Unreadable where MIG divides the device.
    """
    for name, most in ((DCGM_ACTIVE, 1.0), (DCGM_UTILISATION, 100.0)):
        shares = [value / most for _, value in _of_replica(exporter.samples(name), pod, uuids)]
        if shares and all(0.0 <= share <= 1.0 for share in shares):
            return sum(shares) / len(shares)
    return None


def uuids_of(server: Readings) -> list[str]:
    """Return the UUIDs of the devices that a Triton reports."""
    return sorted({labels["gpu_uuid"] for labels, _ in server.samples(UUID_SAMPLE) if "gpu_uuid" in labels})


def _of_replica(samples: Sequence[Labelled], pod: str, uuids: Sequence[str]) -> list[Labelled]:
    by_pod = [each for each in samples if pod and _pod(each[0]) == pod]
    if by_pod:
        return by_pod
    by_uuid = [each for each in samples if each[0].get("UUID") in uuids]
    if any(_mig(labels) for labels, _ in by_uuid):
        raise Unreadable(
            "the device is divided (MIG), and no series of its instances names the replica's pod"
        )
    return by_uuid


def _pod(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in POD_LABELS if labels.get(name)), "")


def _mig(labels: Mapping[str, str]) -> str:
    return labels.get("GPU_I_ID", NOT_MIG)


def _device(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("UUID", labels.get("gpu", "")), _mig(labels)


def _sum(samples: Sequence[Labelled], wanted: set[tuple[str, str]]) -> float:
    return sum(sensible("DCGM", value) for labels, value in samples if _device(labels) in wanted)
