"""The product's own metrics, in Prometheus' words: one list, in base units, with bounded labels.

`docs/api.md` shows the same list; a test compares them. No label ever holds an id, an address or a name that somebody
outside chooses: whoever could invent label values could fill the memory of everything that scrapes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["MEDIA_TYPE", "METRICS", "Gauge", "Instruments"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket edges of durations, in seconds."""


@dataclass(frozen=True)
class Metric:
    """One family of metrics: its full name, what it counts, and its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


REQUESTS = Metric(
    "autotuner_http_requests_total", "Requests answered by the REST API", ("method", "route", "status")
)
REQUEST_SECONDS = Metric(
    "autotuner_http_request_duration_seconds",
    "Seconds from a request to the end of its answer, event streams left out",
    ("method", "route"),
)
REFUSALS = Metric(
    "autotuner_http_refusals_total", "Requests that were turned away, by the problem's type", ("problem",)
)
STREAMS = Metric("autotuner_event_streams", "Event streams of studies that are open now")
READY = Metric("autotuner_ready", "1 when the service could use its database when last asked, else 0")

METRICS = (REQUESTS, REQUEST_SECONDS, REFUSALS, STREAMS, READY)
"""Every metric there is."""


@dataclass(frozen=True)
class Instruments:
    """The metrics of one process, each an instrument to write to. Make one a process."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    requests: Counter = field(init=False)
    request_seconds: Histogram = field(init=False)
    refusals: Counter = field(init=False)
    streams: Gauge = field(init=False)
    ready: Gauge = field(init=False)

    def __post_init__(self) -> None:
        made = {
            "requests": Counter(REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=self.registry),
            "request_seconds": Histogram(
                REQUEST_SECONDS.name,
                REQUEST_SECONDS.help,
                REQUEST_SECONDS.labels,
                buckets=SECONDS,
                registry=self.registry,
            ),
            "refusals": Counter(REFUSALS.name, REFUSALS.help, REFUSALS.labels, registry=self.registry),
            "streams": Gauge(STREAMS.name, STREAMS.help, registry=self.registry),
            "ready": Gauge(READY.name, READY.help, registry=self.registry),
        }
        for name, instrument in made.items():
            object.__setattr__(self, name, instrument)

    def page(self) -> bytes:
        """Return everything as a page of Prometheus' text format."""
        return generate_latest(self.registry)
