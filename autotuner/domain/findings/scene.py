"""What the rules look at: the window's means, the configuration, and what neither of them says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotuner.domain.configuration import Configuration, ModelConfig, read_configuration
from autotuner.domain.findings.reading import Facts, Quantiles, Work
from autotuner.domain.findings.window import Window
from autotuner.errors import AutotunerError

LEAST_REQUESTS = 50
"""Below so many requests means say little: nothing but what a server tells of itself is called sure."""

LEAST_EXECUTIONS = 10
"""Executions of a batch size whose mean time is believed."""


@dataclass(frozen=True)
class Scene:
    """Everything a rule may ask. ceiling_seconds: the p99 that clients were promised."""

    ceiling_seconds: float
    window: Window
    facts: Facts

    @property
    def model(self) -> str:
        """The model that is looked at."""
        return self.facts.model

    @property
    def config(self) -> ModelConfig:
        """The model's complete configuration; empty where it could not be read."""
        return self.facts.configs.get(self.model, {})

    @cached_property
    def configuration(self) -> Configuration | None:
        """The tuned fields; None for a model that cannot be tuned, or whose configuration is not known."""
        try:
            return read_configuration(self.config) if self.config else None
        except AutotunerError:
            return None

    @property
    def batcher(self) -> Mapping[str, Any] | None:
        """The section of dynamic batching; None where there is none."""
        found: Mapping[str, Any] | None = self.config.get("dynamic_batching")
        return found

    @property
    def max_batch_size(self) -> int:
        """The largest batch the model takes; 1 where it takes none, 0 where that is not known."""
        return max(1, int(self.config.get("max_batch_size", 0))) if self.config else 0

    @property
    def instances(self) -> int:
        """Instances on one replica, at least 1."""
        groups = self.config.get("instance_group", [])
        return max(1, sum(int(group.get("count", 1)) for group in groups))

    @property
    def delay_seconds(self) -> float:
        """How long a request may wait for a batch on purpose."""
        return int((self.batcher or {}).get("max_queue_delay_microseconds", 0)) / 1e6

    @property
    def preferred(self) -> tuple[int, ...]:
        """Preferred sizes as they are set, ascending."""
        return tuple(sorted(int(size) for size in (self.batcher or {}).get("preferred_batch_size", [])))

    @cached_property
    def work(self) -> Work:
        """What all replicas did for the model in the window."""
        return self.window.work

    @property
    def enough(self) -> bool:
        """Whether there were requests enough for means to be believed."""
        return self.work.requests >= LEAST_REQUESTS

    @property
    def total_seconds(self) -> float | None:
        """Mean time of a request in Triton."""
        return self.window.mean(self.work.request_seconds)

    @property
    def queue_seconds(self) -> float | None:
        """Mean time of a request in the queue."""
        return self.window.mean(self.work.queue_seconds)

    @property
    def compute_seconds(self) -> float | None:
        """Mean time of a request in its batch's execution."""
        return self.window.mean(self.work.compute_seconds)

    @property
    def latency(self) -> Quantiles:
        """Quantiles as near to the client as they are known."""
        return self.window.latency

    @property
    def occupancy(self) -> float | None:
        """Share of the time, 0 to 1, that the mean instance was at work."""
        return self.window.occupancy(self.instances)

    @cached_property
    def fastest_batch_seconds(self) -> float | None:
        """Mean time of the smallest batch that ran often enough, in the window or else since the load."""
        for batches in (self.work.batches, self._since_load.batches):
            known = [one for one in batches if one.executions >= LEAST_EXECUTIONS]
            if known:
                return min(known, key=lambda one: one.size).mean_seconds
        return None

    @cached_property
    def largest_ever(self) -> int:
        """The largest batch that ran since the load."""
        return max((one.size for one in self._since_load.batches), default=0)

    @property
    def _since_load(self) -> Work:
        return sum((one.since_load for one in self.window.replicas.values()), Work())

    @property
    def presses(self) -> bool:
        """Whether latency is near enough to the ceiling to matter: see PRESSES."""
        p99, mean = self.latency.p99_seconds, self.total_seconds
        if p99 is not None and p99 >= PRESSES * self.ceiling_seconds:
            return True
        return mean is not None and mean >= MEAN_PRESSES * self.ceiling_seconds


PRESSES = 0.8
"""A p99 from this share of the ceiling up is near it: a busier hour brings it over."""

MEAN_PRESSES = 0.4
"""A mean from this share of the ceiling up: p99 is twice the mean or more wherever requests queue at random."""


def ms(seconds: float | None) -> str:
    """Return a duration in words, as every sentence of evidence spells it."""
    if seconds is None:
        return "unknown"
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def percent(share: float) -> str:
    """Return a share, 0 to 1, in words."""
    return f"{100 * share:.0f} %"
