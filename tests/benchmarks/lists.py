"""How long lists take over REST, on a million trials of two thousand studies and with twenty clients at once.

The service runs in a process of its own, PostgreSQL in others, and the clients here, each with one question under way
at any time; so the figures are of a machine that does all of it. `AUTOTUNER_TEST_DATABASE_URL` names the server of the
database; without it one is started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx

from autotuner.access import Wanted, issue_token
from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import PostgresTokens, open_engine
from autotuner.domain.access import Scope
from tests.benchmarks.throughput import a_database
from tests.benchmarks.verdict import Row
from tests.history import record_history

STUDIES, TRIALS_EACH = 2_000, 500
CLIENTS = 20
ROUNDS = 10
"""How often each client asks each question."""

MEDIAN_SECONDS, P99_SECONDS = 0.100, 0.250

EXPORTS = ("/v1/trials.csv",)
"""Of these the first byte counts; nobody waits here for the last."""

QUESTIONS = (
    "/v1/trials",
    "/v1/trials?sort=capacity_per_second",
    "/v1/trials?target=target-7&verdict=reject",
    "/v1/trials?verdict=void&instances_min=4",
    "/v1/trials?delay_max=1000&preferred=4,8&since=2026-02-01T00:00:00Z",
    "/v1/studies/study-50/trials?sort=harm_requests",
    *EXPORTS,
    "/v1/studies?target=target-7",
    "/v1/audit?actor=actor-7",
    "/v1/audit?until=2026-03-01T00:00:00Z",
)


@contextmanager
def served(url: str) -> Iterator[httpx.URL]:
    """The address of `autotuner serve` in a process of its own, over the database at `url`."""
    environment = {
        **os.environ,
        "AUTOTUNER_DATABASE_URL": url,
        "AUTOTUNER_API_PORT": "0",
        "AUTOTUNER_API_REQUESTS_PER_MINUTE": "1000000",
        "AUTOTUNER_LOG_FORMAT": "json",
    }
    command = [sys.executable, "-m", "autotuner", "serve"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            address = httpx.URL(json.loads(running.stderr.readline())["address"])
            threading.Thread(target=running.stderr.read, daemon=True).start()
            yield address
        finally:
            running.terminate()
            running.wait(30)


def measured(url: str, rounds: int) -> dict[str, list[float]]:
    """Ask every question with every client and return the seconds to the first byte of each answer."""
    engine = open_engine(url)
    wanted = Wanted("bench", (Scope.VIEWER,), timedelta(days=1))
    _, secret = issue_token(PostgresTokens(engine), SystemClock(), wanted, "bench")
    engine.dispose()
    found: dict[str, list[float]] = {question: [] for question in QUESTIONS}
    with served(url) as address:
        with ThreadPoolExecutor(CLIENTS) as pool:
            asking = [
                pool.submit(_ask_all, address, secret, rounds, shift, found) for shift in range(CLIENTS)
            ]
        for client in asking:
            client.result()
    return found


def _ask_all(address: httpx.URL, secret: str, rounds: int, shift: int, found: dict[str, list[float]]) -> None:
    """One client: every question in turn, beginning at a place of its own."""
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {secret}"}, timeout=60) as client:
        for number in range(rounds * len(QUESTIONS)):
            question = QUESTIONS[(number + shift) % len(QUESTIONS)]
            began = time.perf_counter()
            with client.stream("GET", question) as answer:
                answer.raise_for_status()
                chunks = answer.iter_raw()
                next(chunks)
                found[question].append(time.perf_counter() - began)
                if question not in EXPORTS:
                    deque(chunks, maxlen=0)


def _rows(found: dict[str, list[float]]) -> Iterator[Row]:
    for question, seconds in found.items():
        known = sorted(seconds)
        median, p99 = known[len(known) // 2], known[int(0.99 * len(known))]
        yield Row(
            question,
            f"≤ {MEDIAN_SECONDS * 1e3:.0f} / {P99_SECONDS * 1e3:.0f} ms",
            f"{median * 1e3:.0f} / {p99 * 1e3:.0f} ms",
            median <= MEDIAN_SECONDS and p99 <= P99_SECONDS,
        )


def rows() -> Iterator[Row]:
    """The figures of the default run: median and p99 of each question."""
    yield from _measured_on(STUDIES, TRIALS_EACH, ROUNDS)


def _measured_on(studies: int, trials_each: int, rounds: int) -> Iterator[Row]:
    with a_database() as url:
        record_history(open_engine(url), studies, trials_each)
        yield from _rows(measured(url, rounds))


def main(arguments: list[str] | None = None) -> Any:
    """Run with other numbers: `python -m tests.benchmarks.lists --studies 200 --trials 100 --rounds 3`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--trials", type=int, default=TRIALS_EACH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args(arguments)
    for row in _measured_on(asked.studies, asked.trials, asked.rounds):
        print(f"{row.name:70} {row.target:16} {row.reached:20} {row.ok}")


if __name__ == "__main__":
    sys.exit(main())
