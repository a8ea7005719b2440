"""Where a target's counters are read when a metrics server has them, and where the spans of its requests are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels; a value may hold `{name}`, `{host}`, `{port}`, `{address}` and `{pod}`."""


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


JAEGER, TEMPO, OTLP = "jaeger", "tempo", "otlp"
TRACE_STORES = (JAEGER, TEMPO, OTLP)
"""Who has the spans: a Jaeger, a Tempo, or this service itself, which they are sent to."""

TRITON_SERVICE = "triton-inference-server"
"""What Triton calls itself in its spans when nobody named it otherwise."""


@dataclass(frozen=True)
class TraceStore:
    """Who has the spans of a target's requests, and whose they are.

    kind: one of `TRACE_STORES`. gateway, triton: `service.name` of their spans; gateway is empty where only Triton
    records any. replica: attributes that single out one replica; empty for the usual ones. arrival: how long spans take
    until they can be read. deadline: for all that is asked about one window. bearer, password, ca: names of secrets.
    """

    kind: str
    url: str = ""
    gateway: str = ""
    triton: str = TRITON_SERVICE
    replica: Labels = ()
    arrival: timedelta = timedelta(seconds=10)
    deadline: timedelta = timedelta(seconds=5)
    tenant: str = ""
    bearer: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""

    @property
    def marks(self) -> Labels:
        """Attributes that single out one replica: what Envoy calls it, or how Triton was told to call itself."""
        usual = ("upstream_cluster.name", "{name}") if self.gateway else ("service.instance.id", "{name}")
        return self.replica or (usual,)
