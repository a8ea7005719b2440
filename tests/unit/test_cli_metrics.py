"""`autotuner metrics check`: what is there, what is missing, and the exit code that says whether a study could run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import START
from tests.command_line import TARGET, Terminal, a_target_file
from tests.prometheus_stub import PrometheusStub
from tests.stub_server import Planned


def a_measured_file(folder: Path, url: str) -> Path:
    return a_target_file(folder, metrics={"prometheus": {"url": url, "deadline": "1s"}})


def test_a_server_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with PrometheusStub(START.timestamp()) as server:
        server.planned = Planned("no", 503)
        ran = Terminal().run("metrics", "check", a_measured_file(tmp_path, server.url))
    assert ran.code == 5
    assert "HTTP 503" in ran.out
    assert "missing: gateway, server stable-0, server stable-1, server canary" in ran.out


def test_the_answer_is_one_object(tmp_path: Path) -> None:
    with PrometheusStub(START.timestamp()) as server:
        path = a_measured_file(tmp_path, server.url)
        ran = Terminal().run("metrics", "check", path, "--seconds", "1", "--json")
    assert ran.code == 5
    assert ran.answer["usable"] is False
    assert {each["what"] for each in ran.answer["findings"]} >= {"gateway", "server canary"}
    assert {each["kind"] for each in ran.answer["verdicts"]} == {"screening", "promotion"}
    assert all(each["seconds"] is None for each in ran.answer["verdicts"])


def test_a_file_that_is_not_there_is_a_wrong_input() -> None:
    ran = Terminal().run("metrics", "check", "nowhere.yaml")
    assert ran.code == 2
    assert "target file" in ran.err


def test_a_name_that_is_not_registered_is_not_found() -> None:
    assert Terminal().run("metrics", "check", "nobody").code == 9


@pytest.mark.parametrize("seconds", ["0", "601", "soon"])
def test_how_long_is_looked_is_bounded(seconds: str, tmp_path: Path) -> None:
    ran = Terminal().run("metrics", "check", a_target_file(tmp_path), "--seconds", seconds)
    assert ran.code == 2


def test_a_target_that_is_read_directly_is_checked_too(tmp_path: Path) -> None:
    ran = Terminal().run("metrics", "check", a_target_file(tmp_path), "--seconds", "1")
    assert ran.code == 5
    assert f"{TARGET['name']}: measured by direct scraping" in ran.out
    assert "nothing accepts connections there" in ran.out
