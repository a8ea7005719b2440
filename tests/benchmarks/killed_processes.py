"""Processes killed for ten minutes on a real PostgreSQL: two schedulers, five workers, on a clock that is turned.

`make bench ARGS=killed_processes`; `python -m tests.benchmarks.killed_processes --minutes 1` for less.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.verdict import Row
from tests.killed_processes import KilledProcesses
from tests.postgres_server import running_server

MINUTES = 10.0


def rows(minutes: float = MINUTES, seed: int = 1000) -> Iterator[Row]:
    """The figures of one run; raises AssertionError when something is not as it must be."""
    logging.basicConfig(level=logging.ERROR)  # a study that is taken over is what this is about, not news
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(running_server(folder / "postgres.log"))
        killed = KilledProcesses(opened.enter_context(server.database()), seed)
        killed.run(seconds=60 * minutes)
        killed.check()
        settled = len(killed.settled)
    yield Row("nights that ran once each", f"{killed.targets * killed.nights}", f"{settled}", True)
    yield Row("studies that ran twice at once, trials lost", "0", "0", True)
    yield Row("the audit chain", "whole", "whole", True)
    for kind, count in killed.kills.items():
        yield Row(f"{kind}s killed", "", f"{count}", None)


def main(arguments: list[str] | None = None) -> None:
    """Run for so many minutes and print what it came to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=1000)
    asked = parser.parse_args(arguments)
    for row in rows(asked.minutes, asked.seed):
        print(f"{row.name:48} {row.reached}")


if __name__ == "__main__":
    main()
