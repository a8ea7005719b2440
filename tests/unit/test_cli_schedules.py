"""`autotuner schedule …`, `scheduler` and `notifications …` at the terminal."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.cli.exits import Exit
from autotuner.domain.access import Said
from autotuner.domain.calendar import Night
from autotuner.ports import MessageState
from tests.builders import START
from tests.command_line import Ran, Terminal, a_target_file

DOCUMENTED = ["--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "--window", "4h", "--jitter", "30m"]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A terminal whose target is registered."""
    made = Terminal()
    assert made.run("target", "apply", a_target_file(tmp_path)).code == 0
    return made


def schedule(terminal: Terminal, *words: str) -> Ran:
    return terminal.run("schedule", *words)


def listed(terminal: Terminal) -> Any:
    return schedule(terminal, "list", "--json").answer


def test_a_schedule_is_set_listed_paused_and_removed(terminal: Terminal) -> None:
    ran = schedule(terminal, "set", "vision", *DOCUMENTED)
    assert ran.code == 0
    assert "next: 2026-01-06 01:" in ran.out

    (only,) = listed(terminal)["schedules"]
    assert (only["cron"], only["time_zone"], only["jitter_seconds"]) == ("30 2 * * *", "Europe/Berlin", 1800)
    assert "vision" in schedule(terminal, "list").out

    assert "is paused" in schedule(terminal, "pause", "vision").out
    assert listed(terminal)["schedules"][0]["next_start"] is None
    assert "goes on" in schedule(terminal, "resume", "vision").out
    assert "on request only" in schedule(terminal, "remove", "vision").out
    assert listed(terminal)["schedules"] == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["set", "vision", "--cron", "at night"], "schedule.cron"),
        (["set", "vision", "--cron", "0 0 30 2 *"], "schedule.cron"),
        (["set", "vision", "--cron", "0 2 * * *", "--time-zone", "Mars"], "schedule.time_zone"),
        (["set", "vision", "--cron", "0 2 * * *", "--window", "4"], "--window"),
        (["set", "vision", "--cron", "0 2 * * *", "--jitter", "5h"], "schedule.jitter"),
        (["set", "vision", "--cron", "0 2 * * *", "--blackout", "24.12."], "--blackout"),
        (["freeze", "--until", "tomorrow", "--reason", "x"], "--until"),
        (["freeze", "--until", "2027-01-07T06:00", "--reason", "x"], "--until"),
        (["freeze", "--until", "2020-01-07T06:00Z", "--reason", "x"], "freeze.until"),
        (["pause-all", "--reason", " "], "reason"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(terminal: Terminal, words: list[str], named: str) -> None:
    ran = schedule(terminal, *words)

    assert ran.code == Exit.INVALID_INPUT
    assert named in ran.err


@pytest.mark.parametrize(
    "words",
    [["set", "nobody", "--cron", "0 2 * * *"], ["pause", "vision"], ["remove", "vision"], ["unfreeze", "7"]],
)
def test_what_is_not_there_is_not_found(terminal: Terminal, words: list[str]) -> None:
    ran = schedule(terminal, *words)

    assert ran.code == Exit.NOT_FOUND
    assert "no " in ran.err


def test_a_freeze_is_set_seen_and_ended(terminal: Terminal) -> None:
    ran = schedule(
        terminal, "freeze", "--until", "2027-01-07T06:00+01:00", "--reason", "year-end freeze", "--json"
    )
    number = ran.answer["number"]
    assert ran.answer["ends_at"] == "2027-01-07T05:00:00+00:00"
    assert "every target" in schedule(terminal, "list").out

    assert schedule(terminal, "unfreeze", str(number)).code == 0
    assert listed(terminal)["freezes"] == []


def test_the_line_is_stopped_and_released(terminal: Terminal) -> None:
    assert "incident" in schedule(terminal, "pause-all", "--reason", "incident").out
    assert schedule(terminal, "list").out.startswith("THE LINE IS STOPPED since 2026-01-05")
    assert listed(terminal)["line"]["actor"] == "tester"

    assert schedule(terminal, "resume-all").out == "the line runs\n"
    assert listed(terminal)["line"]["stopped_at"] is None


def test_a_scheduler_starts_the_night_and_stops_when_it_is_told(terminal: Terminal) -> None:
    schedule(terminal, "set", "vision", "--cron", "30 2 * * *")
    until = START + timedelta(hours=1)

    def watching(event: threading.Event) -> None:
        if terminal.clock.now() > until:
            event.set()

    terminal.watching = watching
    ran = terminal.run("scheduler", "--json")

    assert (ran.code, ran.answer["stopped"]) == (0, True)
    (night,) = schedule(terminal, "nights", "--json").answer["nights"]
    assert (night["night"], night["state"]) == ("2026-01-05T02:30", "started")
    assert "its study is under way" in schedule(terminal, "nights").out


def test_dead_notices_are_seen_and_tried_again(terminal: Terminal) -> None:
    app = terminal.application(terminal.settings)
    assert terminal.run("notifications", "list").out == "nothing was told\n"
    app.nights.miss_night(Night("vision", "2026-01-05T02:30", START), Said("scheduler", "frozen", START))
    (message,) = app.outbox.messages()
    terminal.store.memory.messages[message.number] = type(message)(
        message.number, message.notice, MessageState.DEAD, 12, START, (), "no answer"
    )

    ran = terminal.run("notifications", "list", "--state", "dead")
    assert "was missed: frozen [no answer]" in ran.out
    assert terminal.run("notifications", "retry", str(message.number), "--json").answer["state"] == "pending"
    assert terminal.run("notifications", "list", "--state", "dead").out == "nothing was told\n"
