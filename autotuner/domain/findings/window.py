"""From many looks to one window: what was done in it, at each replica and together; a reload in between is survived.

Differences are summed from look to look, so that counters which start again at a load lose no more than what was done
between the last look before it and the load itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from statistics import fmean

from autotuner.domain.findings.reading import Device, Look, Quantiles, ReplicaLook, Work
from autotuner.domain.measurement import histogram_quantile


@dataclass(frozen=True)
class ReplicaWindow:
    """One server over the window.

    work: for the model. since_load: all that it counted since the model's load, at the end. members: for each
    other model that was read. counts: finished requests between neighbouring looks. utilisation: mean share, 0 to 1,
    of the time that the device was busy; busy_seconds: the same in seconds, from a counter or from the gauge.
    """

    work: Work
    since_load: Work
    members: Mapping[str, Work]
    counts: tuple[int, ...]
    reloads: int
    metrics: bool
    utilisation: float | None
    busy_counted: bool
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    pending: tuple[float, ...]
    quantiles: Mapping[str, Quantiles]


@dataclass(frozen=True)
class GatewayWindow:
    """What the gateway measured in the window, over all its backends; buckets cumulative at edges_seconds."""

    requests: int
    failed: int
    latency_seconds: float
    edges_seconds: tuple[float, ...]
    buckets: tuple[int, ...]

    @property
    def mean_seconds(self) -> float | None:
        """Mean latency of a measured request; None without any."""
        measured = self.buckets[-1] if self.buckets else 0
        return self.latency_seconds / measured if measured else None

    def quantile(self, share: float) -> float | None:
        """Return a quantile in seconds, None where the histogram cannot say."""
        return histogram_quantile(self.edges_seconds, self.buckets, share)

    @property
    def quantiles(self) -> Quantiles:
        """p50, p95 and p99."""
        return Quantiles(*(self.quantile(share) for share in (0.50, 0.95, 0.99)))


@dataclass(frozen=True)
class Window:
    """All replicas over a window of `seconds`. gateway: None where none was read."""

    seconds: float
    replicas: Mapping[str, ReplicaWindow]
    gateway: GatewayWindow | None = None
    names: tuple[str, ...] = field(default=())

    @property
    def work(self) -> Work:
        """Of all replicas together, for the model."""
        return sum((one.work for one in self.replicas.values()), Work())

    @property
    def rate_per_second(self) -> float:
        """Finished requests a second, on the mean replica."""
        return self.work.requests / self.seconds / max(1, len(self.replicas)) if self.seconds else 0.0

    @property
    def reloads(self) -> int:
        """How often the model was loaded anew while it was looked at."""
        return sum(one.reloads for one in self.replicas.values())

    def mean(self, seconds: float) -> float | None:
        """Return a sum over requests as the mean of one; None without a request."""
        return seconds / self.work.requests if self.work.requests else None

    def occupancy(self, instances: int) -> float | None:
        """Share of the time that the mean instance was at work, 0 to 1; None where batches are not told."""
        if not self.work.batches or not self.seconds:
            return None
        return min(1.0, self.work.execution_seconds / self.seconds / instances / len(self.replicas))

    @property
    def utilisation(self) -> float | None:
        """Mean share of the time, 0 to 1, that the devices were busy; None where unknown."""
        return _mean([one.utilisation for one in self.replicas.values()])

    @property
    def latency(self) -> Quantiles:
        """What a client sees, from the gateway; else the worst replica's summary; else nothing."""
        if self.gateway is not None and self.gateway.quantile(0.5) is not None:
            return self.gateway.quantiles
        return self.part("request")

    def part(self, name: str) -> Quantiles:
        """Return a part's quantiles at the replica where p99 is the highest: quantiles cannot be pooled."""
        told = [one.quantiles[name] for one in self.replicas.values() if name in one.quantiles]
        return max(told, key=lambda one: one.p99_seconds or 0.0, default=Quantiles())


def gather(looks: Sequence[Look], model: str) -> Window:
    """Return what the looks show of `model`, at the replicas that both the first and the last look reached."""
    first, last = looks[0], looks[-1]
    names = tuple(name for name in last.replicas if name in first.replicas)
    return Window(
        _seconds(looks, names, model),
        {name: _replica(looks, name, model) for name in names},
        _gateway(looks),
        names,
    )


