"""A real PostgreSQL started by the sandbox: its data survive what the demo does to it, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, text

from autotuner.sandbox.postgres import (
    DATABASE,
    OLDEST_MAJOR,
    USER,
    Binaries,
    PostgresProcess,
    embedded_binaries,
    find_binaries,
    reachable,
    unprivileged_account,
)
from autotuner.sandbox.processes import Account, ManagedProcess, ProcessFailed, wait_until

REPOSITORY = Path(__file__).parents[2]
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresProcess]:
    shared = PostgresProcess(log_path=tmp_path_factory.mktemp("postgres") / "postgres.log")
    try:
        yield shared
    finally:
        shared.remove()


@pytest.fixture
def server(running: PostgresProcess) -> PostgresProcess:
    """The module's server, with an empty schema, running whatever the test before did to it."""
    if not running.is_ready():
        running.start()
    query(running, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return running


def query(server: PostgresProcess, *statements: str) -> list[tuple[object, ...]]:
    """Run statements in one transaction; the rows of the last one."""
    engine = create_engine(server.url, poolclass=NullPool)
    rows: list[tuple[object, ...]] = []
    with engine.begin() as connection:
        for statement in statements:
            result = connection.execute(text(statement))
            rows = [tuple(row) for row in result] if result.returns_rows else []
    return rows


def test_the_database_answers_through_its_url(server: PostgresProcess) -> None:
    (row,) = query(server, "SELECT current_user, current_database(), current_setting('server_encoding')")
    assert row == (USER, DATABASE, "UTF8")
    ((version,),) = query(server, "SELECT current_setting('server_version')")
    assert str(version).split()[0] == server.version
    assert int(server.version.split(".")[0]) >= OLDEST_MAJOR


def test_nothing_listens_on_a_network_port_and_the_directory_is_private(server: PostgresProcess) -> None:
    assert query(server, "SELECT current_setting('listen_addresses')") == [("",)]
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    assert len(str(server.directory)) < 100


def test_the_server_never_runs_as_root(server: PostgresProcess) -> None:
    assert Path(f"/proc/{server.process.pid}").stat().st_uid != 0


@pytest.mark.parametrize("immediate", [False, True])
def test_committed_data_survive_a_restart_and_uncommitted_do_not(
    server: PostgresProcess, immediate: bool
) -> None:
    url = server.url
    query(server, "CREATE TABLE note (id int)", "INSERT INTO note SELECT generate_series(1, 1000)")
    with psycopg.connect(url.replace("+psycopg", "")) as open_session:
        open_session.execute("INSERT INTO note VALUES (9999)")
        server.restart(immediate=immediate)
        with pytest.raises(psycopg.OperationalError):
            open_session.execute("SELECT 1")
    assert server.url == url
    assert query(server, "SELECT count(*), max(id) FROM note") == [(1000, 1000)]


def test_it_starts_again_after_an_end_that_nobody_ordered(server: PostgresProcess) -> None:
    query(server, "CREATE TABLE note (id int)")
    server.kill()
    assert not server.is_ready()
    server.start()
    assert query(server, "SELECT count(*) FROM note") == [(0,)]


def test_two_run_side_by_side_and_a_removed_one_leaves_neither_process_nor_file(
    server: PostgresProcess, tmp_path: Path
) -> None:
    second = PostgresProcess(log_path=tmp_path / "second.log")
    try:
        second.start()
        pid = second.process.pid
        query(server, "CREATE TABLE mine (id int)")
        assert query(second, "SELECT to_regclass('mine')") == [(None,)]
    finally:
        second.remove()
    assert not Path(f"/proc/{pid}").exists()
    assert not second.directory.exists()
    assert server.is_ready()


def test_the_embedded_binaries_work(tmp_path: Path) -> None:
    binaries = embedded_binaries()
    assert binaries is not None, "the extra 'sandbox' is not installed"
    server = PostgresProcess(log_path=tmp_path / "postgres.log", binaries=binaries)
    try:
        server.start()
        assert query(server, "SELECT 1") == [(1,)]
    finally:
        server.remove()


@ROOT
def test_embedded_binaries_that_the_unprivileged_user_cannot_reach_are_copied(tmp_path: Path) -> None:
    original = embedded_binaries()
    assert original is not None
    package = original.directory.parent.parent
    hidden = tmp_path / "hidden"
    shutil.copytree(package, hidden / package.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), hidden / f"{package.name}.libs")
    hidden.chmod(0o700)
    moved = Binaries(hidden / package.name / "pginstall" / "bin", original.version, embedded=True)
    assert not reachable(moved.directory, unprivileged_account())
    server = PostgresProcess(log_path=tmp_path / "postgres.log", binaries=moved)
    try:
        server.start()
        assert query(server, "SELECT 1") == [(1,)]
    finally:
        server.remove()


