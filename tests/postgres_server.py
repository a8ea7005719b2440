"""A real PostgreSQL for the tests, and a fresh database of it for each.

The server at AUTOTUNER_TEST_DATABASE_URL is used when that is set (its user must be allowed to create
databases); otherwise the sandbox's own is started.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import make_url

from autotuner.adapters.postgres.tables import APPEND_ONLY, METADATA
from autotuner.sandbox.postgres import PostgresProcess

URL_VARIABLE = "AUTOTUNER_TEST_DATABASE_URL"


class PostgresServer:
    """One server. process: it, when it was started here and so may be killed; None when it was given."""

    def __init__(self, url: str, process: PostgresProcess | None = None) -> None:
        self.url = url
        self.process = process

    def execute(self, statement: str) -> None:
        """Run one administrative statement, outside a transaction."""
        engine = create_engine(self.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))

    @contextmanager
    def database(self) -> Iterator[str]:
        """Give the URL of a new database, dropped at the end."""
        name = f"autotuner_test_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield make_url(self.url).set(database=name).render_as_string(hide_password=False)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running_server(log_path: Path) -> Iterator[PostgresServer]:
    """Give a server: the one that is named, or one that is started and removed again."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield PostgresServer(given.replace("postgresql://", "postgresql+psycopg://", 1))
        return
    process = PostgresProcess(log_path=log_path)
    try:
        process.start()
        yield PostgresServer(process.url, process)
    finally:
        process.remove()


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement in its own transaction and return its rows."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


def empty(url: str) -> None:
    """Empty every table. Their owner can, by switching off what keeps some of them append-only."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for table in APPEND_ONLY:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        connection.execute(text(f"TRUNCATE {', '.join(METADATA.tables)} RESTART IDENTITY"))
        for table in APPEND_ONLY:
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