def _seconds(looks: Sequence[Look], names: Sequence[str], model: str) -> float:
    """Length of the window: between the looks, or between the scrapes where others counted, of the mean replica."""
    spans = [
        _between([_worked_at(look, name) for look in looks if _has(look, name, model)]) for name in names
    ]
    return fmean(spans) if any(spans) else (looks[-1].at - looks[0].at).total_seconds()


def _has(look: Look, name: str, model: str) -> bool:
    return name in look.replicas and model in look.replicas[name].work


def _worked_at(look: Look, name: str) -> datetime:
    one = look.replicas[name]
    return one.page_at if one.work_of_page and one.page_at is not None else look.at


def _between(instants: Sequence[datetime]) -> float:
    return (instants[-1] - instants[0]).total_seconds() if instants else 0.0


def _replica(looks: Sequence[Look], name: str, model: str) -> ReplicaWindow:
    present = [(look.at, look.replicas[name]) for look in looks if name in look.replicas]
    seen = [one for _, one in present]
    work, counts, reloads = _summed([one.work.get(model) for one in seen])
    others = {other for one in seen for other in one.work} - {model}
    told = [one for one in seen if one.metrics]
    seconds = _between([one.page_at or at for at, one in present if one.metrics])
    busy = _busy([one.device for one in told], seconds)
    return ReplicaWindow(
        work=work,
        since_load=seen[-1].work.get(model, Work()),
        members={other: _summed([one.work.get(other) for one in seen])[0] for other in sorted(others)},
        counts=counts,
        reloads=reloads,
        metrics=bool(told),
        utilisation=busy if busy is not None else _mean([one.device.utilisation for one in told]),
        busy_counted=busy is not None,
        memory_used_bytes=_last(told, lambda device: device.memory_used_bytes),
        memory_total_bytes=_last(told, lambda device: device.memory_total_bytes),
        pending=tuple(one.pending for one in told if one.pending is not None),
        quantiles=told[-1].quantiles if told else {},
    )


def _summed(works: Sequence[Work | None]) -> tuple[Work, tuple[int, ...], int]:
    """Work from look to look, requests in each, and how often it began anew."""
    total, counts, reloads = Work(), list[int](), 0
    for before, after in pairwise(one for one in works if one is not None):
        done = after.since(before)
        total, reloads = total + done, reloads + after.behind(before)
        counts.append(done.requests)
    return total, tuple(counts), reloads


def _busy(devices: Sequence[Device], seconds: float) -> float | None:
    """Share of the time the device was busy, from a counter; None without one or when it began anew."""
    counted = [one.busy_seconds for one in devices]
    if len(counted) < 2 or counted[0] is None or counted[-1] is None or counted[-1] < counted[0]:
        return None
    return min(1.0, (counted[-1] - counted[0]) / seconds) if seconds else None


def _last(told: Sequence[ReplicaLook], value: Callable[[Device], float | None]) -> float | None:
    return value(told[-1].device) if told else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _gateway(looks: Sequence[Look]) -> GatewayWindow | None:
    """The difference of the gateway's counters; None where they were not read, or began anew."""
    told = [look for look in looks if look.gateway]
    if len(told) < 2:
        return None
    first, last = told[0], told[-1]
    names = [name for name in last.gateway if name in first.gateway]
    if not names or any(last.gateway[n].behind(first.gateway[n]) for n in names):
        return None
    pairs = [(first.gateway[name], last.gateway[name]) for name in names]
    return GatewayWindow(
        requests=sum(now.ended - then.ended for then, now in pairs),
        failed=sum(now.failed - then.failed for then, now in pairs),
        latency_seconds=sum(now.latency_sum_seconds - then.latency_sum_seconds for then, now in pairs),
        edges_seconds=last.edges_seconds,
        buckets=tuple(
            sum(now.buckets[i] - then.buckets[i] for then, now in pairs)
            for i in range(len(last.edges_seconds))
        ),
    )
