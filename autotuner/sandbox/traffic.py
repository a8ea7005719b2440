"""The traffic source: an open loop that sends when users would, whatever happened to earlier requests.

A closed loop slows down with the server and hides exactly the requests that hurt ("coordinated omission"), so
every latency is counted from the *scheduled* time and nothing waits for a free slot. It runs as its own process
(`python -m autotuner.sandbox.traffic --config FILE.json`): SIGHUP reads the file again, SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import math
import os
import resource
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import uvloop

from autotuner.errors import InvalidInput
from autotuner.sandbox.arrivals import Arrivals, describe, offsets
from autotuner.sandbox.keepalive import Outcome, Pool
from autotuner.sandbox.processes import ManagedProcess, wait_until

STATUS_SECONDS = 1.0
READY_WITHIN = timedelta(seconds=20)
WINDOW_SECONDS = 10
EXPIRE_SECONDS = 0.1
DRAIN_SECONDS = 1.0
TIMER_SECONDS = 0.001  # resolution of the event loop's timers
LATE_SECONDS = 0.005
FILES_WANTED = 65_536


@dataclass(frozen=True, slots=True)
class TrafficConfig:
    """What is sent, where, when, and where to say how it went.

    url: scheme, host and port of the gateway; path: of the inference request. headers: beside the usual ones.
    body_paths: files with prebuilt bodies, used in turn. arrivals: as in a workload file (`arrivals.describe`).
    timeout_seconds: longer than the gateway's own, so that the gateway is the one to count it.
    max_in_flight: safety cap; requests above it are not sent but counted as dropped.
    """

    url: str
    path: str
    body_paths: tuple[str, ...]
    requests_per_second: float
    arrivals: Mapping[str, Any]
    status_path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    seed: int = 1
    timeout_seconds: float = 60.0
    max_in_flight: int = 15_000

    def __post_init__(self) -> None:
        _ = self.address, self.process()  # both check
        if not self.body_paths:
            raise InvalidInput("body_paths", self.body_paths, "at least one file")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the gateway. Raises InvalidInput."""
        url = urlsplit(self.url)
        if url.scheme != "http" or url.hostname is None or url.port is None:
            raise InvalidInput("url", self.url, "http://HOST:PORT")
        return url.hostname, url.port

    def process(self) -> Arrivals:
        """The arrival process. Raises InvalidInput."""
        return describe(self.arrivals, requests_per_second=self.requests_per_second)

    def requests(self) -> list[bytes]:
        """The complete requests, ready to be written to a connection. Raises OSError for an unreadable body."""
        fields = {"host": urlsplit(self.url).netloc, "content-type": "application/json", **self.headers}
        made = []
        for path in self.body_paths:
            body = Path(path).read_bytes()
            lines = [
                f"{name}: {value}" for name, value in (fields | {"content-length": str(len(body))}).items()
            ]
            head = "\r\n".join([f"POST {self.path} HTTP/1.1", *lines])
            made.append(head.encode() + b"\r\n\r\n" + body)
        return made


def read_config(path: Path) -> TrafficConfig:
    """Read a configuration. Raises InvalidInput for what is not one, OSError for a file that cannot be read."""
    try:
        values = json.loads(path.read_text())
        return TrafficConfig(**values | {"body_paths": tuple(values["body_paths"])})
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(str(path), str(error), "a JSON object with the fields of TrafficConfig") from error


