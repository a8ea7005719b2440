"""Supervision of the sandbox's processes, so that a demo never leaves anything running.

Every child leads a session and process group of its own, writes to a log whose tail is part of every error, and
dies with the process that started it even when that one is killed with SIGKILL: the kernel sees to the child, the
reaper to the child's descendants. Everything here is synchronous.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Self

from autotuner.errors import AutotunerError
from autotuner.sandbox.reaper import kill_group

LAUNCHER = Path(__file__).with_name("launch.py")
REAPER = Path(__file__).with_name("reaper.py")
LOG_TAIL_LINES = 15

# Below the kernel's ephemeral range (32768 and up), so that no outgoing connection can take a port that was
# handed out but is not listened on yet.
PORT_RANGE = range(20_000, 32_000)

_reserved_ports: dict[int, int] = {}


class ProcessFailed(AutotunerError):
    """A process of the sandbox could not be started, ended too early, or did not get ready in time."""


@dataclass(frozen=True, slots=True)
class Account:
    """An unprivileged user (numeric ids) that a child runs as; only root can ask for it."""

    user_id: int
    group_id: int


@dataclass(slots=True)
class ManagedProcess:
    """One child process with its descendants: started, watched, stopped and restarted.

    command: program and arguments; the program is looked up on the PATH of `environment`.
    log_path: standard output and error are appended here.
    environment: the child's whole environment; None inherits this process's.
    grace: how long `stop` waits after `stop_signal` before it kills the group.
    death_signal: what the child gets when this process dies; None lets it live on.
    """

    name: str
    command: Sequence[str]
    log_path: Path
    environment: Mapping[str, str] | None = None
    directory: Path | None = None
    account: Account | None = None
    grace: timedelta = timedelta(seconds=5)
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals | None = signal.SIGKILL
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _group: int | None = field(default=None, init=False, repr=False)

    def start(self) -> None:
        """Start the command in its own session.

        Raises ProcessFailed when it is already running or there is no such program.
        """
        if self.alive:
            raise ProcessFailed(f"{self.name} is already running (pid {self.pid})")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.kill()  # descendants that outlived an earlier run
        self._child = _spawner.thread.submit(self._spawn).result()
        self._group = self._child.pid
        if self.death_signal is not None:
            _spawner.tell_reaper({"group": self._group})

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = json.dumps(
            {
                "parent": os.getpid(),
                "signal": int(self.death_signal or 0),
                "user": self.account.user_id if self.account else None,
                "group": self.account.group_id if self.account else None,
            }
        )
        program = shutil.which(self.command[0], path=(self.environment or os.environ).get("PATH"))
        if program is None:
            raise ProcessFailed(f"{self.name}: there is no program {self.command[0]}")
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), settings, str(Path(program).absolute())]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [*launcher, *self.command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self.environment is None else dict(self.environment),
                cwd=self.directory,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether the command itself (not merely a descendant) is running."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """Process id, equal to its process group and session id; raises ProcessFailed before `start`."""
        if self._child is None:
            raise ProcessFailed(f"{self.name} was never started")
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal, None while running or before `start`."""
        return None if self._child is None else self._child.poll()

    def stop(self) -> None:
        """Stop the process and everything in its group; does nothing when there is nothing left to stop."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._signal_leader(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(self.grace.total_seconds())
        self.kill()

    def kill(self) -> None:
        """Kill the process and every descendant in its group at once (SIGKILL), and reap the process."""
        if self._child is None or self._group is None:
            return
        kill_group(self._group)
        self._child.wait()
        self._group = None

    def restart(self) -> None:
        """Stop, then start the same command again."""
        self.stop()
        self.start()

    def _signal_leader(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the log, for an error message; empty when there is none."""
        return log_tail(self.log_path, lines)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Spawner:
    """The one thread that starts children, and the reaper that is told of them.

    The kernel sends the parent-death signal when the *thread* that started the child ends, so all are started by
    one that lives as long as the process.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
        self._reaper: subprocess.Popen[bytes] | None = None

    def tell_reaper(self, message: Mapping[str, object]) -> None:
        """Hand the reaper one message, starting it first if need be."""
        self.thread.submit(self._tell, json.dumps(message).encode() + b"\n").result()

    def _tell(self, line: bytes) -> None:
        if self._reaper is None or self._reaper.poll() is not None:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(REAPER), str(os.getpid())],
                stdin=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        if self._reaper.stdin is not None:
            self._reaper.stdin.write(line)

    def end_reaper(self) -> None:
        """Let the reaper end what is left, and wait for it."""
        if self._reaper is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._reaper.communicate(timeout=10)


@atexit.register
def _end_reaper() -> None:
    _spawner.end_reaper()


def _renew_spawner() -> None:
    global _spawner  # noqa: PLW0603  there is one for the whole process, by nature
    _spawner = _Spawner()


_spawner = _Spawner()
os.register_at_fork(after_in_child=_renew_spawner)  # a forked child has neither the thread nor the reaper


def remove_when_this_process_ends(pattern: str) -> None:
    """Have the files that match an absolute glob pattern removed when this process ends, even by SIGKILL."""
    _spawner.tell_reaper({"files": pattern})


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last `lines` lines of a text file, read from its last 64 KiB; empty when it cannot be read."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 65_536))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def wait_until(
    predicate: Callable[[], bool],
    *,
    within: timedelta,
    what: str,
    process: ManagedProcess | None = None,
    poll: timedelta = timedelta(seconds=0.05),
) -> None:
    """Return when `predicate()` is true; it must be quick and must not raise.

    what: what is waited for, as a phrase ("Envoy is ready"), used in the error.
    process: when given, its early end fails the wait at once, and its log tail is part of the error.
    Raises ProcessFailed.
    """
    give_up = time.monotonic() + within.total_seconds()
    while not predicate():
        if process is not None and not process.alive:
            ended = f"{process.name} ended (exit code {process.exit_code}) before {what}"
            raise ProcessFailed(_explain(ended, process))
        if time.monotonic() >= give_up:
            raise ProcessFailed(_explain(f"not within {within.total_seconds():g} s: {what}", process))
        time.sleep(poll.total_seconds())


def _explain(sentence: str, process: ManagedProcess | None) -> str:
    if process is None:
        return sentence
    tail = process.log_tail()
    return f"{sentence}\nend of {process.log_path}:\n{tail or '(empty)'}"


def free_port() -> int:
    """A loopback TCP port that nobody listens on, reserved for this process until it ends.

    Reservations are file locks in one directory of the machine's temporary directory, so two demos started at
    the same moment never get the same port, and a killed one leaves nothing to clean up.
    Raises ProcessFailed.
    """
    directory = _reservations()
    for port in random.Random(os.urandom(8)).sample(PORT_RANGE, k=len(PORT_RANGE)):
        if port in _reserved_ports or not _bindable(port):
            continue
        descriptor = _lock(directory / str(port))
        if descriptor is not None:
            _reserved_ports[port] = descriptor
            return port
    raise ProcessFailed(f"no free port in {PORT_RANGE.start}-{PORT_RANGE.stop - 1}")


def _reservations() -> Path:
    directory = Path(tempfile.gettempdir()) / "autotuner-ports"
    directory.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):
        directory.chmod(0o1777)  # shared by all users of the machine
    return directory


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _lock(path: Path) -> int | None:
    """An open descriptor that holds the lock on `path`, or None when another process has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:  # another user's reservation; whether it is still held cannot be known
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
