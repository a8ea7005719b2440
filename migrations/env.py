"""Runs migrations inside one transaction, one caller at a time, and never waits long for a lock.

Called by `autotuner.adapters.postgres.migrate` with a connection, or by the command `alembic` with the URL in
the environment variable AUTOTUNER_DATABASE_URL.
"""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import Connection, text

from autotuner.adapters.postgres.engine import open_engine
from autotuner.adapters.postgres.tables import METADATA, VERSION_TABLE

TURN_KEY = 0x6D69_6772_6174
"""Names the advisory lock under which migrations run."""

TURN_TIMEOUT = "2min"
"""How long a caller waits for another one's migrations."""

LOCK_TIMEOUT = "3s"
"""How long a migration waits for a table, and so how long it can make the running service wait behind it."""

STATEMENT_TIMEOUT = "5min"


def run(connection: Connection) -> None:
    """Run the migrations asked for on `connection`, in its transaction."""
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{TURN_TIMEOUT}'"))
    connection.execute(text(f"SELECT pg_advisory_xact_lock({TURN_KEY})"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        compare_type=True,
        compare_server_default=True,
        include_name=_ours,
    )
    with context.begin_transaction():
        context.run_migrations()


def _ours(name: str | None, kind: str, _parents: object) -> bool:
    """Leave tables of other products in the same database alone."""
    return kind != "table" or name in METADATA.tables


def run_from_command() -> None:
    """Connect as the command `alembic` asks."""
    url = os.environ.get("AUTOTUNER_DATABASE_URL")
    if not url:
        raise SystemExit("set AUTOTUNER_DATABASE_URL to the database to migrate")
    engine = open_engine(url, pool_size=1)
    try:
        with engine.begin() as connection:
            run(connection)
    finally:
        engine.dispose()


if context.is_offline_mode():
    raise SystemExit("migrations run on a database only: SQL scripts are not made")

given = context.config.attributes.get("connection")
if given is None:
    run_from_command()
else:
    run(given)
