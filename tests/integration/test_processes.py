"""Supervised processes: whatever ends, nothing it started goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.sandbox.processes import (
    Account,
    ManagedProcess,
    ProcessFailed,
    free_port,
    log_tail,
    wait_until,
)
from autotuner.sandbox.reaper import group_members

SOON = timedelta(seconds=10)
REPOSITORY = Path(__file__).parents[2]
FAMILY = ["sh", "-c", "sleep 300 & echo started; sleep 300"]

PARENT = f"""
import sys, time
sys.path.insert(0, {str(REPOSITORY)!r})
from pathlib import Path
from autotuner.sandbox.processes import ManagedProcess, remove_when_this_process_ends
process = ManagedProcess("family", {FAMILY!r}, Path(sys.argv[1]) / "log")
process.start()
remove_when_this_process_ends(sys.argv[1] + "/scratch-*")
print(process.pid, flush=True)
time.sleep(300)
"""


def wait_for(process: ManagedProcess, text: str) -> None:
    wait_until(lambda: text in process.log_tail(), within=SOON, what=f"it says {text}", process=process)


def gone(group: int) -> None:
    wait_until(lambda: not group_members(group), within=SOON, what=f"process group {group} is gone")


def test_stop_ends_the_whole_family(tmp_path: Path) -> None:
    process = ManagedProcess("family", FAMILY, tmp_path / "log")
    process.start()
    wait_for(process, "started")
    group = process.pid

    process.stop()

    assert not process.alive
    assert process.exit_code == -signal.SIGTERM
    assert group_members(group) == []


def test_what_ignores_the_stop_signal_is_killed_after_its_grace(tmp_path: Path) -> None:
    stubborn = ["sh", "-c", "trap '' TERM; echo started; while true; do sleep 300; done"]
    process = ManagedProcess("stubborn", stubborn, tmp_path / "log", grace=timedelta(seconds=0.3))
    process.start()
    wait_for(process, "started")

    process.stop()

    assert process.exit_code == -signal.SIGKILL
    assert group_members(process.pid) == []


def test_when_the_leader_dies_its_family_is_killed(tmp_path: Path) -> None:
    process = ManagedProcess("family", FAMILY, tmp_path / "log")
    process.start()
    wait_for(process, "started")

    os.kill(process.pid, signal.SIGKILL)

    gone(process.pid)
    assert not process.alive
    process.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_starting_process_is_killed_nothing_is_left(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "scratch-1").touch()
    (tmp_path / "keep").touch()
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        wait_until(lambda: len(group_members(group)) == 3, within=SOON, what="the family is complete")

        parent.send_signal(number)
        parent.wait()

        gone(group)
    wait_until(lambda: not (tmp_path / "scratch-1").exists(), within=SOON, what="its files are gone")
    assert (tmp_path / "keep").exists()


def test_a_process_can_be_restarted_and_appends_to_its_log(tmp_path: Path) -> None:
    process = ManagedProcess("greeter", ["sh", "-c", "echo hello; exec sleep 300"], tmp_path / "log")
    with process:
        wait_for(process, "hello")
        first = process.pid

        process.restart()

        wait_until(lambda: process.log_tail().count("hello") == 2, within=SOON, what="it greets again")
        assert process.pid != first
        assert process.alive


def test_a_process_that_ends_early_fails_the_wait_with_the_end_of_its_log(tmp_path: Path) -> None:
    process = ManagedProcess("broken", ["sh", "-c", "echo no config file; exit 3"], tmp_path / "log")
    process.start()

    with pytest.raises(
        ProcessFailed, match=r"(?s)broken ended \(exit code 3\) before it is ready.*no config"
    ):
        wait_until(lambda: False, within=SOON, what="it is ready", process=process)


def test_a_wait_ends_at_its_deadline() -> None:
    with pytest.raises(ProcessFailed, match=r"not within 0\.1 s: the impossible happens"):
        wait_until(lambda: False, within=timedelta(seconds=0.1), what="the impossible happens")


def test_an_unknown_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="there is no program no-such-program"):
        ManagedProcess("ghost", ["no-such-program"], tmp_path / "log").start()


def test_a_second_start_is_refused(tmp_path: Path) -> None:
    with (
        ManagedProcess("sleeper", ["sleep", "300"], tmp_path / "log") as process,
        pytest.raises(ProcessFailed, match="already running"),
    ):
        process.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_can_start_a_process_as_somebody_else_that_still_dies_with_its_family(tmp_path: Path) -> None:
    command = ["sh", "-c", "id -u; sleep 300 & exec sleep 300"]
    process = ManagedProcess("other", command, tmp_path / "log", account=Account(65534, 65534))
    process.start()
    wait_for(process, "65534")

    process.stop()

    assert group_members(process.pid) == []


def test_ports_are_free_distinct_and_reserved_against_other_processes() -> None:
    ports = {free_port() for _ in range(50)}
    program = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from autotuner.sandbox import processes
processes.PORT_RANGE = range({min(ports)}, {max(ports) + 1})
print(*(processes.free_port() for _ in range(50)))
"""

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert len(ports) == 50
    assert not ports & {int(port) for port in answer.stdout.split()}
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_log_tail_is_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(f"line {number}" for number in range(20_000)))

    assert log_tail(log, lines=2) == "line 19998\nline 19999"
    assert log_tail(tmp_path / "absent") == ""