@ROOT
def test_an_ordinary_user_runs_it_as_themselves(tmp_path: Path) -> None:
    account = unprivileged_account()
    assert account is not None
    log = tmp_path / "child.log"
    log.touch(mode=0o666)
    script = (
        "import os, pathlib, tempfile\n"
        "from autotuner.sandbox.postgres import PostgresProcess\n"
        "server = PostgresProcess(log_path=pathlib.Path(tempfile.mkdtemp()) / 'postgres.log')\n"
        "try:\n"
        "    server.start()\n"
        "    print('owner', os.stat(f'/proc/{server.process.pid}').st_uid, server.is_ready())\n"
        "finally:\n"
        "    server.remove()\n"
    )
    interpreters = [
        Path(sys.executable),
        Path("/usr/bin/python3"),
    ]  # nothing but the standard library is needed
    usable = [one for one in interpreters if one.exists() and reachable(one.resolve().parent, account)]
    if not usable or not reachable(REPOSITORY, account):
        pytest.skip("the unprivileged user can read neither a Python nor this checkout")
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    child = ManagedProcess(
        "child", [str(usable[0]), "-c", script], log, environment=environment, account=account
    )
    child.start()
    wait_until(lambda: not child.alive, within=timedelta(seconds=30), what="the child ended")
    assert child.exit_code == 0, child.log_tail()
    assert f"owner {account.user_id} True" in child.log_tail()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_newest_system_version_comes_before_the_embedded_package(open_directory: Path) -> None:
    for version in ("14.9", "16.2", "15.7"):
        fake_installation(open_directory / "usr/lib/postgresql" / version.split(".")[0] / "bin", version)
    assert find_binaries(open_directory, search_path="").version == "16.2"


def test_only_an_old_system_means_the_embedded_package(tmp_path: Path) -> None:
    fake_installation(tmp_path / "usr/lib/postgresql/13/bin", "13.1")
    found = find_binaries(tmp_path, search_path=str(tmp_path))
    assert found.embedded
    assert found.major >= OLDEST_MAJOR


def test_a_failed_start_says_why(server: PostgresProcess) -> None:
    server.stop()
    version = server.directory / "data" / "PG_VERSION"
    right = version.read_text()
    try:
        version.write_text("9\n")
        with pytest.raises(ProcessFailed, match="PostgreSQL version 9"):
            server.start()
    finally:
        version.write_text(right)


def test_an_account_is_kept_out_by_any_closed_directory_above(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    inside = closed / "inside"
    inside.mkdir(parents=True)
    closed.chmod(0o700)
    stranger = Account(user_id=closed.stat().st_uid + 12345, group_id=closed.stat().st_gid + 12345)
    assert not reachable(inside, stranger)
    assert reachable(Path("/usr"), stranger)


def fake_installation(directory: Path, version: str) -> None:
    directory.mkdir(parents=True)
    for program in ("initdb", "postgres"):
        (directory / program).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (directory / program).chmod(0o755)
    assert subprocess.run([directory / "postgres"], capture_output=True, check=True).stdout
