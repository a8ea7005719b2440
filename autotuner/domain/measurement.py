"""From raw counters to one measured window, and the reasons a window must not be believed.

Counters are read per replica and only differences are used; quantiles computed elsewhere are never pooled.
Missing data stays missing: nothing here turns an absent number into zero (guards rule 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from autotuner.domain.judgement import Counts
from autotuner.errors import InvalidInput


@dataclass(frozen=True)
class GatewayCounters:
    """What the gateway has counted for one backend since it started: a replica, or several that it does not tell apart.

    sent: requests given to the backend; ended: requests that came to any end.
    failed: requests that ended in an error; failed_unmeasured: those of them absent from the histogram.
    buckets: cumulative counts at `Sample.edges_seconds`, the last one being all measured requests.
    counted_by: which gateways counted, each with how often it was seen to begin anew; empty where only counters tell.
    """

    sent: int
    ended: int
    failed: int
    failed_unmeasured: int
    buckets: tuple[int, ...]
    latency_sum_seconds: float
    counted_by: str = ""

    def behind(self, earlier: GatewayCounters) -> bool:
        """Say whether any counter is lower than it was: the gateway restarted or an old answer came back.

        The same when others counted than before: what two gateways counted is no difference.
        `ended` is left out: it may come from a gauge that is read a moment after the counters.
        """
        pairs = [
            (self.sent, earlier.sent),
            (self.failed, earlier.failed),
            *zip(self.buckets, earlier.buckets, strict=False),
        ]
        others = self.counted_by != earlier.counted_by or len(self.buckets) != len(earlier.buckets)
        return others or any(now < then for now, then in pairs)


@dataclass(frozen=True)
class BatchTiming:
    """Executions of one realised batch size since the model was loaded, and their summed compute time."""

    size: int
    executions: int
    compute_seconds: float


@dataclass(frozen=True)
class ServerCounters:
    """What one Triton server has counted for the model since it started; durations in seconds.

    queue/input/infer/output seconds are summed over requests: each request of a batch adds the batch's time.
    batches (inference statistics) starts again at each load. memory_*_bytes and device_busy_seconds are
    None where the server does not report them. counted_by: as for `GatewayCounters`. model_versions: of the
    model, loaded now; empty where the server did not tell.
    """

    succeeded: int
    failed: int
    inferences: int
    executions: int
    queue_seconds: float
    input_seconds: float
    infer_seconds: float
    output_seconds: float
    batches: tuple[BatchTiming, ...] = ()
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    device_busy_seconds: float | None = None
    counted_by: str = ""
    model_versions: tuple[str, ...] = ()

    @property
    def compute_seconds(self) -> float:
        """Input copy, inference and output copy together."""
        return self.input_seconds + self.infer_seconds + self.output_seconds

    def behind(self, earlier: ServerCounters) -> bool:
        """Say whether a counter is lower than it was: the server restarted or an old answer came back."""
        return (
            self.counted_by != earlier.counted_by
            or self.succeeded < earlier.succeeded
            or self.failed < earlier.failed
            or self.executions < earlier.executions
            or self.infer_seconds < earlier.infer_seconds - 1e-6
        )


@dataclass(frozen=True)
class Sample:
    """Everything read at one look: counters of the gateway by backend, of the servers by replica.

    What is absent from a mapping was not readable; `faults` says why.
    """

    at: datetime
    edges_seconds: tuple[float, ...]
    gateway: Mapping[str, GatewayCounters]
    servers: Mapping[str, ServerCounters]
    faults: Mapping[str, str] = field(default_factory=dict)

    def missing(self, names: Iterable[str], backends: Iterable[str] | None = None) -> str:
        """Return why one of `names` cannot be measured from this sample; empty when all can.

        backends: what the gateway calls them, where that is not the same.
        """
        wanted = list(names)
        counted = wanted if backends is None else list(backends)
        for name in dict.fromkeys((*wanted, *counted)):
            unread = name in counted and name not in self.gateway
            if unread or (name in wanted and name not in self.servers):
                return f"{name}: {self.faults.get(name, 'no data')}"
        return ""


@dataclass(frozen=True)
class Latency:
    """Quantiles for people, interpolated in histogram buckets, in seconds; None where the histogram has too few."""

    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True)
class ServerUse:
    """Means over a window: seconds per request in queue and compute, realised batch, compute seconds per inference.

    fastest_batch_seconds: mean execution time of the smallest batch size that ran.
    device_utilisation: busy share of the device, 0 to 1; memory in bytes at the window's end.
    """

    queue_seconds: float | None
    compute_seconds: float | None
    realised_batch: float | None
    compute_seconds_per_inference: float | None
    device_utilisation: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    fastest_batch_seconds: float | None = None


@dataclass(frozen=True)
class Window:
    """Two samples and the replicas compared in them."""

    first: Sample
    last: Sample

    @property
    def duration(self) -> timedelta:
        """Length of the window."""
        return self.last.at - self.first.at

    def counts(self, names: Iterable[str], ceiling_seconds: float) -> Counts:
        """Return the pooled counts of the backends `names`; raises KeyError for one that is missing."""
        total = Counts(0, 0, 0, 0)
        for name in names:
            total = total + _counts(self.first, self.last, name, ceiling_seconds)
        return total

    def sent(self, name: str) -> int:
        """Requests the gateway gave to `name` in the window."""
        return self.last.gateway[name].sent - self.first.gateway[name].sent

    def rate_per_second(self, names: Iterable[str]) -> float:
        """Mean rate of requests given to the backends `names`; 0 for an empty window."""
        seconds = self.duration.total_seconds()
        return sum(self.sent(name) for name in names) / seconds if seconds > 0 else 0.0

    def latency(self, names: Sequence[str]) -> Latency:
        """Return quantiles of the pooled histogram of `names`."""
        summed = [
            sum(self.last.gateway[n].buckets[i] - self.first.gateway[n].buckets[i] for n in names)
            for i in range(len(self.last.edges_seconds))
        ]
        edges = self.last.edges_seconds
        return Latency(*(histogram_quantile(edges, summed, share) for share in (0.50, 0.95, 0.99)))

    def batches(self, name: str) -> tuple[BatchTiming, ...]:
        """Return the batches that `name` ran in the window, smallest first; none when the model was loaded in it."""
        return _batches(self.first.servers[name], self.last.servers[name]) or ()

    def counted(self, backends: Iterable[str], names: Iterable[str]) -> Sample:
        """Return the last sample as if all counters had begun with the window: of these backends, and of these servers.

        What is no counter is as it was at the end. A server that one of the two samples lacks is left out.
        """
        then, now = self.first, self.last
        servers = {
            name: _server_since(then.servers[name], now.servers[name])
            for name in names
            if name in then.servers and name in now.servers
        }
        gateway = {name: _gateway_since(then.gateway[name], now.gateway[name]) for name in backends}
        return Sample(now.at, now.edges_seconds, gateway, servers)

    def use(self, name: str) -> ServerUse:
        """Return how the server `name` spent the window."""
        return _server_use(self.first.servers[name], self.last.servers[name], self.duration.total_seconds())


def edges_around(edges_seconds: Sequence[float], ceiling_seconds: float) -> tuple[int, int]:
    """Return the indices of the last edge at or below the ceiling and of the first at or above it.

    Raises InvalidInput when the histogram has no finite edge on one of the two sides: then nothing can be judged.
    """
    return _edges_around(tuple(edges_seconds), ceiling_seconds)


@lru_cache(maxsize=1024)
def _edges_around(edges_seconds: tuple[float, ...], ceiling_seconds: float) -> tuple[int, int]:
    """The same; every look asks for it several times, and a gateway's edges stay what they are."""
    exact = [i for i, e in enumerate(edges_seconds) if math.isclose(e, ceiling_seconds, rel_tol=1e-6)]
    if exact:
        return exact[0], exact[0]
    below = [i for i, edge in enumerate(edges_seconds) if edge < ceiling_seconds]
    above = [i for i, edge in enumerate(edges_seconds) if edge > ceiling_seconds and math.isfinite(edge)]
    if not below or not above:
        raise InvalidInput(
            "histogram", list(edges_seconds), f"bucket edges on both sides of {ceiling_seconds:g} s"
        )
    return below[-1], above[0]


