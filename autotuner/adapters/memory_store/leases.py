"""Who drives which target, in memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from autotuner.adapters.memory_store.store import MemoryStore
from autotuner.adapters.memory_store.tables import LeaseRow
from autotuner.errors import NotFound
from autotuner.ports import Clock, Grant, Muster


class MemoryLeases:
    """Leases beside a `MemoryStore`. Every instance stands for a process of its own.

    clock: whose time decides when a lease has expired.
    """

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._memory = store.memory
        self._clock = clock
        self._session = uuid.uuid4().hex

    def acquire(self, target: str, holder: str, ttl: timedelta) -> Grant | None:
        """Take or renew the lease on `target`; None while somebody else holds it. Raises NotFound."""
        with self._memory.lock:
            if target not in self._memory.targets:
                raise NotFound("target", target)
            now = self._clock.now()
            row = self._memory.leases.get(target) or LeaseRow(None, None, 0, now)
            if row.holder not in (None, holder) and row.expires_at > now:
                return None
            renewed = (row.holder, row.session) == (holder, self._session)
            token = row.token if renewed else row.token + 1
            self._memory.leases[target] = LeaseRow(holder, self._session, token, now + ttl)
            return Grant(target, holder, token, now + ttl)

    def renew(self, grants: Sequence[Grant], ttl: timedelta) -> frozenset[str]:
        """Renew many leases in one go; returns the targets of those that are still held."""
        with self._memory.lock:
            until, still = self._clock.now() + ttl, []
            for grant in grants:
                row = self._memory.leases.get(grant.target)
                if row is not None and (row.session, row.token) == (self._session, grant.token):
                    self._memory.leases[grant.target] = replace(row, expires_at=until)
                    still.append(grant.target)
            return frozenset(still)

    def muster(self, holder: str, ttl: timedelta) -> Muster:
        """Say that the worker `holder` is alive for another `ttl`, and return who else is."""
        with self._memory.lock:
            now = self._clock.now()
            self._memory.workers[holder] = now + ttl
            alive = [name for name, until in self._memory.workers.items() if until > now]
            held = self._memory.leases.items()
            holders = {name: row.holder for name, row in held if row.holder and row.expires_at > now}
            return Muster(len(alive), holders)

    def dismiss(self, holder: str) -> None:
        """Say that the worker `holder` is gone."""
        with self._memory.lock:
            self._memory.workers.pop(holder, None)

    def release(self, grant: Grant) -> None:
        """Give the lease back; nothing happens when it is no longer held."""
        with self._memory.lock:
            row = self._memory.leases.get(grant.target)
            if row is not None and (row.holder, row.token) == (grant.holder, grant.token):
                self._memory.leases[grant.target] = LeaseRow(None, None, row.token, self._clock.now())
