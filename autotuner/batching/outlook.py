"""What the members of an ensemble say of a setting at a rate: latency, batches and what the device spends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from autotuner.batching.ensemble import Member
from autotuner.batching.simulator import Run, simulate
from autotuner.batching.trials import Floats, Setting

SLOWER = 1.01
"""How much slower the device is made to see how near a setting is to the cliff of saturation."""


@dataclass(frozen=True)
class Outlook:
    """Figures by member, each of shape (members,), and the weights of the members.

    p99_seconds, p995_seconds: latency quantiles .99 and .995. busy_seconds: device seconds per inference.
    utilisation: busy share of the time. unseen: octaves beyond the largest batch
    seen, weighed by compute time.
    """

    weights: Floats
    p99_seconds: Floats
    p995_seconds: Floats
    busy_seconds: Floats
    mean_batch: Floats
    utilisation: Floats
    unseen: Floats

    def mean(self, values: Floats) -> float:
        """The members' weighted mean."""
        return float((self.weights * values).sum())

    @cached_property
    def log_p99(self) -> float:
        """Weighted mean of the logarithm of p99 in seconds."""
        return self.mean(np.log(self.p99_seconds))

    @property
    def spread(self) -> float:
        """Weighted standard deviation of log p99 between the members."""
        return float(np.sqrt(self.mean((np.log(self.p99_seconds) - self.log_p99) ** 2)))

    def features(self, setting: Setting, ceiling_seconds: float) -> Floats:
        """What settings of like deviation have in common, in units of how far likeness reaches; shape (5,)."""
        return np.array(
            [
                (self.log_p99 - np.log(ceiling_seconds)) / 0.35,
                self.mean(self.utilisation) / 0.2,
                np.log2(self.mean(self.mean_batch)) / 0.8,
                setting.instances / 1.2,
                setting.delay_seconds / ceiling_seconds / 0.25,
            ]
        )


def look(members: Sequence[Member], setting: Setting, arrivals: Floats, factors: Sequence[Floats]) -> Outlook:
    """Return the outlook on these arrivals; factors: one array of batch-time factors a member."""
    rows = []
    for member, drawn in zip(members, factors, strict=True):
        run = simulate(arrivals, setting, member.device, drawn)
        rows.append(_row(run, member))
    weights = np.array([member.weight for member in members])
    columns = np.array(rows).T
    return Outlook(weights / weights.sum(), *columns)


def glance(
    member: Member, setting: Setting, arrivals: Floats, factors: Floats, limit_seconds: float
) -> Outlook | None:
    """Return one member's outlook, or None as soon as its p99 is sure to be above `limit_seconds`."""
    patience = limit_seconds - member.overhead_seconds
    run = simulate(arrivals, setting, member.device, factors, patience, int(0.01 * len(arrivals)))
    return Outlook(np.ones(1), *np.array([_row(run, member)]).T) if run.complete else None


def slower(member: Member) -> Member:
    """The member with a device that takes SLOWER times as long."""
    device = replace(member.device, curve_seconds=member.device.curve_seconds * SLOWER)
    return replace(member, device=device)


def _row(run: Run, member: Member) -> tuple[float, ...]:
    count = len(run.latency_seconds)
    p99, p995 = run.far_tail
    spent = run.compute_seconds.sum()
    return (
        p99 + member.overhead_seconds,
        p995 + member.overhead_seconds,
        run.busy_seconds / count,
        run.mean_batch,
        min(1.0, run.busy_seconds / run.span_seconds),
        float(
            (run.compute_seconds * _octaves_beyond(len(run.compute_seconds), member.known_size)).sum() / spent
        ),
    )


@cache
def _octaves_beyond(count: int, known: int) -> Floats:
    """Octaves of each batch size above the largest one seen, 0 below it; shape (count,)."""
    return np.log2(np.maximum(np.arange(count), known) / known)
