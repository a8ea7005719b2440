"""One leader among schedulers, by an advisory lock that lasts as long as a connection of its own.

A leader that dies takes its connection with it, and so its lock: another one leads at its next attempt. The connection
is looked at each time, so that a leader whose connection was cut knows before it does anything more.
"""

from __future__ import annotations

from sqlalchemy import Connection, NullPool, create_engine, exc, text

from autotuner.adapters.postgres.engine import SYSTEM, connection_options, database_url
from autotuner.errors import Unavailable

LOCK_KEY = 0x6E69_6768_7473
"""Names the advisory lock of the leading scheduler."""


class PostgresLeadership:
    """`ports.Leadership` of one process, on a connection that nothing else uses."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(
            database_url(url),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            connect_args=connection_options(),
        )
        self._held: Connection | None = None

    def leads(self) -> bool:
        """Lead, or go on leading, if nobody else does. Raises Unavailable when the database does not answer."""
        try:
            if self._held is not None:
                self._held.execute(text("SELECT 1"))
                return True
            return self._taken()
        except exc.DBAPIError as error:
            self._drop()
            raise Unavailable(SYSTEM, str(error.orig).splitlines()[0]) from error

    def resign(self) -> None:
        """Let another one lead."""
        self._drop()

    def _taken(self) -> bool:
        connection = self._engine.connect()
        taken = bool(connection.scalar(text(f"SELECT pg_try_advisory_lock({LOCK_KEY})")))
        if taken:
            self._held = connection
        else:
            connection.close()
        return taken

    def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.invalidate()
            held.close()
