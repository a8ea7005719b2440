"""Who drives which target, decided by the database alone and in its time, whatever the clocks of the workers say."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, case, exc, func, or_, update
from sqlalchemy.dialects.postgresql import Insert, insert

from autotuner.adapters.postgres.engine import transaction
from autotuner.adapters.postgres.tables import leases
from autotuner.errors import NotFound
from autotuner.ports import Grant


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
