"""What every store of allowances promises: nobody gets more than their bucket holds, whichever process they ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from autotuner.adapters.postgres import open_engine
from autotuner.adapters.postgres.allowances import SWEPT_EVERY
from autotuner.domain.access import Scope
from autotuner.domain.allowance import Rate
from tests.command_line import Terminal
from tests.contract.conftest import Backend
from tests.postgres_server import rows
from tests.rest import Rest, a_secret, over_postgres, serving

SLOW = Rate(per_second=1 / 3600, holds=50)
"""A bucket that gets nothing back while a test runs."""

DRAWING = """
import sys
from autotuner.adapters.postgres import PostgresAllowances, open_engine
from autotuner.domain.allowance import Rate

engine = open_engine(sys.argv[1])
allowances = PostgresAllowances(engine)
print("ready", flush=True)
sys.stdin.readline()
print(sum(allowances.draw("anna", 3, Rate(1 / 3600, 50)).granted for _ in range(40)), flush=True)
engine.dispose()
"""


def test_a_bucket_begins_full_and_gives_what_it_has(backend: Backend) -> None:
    granted = [backend.allowances.draw("anna", 20, SLOW).granted for _ in range(4)]

    assert granted == [20, 20, 10, 0]
    assert backend.allowances.draw("bob", 1, SLOW).granted == 1


def test_it_is_said_when_the_next_request_comes(backend: Backend) -> None:
    rate = Rate(per_second=0.5, holds=4)
    assert backend.allowances.draw("anna", 3, rate).next_seconds == 0.0
    assert backend.allowances.draw("anna", 3, rate).next_seconds == pytest.approx(2.0, abs=0.5)


def test_a_bucket_fills_again_and_never_above_what_it_holds(backend: Backend) -> None:
    rate = Rate(per_second=1 / 60, holds=10)
    backend.allowances.draw("anna", 10, rate)
    backend.pass_time(timedelta(minutes=4))
    assert backend.allowances.draw("anna", 10, rate).granted == 4
    backend.pass_time(timedelta(days=1))
    assert backend.allowances.draw("anna", 100, rate).granted == 10


def test_what_no_database_holds_may_be_a_name(backend: Backend) -> None:
    assert backend.allowances.draw("a \x00 and \ud800", 1, SLOW).granted == 1


def test_a_database_keeps_no_names_and_no_full_buckets(postgres: Backend) -> None:
    assert postgres.url is not None
    quick = Rate(per_second=100.0, holds=1.0)
    for _ in range(SWEPT_EVERY - 1):
        postgres.allowances.draw("192.0.2.1", 1, quick)
    assert "192.0.2.1" not in repr(rows(postgres.url, "SELECT * FROM allowances"))
    postgres.pass_time(timedelta(seconds=1))

    postgres.allowances.draw("192.0.2.2", 1, quick)

    assert len(rows(postgres.url, "SELECT * FROM allowances")) == 1


def test_two_processes_together_get_no_more_than_one(postgres: Backend) -> None:
    assert postgres.url is not None
    drawing = [
        subprocess.Popen(
            [sys.executable, "-c", DRAWING, postgres.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for each in drawing:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    together = [int(each.communicate("go\n", timeout=60)[0]) for each in drawing]

    assert [each.returncode for each in drawing] == [0, 0]
    assert sum(together) == SLOW.holds


@pytest.fixture
def twice(postgres: Backend) -> Iterator[tuple[Rest, Rest]]:
    """Two processes of the API, as far as it keeps anything to itself, over one database."""
    assert postgres.url is not None
    engine = open_engine(postgres.url)
    limited = {"api_requests_per_minute": 60, "api_failures_per_minute": 60}
    with (
        serving(Terminal(), over_postgres(engine), **limited) as one,
        serving(Terminal(), over_postgres(engine), **limited) as other,
    ):
        yield one, other
    engine.dispose()


def test_an_actor_gets_no_more_from_two_processes_of_the_api(twice: tuple[Rest, Rest]) -> None:
    one, other = twice
    secret = a_secret(one.application, "anna", Scope.VIEWER)
    headers = {"Authorization": f"Bearer {secret}"}
    before = one.application.clock.now()
    statuses = [each.client.get("/v1/me", headers=headers).status_code for _ in range(9) for each in twice]

    assert (one.application.clock.now(), other.application.clock.now()) == (before, before)
    assert 6 <= statuses.count(200) <= 7  # the database's clock goes on: a second gives one more
    assert statuses.count(200) + statuses.count(429) == 18