def _counts(first: Sample, last: Sample, name: str, ceiling_seconds: float) -> Counts:
    low, high = edges_around(last.edges_seconds, ceiling_seconds)
    now, then = last.gateway[name], first.gateway[name]
    measured = now.buckets[-1] - then.buckets[-1]
    slow_at_most = measured - (now.buckets[low] - then.buckets[low])
    slow_at_least = measured - (now.buckets[high] - then.buckets[high])
    failed = now.failed - then.failed
    unmeasured = now.failed_unmeasured - then.failed_unmeasured
    total = measured + unmeasured
    failed = min(max(failed, unmeasured), total)
    return Counts(
        total=total,
        bad_at_most=min(total, slow_at_most + failed),
        bad_at_least=min(total, max(slow_at_least + unmeasured, failed)),
        failed=failed,
    )


def overdue(earlier: Iterable[Sample], now: Sample, name: str, ceiling_seconds: float) -> int:
    """Return a lower bound on requests that have already waited longer than the ceiling and have not ended.

    Whatever was sent before `now − ceiling` and exceeds all that has ended since is still waiting, in whatever
    order requests end. This sees a replica that answers nothing at all, whose histogram stands still.
    """
    ended = now.gateway[name].ended
    limit = now.at - timedelta(seconds=ceiling_seconds)
    sent = [s.gateway[name].sent for s in earlier if s.at <= limit and name in s.gateway]
    return max(0, max(sent, default=0) - ended)


