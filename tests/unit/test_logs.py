"""Logs: an event and its fields, for people on a terminal, as JSON elsewhere, and never a password."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotuner.controller import Controller
from autotuner.domain.measurement import Sample
from autotuner.domain.study import TrialKind
from autotuner.ports import World
from autotuner.telemetry.logs import bound, starred, start_logging
from autotuner.telemetry.threads import ContextThreads
from tests.closed_loop.endings import a_loop, at

log = logging.getLogger("autotuner.tests.logs")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_an_event_is_a_line_of_json_with_its_fields() -> None:
    stream = io.StringIO()
    start_logging("INFO", "auto", stream)

    log.warning("trial_judged", extra={"verdict": "accept", "requests": 1300})

    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["verdict"], line["requests"]) == (
        "trial_judged",
        "WARNING",
        "accept",
        1300,
    )
    assert line["at"].endswith("+00:00")


def test_a_terminal_gets_lines_for_people() -> None:
    stream = Terminal()
    start_logging("INFO", "auto", stream)

    log.info("study_advanced", extra={"study": "s-1", "reason": "weights set"})

    assert stream.getvalue().endswith("info study_advanced study=s-1 reason=weights set\n")


@pytest.mark.parametrize(("style", "json_expected"), [("json", True), ("text", False)])
def test_the_format_can_be_chosen_whatever_the_stream_is(style: str, json_expected: bool) -> None:
    stream = Terminal() if json_expected else io.StringIO()
    start_logging("INFO", style, stream)

    log.info("event")

    assert stream.getvalue().startswith("{") is json_expected


def test_what_is_bound_is_in_every_event_of_the_block_and_in_none_after_it() -> None:
    stream = io.StringIO()
    start_logging("INFO", "json", stream)

    with bound(study="s-1"), bound(trial=3):
        log.info("inside")
    log.info("outside")

    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inside["study"], inside["trial"]) == ("s-1", 3)
    assert "study" not in outside


def test_an_event_below_the_level_is_not_logged() -> None:
    stream = io.StringIO()
    start_logging("WARNING", "json", stream)

    log.info("quiet")

    assert stream.getvalue() == ""


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_password_is_logged_whoever_put_it_there(style: str) -> None:
    stream = io.StringIO()
    start_logging("INFO", style, stream)
    url = "postgresql+psycopg://me:s3cret@db.example/autotuner"

    log.error("failed at %s", url, extra={"url": url}, exc_info=RuntimeError(f"cannot reach {url}"))

    assert "s3cret" not in stream.getvalue()
    assert "me:***@db.example" in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://127.0.0.1:8000/v2", "http://127.0.0.1:8000/v2"),
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@ss@h/d", "postgresql://u:***@h/d"),
        ("two: a://b:c@d and e://f:g@h", "two: a://b:***@d and e://f:***@h"),
    ],
)
def test_only_passwords_are_starred(text: str, shown: str) -> None:
    assert starred(text) == shown


def test_what_a_tick_logs_names_its_trial_in_whatever_thread_it_is_logged() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.CANDIDATE))
    stream, inner = io.StringIO(), loop.target.world
    start_logging("INFO", "json", stream)

    class Talking:
        def sample(self) -> Sample:
            with ContextThreads(1) as pool:
                pool.submit(log.info, "page_read").result()
            return inner.metrics.sample()

    world = World(inner.serving, inner.route, Talking())
    Controller(replace(loop.controller._outside, worlds=lambda _: world), "worker-1").tick(
        loop.study_id, "vision"
    )

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["trial"] for line in lines if line["event"] == "page_read"] == [loop.study.trials[-1].number]
