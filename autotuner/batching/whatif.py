"""The answer to a what-if question: the frontier, the settings worth naming, and what they owe to the assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotuner.batching.frontier import (
    SENSITIVITY,
    Climb,
    Looker,
    Point,
    Question,
    best,
    burstier,
    frontier,
    knee,
    smooth,
)
from autotuner.batching.trials import Aim, Setting

SHORTLIST = 12
"""Settings of each aim that are looked at again under other arrivals."""


class Role(StrEnum):
    """Why the answer names a setting."""

    TODAY = "today"
    CAPACITY = "best for capacity"
    EFFICIENCY = "best for efficiency"


class Pattern(StrEnum):
    """How requests arrive."""

    POISSON = "Poisson"
    GIVEN = "as given"
    BURSTIER = "burstier"


@dataclass(frozen=True)
class Standing:
    """A named setting. capacity: requests per second from today's rate up, None where today's breaks the ceiling."""

    climb: Climb
    capacity: float | None


@dataclass(frozen=True)
class AtRate:
    """Another rate today: p99 of the named settings, and which setting would then be best."""

    share: float
    rate_per_second: float
    p99_seconds: Mapping[Role, float]
    best: Setting | None


@dataclass(frozen=True)
class UnderPattern:
    """Other arrivals: p99 at today's rate and capacity of the named settings, and which would then be best."""

    pattern: Pattern
    p99_seconds: Mapping[Role, float]
    capacity: Mapping[Role, float | None]
    best: Setting | None


@dataclass(frozen=True)
class Answer:
    """What a question comes to. standings: today's setting and, where any holds the ceiling, the best ones."""

    question: Question
    climbs: tuple[Climb, ...]
    frontier: tuple[Point, ...]
    knee: Point | None
    standings: Mapping[Role, Standing]
    rates: tuple[AtRate, ...]
    patterns: tuple[UnderPattern, ...]

    @property
    def choice(self) -> Standing | None:
        """The best setting for what is aimed at, None where none holds the ceiling today."""
        role = Role.CAPACITY if self.question.aim is Aim.CAPACITY else Role.EFFICIENCY
        return self.standings.get(role)


def answer(question: Question, found: Sequence[Climb]) -> Answer:
    """Return the answer. found: what `frontier.climbs` yields for the question."""
    looker, today = Looker(question), question.rate_per_second
    chosen = {Role.TODAY: next(climb for climb in found if climb.setting == question.incumbent)}
    for role, aim in ((Role.CAPACITY, Aim.CAPACITY), (Role.EFFICIENCY, Aim.EFFICIENCY)):
        climb = best(question, found, aim, today)
        if climb is not None:
            chosen[role] = climb
    points = frontier(question, found)
    return Answer(
        question,
        tuple(found),
        points,
        knee(points, question.ceiling_seconds),
        {role: Standing(climb, looker.capacity(climb)) for role, climb in chosen.items()},
        tuple(_at_rate(question, found, chosen, share) for share in SENSITIVITY),
        _patterns(question, found, {role: climb.setting for role, climb in chosen.items()}),
    )


def _at_rate(
    question: Question, found: Sequence[Climb], chosen: Mapping[Role, Climb], share: float
) -> AtRate:
    rate = question.rate_per_second * share
    seen = {role: reading for role, climb in chosen.items() if (reading := climb.at(rate)) is not None}
    winner = best(question, found, question.aim, rate)
    return AtRate(
        share,
        rate,
        {role: reading.p99_seconds for role, reading in seen.items()},
        winner.setting if winner else None,
    )


def _patterns(
    question: Question, found: Sequence[Climb], named: Mapping[Role, Setting]
) -> tuple[UnderPattern, ...]:
    """The named settings and a shortlist under each pattern."""
    kept = _shortlist(question, found, named)
    rows = []
    asked = {
        Pattern.POISSON: smooth(question),
        Pattern.GIVEN: question,
        Pattern.BURSTIER: burstier(question),
    }
    today = question.rate_per_second
    for pattern, variant in asked.items():
        looker = Looker(variant)
        climbed = {setting: looker.climb(setting) for setting in kept}
        seen = {role: climbed[setting].at(today) for role, setting in named.items()}
        winner = best(variant, climbed.values(), question.aim, today)
        rows.append(
            UnderPattern(
                pattern,
                {role: reading.p99_seconds for role, reading in seen.items() if reading is not None},
                {role: looker.capacity(climbed[setting]) for role, setting in named.items()},
                winner.setting if winner else None,
            )
        )
    return tuple(rows)


def _shortlist(
    question: Question, found: Sequence[Climb], named: Mapping[Role, Setting]
) -> tuple[Setting, ...]:
    """The named settings, those that carry the most, and those that are leanest today."""
    since, ceiling = question.rate_per_second, question.ceiling_seconds
    carrying = sorted(found, key=lambda climb: -(climb.capacity(since, ceiling) or 0.0))
    leanest = sorted(
        (climb for climb in found if climb.capacity(since, ceiling) is not None),
        key=lambda climb: reading.busy_seconds if (reading := climb.at(since)) is not None else 0.0,
    )
    first = [climb.setting for climb in (*carrying[:SHORTLIST], *leanest[:SHORTLIST])]
    return tuple(dict.fromkeys([*named.values(), *first]))
