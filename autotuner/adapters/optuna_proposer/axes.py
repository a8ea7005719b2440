"""The search space as Optuna sees it: three axes of whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optuna.distributions import BaseDistribution, IntDistribution

from autotuner.domain.configuration import Configuration
from autotuner.domain.space import SearchSpace


@dataclass(frozen=True)
class Axes:
    """The space as whole numbers, near ones meaning alike: preferred sizes are ordered by the cap they set."""

    delays: tuple[int, ...]
    preferred: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, space: SearchSpace) -> Axes:
        """Return the axes of a space."""
        batch = space.candidates[0].max_batch_size
        return cls(
            tuple(sorted({c.max_queue_delay_microseconds for c in space.candidates})),
            tuple(
                sorted(
                    {c.preferred_batch_size for c in space.candidates},
                    key=lambda s: (max(s, default=batch), s),
                )
            ),
            tuple(sorted({c.instance_count for c in space.candidates})),
        )

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the axes as Optuna's distributions, by name."""
        return {
            "delay": IntDistribution(0, len(self.delays) - 1),
            "preferred": IntDistribution(0, len(self.preferred) - 1),
            "instances": IntDistribution(0, len(self.counts) - 1),
        }

    def point(self, configuration: Configuration) -> dict[str, int]:
        """Return where a configuration of the space lies, by axis."""
        return {
            "delay": self.delays.index(configuration.max_queue_delay_microseconds),
            "preferred": self.preferred.index(configuration.preferred_batch_size),
            "instances": self.counts.index(configuration.instance_count),
        }

    def distance(self, one: Mapping[str, int], other: Mapping[str, int]) -> float:
        """Sum over the axes of the distance as a share of the axis."""
        lengths = {"delay": len(self.delays), "preferred": len(self.preferred), "instances": len(self.counts)}
        return sum(abs(one[name] - other[name]) / max(1, length - 1) for name, length in lengths.items())
