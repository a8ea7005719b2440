"""A demo as a process of its own: what it says, whom it has started, and what is left of it afterwards.

Every process of a demo inherits its TMPDIR, a folder that nobody else has: by it they are found in /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotuner.sandbox.stack import STATE_FILE

LIMIT_SECONDS = 600.0
LONGEST_END_SECONDS = 120.0
POLL_SECONDS = 0.05
RESERVATIONS = "autotuner-ports"
"""The folder of port reservations: empty files, shared by all demos and never removed."""


@dataclass
class Demonstration:
    """One `autotuner demo`. place: its own folder, with its logs, its TMPDIR and what it printed."""

    place: Path
    process: subprocess.Popen[bytes]
    ended_after_seconds: float | None = field(default=None, init=False)

    @property
    def said(self) -> str:
        """Standard error so far."""
        return (self.place / "stderr").read_text("utf-8")

    @property
    def answer(self) -> dict[str, Any]:
        """The one JSON object, which must be all there is on standard output."""
        lines = (self.place / "stdout").read_text("utf-8").splitlines()
        assert len(lines) == 1, lines
        made: dict[str, Any] = json.loads(lines[0])
        return made

    @property
    def state(self) -> dict[str, Any]:
        """The stack's state file; empty while there is none."""
        with contextlib.suppress(FileNotFoundError):
            made: dict[str, Any] = json.loads((self.place / "logs" / STATE_FILE).read_text("utf-8"))
            return made
        return {}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Return when the condition holds; fails when the demo ends first or takes for ever."""
        give_up = time.monotonic() + LIMIT_SECONDS
        while not holds():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.said}"
            assert time.monotonic() < give_up, f"not in time: {what}\n{self.said}"
            time.sleep(POLL_SECONDS)

    def says(self, words: str) -> Callable[[], bool]:
        """A condition: whether standard error has these words."""
        return lambda: words in self.said

    def interrupt(self) -> None:
        """Press Ctrl-C, wait for the end and note how long that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LONGEST_END_SECONDS)
        self.ended_after_seconds = time.monotonic() - began

    def left(self) -> list[str]:
        """What is left of it: processes, shared memory, temporary files."""
        found = [f"process {pid}: {command}" for pid, command in processes_with(str(self.temporary))]
        found += [str(path) for path in Path("/dev/shm").glob(f"autotuner-{self.process.pid}-*")]
        found += [str(path) for path in self.temporary.iterdir() if path.name != RESERVATIONS]
        return found

    @property
    def temporary(self) -> Path:
        """Its TMPDIR."""
        return self.place / "t"


@contextmanager
def demonstration(*words: str | Path, logs: bool = True) -> Iterator[Demonstration]:
    """Run a demo in a folder of its own; logs: whether it is told to keep its logs there.

    Whatever happens, nothing of it is left running.
    """
    with running(lambda place: ["demo", *_demo_options(place, logs), *map(str, words)]) as demo:
        yield demo


def _demo_options(place: Path, logs: bool) -> list[str]:
    options = ["--json", "--report", str(place / "report.html")]
    return [*options, "--directory", str(place / "logs")] if logs else options


@contextmanager
def running(words: Callable[[Path], list[str]]) -> Iterator[Demonstration]:
    """Run a command of the autotuner in a folder of its own, which its words may name, and leave nothing of it."""
    # Short, and open to the unprivileged user that PostgreSQL runs as when this is root.
    place = Path(tempfile.mkdtemp(prefix="autotuner-demo-"))
    place.chmod(0o755)
    (place / "t").mkdir(mode=0o777)
    (place / "t").chmod(0o777)
    with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "autotuner", *words(place)],
            env=environment() | {"TMPDIR": str(place / "t")},
            stdout=out,
            stderr=err,
        )
    try:
        yield Demonstration(place, process)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(place, ignore_errors=True)


def environment() -> dict[str, str]:
    """This process's environment without settings of the autotuner."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNER_")}
    return kept | {"COLUMNS": "200"}


def processes_with(words: str) -> list[tuple[int, str]]:
    """Every process that has `words` in its command line or its environment, and its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                variables = (entry / "environ").read_bytes().decode(errors="replace")
                if words in command or words in variables:
                    found.append((int(entry.name), command))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def read_json(url: str) -> Any:
    """What a server answers."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)
