"""Schedulers and workers are killed on a real PostgreSQL: every night ran once, and nothing is lost."""

from __future__ import annotations

from tests.killed_processes import KilledProcesses
from tests.postgres_server import PostgresServer

NIGHTS = 1


def test_every_night_runs_once_whatever_process_is_killed(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as url:
        killed = KilledProcesses(url, seed=1, targets=2, workers=4)
        killed.run(NIGHTS)

        killed.check()
        assert killed.nights > NIGHTS
        assert killed.kills["worker"] >= 3
        assert killed.kills["scheduler"] >= 1
