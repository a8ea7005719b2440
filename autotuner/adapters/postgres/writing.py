"""Whether the database takes writes: one that only answers questions is no database to this service.

A standby answers everything until it is promoted, and a full disk shows at nothing but a write. So what was refused for
want of room is remembered, and from then on each check writes a little, and rolls it back, until there is room again.
"""

from __future__ import annotations

from typing import Any

import psycopg.errors
from sqlalchemy import Engine, event, text

from autotuner.adapters.postgres.engine import SYSTEM, transaction
from autotuner.errors import Unavailable

ROLE = text("SELECT pg_is_in_recovery()")
ROOM = text(
    "CREATE TEMP TABLE autotuner_room ON COMMIT DROP AS SELECT n, md5(n::text) FROM generate_series(1, 20000) AS n"
)
"""Needs more than a megabyte of the disk, for as long as the transaction lasts."""


class Writing:
    """Watches the writes of one engine. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._refused = False
        event.listen(engine, "handle_error", self._noted)

    def check(self) -> None:
        """Raise Unavailable, with the reason, while the database takes no writes."""
        with transaction(self._engine) as connection:
            if connection.scalar(ROLE):
                raise Unavailable(SYSTEM, "it is a standby, and takes no writes until it is promoted")
            if self._refused:
                connection.execute(ROOM)
        self._refused = False

    def _noted(self, context: Any) -> None:
        """Remember a write that was refused for want of room."""
        if isinstance(context.original_exception, psycopg.errors.DiskFull):
            self._refused = True
