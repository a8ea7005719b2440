"""What one look at a deployment shows, in the words that findings are made of; cumulative, as servers count.

Nothing here knows where it was read. What could not be read is None or absent, never zero (guards rule 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Self

from autotuner.domain.configuration import ModelConfig
from autotuner.domain.measurement import GatewayCounters


@dataclass(frozen=True)
class Batch:
    """Executions of one realised batch size, and their summed seconds in input copy, inference and output copy."""

    size: int
    executions: int
    input_seconds: float
    infer_seconds: float
    output_seconds: float

    @property
    def seconds(self) -> float:
        """Summed execution time."""
        return self.input_seconds + self.infer_seconds + self.output_seconds

    @property
    def mean_seconds(self) -> float:
        """Of one execution; 0 without any."""
        return self.seconds / self.executions if self.executions else 0.0


@dataclass(frozen=True)
class Work:
    """What a server did for one model, since it was loaded or between two looks.

    Times are summed over requests: each request of a batch adds the batch's time. request_seconds: from a request's
    arrival in the server to its answer. inferences: items; executions: batches that ran.
    """

    requests: int = 0
    failures: int = 0
    inferences: int = 0
    executions: int = 0
    cache_hits: int = 0
    request_seconds: float = 0.0
    queue_seconds: float = 0.0
    input_seconds: float = 0.0
    infer_seconds: float = 0.0
    output_seconds: float = 0.0
    batches: tuple[Batch, ...] = ()

    @property
    def compute_seconds(self) -> float:
        """Input copy, inference and output copy, summed over requests."""
        return self.input_seconds + self.infer_seconds + self.output_seconds

    @property
    def execution_seconds(self) -> float:
        """Time that instances spent on batches: each execution counts once, however many requests were in it."""
        return sum(batch.seconds for batch in self.batches)

    @property
    def mean_batch(self) -> float | None:
        """Items in an execution; None without any."""
        return self.inferences / self.executions if self.executions else None

    def behind(self, earlier: Self) -> bool:
        """Say whether any count is lower than it was: the model was loaded anew, or the server restarted."""
        counted = ("requests", "failures", "inferences", "executions")
        return any(getattr(self, name) < getattr(earlier, name) for name in counted)

    def since(self, earlier: Self) -> Self:
        """Return what was done since `earlier`; after a reload, all that was counted since the reload."""
        return self if self.behind(earlier) else self._combined(earlier, -1)

    def __add__(self, other: Self) -> Self:
        """Return both together."""
        return self._combined(other, 1)

    def _combined(self, other: Self, sign: int) -> Self:
        summed = {
            one.name: getattr(self, one.name) + sign * getattr(other, one.name)
            for one in fields(self)
            if one.name != "batches"
        }
        return type(self)(**summed, batches=_batches(self.batches, other.batches, sign))


def _batches(mine: Iterable[Batch], others: Iterable[Batch], sign: int) -> tuple[Batch, ...]:
    found: dict[int, list[float]] = {}
    for batches, factor in ((mine, 1), (others, sign)):
        for one in batches:
            row = found.setdefault(one.size, [0.0] * 4)
            parts = (one.executions, one.input_seconds, one.infer_seconds, one.output_seconds)
            found[one.size] = [old + factor * new for old, new in zip(row, parts, strict=True)]
    return tuple(
        Batch(size, round(row[0]), *(max(0.0, seconds) for seconds in row[1:]))
        for size, row in sorted(found.items())
        if round(row[0]) > 0
    )


@dataclass(frozen=True)
class Quantiles:
    """Of a latency, in seconds; None where the source does not say."""

    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None


@dataclass(frozen=True)
class Device:
    """A server's devices together. utilisation: of the moment, 0 to 1; busy_seconds: since it started."""

    utilisation: float | None = None
    busy_seconds: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None


@dataclass(frozen=True)
class ReplicaLook:
    """One server at one look.

    work: by model, since its load. metrics: whether its metrics page could be read; device, pending and quantiles come
    from there. quantiles: by part of a request (`request`, `queue`, `compute_input`, `compute_infer`,
    `compute_output`), over the sliding window that the server keeps. page_at: when others read that page, None where
    it was read for this look; work_of_page: whether the work is counted there too, and so of that moment.
    """

    work: Mapping[str, Work] = field(default_factory=dict)
    metrics: bool = False
    device: Device = Device()
    pending: float | None = None
    quantiles: Mapping[str, Quantiles] = field(default_factory=dict)
    page_at: datetime | None = None
    work_of_page: bool = False


@dataclass(frozen=True)
class Look:
    """Everything read at one moment. gateway: by its name for a backend; edges_seconds: of its histograms."""

    at: datetime
    replicas: Mapping[str, ReplicaLook]
    gateway: Mapping[str, GatewayCounters] = field(default_factory=dict)
    edges_seconds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Unread:
    """Something that could not be read, why, and what is lost by it."""

    what: str
    why: str
    lost: str

    def sentence(self) -> str:
        """Return it in words."""
        return f"{self.what} could not be read ({self.why}): {self.lost}"


@dataclass(frozen=True)
class RouteSeen:
    """What divides the traffic, as it was read. weighted: whether its weights can be set, None where not known."""

    weighted: bool | None
    detail: str
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What does not change while a diagnosis looks.

    model: the one that is looked at. configs: complete configurations by model, those of an ensemble's
    members too. versions: of Triton, by replica; model_versions: of the model, as loaded there.
    models: how many the server has in all, None where it does not say. weighted_route: whether the gateway has a route
    whose weights can be changed, None where that is not known; route: what is known of it, in words.
    """

    model: str
    configs: Mapping[str, ModelConfig] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    models: int | None = None
    weighted_route: bool | None = None
    unread: tuple[Unread, ...] = ()
    model_versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    route: str = ""
