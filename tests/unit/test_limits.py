"""A limit costs a statement every few requests, whatever somebody does; without a database it refuses nobody."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from api.limits import KEPT_FOR, Limiter
from api.problems import TooManyRequests
from autotuner.adapters.memory_store import Memory, MemoryAllowances
from autotuner.domain.allowance import Drawn, Rate
from autotuner.errors import Unavailable
from tests.builders import ManualClock


@dataclass
class Counted:
    """Allowances that count how often they are asked. away: as a database that does not answer."""

    clock: ManualClock = field(default_factory=ManualClock)
    draws: int = 0
    away: bool = False

    def __post_init__(self) -> None:
        self._inner = MemoryAllowances(Memory(), self.clock)

    def draw(self, whose: str, wanted: int, rate: Rate) -> Drawn:
        self.draws += 1
        if self.away:
            raise Unavailable("postgres", "connection refused")
        return self._inner.draw(whose, wanted, rate)


async def asked(limiter: Limiter, times: int, caller: str = "anna") -> int:
    """How many of so many requests at once are let through."""
    answers = await asyncio.gather(*(limiter.take(caller) for _ in range(times)), return_exceptions=True)
    assert all(answer is None or isinstance(answer, TooManyRequests) for answer in answers)
    return answers.count(None)


def test_many_requests_cost_few_statements() -> None:
    counted = Counted()
    limiter = Limiter("requests of", 600, counted, counted.clock)

    assert asyncio.run(asked(limiter, 60)) == 60
    assert counted.draws == 10


def test_who_is_refused_costs_nothing_more_until_there_is_another_request() -> None:
    counted = Counted()
    limiter = Limiter("requests of", 600, counted, counted.clock)

    async def hammered() -> int:
        await asked(limiter, 60)
        await asked(limiter, 500)
        counted.clock.turn(0.1)
        return await asked(limiter, 500)

    assert asyncio.run(hammered()) == 1
    assert counted.draws == 11


def test_what_was_drawn_and_not_spent_is_given_up() -> None:
    """Or a process that was asked long ago could let more through than a full bucket."""
    counted = Counted()
    limiter = Limiter("requests of", 600, counted, counted.clock)

    async def later() -> None:
        await limiter.take("anna")
        counted.clock.advance(KEPT_FOR)
        await limiter.take("anna")

    asyncio.run(later())
    assert counted.draws == 2


@dataclass
class Wrong:
    """A clock that is set to another time than the database's."""

    right: ManualClock
    by: timedelta = timedelta(0)

    def now(self) -> datetime:
        return self.right.now() + self.by


@pytest.mark.parametrize("minutes", [-5, 5])
def test_a_clock_that_is_set_shuts_nobody_out(minutes: int) -> None:
    counted = Counted()
    clock = Wrong(counted.clock)
    limiter = Limiter("requests of", 60, counted, clock)

    async def clock_set() -> None:
        assert await asked(limiter, 7) == 6
        clock.by = timedelta(minutes=minutes)
        counted.clock.turn(1.0)
        await limiter.take("anna")

    asyncio.run(clock_set())


def test_nobody_is_refused_while_the_database_is_away() -> None:
    counted = Counted(away=True)
    limiter = Limiter("requests of", 60, counted, counted.clock)

    assert asyncio.run(asked(limiter, 100)) == 100
