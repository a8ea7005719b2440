"""What holds for every test: its marker is its folder, cheap ones run first, and nothing is left to luck."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.postgres_server import PostgresServer, running_server

# From milliseconds to minutes: what fails cheaply should fail first.
FOLDERS_CHEAPEST_FIRST = (
    "unit",
    "contract",
    "closed_loop",
    "migrations",
    "integration",
    "acceptance",
    "kubernetes",
)

# Shared fixtures that start a process: `make test-fast` leaves out the tests that use one.
STARTS_A_SERVER = {"postgres_server"}

# Derandomised: the same examples in every run, so that a failure seen once is seen again.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder's name, and what starts a server as integration; sort the folders by cost."""
    for item in items:
        item.add_marker(_folder(item))
        if STARTS_A_SERVER & set(getattr(item, "fixturenames", ())):
            item.add_marker("integration")
    items.sort(key=lambda item: FOLDERS_CHEAPEST_FIRST.index(_folder(item)))


def _folder(item: pytest.Item) -> str:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder not in FOLDERS_CHEAPEST_FIRST:
        raise pytest.UsageError(f"{item.path}: tests live in tests/{{{','.join(FOLDERS_CHEAPEST_FIRST)}}}")
    return folder


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Give the handlers back that a command in this process replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One real PostgreSQL for the whole run; each test takes a database of its own from it."""
    with running_server(tmp_path_factory.mktemp("postgres") / "postgres.log") as server:
        yield server
