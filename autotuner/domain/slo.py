"""SLO budgets: the promise made to users before any tuning starts.

A budget is immutable; a change is a new version, and a study pins the version it started with, so nothing a
study does can loosen the ceiling it is judged by (guards rules 2 and 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from autotuner.errors import InvalidInput

ALLOWED_BAD_SHARE = 0.01
"""Share of requests that may be slow or failed: the meaning of a 99th-percentile ceiling."""


@dataclass(frozen=True)
class SloBudget:
    """One version of a target's budget.

    p99_ceiling_seconds: latency that at most 1 % of requests may exceed (or fail).
    error_ratio_ceiling: share of requests, 0 to 1, that may fail.
    max_canary_share: largest share of the target's requests, 0 to 1, that the canary may carry.
    harm_budget_requests: slow-or-failed requests above the allowed 1 % that one study may cause on the canary.
    """

    p99_ceiling_seconds: float
    error_ratio_ceiling: float
    max_canary_share: float
    harm_budget_requests: int
    version: int = 1
    actor: str = "unknown"
    reason: str = ""
    created_at: datetime | None = None

    def __post_init__(self) -> None:
        _between("p99_ceiling_seconds", self.p99_ceiling_seconds, 0.0, 600.0, "seconds above 0 and up to 600")
        _between(
            "error_ratio_ceiling",
            self.error_ratio_ceiling,
            0.0,
            0.01,
            "a fraction above 0 and up to 0.01 (1 %)",
        )
        _between(
            "max_canary_share",
            self.max_canary_share,
            0.0,
            0.95,
            "a fraction above 0 and up to 0.95, not a percentage",
        )
        if (
            isinstance(self.harm_budget_requests, bool)
            or not isinstance(self.harm_budget_requests, int)
            or self.harm_budget_requests < 1
        ):
            raise InvalidInput(
                "harm_budget_requests", self.harm_budget_requests, "a whole number of requests, at least 1"
            )

    def loosened_fields(self, newer: SloBudget) -> tuple[str, ...]:
        """Return the names of the fields in which `newer` promises users less than this version."""
        names = ("p99_ceiling_seconds", "error_ratio_ceiling", "max_canary_share", "harm_budget_requests")
        return tuple(name for name in names if getattr(newer, name) > getattr(self, name))


def _between(field: str, value: float, low: float, high: float, allowed: str) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not low < value <= high
    ):
        raise InvalidInput(field, value, allowed)
