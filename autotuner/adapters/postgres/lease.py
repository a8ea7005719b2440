"""Who drives which target, decided by the database alone and in its time, whatever the clocks of the workers say."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, case, delete, exc, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import Insert, insert

from autotuner.adapters.postgres.engine import transaction
from autotuner.adapters.postgres.tables import leases, workers
from autotuner.errors import NotFound
from autotuner.ports import Grant, Muster

FORGOTTEN_AFTER = timedelta(hours=1)
"""How long the row of a worker that fell silent is kept."""


class PostgresLeases:
    """Leases in the table `leases`. Make one a process: its grants are renewed only by itself.

    A process that starts again under the name of the holder takes the lease over at once; the token grows, so
    whatever is left of the earlier process can write no more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = uuid.uuid4().hex

    def acquire(self, target: str, holder: str, ttl: timedelta) -> Grant | None:
        """Take or renew the lease on `target`; None while somebody else holds it.

        Raises NotFound for an unknown target, Unavailable when the database does not answer.
        """
        try:
            with transaction(self._engine) as connection:
                row = connection.execute(self._taking(target, holder, ttl)).one_or_none()
        except exc.IntegrityError as error:
            raise NotFound("target", target) from error
        return None if row is None else Grant(target, holder, row.token, row.expires_at)

    def renew(self, grants: Sequence[Grant], ttl: timedelta) -> frozenset[str]:
        """Renew many leases in one go; returns the targets of those that are still held. Raises Unavailable."""
        if not grants:
            return frozenset()
        named = tuple_(leases.c.target, leases.c.token).in_([(each.target, each.token) for each in grants])
        held = select(leases.c.target).where(named, leases.c.session == self._session)
        with transaction(self._engine) as connection:
            # Locked in the order of the targets, as by whoever writes journal entries: nobody waits in a circle.
            still = list(connection.scalars(held.order_by(leases.c.target).with_for_update()))
            until = func.clock_timestamp() + ttl
            connection.execute(update(leases).where(leases.c.target.in_(still)).values(expires_at=until))
        return frozenset(still)

    def muster(self, holder: str, ttl: timedelta) -> Muster:
        """Say that the worker `holder` is alive for another `ttl`, and return who else is. Raises Unavailable."""
        now = func.clock_timestamp()
        here = insert(workers).values(holder=holder, alive_until=now + ttl)
        here = here.on_conflict_do_update(
            index_elements=[workers.c.holder], set_={"alive_until": here.excluded.alive_until}
        )
        driven = select(leases.c.target, leases.c.holder).where(
            leases.c.holder.is_not(None), leases.c.expires_at > now
        )
        with transaction(self._engine) as connection:
            connection.execute(here)
            connection.execute(delete(workers).where(workers.c.alive_until < now - FORGOTTEN_AFTER))
            alive = connection.scalar(select(func.count()).where(workers.c.alive_until > now))
            return Muster(int(alive or 0), {row.target: row.holder for row in connection.execute(driven)})

    def dismiss(self, holder: str) -> None:
        """Say that the worker `holder` is gone, so that the others take its share at once. Raises Unavailable."""
        with transaction(self._engine) as connection:
            connection.execute(delete(workers).where(workers.c.holder == holder))

    def release(self, grant: Grant) -> None:
        """Give the lease back; nothing happens when it is no longer held. Raises Unavailable."""
        held = (
            (leases.c.target == grant.target)
            & (leases.c.token == grant.token)
            & (leases.c.holder == grant.holder)
        )
        gone = {"holder": None, "session": None, "expires_at": func.clock_timestamp()}
        with transaction(self._engine) as connection:
            connection.execute(update(leases).where(held).values(gone))

    def _taking(self, target: str, holder: str, ttl: timedelta) -> Any:
        expires_at = func.clock_timestamp() + ttl
        offered: Insert = insert(leases).values(
            target=target, holder=holder, session=self._session, token=1, expires_at=expires_at
        )
        new = offered.excluded
        renewed = (leases.c.holder == new.holder) & (leases.c.session == new.session)
        free = or_(
            leases.c.holder.is_(None),
            leases.c.holder == new.holder,
            leases.c.expires_at <= func.clock_timestamp(),
        )
        return offered.on_conflict_do_update(
            index_elements=[leases.c.target],
            set_={
                "holder": new.holder,
                "session": new.session,
                "token": case((renewed, leases.c.token), else_=leases.c.token + 1),
                "expires_at": expires_at,
            },
            where=free,
        ).returning(leases.c.token, leases.c.expires_at)
