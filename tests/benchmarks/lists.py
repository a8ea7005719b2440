"""How long lists take over REST, on a million trials of two thousand studies and with twenty clients at once.

The service runs in processes of its own, PostgreSQL in others, and the clients here, each with one question under way
at any time and no rest between two; so the figures are of a machine that does all of it. Each client keeps to one
process of the service, as it would behind something that balances connections. Clients speak plain HTTP/1.1 over
sockets: a client library would cost this machine as much as the service does. `AUTOTUNER_TEST_DATABASE_URL` names the
server of the database; without it one is started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from autotuner.access import Wanted, issue_token
from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import PostgresTokens, open_engine
from autotuner.domain.access import Scope
from tests.benchmarks.throughput import a_database
from tests.benchmarks.verdict import Row
from tests.history import RICH, record_history

STUDIES, TRIALS_EACH = 2_000, 500
CLIENTS = 20
PROCESSES = (1, 2)
"""Of the service, one run each: a process uses one processor."""

ROUNDS = 10
"""How often each client asks each question."""

STRIDE = 7
"""How many questions apart clients begin: people do not ask the same at once."""

MEDIAN_SECONDS, P99_SECONDS = 0.100, 0.250

EXPORTS = ("/v1/trials.csv", "/v1/trials.csv?target=target-7", "/v1/trials.jsonl")
"""Of these the first byte counts; nobody waits here for the last."""

QUESTIONS = (
    "/v1/targets",
    "/v1/targets/target-7",
    "/v1/targets/target-7/slo-budget/versions",
    "/v1/trials",
    "/v1/trials?descending=false",
    "/v1/trials?sort=capacity_per_second",
    "/v1/trials?sort=harm_requests",
    "/v1/trials?target=target-7&verdict=reject",
    "/v1/trials?target=target-7&sort=capacity_per_second",
    "/v1/trials?verdict=void&instances_min=4",
    "/v1/trials?delay_max=1000&preferred=4,8&since=2026-02-01T00:00:00Z",
    "/v1/trials?max_batch_size_min=64",
    "/v1/trials?study=study-50&kind=candidate&state=judged",
    f"/v1/studies/{RICH[0]}/trials?sort=harm_requests",
    f"/v1/studies/{RICH[0]}/trials/77",
    f"/v1/studies/{RICH[0]}",
    f"/v1/studies/{RICH[0]}/journal",
    *EXPORTS,
    "/v1/studies",
    "/v1/studies?target=target-7",
    "/v1/studies?outcome=promoted&since=2026-02-01T00:00:00Z",
    "/v1/studies?phase=search",
    "/v1/promotions",
    "/v1/promotions?waiting=false",
    "/v1/ledger",
    "/v1/ledger?target=target-7",
    "/v1/schedules",
    "/v1/nights",
    "/v1/nights?target=target-7",
    "/v1/standing",
    "/v1/audit",
    "/v1/audit?actor=actor-7",
    "/v1/audit?action=budget_loosened",
    "/v1/audit?subject=study-50",
    "/v1/audit?until=2026-03-01T00:00:00Z",
)

PAGES = (
    "/ui/targets",
    "/ui/targets/target-7",
    "/ui/targets/target-7/slo-budget",
    "/ui/studies",
    "/ui/studies?target=target-7",
    "/ui/studies/study-51",
    f"/ui/studies/{RICH[0]}",
    f"/ui/studies/{RICH[0]}/trials/77",
    "/ui/trials",
    "/ui/trials?verdict=reject&target=target-7",
    "/ui/promotions",
    "/ui/ledger",
    "/ui/schedules",
    "/ui/audit",
    "/ui/audit?actor=actor-7",
)
ASKED = (*QUESTIONS, *PAGES)


@dataclass
class Found:
    """What a run came to: of each question the seconds each answer took.

    seconds: how long the run took; processor_seconds: of all processes of the service in it.
    """

    answers: dict[str, list[float]] = field(default_factory=lambda: {each: [] for each in ASKED})
    seconds: float = 0.0
    processor_seconds: float = 0.0

    @property
    def number(self) -> int:
        """How many questions were answered."""
        return sum(map(len, self.answers.values()))


@contextmanager
def served(url: str, session_key: str) -> Iterator[tuple[str, int]]:
    """The address and the process of `autotuner serve` over the database at `url`."""
    environment = {
        **os.environ,
        "AUTOTUNER_UI_SESSION_KEY": session_key,
        "AUTOTUNER_DATABASE_URL": url,
        "AUTOTUNER_API_PORT": "0",
        "AUTOTUNER_API_REQUESTS_PER_MINUTE": "1000000",
        "AUTOTUNER_LOG_FORMAT": "json",
    }
    command = [sys.executable, "-m", "autotuner", "serve"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            address = json.loads(running.stderr.readline())["address"]
            threading.Thread(target=running.stderr.read, daemon=True).start()
            yield address, running.pid
        finally:
            running.terminate()
            running.wait(30)


def measured(url: str, rounds: int, processes: int) -> Found:
    """Ask every question with every client and return how long each answer took."""
    engine = open_engine(url)
    wanted = Wanted("bench", (Scope.VIEWER,), timedelta(days=1))
    _, secret = issue_token(PostgresTokens(engine), SystemClock(), wanted, "bench")
    engine.dispose()
    found = Found()
    with ExitStack() as stack:
        key = secrets.token_hex(32)
        running = [stack.enter_context(served(url, key)) for _ in range(processes)]
        cookie = _signed_in(running[0][0], secret)
        clients = [Client(running[number % processes][0], secret, cookie) for number in range(CLIENTS)]
        asyncio.run(_ask_all(clients[:processes], 1, Found()))  # nobody's first question waits for imports
        spent, began = sum(_processor_seconds(process) for _, process in running), time.perf_counter()
        asyncio.run(_ask_all(clients, rounds, found))
        found.seconds = time.perf_counter() - began
        found.processor_seconds = sum(_processor_seconds(process) for _, process in running) - spent
    return found


def _signed_in(address: str, secret: str) -> str:
    """The cookie of a session in the web UI."""
    answer = httpx.post(f"{address}/ui/sign-in", data={"token": secret}, headers={"Origin": address})
    assert answer.status_code == httpx.codes.SEE_OTHER, answer.text
    return "; ".join(f"{name}={value}" for name, value in answer.cookies.items())


async def _ask_all(clients: list[Client], rounds: int, found: Found) -> None:
    await asyncio.gather(*(each.ask_all(rounds, shift, found) for shift, each in enumerate(clients)))


class Client:
    """One client with one question under way at any time, over a connection that is kept."""

    def __init__(self, address: str, secret: str, cookie: str) -> None:
        place = urlsplit(address)
        assert place.hostname is not None
        assert place.port is not None
        self._host, self._port = place.hostname, place.port
        self._headers = f"Host: {self._host}\r\nAuthorization: Bearer {secret}\r\nCookie: {cookie}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask_all(self, rounds: int, shift: int, found: Found) -> None:
        """Ask every question in turn, beginning at a place of its own."""
        for number in range(rounds * len(ASKED)):
            question = ASKED[(number + shift * STRIDE) % len(ASKED)]
            found.answers[question].append(await self._ask(question))
        await self._leave()

    async def _ask(self, question: str) -> float:
        """Ask a question and return the seconds until it was answered; of an export, until it began."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        began = time.perf_counter()
        writer.write(f"GET {question} HTTP/1.1\r\n{self._headers}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if not head.startswith("http/1.1 200"):
            raise RuntimeError(f"{question} was answered with {head.splitlines()[0]}")
        if question in EXPORTS:
            await reader.readexactly(1)
            seconds = time.perf_counter() - began
            await self._leave()
            return seconds
        length = next(line for line in head.splitlines() if line.startswith("content-length:"))
        await reader.readexactly(int(length.partition(":")[2]))
        return time.perf_counter() - began

    async def _leave(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()
            self._streams = None


def _processor_seconds(process: int) -> float:
    """Processor time that a process has used, user and system (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rows(found: Found) -> Iterator[Row]:
    for question, seconds in found.answers.items():
        known = sorted(seconds)
        median, p99 = known[len(known) // 2], known[int(0.99 * len(known))]
        yield Row(
            question,
            f"≤ {MEDIAN_SECONDS * 1e3:.0f} / {P99_SECONDS * 1e3:.0f} ms",
            f"{median * 1e3:.0f} / {p99 * 1e3:.0f} ms",
            median <= MEDIAN_SECONDS and p99 <= P99_SECONDS,
        )
    every = sorted(second for seconds in found.answers.values() for second in seconds)
    middle, late = every[len(every) // 2], every[int(0.99 * len(every))]
    yield Row("all questions together", "", f"{middle * 1e3:.0f} / {late * 1e3:.0f} ms", None)
    yield Row("answers a second", "", f"{found.number / found.seconds:.0f}", None)
    each = found.processor_seconds / found.number
    yield Row("processor time of the service for an answer", "", f"{each * 1e3:.1f} ms", None)


def rows() -> Iterator[Row]:
    """The figures of the default run: median and p99 of each question."""
    yield from _measured_on((STUDIES, TRIALS_EACH), ROUNDS, PROCESSES)


def _measured_on(size: tuple[int, int], rounds: int, counts: Iterable[int]) -> Iterator[Row]:
    with a_database() as url:
        record_history(open_engine(url), *size)
        for processes in counts:
            yield Row("processes of the service", "", str(processes), None)
            yield from _rows(measured(url, rounds, processes))


def main(arguments: list[str] | None = None) -> Any:
    """Run with other numbers: `python -m tests.benchmarks.lists --studies 200 --trials 100 --rounds 3`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--trials", type=int, default=TRIALS_EACH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--processes", type=int, nargs="+", default=PROCESSES, help="of the service, a run each"
    )
    asked = parser.parse_args(arguments)
    for row in _measured_on((asked.studies, asked.trials), asked.rounds, asked.processes):
        print(f"{row.name:70} {row.target:16} {row.reached:20} {row.ok}")


if __name__ == "__main__":
    sys.exit(main())
