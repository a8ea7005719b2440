"""A real PostgreSQL for the tests, and a fresh database of it for each.

The server at AUTOTUNER_TEST_DATABASE_URL is used when that is set (its user must be allowed to create
databases); otherwise one is started from the machine's binaries, as an unprivileged user, on a free port.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

URL_VARIABLE = "AUTOTUNER_TEST_DATABASE_URL"
FALLBACK_ACCOUNTS = ("postgres", "nobody")


class PostgresServer:
    """One server. url: its maintenance database; own: whether it was started here and may be restarted."""

    def __init__(self, url: str, folder: Path | None = None, port: int = 0) -> None:
        self.url = url
        self._folder = folder
        self._port = port

    @property
    def own(self) -> bool:
        return self._folder is not None

    def url_of(self, database: str) -> str:
        return make_url(self.url).set(database=database).render_as_string(hide_password=False)

    def execute(self, statement: str) -> None:
        """Run one administrative statement, outside a transaction."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """Give the URL of a new database, dropped at the end; template: the database it is a copy of."""
        name = f"autotuner_test_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        try:
            yield self.url_of(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def start(self) -> None:
        assert self._folder is not None
        options = (
            f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
            "-c fsync=off -c full_page_writes=off -c max_connections=60 -c shared_buffers=32MB"
        )
        log = self._folder / "log"
        self._control("start", "-w", "-t", "60", "-l", str(log), "-o", options)

    def stop(self) -> None:
        self._control("stop", "-w", "-m", "immediate")

    def _control(self, verb: str, *arguments: str) -> None:
        assert self._folder is not None
        _run(self._folder, "pg_ctl", verb, "-D", str(self._folder / "data"), *arguments)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Give a server: the one that is named, or one that is started and stopped again."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield PostgresServer(given)
        return
    folder = Path(tempfile.mkdtemp(prefix="autotuner-postgres-"))
    try:
        account = _account()
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        _run(
            folder, "initdb", "-D", str(folder / "data"), "-U", "autotuner", "-A", "trust", "-E", "UTF8", "-N"
        )
        port = _free_port()
        server = PostgresServer(f"postgresql://autotuner@127.0.0.1:{port}/postgres", folder, port)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, program: str, *arguments: str) -> None:
    account = _account()
    finished = subprocess.run(
        [str(_binaries() / program), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=(folder / "output").open("ab"),
        stderr=subprocess.STDOUT,
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"{program} {arguments[0]} failed:\n{(folder / 'output').read_text()[-2000:]}")


def _account() -> pwd.struct_passwd | None:
    """Whom to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in FALLBACK_ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"none of the accounts {', '.join(FALLBACK_ACCOUNTS)} exists")


def _binaries() -> Path:
    """The newest PostgreSQL of the machine."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *Path("/usr").glob("pgsql-*/bin/initdb")]
    onpath = shutil.which("initdb")
    if found:
        return max(
            found, key=lambda path: int("".join(filter(str.isdigit, str(path.parent.parent.name))))
        ).parent
    if onpath:
        return Path(onpath).resolve().parent
    raise RuntimeError(f"no PostgreSQL binaries found: install PostgreSQL or set {URL_VARIABLE}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
