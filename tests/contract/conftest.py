"""The stores that one suite is run over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.memory_store import (
    MemoryAllowances,
    MemoryCatalogue,
    MemoryLeadership,
    MemoryLeases,
    MemoryNights,
    MemoryOutbox,
    MemoryRegistry,
    MemorySpans,
    MemoryStore,
    MemoryTokens,
)
from autotuner.adapters.postgres import (
    PostgresAllowances,
    PostgresCatalogue,
    PostgresLeadership,
    PostgresLeases,
    PostgresNights,
    PostgresOutbox,
    PostgresRegistry,
    PostgresSpans,
    PostgresStore,
    PostgresTokens,
    open_engine,
    upgrade,
)
from autotuner.catalogue import Catalogue
from autotuner.ports import (
    Allowances,
    Leadership,
    Leases,
    Nights,
    Outbox,
    ReceivedSpans,
    Registry,
    Tokens,
)
from tests.postgres_server import PostgresServer, empty, rows


@dataclass(frozen=True)
class Backend:
    """One kind of store, empty.

    new_process: leases as another process would have them. pass_time: lets leases grow older.
    url: its database, None for the store in memory.
    """

    store: MemoryStore | PostgresStore
    registry: Registry
    tokens: Tokens
    allowances: Allowances
    catalogue: Catalogue
    nights: Nights
    outbox: Outbox
    spans: ReceivedSpans
    leadership: Callable[[], Leadership]
    new_process: Callable[[], Leases]
    pass_time: Callable[[timedelta], object]
    url: str | None = None


@pytest.fixture(scope="session")
def migrated_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a migrated database that all tests take turns in."""
    with postgres_server.database() as url:
        upgrade(url)
        yield url


@pytest.fixture
def database_url(migrated_url: str) -> str:
    """The URL of a migrated database with nothing in it."""
    empty(migrated_url)
    return migrated_url


@pytest.fixture
def postgres(database_url: str) -> Iterator[Backend]:
    engine = open_engine(database_url)

    def pass_time(by: timedelta) -> None:
        seconds = by.total_seconds()
        rows(database_url, f"UPDATE leases SET expires_at = expires_at - make_interval(secs => {seconds})")
        rows(database_url, f"UPDATE allowances SET at = at - make_interval(secs => {seconds})")
        rows(database_url, f"UPDATE workers SET alive_until = alive_until - make_interval(secs => {seconds})")

    yield Backend(
        store=PostgresStore(engine),
        registry=PostgresRegistry(engine),
        tokens=PostgresTokens(engine),
        allowances=PostgresAllowances(engine),
        catalogue=PostgresCatalogue(engine),
        nights=PostgresNights(engine),
        outbox=PostgresOutbox(engine),
        spans=PostgresSpans(engine),
        leadership=lambda: PostgresLeadership(database_url),
        new_process=lambda: PostgresLeases(engine),
        pass_time=pass_time,
        url=database_url,
    )
    engine.dispose()


@pytest.fixture
def memory() -> Backend:
    store, clock = MemoryStore(), ManualClock()
    return Backend(
        store=store,
        registry=MemoryRegistry(store.memory),
        tokens=MemoryTokens(store.memory),
        allowances=MemoryAllowances(store.memory, clock),
        catalogue=MemoryCatalogue(store.memory),
        nights=MemoryNights(store),
        outbox=MemoryOutbox(store.memory),
        spans=MemorySpans(store.memory),
        leadership=lambda: MemoryLeadership(store.memory),
        new_process=lambda: MemoryLeases(store, clock),
        pass_time=clock.advance,
    )


@pytest.fixture(params=["memory", "postgres"])
def backend(request: pytest.FixtureRequest) -> Backend:
    made: Backend = request.getfixturevalue(request.param)
    return made
