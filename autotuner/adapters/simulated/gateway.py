"""The simulated gateway: weights, and counters that move at once beside histograms that are merged in turns.

A request is counted as sent when it arrives and as ended when it ends; the histogram learns of it only at the
next flush, as with the real gateway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotuner.domain.measurement import GatewayCounters
from autotuner.errors import Refused, Unavailable

Floats = NDArray[np.float64]


@dataclass
class _Route:
    """Counters of one replica; `pending` holds (ended, latency) that no flush has merged yet."""

    size: int
    sent: int = 0
    ended: int = 0
    failed: int = 0
    failed_unmeasured: int = 0
    latency_sum_seconds: float = 0.0
    merged: NDArray[np.int64] = field(init=False)
    pending: list[tuple[Floats, Floats]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.merged = np.zeros(self.size, dtype=np.int64)


class Gateway:
    """One gateway in front of the replicas `names`; instants are seconds of the simulation."""

    def __init__(
        self,
        weights: Mapping[str, int],
        edges_seconds: tuple[float, ...],
        flush_seconds: float,
        seed: np.random.SeedSequence,
    ) -> None:
        self.up = True
        self._initial = dict(weights)
        self._edges = np.array(edges_seconds)
        self._flush_seconds = flush_seconds
        self._draws = np.random.default_rng(seed)
        self.restart()

    def restart(self) -> None:
        """Come up with every counter at zero and the initial weights."""
        self.up = True
        self._weights = dict(self._initial)
        self._routes = {name: _Route(len(self._edges)) for name in self._initial}

    def require_up(self) -> None:
        """Raise Unavailable when nobody listens."""
        if not self.up:
            raise Unavailable("gateway", "connection refused")

    @property
    def weights(self) -> dict[str, int]:
        """The weight of each replica."""
        return dict(self._weights)

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set all weights at once. Raises Refused for other replicas, a negative weight, or no weight at all."""
        names = sorted(self._initial)
        if sorted(weights) != names:
            raise Refused(f"the gateway refused the weights: it has the replicas {', '.join(names)}")
        if min(weights.values()) < 0 or sum(weights.values()) <= 0:
            raise Refused("the gateway refused the weights: none may be negative, and not all zero")
        self._weights = dict(weights)

    def split(self, arrived: Floats) -> dict[str, list[float]]:
        """Give every request a replica by the weights and count it as sent; instants by replica."""
        names = list(self._weights)
        bounds = np.cumsum([self._weights[name] for name in names]) / sum(self._weights.values())
        choice = np.searchsorted(bounds, self._draws.random(len(arrived)), side="right")
        given = {name: arrived[choice == index].tolist() for index, name in enumerate(names)}
        for name, times in given.items():
            self._routes[name].sent += len(times)
        return given

    def end(self, name: str, ended: Floats, latency_seconds: Floats, failed: int) -> None:
        """Count requests that were answered, `failed` of them with an error; arrays of one shape (n,)."""
        route = self._routes[name]
        route.ended += len(ended)
        route.failed += failed
        if len(ended):
            route.pending.append((ended, latency_seconds))

    def break_off(self, name: str, count: int) -> None:
        """Count requests that got no answer: they failed, and no histogram has them."""
        route = self._routes[name]
        route.ended += count
        route.failed += count
        route.failed_unmeasured += count

    def counters(self, now: float) -> dict[str, GatewayCounters]:
        """Return what the gateway would report at `now`, by replica."""
        flushed = math.floor(now / self._flush_seconds + 1e-9) * self._flush_seconds + 1e-9
        return {name: self._counters(route, flushed) for name, route in self._routes.items()}

    def _counters(self, route: _Route, flushed: float) -> GatewayCounters:
        self._merge(route, flushed)
        return GatewayCounters(
            sent=route.sent,
            ended=route.ended,
            failed=route.failed,
            failed_unmeasured=route.failed_unmeasured,
            buckets=tuple(np.cumsum(route.merged).tolist()),
            latency_sum_seconds=route.latency_sum_seconds,
        )

    def _merge(self, route: _Route, flushed: float) -> None:
        if not route.pending:
            return
        ended, latency = (np.concatenate(parts) for parts in zip(*route.pending, strict=True))
        count = int(np.searchsorted(ended, flushed, side="right"))
        slots = np.searchsorted(self._edges, latency[:count], side="left")
        route.merged += np.bincount(slots, minlength=len(self._edges))
        route.latency_sum_seconds += float(latency[:count].sum())
        route.pending = [(ended[count:], latency[count:])] if count < len(ended) else []


def initial_weights(stable: Iterable[str], canary: str, total: int) -> dict[str, int]:
    """Split `total` evenly over the stable replicas, remainders first; the canary gets nothing."""
    names = list(stable)
    share, rest = divmod(total, len(names))
    return {**{name: share + (index < rest) for index, name in enumerate(names)}, canary: 0}
