"""What a replica runs beside its configuration: which version of the model, of Triton, which image, on which device.

A figure holds for what it was measured on. Two replicas are compared, and a certificate is believed, only where nothing
that is known of both differs; what nobody told is unknown, and proves nothing (guards rule 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Provenance:
    """What one replica runs; empty where nobody told.

    model_versions: loaded, as the server's inference statistics name them. triton: the server's own version. image: of
    the container that runs it, by digest where the node tells it. device_type: as the pod's node selector names it.
    """

    model_versions: tuple[str, ...] = ()
    triton: str = ""
    image: str = ""
    device_type: str = ""


UNKNOWN = Provenance()


def ordered(versions: Iterable[str]) -> tuple[str, ...]:
    """Return version numbers without repetition, in the order of the numbers."""
    return tuple(sorted(set(versions), key=lambda text: (len(text), text)))


def differences(before: Provenance, now: Provenance) -> tuple[str, ...]:
    """Return in words what is known of both and is not the same; none where nothing is."""
    pairs = (
        ("version {} of the model", " and ".join(before.model_versions), " and ".join(now.model_versions)),
        ("Triton {}", before.triton, now.triton),
        ("the image {}", before.image, now.image),
        ("the device {}", before.device_type, now.device_type),
    )
    return tuple(
        f"{what.format(new)} instead of {old}" for what, old, new in pairs if old and new and old != new
    )


def together(known: Iterable[Provenance]) -> Provenance:
    """Return what several replicas are known to run, which must not differ: the first that tells decides."""
    made = UNKNOWN
    for each in known:
        made = Provenance(
            made.model_versions or each.model_versions,
            made.triton or each.triton,
            made.image or each.image,
            made.device_type or each.device_type,
        )
    return made
