"""The product's own metrics, in Prometheus' words: one list, in base units, with bounded labels.

`docs/metrics.md` shows the same list; a test compares them, and what a page shows with both. No label ever holds an id,
an address or a name that somebody outside chooses: whoever could invent label values could fill the memory of
everything that scrapes them. The one exception are names of scheduled targets, in what certificates cover
(`telemetry.coverage`): who may register and schedule is known, and how many are shown is limited.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, TrialKind
from autotuner.errors import Unavailable

__all__ = ["MEDIA_TYPE", "METRICS", "Gauge", "Instruments", "serve_page"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket edges of durations, in seconds."""

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Bucket edges of shares, 0 to 1."""


@dataclass(frozen=True)
class Metric:
    """One family of metrics: its full name, what it counts, its labels, and what kind it is.

    known: values of the labels that are known beforehand. They are shown from the start, at zero: a counter that only
    appears with its first event has no increase that anybody could see.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Callable[..., Any] = Counter
    buckets: tuple[float, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """What its instrument takes beside name, help and labels."""
        return {"buckets": self.buckets} if self.buckets else {}


REQUESTS = Metric(
    "autotuner_http_requests_total", "Requests answered by the REST API", ("method", "route", "status")
)
REQUEST_SECONDS = Metric(
    "autotuner_http_request_duration_seconds",
    "Seconds from a request to the end of its answer, event streams left out",
    ("method", "route"),
    Histogram,
    SECONDS,
)
REFUSALS = Metric(
    "autotuner_http_refusals_total", "Requests that were turned away, by the problem's type", ("problem",)
)
STREAMS = Metric("autotuner_event_streams", "Event streams of studies that are open now", kind=Gauge)
READY = Metric(
    "autotuner_ready", "1 when the service could use its database when last asked, else 0", kind=Gauge
)
TICKS = Metric(
    "autotuner_ticks_total",
    "Ticks of studies, by what became of them: done, taken over by another worker, failed",
    ("result",),
    known=(("done",), ("taken over",), ("failed",)),
)
TICK_SECONDS = Metric("autotuner_tick_duration_seconds", "Seconds that a tick took", (), Histogram, SECONDS)
TICK_LATENESS = Metric(
    "autotuner_tick_lateness_seconds",
    "Seconds from when a tick was due to when it began",
    (),
    Histogram,
    SECONDS,
)
STUDIES = Metric("autotuner_studies_carried", "Unfinished studies that this worker carries now", kind=Gauge)
LEASES = Metric("autotuner_leases_held", "Leases on targets that this worker holds now", kind=Gauge)
CANARY_SHARE = Metric(
    "autotuner_canary_share_ratio",
    "Largest share of a target's requests, 0 to 1, that a canary of this worker's studies was last given",
    kind=Gauge,
)
VERDICTS = Metric(
    "autotuner_verdicts_total",
    "Trials judged, by why they were measured and the verdict",
    ("kind", "verdict"),
    known=tuple((kind.value, verdict.value) for kind in TrialKind for verdict in Verdict),
)
BLIND = Metric(
    "autotuner_blind_windows_total",
    "Times that something in an open window could not be measured, each until it could again or the window ended",
)
HARM = Metric(
    "autotuner_harm_requests_total",
    "Slow or failed requests above the allowed 1 % that trials of this worker have caused",
)
HARM_SHARE = Metric(
    "autotuner_harm_budget_used_ratio",
    "Share of its harm budget that a study had used when it ended",
    (),
    Histogram,
    SHARES,
)
ENDED = Metric(
    "autotuner_studies_ended_total",
    "Studies that ended, by their outcome",
    ("outcome",),
    known=tuple((outcome.value,) for outcome in Outcome),
)
CHANGES = Metric(
    "autotuner_production_changes_total",
    "Changes of production that ended: promotion, or rollback of one, made or under way",
    ("change",),
    known=(("promotion",), ("rollback",)),
)
LEADS = Metric("autotuner_scheduler_leads", "1 while this scheduler leads, else 0", kind=Gauge)
NIGHTS = Metric(
    "autotuner_nights_total",
    "Nights settled, by what became of them: started, missed",
    ("state",),
    known=(("started",), ("missed",)),
)
CERTIFIED = Metric(
    "autotuner_certified_requests_per_second",
    "Requests per second of one replica that a scheduled target's certificate covers: from the lowest to the highest",
    ("target", "end"),
    Gauge,
)
CARRIED = Metric(
    "autotuner_replica_requests_per_second",
    "Requests per second of one stable replica of a scheduled target: now, and in the busiest minutes of a day",
    ("target", "of"),
    Gauge,
)
COVERAGE = Metric(
    "autotuner_certificate_state",
    "1 for how a scheduled target stands against its certificate, else 0: covers, outside, changed, none, unread",
    ("target", "state"),
    Gauge,
)
NOTICES = Metric(
    "autotuner_notices_total",
    "Attempts to deliver a notice, by what it came to: delivered, failed, given up",
    ("result",),
    known=(("delivered",), ("failed",), ("given up",)),
)


@dataclass(frozen=True)
class Instruments:
    """The metrics of one process, each an instrument to write to. Make one a process."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    requests: Annotated[Counter, REQUESTS] = field(init=False)
    request_seconds: Annotated[Histogram, REQUEST_SECONDS] = field(init=False)
    refusals: Annotated[Counter, REFUSALS] = field(init=False)
    streams: Annotated[Gauge, STREAMS] = field(init=False)
    ready: Annotated[Gauge, READY] = field(init=False)
    ticks: Annotated[Counter, TICKS] = field(init=False)
    tick_seconds: Annotated[Histogram, TICK_SECONDS] = field(init=False)
    tick_lateness: Annotated[Histogram, TICK_LATENESS] = field(init=False)
    studies: Annotated[Gauge, STUDIES] = field(init=False)
    leases: Annotated[Gauge, LEASES] = field(init=False)
    canary_share: Annotated[Gauge, CANARY_SHARE] = field(init=False)
    verdicts: Annotated[Counter, VERDICTS] = field(init=False)
    blind: Annotated[Counter, BLIND] = field(init=False)
    harm: Annotated[Counter, HARM] = field(init=False)
    harm_share: Annotated[Histogram, HARM_SHARE] = field(init=False)
    ended: Annotated[Counter, ENDED] = field(init=False)
    changes: Annotated[Counter, CHANGES] = field(init=False)
    leads: Annotated[Gauge, LEADS] = field(init=False)
    nights: Annotated[Counter, NIGHTS] = field(init=False)
    certified: Annotated[Gauge, CERTIFIED] = field(init=False)
    carried: Annotated[Gauge, CARRIED] = field(init=False)
    coverage: Annotated[Gauge, COVERAGE] = field(init=False)
    notices: Annotated[Counter, NOTICES] = field(init=False)

    def __post_init__(self) -> None:
        for name, metric in listed(Instruments):
            made = metric.kind(
                metric.name, metric.help, metric.labels, registry=self.registry, **metric.options
            )
            object.__setattr__(self, name, made)
            for values in metric.known:
                made.labels(*values)

    def page(self) -> bytes:
        """Return everything as a page of Prometheus' text format."""
        return generate_latest(self.registry)


def listed(instruments: type[Instruments]) -> Iterator[tuple[str, Metric]]:
    """Yield the name of every instrument with the metric it writes to."""
    for name, kind in get_type_hints(instruments, include_extras=True).items():
        for metric in getattr(kind, "__metadata__", ()):
            yield name, metric


METRICS: tuple[Metric, ...] = tuple(metric for _, metric in listed(Instruments))
"""Every metric there is."""


def serve_page(instruments: Instruments, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve the page of a process that serves nothing else; return its port and what ends it. Raises Unavailable."""
    try:
        server: WSGIServer
        thread: threading.Thread
        server, thread = start_http_server(port, host, instruments.registry)
    except OSError as error:
        raise Unavailable(f"address {host}:{port}", error.strerror or str(error)) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