def write_config(path: Path, config: TrafficConfig) -> None:
    """Write a configuration so that a reader sees the old or the new one, never a part."""
    write_atomically(path, json.dumps(asdict(config), indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content in one step."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


class Tally:
    """Counts since the start, and latencies and send lateness (seconds) of the last seconds."""

    def __init__(self) -> None:
        self.sent = self.ok = self.dropped = self.late = 0
        self.failed: Counter[str] = Counter()
        self._latencies: deque[list[float]] = deque([[]], maxlen=WINDOW_SECONDS)
        self._lateness: deque[list[float]] = deque([[]], maxlen=WINDOW_SECONDS)

    def note_sent(self, lateness: float) -> None:
        """Count a request sent `lateness` seconds after its time."""
        self.sent += 1
        self.late += lateness > LATE_SECONDS
        self._lateness[-1].append(lateness)

    def note_outcome(self, scheduled: float, outcome: Outcome) -> None:
        """Count an answer or a failure; only answers of status 200 enter the latencies."""
        if outcome == 200:
            self.ok += 1
            self._latencies[-1].append(monotonic() - scheduled)
        else:
            self.failed[outcome if isinstance(outcome, str) else f"status_{outcome}"] += 1

    def next_second(self) -> None:
        """Forget the oldest second of the window."""
        self._latencies.append([])
        self._lateness.append([])

    def report(self) -> dict[str, Any]:
        """The status as JSON data: counts since the start, quantiles in seconds (None without data)."""
        return {
            "sent": self.sent,
            "ok": self.ok,
            "failed": dict(self.failed),
            "dropped": self.dropped,
            "late": self.late,
            "window_seconds": WINDOW_SECONDS,
            "latency_seconds": _quantiles(self._latencies),
            "lateness_seconds": _quantiles(self._lateness),
        }


def _quantiles(seconds: deque[list[float]]) -> dict[str, float | None]:
    values = np.concatenate([np.asarray(second, dtype=np.float64) for second in seconds])
    if not len(values):
        return {"p50": None, "p95": None, "p99": None}
    p50, p95, p99 = (round(float(value), 6) for value in np.quantile(values, (0.5, 0.95, 0.99)))
    return {"p50": p50, "p95": p95, "p99": p99}


class Source:
    """Sends requests at their scheduled times until it is stopped."""

    def __init__(self, config_path: Path) -> None:
        self._config_path = config_path
        self._config = read_config(config_path)
        self._tally = Tally()
        self._stopped = asyncio.Event()
        self._reloads = 0
        host, port = self._config.address
        timeout = self._config.timeout_seconds
        self._pool = Pool(host, port, timeout_seconds=timeout, report=self._tally.note_outcome)
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def _schedule(self) -> None:
        """Begin the arrivals of the configuration now; each reload goes on with other random numbers."""
        self._requests = cycle(self._config.requests())
        self._start = monotonic()
        self._offsets: Iterator[float] = offsets(
            self._config.process(), seed=self._config.seed + 1_000_003 * self._reloads
        )
        self._due = self._start + next(self._offsets)

    async def run(self) -> None:
        """Send until `stop`, then wait briefly for answers and write the last status."""
        self._send_due()
        last_status = monotonic()
        self._write_status(running=True)
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), EXPIRE_SECONDS)
            self._pool.expire()
            if monotonic() >= last_status + STATUS_SECONDS:
                last_status += STATUS_SECONDS
                self._write_status(running=True)
                self._tally.next_second()
        if self._timer is not None:
            self._timer.cancel()
        await self._drain()
        self._write_status(running=False)

    async def _drain(self) -> None:
        for _ in range(round(DRAIN_SECONDS / EXPIRE_SECONDS)):
            if not self._pool.in_flight:
                break
            await asyncio.sleep(EXPIRE_SECONDS)
        await self._pool.close()

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped.set()

    def reload(self) -> None:
        """Follow the configuration file; one that cannot be used is reported and changes nothing."""
        try:
            fresh = read_config(self._config_path)
            fresh.requests()
        except (InvalidInput, OSError) as error:
            sys.stderr.write(f"configuration not used: {error}\n")
            return
        # The pool keeps its address and deadline, so these cannot change.
        self._config = replace(fresh, url=self._config.url, timeout_seconds=self._config.timeout_seconds)
        self._reloads += 1
        self._schedule()
        if self._timer is not None:
            self._timer.cancel()
        self._send_due()

    def _send_due(self) -> None:
        """Send every request whose time has come, and wake up for the next one."""
        if self._stopped.is_set():
            return
        now = monotonic()
        while self._due <= now:
            self._send(self._due, now)
            self._due = self._start + next(self._offsets)
            now = monotonic()
        # Rounded up: a timer that fires early would only have to be set again.
        wait = math.ceil((self._due - now) / TIMER_SECONDS) * TIMER_SECONDS
        self._timer = asyncio.get_running_loop().call_later(wait, self._send_due)

    def _send(self, scheduled: float, now: float) -> None:
        if self._pool.in_flight >= self._config.max_in_flight:
            self._tally.dropped += 1
            return
        self._pool.send(next(self._requests), scheduled)
        self._tally.note_sent(now - scheduled)

    def _write_status(self, *, running: bool) -> None:
        status = {
            "at": datetime.now(UTC).isoformat(),
            "running": running,
            "reloads": self._reloads,
            "requests_per_second": self._config.requests_per_second,
            "in_flight": self._pool.in_flight,
            "connections": self._pool.connections,
            **self._tally.report(),
        }
        write_atomically(Path(self._config.status_path), json.dumps(status))


class TrafficProcess:
    """The traffic source as a child process.

    run_directory: holds its configuration, status and log. Call `start`, then `status` at any time.
    """

    def __init__(self, config: TrafficConfig, *, run_directory: Path) -> None:
        self._config = config
        self._config_path = run_directory / "traffic.json"
        command = [sys.executable, "-m", "autotuner.sandbox.traffic", "--config", str(self._config_path)]
        self.process = ManagedProcess("traffic source", command, run_directory / "traffic.log")

    def start(self) -> None:
        """Start sending and return when it does. Raises ProcessFailed with the end of its log."""
        self._config_path.parent.mkdir(parents=True, exist_ok=True)
        Path(self._config.status_path).unlink(missing_ok=True)
        write_config(self._config_path, self._config)
        self.process.start()
        wait_until(
            self._has_begun, within=READY_WITHIN, what="the traffic source sends", process=self.process
        )

    def _has_begun(self) -> bool:
        return self.status() is not None

    def set_rate(self, requests_per_second: float) -> None:
        """Change the mean rate at once. Raises InvalidInput."""
        self._config = replace(self._config, requests_per_second=requests_per_second)
        write_config(self._config_path, self._config)
        if (
            self.status() is not None
        ):  # before its first status it has not read the file or cannot take the signal
            os.kill(self.process.pid, signal.SIGHUP)

    def status(self) -> dict[str, Any] | None:
        """The last status it wrote, None before the first."""
        try:
            status: dict[str, Any] = json.loads(Path(self._config.status_path).read_text())
        except FileNotFoundError:
            return None
        return status

    def stop(self) -> None:
        """Stop sending, wait briefly for answers, end."""
        self.process.stop()


async def serve(config_path: Path) -> None:
    """Run a source until SIGTERM or SIGINT."""
    source = Source(config_path)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, source.reload)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, source.stop)
    gc.collect()
    gc.freeze()  # nothing made so far is ever garbage: collections stay short
    await source.run()


def raise_file_limit() -> None:
    """Allow as many open connections as the machine lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> int:
    """Entry of the process; the exit code is 2 for a configuration that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m autotuner.sandbox.traffic", description=__doc__)
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE.json", help="fields of TrafficConfig"
    )
    config_path = parser.parse_args().config
    raise_file_limit()
    try:
        uvloop.run(serve(config_path))
    except (InvalidInput, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
