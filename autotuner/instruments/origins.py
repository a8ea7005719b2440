"""Where a target's counts come from, for somebody who doubts them: the pages that are scraped, or the queries asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from autotuner.domain.target import Replica, Target
from autotuner.instruments import envoy
from autotuner.instruments.presets import preset_of
from autotuner.instruments.series import Measured, TargetSeries

POD = "POD"
"""Stands for the address or the name of whichever pod the replica is at that look."""


@dataclass(frozen=True)
class Origin:
    """One source. what: `gateway`, `servers`, or a replica's name. query: a PromQL selector; empty for a page."""

    what: str
    url: str
    query: str = ""


def origins_of(target: Target) -> tuple[Origin, ...]:
    """Return every source of a target's counts. Raises InvalidInput for a preset that is not known any more."""
    if target.metrics is not None:
        preset = preset_of(target.metrics)
        series = TargetSeries(Measured.of(_anywhere(target)), target.metrics, preset)
        url = target.metrics.prometheus.url
        return (
            Origin("gateway", url, series.gateway_selector(preset.reading.wanted)),
            Origin("servers", url, series.server_selector(series.server_names)),
        )
    clusters = [target.gateway.cluster(name) for name in target.backends(r.name for r in target.replicas)]
    gateway = target.gateway.admin_url.rstrip("/") + envoy.statistics_path(clusters)
    replicas = (Origin(replica.name, _page(target, replica)) for replica in target.replicas)
    return (Origin("gateway", gateway), *replicas)


def _anywhere(target: Target) -> Target:
    """The target with whichever pods its replicas are; as it is where it has no pods."""
    if target.workload is None:
        return target
    stable = tuple(replace(each, metrics_url=_page(target, each), pod=POD) for each in target.stable)
    canary = replace(target.canary, metrics_url=_page(target, target.canary), pod=POD)
    return replace(target, stable=stable, canary=canary)


def _page(target: Target, replica: Replica) -> str:
    if target.workload is not None:
        return f"http://{POD}:{target.workload.ports.metrics}/metrics"
    return replica.metrics_url if urlsplit(replica.metrics_url).path else f"{replica.metrics_url}/metrics"
