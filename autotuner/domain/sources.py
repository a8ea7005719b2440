"""Where a target's counters are read when a metrics server has them: which server, which series, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels; a value may hold the placeholders `{name}`, `{host}`, `{port}` and `{address}`."""


@dataclass(frozen=True)
class PrometheusServer:
    """A server with Prometheus' query API.

    tenant: sent as X-Scope-OrgID. bearer, password, ca: names of secrets, never the secrets themselves.
    deadline: for all that one look asks of it, retries included.
    """

    url: str
    deadline: timedelta = timedelta(seconds=2)
    tenant: str = ""
    bearer: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""


@dataclass(frozen=True)
class FailedWhere:
    """Requests whose label matches a pattern in full have failed."""

    label: str
    pattern: str


@dataclass(frozen=True)
class LatencyHistogram:
    """A gateway's latency histogram over all requests that ended, however they ended.

    family: its name without `_bucket`. unit_seconds: what 1 in its `le` means, in seconds. envoy_bins: whether its
    edges stand inside Envoy's bins (`instruments.envoy.edge_seconds`) or are limits that belong to their bucket.
    match: labels that every series must have. failed: any of these makes a request a failed one.
    """

    family: str
    unit_seconds: float
    failed: tuple[FailedWhere, ...]
    match: Labels = ()
    envoy_bins: bool = False


@dataclass(frozen=True)
class Instrumentation:
    """How a target is measured by a metrics server.

    preset: which gateway's series; `custom` with `histogram`. labels: all series have them. gateway, server: labels
    that single out one replica's series; empty for the preset's own. gateway_pods: how many gateways count, None for
    any number. device: where memory is read, `triton`, `dcgm`, `cpu` or `none`.
    """

    prometheus: PrometheusServer
    preset: str = "envoy"
    labels: Labels = ()
    gateway: Labels = ()
    server: Labels = ()
    gateway_pods: int | None = 1
    device: str = "triton"
    histogram: LatencyHistogram | None = None
