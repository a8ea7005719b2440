"""One way of reading a gateway for each kind there is, behind one small Protocol: edges, then counters of a replica."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotuner.domain.measurement import GatewayCounters
from autotuner.domain.sources import Labels, LatencyHistogram
from autotuner.instruments import envoy
from autotuner.instruments.readings import Labelled, Readings, Unreadable, bucket_edge, sensible

Replicas = Sequence[Mapping[str, str]]
"""For each replica the labels that single out its series."""


@dataclass(frozen=True)
class NativeFamily:
    """A histogram that may be a native one: its name, and what 1 in it means in seconds."""

    name: str
    unit_seconds: float


class GatewayReading(Protocol):
    """What one kind of gateway counts.

    wanted: names of its samples, and of the histogram should it be a native one; gauges: those of them that may fall;
    latency: the bucket samples; pulse: a sample that every replica which ever had a request has; match: labels of all
    its series; native: the histogram where a native one can be read, None where its edges would not be the gateway's.
    """

    wanted: frozenset[str]
    gauges: frozenset[str]
    latency: str
    pulse: str
    match: Labels
    native: NativeFamily | None

    def edges(self, scrape: Readings, replicas: Replicas) -> tuple[float, ...]:
        """Return the histogram's edges in seconds, ascending; empty while nothing was measured. Raises Unreadable."""

    def counters(
        self, scrape: Readings, replica: Mapping[str, str], edges_seconds: tuple[float, ...]
    ) -> GatewayCounters:
        """Return what was counted for one replica. Raises Unreadable."""

    def labels_for(self, ceiling_seconds: float) -> tuple[float, ...]:
        """Return the bucket labels that put an edge at a ceiling; two around it where none can be at it."""


class EnvoyReading:
    """Envoy's own statistics of an upstream cluster."""

    wanted = envoy.WANTED | {envoy.CLUSTER + envoy.BUCKET.removesuffix("_bucket")}
    gauges = frozenset({envoy.CLUSTER + envoy.ACTIVE})
    latency = envoy.CLUSTER + envoy.BUCKET
    pulse = envoy.CLUSTER + envoy.SENT
    match: Labels = ()
    native: NativeFamily | None = None

    def edges(self, scrape: Readings, replicas: Replicas) -> tuple[float, ...]:
        """Return the edges that all clusters share."""
        return envoy.read_edges(scrape, [replica["envoy_cluster_name"] for replica in replicas])

    def counters(
        self, scrape: Readings, replica: Mapping[str, str], edges_seconds: tuple[float, ...]
    ) -> GatewayCounters:
        """Return what Envoy counted for the replica's cluster."""
        return envoy.read_gateway(scrape, replica["envoy_cluster_name"], edges_seconds)

    def labels_for(self, ceiling_seconds: float) -> tuple[float, ...]:
        """Return labels in milliseconds, in the middle of the bins that end at the ceiling or around it."""
        return envoy.edge_labels_ms(ceiling_seconds)


class HistogramReading:
    """A gateway that counts nothing but a latency histogram of all requests that ended, told apart by status.

    It does not say what was sent and has not ended, so requests that wait are seen when they end, not before.
    """

    gauges: frozenset[str] = frozenset()

    def __init__(self, histogram: LatencyHistogram) -> None:
        self._histogram = histogram
        self._failed = [(each.label, re.compile(each.pattern)) for each in histogram.failed]
        self.latency = f"{histogram.family}_bucket"
        self.pulse = f"{histogram.family}_count"
        self.match = histogram.match
        self.native = None if histogram.envoy_bins else NativeFamily(histogram.family, histogram.unit_seconds)
        self._sum = f"{histogram.family}_sum"
        self.wanted = frozenset({self.latency, self._sum, histogram.family})

    def edges(self, scrape: Readings, replicas: Replicas) -> tuple[float, ...]:
        """Return the edges that all replicas share. Raises Unreadable when they differ."""
        found = {
            edges for replica in replicas if (edges := self._edges(scrape.samples(self.latency, **replica)))
        }
        if len(found) > 1:
            raise Unreadable("different histogram buckets for different replicas")
        return found.pop() if found else ()

    def counters(
        self, scrape: Readings, replica: Mapping[str, str], edges_seconds: tuple[float, ...]
    ) -> GatewayCounters:
        """Return what ended, summed over methods, codes and paths. Every failure is in the histogram."""
        if not edges_seconds:
            raise Unreadable("no latency histogram yet (it appears with the first measured request)")
        samples = scrape.samples(self.latency, **replica)
        buckets = self._buckets(samples, edges_seconds)
        failed = [value for labels, value in samples if _last(labels) and self._has_failed(labels)]
        seconds = scrape.total_or_zero(self._sum, **replica) * self._histogram.unit_seconds
        return GatewayCounters(
            sent=buckets[-1],
            ended=buckets[-1],
            failed=round(sum(failed)),
            failed_unmeasured=0,
            buckets=buckets,
            latency_sum_seconds=seconds,
        )

    def labels_for(self, ceiling_seconds: float) -> tuple[float, ...]:
        """Return labels in the histogram's unit."""
        if self._histogram.envoy_bins:
            return tuple(
                label / 1000 / self._histogram.unit_seconds for label in envoy.edge_labels_ms(ceiling_seconds)
            )
        return (ceiling_seconds / self._histogram.unit_seconds,)

    def edge_seconds(self, label: float) -> float:
        """Return the latency in seconds that a bucket label means."""
        if self._histogram.envoy_bins:
            return envoy.edge_seconds(label * self._histogram.unit_seconds * 1000)
        return label * self._histogram.unit_seconds

    def _edges(self, samples: Sequence[Labelled]) -> tuple[float, ...]:
        return tuple(sorted({self._edge(labels) for labels, _ in samples}))

    def _edge(self, labels: Mapping[str, str]) -> float:
        return self.edge_seconds(bucket_edge(labels.get("le", "")))

    def _buckets(self, samples: Sequence[Labelled], edges_seconds: tuple[float, ...]) -> tuple[int, ...]:
        counts = dict.fromkeys(edges_seconds, 0.0)
        for labels, value in samples:
            counts[self._edge(labels)] += sensible(self.latency, value)
        falling = any(later < earlier for earlier, later in itertools.pairwise(counts.values()))
        if falling or edges_seconds[-1] != math.inf:
            raise Unreadable("a latency histogram that is incomplete")
        return tuple(round(count) for count in counts.values())

    def _has_failed(self, labels: Mapping[str, str]) -> bool:
        return any(pattern.fullmatch(labels.get(label, "")) for label, pattern in self._failed)


def _last(labels: Mapping[str, str]) -> bool:
    return labels.get("le") == "+Inf"
