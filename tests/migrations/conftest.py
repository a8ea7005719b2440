"""Databases at the revision a test asks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.adapters.postgres import upgrade
from tests.postgres_server import PostgresServer


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database with nothing in it, not even tables."""
    with postgres_server.database() as made:
        yield made


@pytest.fixture(scope="session")
def newest_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database at the newest revision; tests only read it, or are refused."""
    with postgres_server.database() as made:
        upgrade(made)
        yield made
