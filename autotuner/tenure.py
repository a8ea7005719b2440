"""The leases that this process holds: what it may drive, and until when it surely may.

A lease is trusted by this process's own clock alone, from before it was asked for: nobody else's clock is compared
with it, and nothing is done on the strength of a lease that may have run out (guards rule 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from autotuner.errors import Conflict, Unavailable
from autotuner.ports import Clock, Grant, Leases

LEASE_TTL = timedelta(seconds=15)

RENEWED_AT = 2 / 3
"""The part of a lease that is left when all are renewed together: before a tick would renew its own, at a half."""


@dataclass(frozen=True)
class _Held:
    """A lease and until when it surely lasts by this process's own clock."""

    grant: Grant
    until: datetime


class Tenure:
    """Leases of one process. Ticks of different targets may ask at the same time."""

    def __init__(self, leases: Leases, clock: Clock, holder: str, ttl: timedelta = LEASE_TTL) -> None:
        self._leases = leases
        self._clock = clock
        self._holder = holder
        self._ttl = ttl
        self._held: dict[str, _Held] = {}
        self._newest: datetime | None = None

    def grant(self, target: str) -> Grant | None:
        """Return the lease on a target, renewed when half of it has gone; None while somebody else has it.

        Raises Unavailable.
        """
        asked = self._now()
        held = self._held.get(target)
        if held is not None and held.until - asked > self._ttl / 2:
            return held.grant
        grant = self._leases.acquire(target, self._holder, self._ttl)
        if grant is None:
            self._held.pop(target, None)
            return None
        self._held[target] = _Held(grant, asked + self._ttl)
        return grant

    def require(self, grant: Grant) -> None:
        """Raise Conflict unless the lease still lasts: the database fences what is written, but not what is done."""
        still = self.grant(grant.target)
        if still is None or still.token != grant.token:
            raise Conflict(f"lease of target {grant.target}", f"{grant.holder} lost it within a tick")

    def renew(self) -> None:
        """Renew every lease of which a third has gone, all in one go. Raises Unavailable."""
        asked = self._now()
        due = [
            held.grant for held in list(self._held.values()) if held.until - asked <= self._ttl * RENEWED_AT
        ]
        still = self._leases.renew(due, self._ttl) if due else frozenset()
        for grant in due:
            held = self._held.get(grant.target)
            if held is None or held.grant.token != grant.token:
                continue
            if grant.target in still:
                self._held[grant.target] = _Held(grant, asked + self._ttl)
            else:
                self._held.pop(grant.target, None)

    def _now(self) -> datetime:
        """Return the present; when the clock was set back, nothing that is held is trusted any more.

        A lease would otherwise seem to last for as long again as the clock was set back by.
        """
        now = self._clock.now()
        if self._newest is not None and now < self._newest:
            self._held = {name: _Held(held.grant, now) for name, held in self._held.items()}
        self._newest = now
        return now

    def drives(self, target: str) -> bool:
        """Say that nobody else can be driving the target; without the database nobody can take it over."""
        try:
            return target in self._held and self.grant(target) is not None
        except Unavailable:
            return True

    @property
    def count(self) -> int:
        """How many leases are held, as far as is known."""
        return len(self._held)

    def lost(self, target: str) -> None:
        """Drop the lease on a target that turned out to be somebody else's."""
        self._held.pop(target, None)

    def release(self, target: str) -> None:
        """Give a lease back. Raises Unavailable."""
        held = self._held.get(target)
        if held is not None:
            self._leases.release(held.grant)
            self._held.pop(target, None)

    def release_all(self) -> None:
        """Give every lease back. Raises Unavailable."""
        for target in list(self._held):
            self.release(target)