def histogram_quantile(edges: Sequence[float], cumulative: Sequence[int], share: float) -> float | None:
    """Return the quantile `share` (0 to 1) by linear interpolation inside its bucket, in the edges' unit.

    None when there are no observations or when the quantile lies in the unbounded last bucket.
    """
    total = cumulative[-1] if cumulative else 0
    if total <= 0:
        return None
    wanted = share * total
    low_edge, low_count = 0.0, 0
    for edge, count in zip(edges, cumulative, strict=True):
        if count >= wanted:
            if not math.isfinite(edge):
                return None
            inside = count - low_count
            return low_edge + (edge - low_edge) * ((wanted - low_count) / inside if inside else 1.0)
        low_edge, low_count = edge, count
    return None


def _gateway_since(then: GatewayCounters, now: GatewayCounters) -> GatewayCounters:
    return GatewayCounters(
        sent=now.sent - then.sent,
        ended=now.ended - then.ended,
        failed=now.failed - then.failed,
        failed_unmeasured=now.failed_unmeasured - then.failed_unmeasured,
        buckets=tuple(new - old for old, new in zip(then.buckets, now.buckets, strict=True)),
        latency_sum_seconds=now.latency_sum_seconds - then.latency_sum_seconds,
    )


def _server_since(then: ServerCounters, now: ServerCounters) -> ServerCounters:
    return replace(
        now,
        succeeded=now.succeeded - then.succeeded,
        failed=now.failed - then.failed,
        inferences=now.inferences - then.inferences,
        executions=now.executions - then.executions,
        queue_seconds=now.queue_seconds - then.queue_seconds,
        input_seconds=now.input_seconds - then.input_seconds,
        infer_seconds=now.infer_seconds - then.infer_seconds,
        output_seconds=now.output_seconds - then.output_seconds,
        batches=_batches(then, now) or (),
        device_busy_seconds=_device_seconds(then, now),
        counted_by="",
    )


def _server_use(then: ServerCounters, now: ServerCounters, seconds: float) -> ServerUse:
    requests = (now.succeeded - then.succeeded) or None
    inferences = (now.inferences - then.inferences) or None
    executions = (now.executions - then.executions) or None
    compute = now.compute_seconds - then.compute_seconds
    busy = _device_seconds(then, now)
    spent, done = (busy, inferences) if busy is not None else _batch_seconds(then, now)
    return ServerUse(
        queue_seconds=(now.queue_seconds - then.queue_seconds) / requests if requests else None,
        compute_seconds=compute / requests if requests else None,
        realised_batch=inferences / executions if inferences and executions else None,
        compute_seconds_per_inference=spent / done if spent is not None and done else None,
        device_utilisation=min(1.0, busy / seconds) if busy is not None and seconds > 0 else None,
        memory_used_bytes=now.memory_used_bytes,
        memory_total_bytes=now.memory_total_bytes,
        fastest_batch_seconds=_fastest_batch(now),
    )


def _fastest_batch(now: ServerCounters) -> float | None:
    ran = [batch for batch in now.batches if batch.executions > 0]
    if not ran:
        return None
    smallest = min(ran, key=lambda batch: batch.size)
    return smallest.compute_seconds / smallest.executions


def _device_seconds(then: ServerCounters, now: ServerCounters) -> float | None:
    if now.device_busy_seconds is None or then.device_busy_seconds is None:
        return None
    return max(0.0, now.device_busy_seconds - then.device_busy_seconds)


def _batch_seconds(then: ServerCounters, now: ServerCounters) -> tuple[float | None, int | None]:
    """Summed execution time in the window, and the inferences it was spent on; None when the model was loaded in it.

    Both from the same statistics, which may be read at another moment than the counters.
    """
    ran = _batches(then, now)
    if ran is None:
        return None, None
    seconds = sum(b.compute_seconds for b in now.batches) - sum(b.compute_seconds for b in then.batches)
    return seconds, sum(batch.size * batch.executions for batch in ran)


def _batches(then: ServerCounters, now: ServerCounters) -> tuple[BatchTiming, ...] | None:
    """What ran in the window by batch size; None when the model was loaded again in between."""
    before = {batch.size: batch for batch in then.batches}
    after = {batch.size: batch for batch in now.batches}
    if not after or any(s not in after or after[s].executions < b.executions for s, b in before.items()):
        return None
    ran = []
    for size, batch in sorted(after.items()):
        old = before.get(size, BatchTiming(size, 0, 0.0))
        if batch.executions > old.executions:
            seconds = max(0.0, batch.compute_seconds - old.compute_seconds)
            ran.append(BatchTiming(size, batch.executions - old.executions, seconds))
    return tuple(ran)
