"""How the true system differs from what a model of it would like to assume: a closed list, with what each changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotuner.benchmark.traffic import Pattern
from autotuner.benchmark.truth import Law


class Scenario(StrEnum):
    """What a workload is tried under; `CHANGES` says what that means."""

    MATCHED = "matched"
    STEPPED = "stepped"
    SUPER_LINEAR = "super-linear"
    BURSTY = "bursty"
    HEAVY_TAILS = "heavy-tails"
    SHARING = "processor-sharing"
    DRIFT = "drift"
    DIURNAL = "diurnal"
    MISCOUNTED = "miscounted"
    TWO_MODELS = "two-models"
    HARD = "hard"


@dataclass(frozen=True)
class Changes:
    """What a scenario changes of the plainest world. words: the same for people.

    stepped: half of what an item costs is charged for the next power of two. super_linear: an item of the largest batch
    costs half as much again. tails: about 1 % of batches take 2 to 4 times as long. drift: by how much the
    rate has grown by the tenth trial, as a share. miscounted: batch statistics and slow requests are read
    wrongly. background: another model uses the device now and then.
    """

    words: str
    pattern: Pattern = Pattern.POISSON
    law: Law = Law.DISPATCH
    stepped: bool = False
    super_linear: bool = False
    tails: bool = False
    drift: float = 0.0
    miscounted: bool = False
    background: bool = False


CHANGES: dict[Scenario, Changes] = {
    Scenario.MATCHED: Changes("Poisson arrivals, interference fixed at dispatch, a straight service curve"),
    Scenario.STEPPED: Changes("half of an item's cost is charged for the next power of two", stepped=True),
    Scenario.SUPER_LINEAR: Changes(
        "an item costs half as much again in the largest batch", super_linear=True
    ),
    Scenario.BURSTY: Changes(
        "arrivals switch between 1.75 and 0.5 times the mean rate, every 1.2 s on average", Pattern.BURSTY
    ),
    Scenario.HEAVY_TAILS: Changes("1 % of batches take 2 to 4 times as long", tails=True),
    Scenario.SHARING: Changes("busy instances share the device at each moment", law=Law.SHARING),
    Scenario.DRIFT: Changes("the rate grows by 25 % until the tenth trial", drift=0.25),
    Scenario.DIURNAL: Changes("the rate swings by 25 % over a day of 20 minutes", Pattern.DIURNAL),
    Scenario.MISCOUNTED: Changes(
        "one batch in ten is booked one size too large or small, compute time is off by 5 %, "
        "slow requests are counted from 0.97 of the ceiling",
        miscounted=True,
    ),
    Scenario.TWO_MODELS: Changes(
        "another model slows compute by half for 2 s at a time, a quarter of the time", background=True
    ),
    Scenario.HARD: Changes(
        "stepped and super-linear curve, bursts, heavy tails and processor sharing together",
        Pattern.BURSTY,
        Law.SHARING,
        stepped=True,
        super_linear=True,
        tails=True,
    ),
}
