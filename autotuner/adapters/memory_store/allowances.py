"""How often somebody may ask, in memory."""

from __future__ import annotations

from autotuner.adapters.memory_store.tables import Memory
from autotuner.domain.allowance import Drawn, Rate, draw
from autotuner.ports import Clock


class MemoryAllowances:
    """Buckets beside a `MemoryStore`, whose tables they are given. clock: whose time fills them."""

    def __init__(self, memory: Memory, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock

    def draw(self, whose: str, wanted: int, rate: Rate) -> Drawn:
        """Take at most `wanted` requests out of a bucket; see `ports.Allowances`."""
        with self._memory.lock:
            bucket = self._memory.buckets.get(whose)
            self._memory.buckets[whose], drawn = draw(bucket, wanted, rate, self._clock.now())
            return drawn
