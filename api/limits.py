"""How often somebody may ask: a token bucket each, shared by all processes of the API.

A process draws a few requests ahead and spends them from memory, so most requests cost no statement; who is out of them
is refused from memory until there is another. So a caller costs one short statement every few requests, whatever they
do, and gets no more from many processes than from one. While the database does not answer, nobody is refused: it is
what the limit protects, and it is away.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool

from api.problems import TooManyRequests
from autotuner.domain.allowance import Drawn, Rate
from autotuner.errors import Unavailable
from autotuner.ports import Allowances, Clock

log = logging.getLogger(__name__)

MOST_CALLERS = 10_000
"""Callers that one process remembers; the one that did not ask for longest is forgotten first."""

BURST_SHARE = 0.1
"""A bucket holds this share of what a minute allows, and at least one request."""

AHEAD_SHARE = 0.1
"""A process draws this share of a full bucket at a time, and at least one request."""

KEPT_FOR = timedelta(seconds=10)
"""What was drawn and not spent for so long is given up: a burst is never more than a full bucket for long."""


@dataclass
class _Purse:
    """What one process has of one caller: requests drawn and not spent, or until when there are none."""

    left: int = 0
    drawn_at: datetime | None = None
    empty_until: datetime | None = None
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Limiter:
    """Lets `per_minute` requests of each caller through. name: what is limited. For one thread: the event loop's."""

    def __init__(self, name: str, per_minute: int, allowances: Allowances, clock: Clock) -> None:
        holds = max(1.0, per_minute * BURST_SHARE)
        self._rate = Rate(per_minute / 60, holds)
        self._ahead = max(1, math.floor(holds * AHEAD_SHARE))
        self._name = name
        self._allowances = allowances
        self._clock = clock
        self._purses: OrderedDict[str, _Purse] = OrderedDict()

    async def take(self, caller: str) -> None:
        """Count one request of `caller`. Raises TooManyRequests."""
        purse = self._purse(caller)
        if self._spent(purse):
            return
        async with purse.drawing:
            if not self._spent(purse):
                await self._draw(caller, purse)
                if not self._spent(purse):
                    raise self._refused(purse)

    def check(self, caller: str) -> None:
        """Raise TooManyRequests when this process knows that `caller` has asked too often; counts nothing."""
        purse = self._purse(caller)
        if purse.left == 0 and self._is_empty(purse, self._clock.now()):
            raise self._refused(purse)

    def _purse(self, caller: str) -> _Purse:
        purse = self._purses.pop(caller, None) or _Purse()
        self._purses[caller] = purse
        if len(self._purses) > MOST_CALLERS:
            self._purses.popitem(last=False)
        return purse

    def _spent(self, purse: _Purse) -> bool:
        """Spend one request of those drawn. Raises TooManyRequests while there are known to be none."""
        now = self._clock.now()
        if purse.drawn_at is not None and not timedelta(0) <= now - purse.drawn_at < KEPT_FOR:
            purse.left, purse.drawn_at = 0, None
        if purse.left > 0:
            purse.left -= 1
            return True
        if self._is_empty(purse, now):
            raise self._refused(purse)
        return False

    def _is_empty(self, purse: _Purse, now: datetime) -> bool:
        """Whether there is known to be none; a clock that was set back says nothing."""
        until = purse.empty_until
        return until is not None and now < until <= now + timedelta(seconds=1.0 / self._rate.per_second)

    async def _draw(self, caller: str, purse: _Purse) -> None:
        whose = f"{self._name} {caller}"
        try:
            drawn = await run_in_threadpool(self._allowances.draw, whose, self._ahead, self._rate)
        except Unavailable as error:
            log.debug("allowance_unread", extra={"reason": str(error)})
            drawn = Drawn(self._ahead, 0.0)
        now = self._clock.now()
        purse.left, purse.drawn_at = drawn.granted, now
        purse.empty_until = now + timedelta(seconds=drawn.next_seconds) if drawn.next_seconds else None

    def _refused(self, purse: _Purse) -> TooManyRequests:
        wait = (purse.empty_until - self._clock.now()).total_seconds() if purse.empty_until else 0.0
        return TooManyRequests(max(1, math.ceil(wait)))
