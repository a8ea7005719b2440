"""The connection pool, and what a failing database means to the rest of the service.

Everything here is bounded in time, so that a database that hangs costs a tick a few seconds and not the study;
a connection that was lost is replaced at the next call. No message ever shows a password.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from select import POLLIN, poll
from time import monotonic
from typing import Any

import psycopg.errors
from psycopg.types.array import ListBinaryDumper
from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from autotuner.errors import InvalidInput, Unavailable

SYSTEM = "postgres"

CONNECT_SECONDS = 5
STATEMENT_MILLISECONDS = 10_000
LOCK_MILLISECONDS = 3_000
IDLE_MILLISECONDS = 30_000
"""After so long inside a transaction without a statement the server gives its locks back."""
DEAD_PEER_MILLISECONDS = 10_000
"""After so long without an acknowledgement the network or the server is taken to be gone."""

OUTDATED_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
)
NOT_SERVING = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)


def database_url(text: str) -> URL:
    """Return a database URL for psycopg. Raises InvalidInput, without repeating what may hold a password."""
    allowed = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):
        raise InvalidInput("database_url", "(not shown)", allowed) from None
    if url.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise InvalidInput("database_url", f"{url.drivername}://…", allowed)
    return url.set(drivername="postgresql+psycopg")


def open_engine(url: str, *, pool_size: int = 5) -> Engine:
    """Return a pool of at most `pool_size` connections to the database at `url`; nothing is connected yet.

    Raises InvalidInput for a URL that is none. Call `dispose()` on it when done.
    """
    engine = create_engine(
        database_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_use_lifo=True,  # the few that are used know the statements, and PostgreSQL has planned them
        pool_timeout=CONNECT_SECONDS,
        pool_recycle=1800,
        hide_parameters=True,
        json_serializer=partial(json.dumps, allow_nan=False),
        connect_args=connection_options(),
    )
    event.listen(engine, "connect", _send_arrays_as_they_are)
    event.listen(engine, "connect", _was_used)
    event.listen(engine, "checkin", _was_used)
    event.listen(engine, "checkout", partial(_answers_still, engine.dialect.do_ping))
    return engine


RESTED_SECONDS = 5.0
"""A connection that nobody used for so long is asked for a sign of life before it is used. Asked before each use, it
would cost every answer a turn of the database."""


def _answers_still(
    ping: Callable[[Any], bool], connection: Any, record: ConnectionPoolEntry, _proxy: object
) -> None:
    """Let a connection be used only if it is alive. Raises InvalidatePoolError: then all are opened anew.

    A server that ends a connection, as a failover does, says so: there is something to read where nothing was asked.
    """
    rested = monotonic() - record.info["used_at"] >= RESTED_SECONDS
    try:
        if not rested and not _has_something_to_read(connection.pgconn.socket):
            return
        ping(connection)
    except psycopg.Error as error:
        raise exc.InvalidatePoolError from error


def _has_something_to_read(descriptor: int) -> bool:
    looked = poll()
    looked.register(descriptor, POLLIN)
    return bool(looked.poll(0))


def _was_used(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used_at"] = monotonic()


def _send_arrays_as_they_are(connection: psycopg.Connection[Any], _record: object) -> None:
    """Let lists go out in binary: as text, each quote in each JSON text of a journal entry is escaped, in Python."""
    connection.adapters.register_dumper(list, ListBinaryDumper)


def connection_options() -> dict[str, Any]:
    """Return how every connection is opened: bounded in time on both ends, and in UTC."""
    options = (
        f"-c statement_timeout={STATEMENT_MILLISECONDS}",
        f"-c lock_timeout={LOCK_MILLISECONDS}",
        f"-c idle_in_transaction_session_timeout={IDLE_MILLISECONDS}",
        "-c timezone=UTC",
        # A client that vanished without a word holds its locks no longer than these.
        "-c tcp_keepalives_idle=5",
        "-c tcp_keepalives_interval=2",
        "-c tcp_keepalives_count=3",
    )
    return {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "autotuner",
        "keepalives": 1,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": DEAD_PEER_MILLISECONDS,
        "options": " ".join(options),
    }


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Give a connection inside one transaction: committed at the end, rolled back on any error.

    Raises Unavailable when the database does not answer. Then a commit may or may not have happened; every
    write of the store is safe to repeat.
    """
    with translated(), engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Give a connection for reading, each statement in a transaction of its own: no begin and no commit to wait for.

    Raises Unavailable when the database does not answer.
    """
    with translated(), engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def translated() -> Iterator[None]:
    """Turn the errors of a database that does not serve into Unavailable, chained."""
    try:
        yield
    except exc.TimeoutError as error:
        raise Unavailable(SYSTEM, f"no connection was free within {CONNECT_SECONDS} s") from error
    except exc.DBAPIError as error:
        if isinstance(error.orig, OUTDATED_SCHEMA):
            raise Unavailable(SYSTEM, "the schema is not up to date: run `autotuner db upgrade`") from error
        if _is_outage(error):
            raise Unavailable(SYSTEM, _sentence(error)) from error
        raise
    except psycopg.OperationalError as error:
        raise Unavailable(SYSTEM, _first_line(error)) from error


def _is_outage(error: exc.DBAPIError) -> bool:
    lost = error.connection_invalidated
    return (
        lost
        or isinstance(error, exc.OperationalError | exc.InterfaceError)
        or isinstance(error.orig, NOT_SERVING)
    )


def _sentence(error: exc.DBAPIError) -> str:
    if isinstance(error.orig, psycopg.errors.LockNotAvailable):
        return f"a lock was not free within {LOCK_MILLISECONDS / 1000:g} s"
    if isinstance(error.orig, psycopg.errors.QueryCanceled):
        return f"a statement did not finish within {STATEMENT_MILLISECONDS / 1000:g} s"
    return _first_line(error.orig)


def _first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
