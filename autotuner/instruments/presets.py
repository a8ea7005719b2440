"""What each kind of gateway calls its latency histogram and its replicas: one small data file a gateway.

A preset says which series to read, which labels single out a replica, which labels are the gateway's own (all others
tell who was scraped), where it is documented, and what to configure where an edge at the ceiling is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autotuner.domain.sources import FailedWhere, Instrumentation, LatencyHistogram
from autotuner.errors import InvalidInput
from autotuner.instruments.gateways import EnvoyReading, GatewayReading, HistogramReading

FOLDER = Path(__file__).parent / "preset_files"
CUSTOM = "custom"
ENVOY_READING = "envoy"


@dataclass(frozen=True)
class Preset:
    """One kind of gateway.

    replica: labels of one replica's series, with placeholders. own_labels: labels the gateway itself gives.
    bucket_advice: what to configure for an edge, with the placeholders {label} and {seconds}. source: where the names
    are documented. note: what this gateway cannot tell.
    """

    name: str
    title: str
    source: str
    reading: GatewayReading
    replica: Mapping[str, str]
    own_labels: frozenset[str]
    bucket_advice: str
    note: str = ""


@cache
def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, `custom` last."""
    return (*sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != CUSTOM), CUSTOM)


@cache
def preset(name: str) -> Preset:
    """Return a preset by name. Raises InvalidInput for one that is not known, `custom` included."""
    if name not in preset_names() or name == CUSTOM:
        raise InvalidInput("metrics.preset", name, f"one of: {', '.join(preset_names())}")
    return _preset(name, _file(name))


def preset_of(plan: Instrumentation) -> Preset:
    """Return how a target's gateway is read. Raises InvalidInput."""
    if plan.preset != CUSTOM:
        return preset(plan.preset)
    if plan.histogram is None:
        raise InvalidInput("metrics.custom", None, "a section with histogram, since metrics.preset is custom")
    own = {*(label for label, _ in plan.gateway), *(each.label for each in plan.histogram.failed)}
    return _preset(CUSTOM, _file(CUSTOM), HistogramReading(plan.histogram), own)


@cache
def _file(name: str) -> Mapping[str, Any]:
    said: Mapping[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    return said


def _preset(
    name: str, said: Mapping[str, Any], reading: GatewayReading | None = None, own: set[str] | None = None
) -> Preset:
    return Preset(
        name=name,
        title=said["title"],
        source=said["source"],
        reading=reading or _reading(said),
        replica=said["replica"],
        own_labels=frozenset({"le", "__name__", *said["own_labels"], *(own or ())}),
        bucket_advice=said["bucket_advice"].rstrip(),
        note=said.get("note", ""),
    )


def _reading(said: Mapping[str, Any]) -> GatewayReading:
    if said["reading"] == ENVOY_READING:
        return EnvoyReading()
    return HistogramReading(
        LatencyHistogram(
            family=said["histogram"],
            unit_seconds=said["unit_seconds"],
            failed=tuple(FailedWhere(each["label"], each["pattern"]) for each in said["failed"]),
            match=tuple(said.get("match", {}).items()),
            envoy_bins=said.get("envoy_bins", False),
        )
    )
