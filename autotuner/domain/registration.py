"""A target as it is registered: where it is, what its users are promised, and how its studies go about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from autotuner.domain.slo import SloBudget
from autotuner.domain.study import GREYBOX, Approval, Pace, StudyPlan
from autotuner.domain.target import Target


@dataclass(frozen=True)
class StudyDefaults:
    """How a study of a target goes about it unless it is started otherwise; fields as in `StudyPlan`.

    four_eyes: whoever started a study may not approve its winner. max_dispersion: limited in a rehearsal alone, so no
    file and no request can set it.
    """

    max_trials: int = 12
    ramp_steps: int = 6
    minimum_gain: float = 0.05
    max_voids: int = 2
    approval: Approval = Approval.AUTOMATIC
    sampler: str = GREYBOX
    seed: int = 0
    pace: Pace = field(default_factory=Pace)
    four_eyes: bool = False
    max_dispersion: float = math.inf

    def plan(self, target: Target, slo: SloBudget) -> StudyPlan:
        """Return the plan of a study of `target` under `slo`, the version of its budget in force."""
        chosen: dict[str, Any] = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name != "four_eyes"
        }
        return StudyPlan(target=target, slo=slo, **chosen)


@dataclass(frozen=True)
class Registration:
    """A target and all that is registered with it.

    mark: changes with every change of the target, its defaults or its retirement, and not with its budget, which has
    versions of its own. retired_at: since when no study of it may start; None while one may.
    """

    target: Target
    slo: SloBudget
    defaults: StudyDefaults
    mark: str
    created_at: datetime
    changed_at: datetime
    changed_by: str
    retired_at: datetime | None = None


@dataclass(frozen=True)
class Wanted:
    """What a target shall be from now on; None leaves budget or defaults as they are."""

    target: Target
    slo: SloBudget | None = None
    defaults: StudyDefaults | None = None
