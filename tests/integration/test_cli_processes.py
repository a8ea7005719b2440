"""The command as a process: what is on its standard output, and how it ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.command_line import TARGET
from tests.postgres_server import PostgresServer

COMMAND = [sys.executable, "-W", "error::ResourceWarning", "-m", "autotuner"]


@pytest.fixture(scope="module")
def environment(postgres_server: PostgresServer) -> Iterator[dict[str, str]]:
    """An environment whose database is real, new and migrated."""
    with postgres_server.database() as url:
        made = {**os.environ, "AUTOTUNER_DATABASE_URL": url, "AUTOTUNER_ACTOR": "tester"}
        assert run(made, "db", "upgrade").returncode == 0
        yield made


@pytest.fixture
def target_file(tmp_path: Path) -> Path:
    """A target file whose servers nobody has started."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        free = held.getsockname()[1]
    text = yaml.safe_dump(TARGET)
    for port in (9000, 9002, 9010, 9012, 9020, 9022, 9900):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.{1 + port % 100}:{free}")
    path = tmp_path / "target.yaml"
    path.write_text(text)
    return path


def run(environment: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)


def test_a_database_of_another_version_is_refused(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as url:
        ended = run({**os.environ, "AUTOTUNER_DATABASE_URL": url}, "worker")

    assert (ended.returncode, ended.stdout) == (7, "")
    assert "autotuner db upgrade" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_within_3_seconds_and_leaves_the_study_and_its_lease(
    environment: dict[str, str], target_file: Path, number: int
) -> None:
    started = run(environment, "tune", target_file, "--detach", "--json")
    study = json.loads(started.stdout)["study"]
    worker = subprocess.Popen(
        [*COMMAND, "worker", "--json"],
        env=environment | {"AUTOTUNER_LOG_FORMAT": "json"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stderr is not None
    try:
        while "study_advanced" not in worker.stderr.readline():
            assert worker.poll() is None
        began = time.monotonic()
        worker.send_signal(number)
        out, err = worker.communicate(timeout=30)
        seconds = time.monotonic() - began
    finally:
        worker.kill()

    assert worker.returncode == 0
    assert seconds < 3.0
    assert out.count("\n") == 1
    assert json.loads(out)["stopped"] is True
    assert all(json.loads(line)["event"] for line in err.splitlines())

    run(environment, "cancel", study, "--reason", "the test is over")
    assert run(environment, "worker", "--until-idle").returncode == 0
    assert json.loads(run(environment, "show", study, "--json").stdout)["outcome"] == "aborted"


def test_ctrl_c_in_tune_ends_the_study_and_the_process_with_130(
    environment: dict[str, str], target_file: Path
) -> None:
    tune = subprocess.Popen(
        [*COMMAND, "tune", str(target_file), "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tune.stderr is not None
    try:
        while "reading production" not in tune.stderr.readline():
            assert tune.poll() is None
        tune.send_signal(signal.SIGINT)
        out, _ = tune.communicate(timeout=60)
    finally:
        tune.kill()

    assert tune.returncode == 130
    assert out.count("\n") == 1
    assert json.loads(out)["outcome"] == "aborted"
    assert json.loads(run(environment, "history", "--json").stdout)["studies"][0]["reason"] == (
        "cancelled by an operator"
    )


def test_standard_output_holds_one_object_and_nothing_else(
    environment: dict[str, str], target_file: Path
) -> None:
    tune = run(environment, "tune", target_file, "--json")
    study = json.loads(tune.stdout)["study"]

    assert tune.returncode == 4, "servers that are not there end a study as aborted"
    for words in (
        ["db", "upgrade"],
        ["replay", "--latest"],
        ["audit", "--verify"],
        ["cancel", study],
    ):
        ended = run(environment, *words, "--json")
        assert ended.stdout.count("\n") == 1, words
        assert isinstance(json.loads(ended.stdout), dict)


def test_a_database_that_is_not_there_is_a_sentence_and_5() -> None:
    ended = run(
        {**os.environ, "AUTOTUNER_DATABASE_URL": "postgresql+psycopg://me:s3cret@127.0.0.1:1/x"}, "history"
    )

    assert (ended.returncode, ended.stdout) == (5, "")
    assert "s3cret" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_setting_that_cannot_be_used_is_a_sentence_and_2() -> None:
    ended = run({**os.environ, "AUTOTUNER_THREADS": "many"}, "history")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: AUTOTUNER_THREADS: 'many' is not allowed")
