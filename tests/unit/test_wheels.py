"""The cache of downloads: complete or absent, filled once, in a place that can be written."""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotuner.cache import cache_directory
from autotuner.errors import InvalidInput, Unavailable
from autotuner.sandbox import wheels
from autotuner.sandbox.tritonserver import PYTRITON
from autotuner.sandbox.wheels import UnsupportedMachine, once, require_machine


def test_a_directory_is_filled_once(tmp_path: Path) -> None:
    fills: list[Path] = []

    def fill(directory: Path) -> None:
        fills.append(directory)
        (directory / "file").write_text("content")

    first = once(tmp_path, "thing", fill)
    second = once(tmp_path, "thing", fill)

    assert first == second == tmp_path / "thing"
    assert (first / "file").read_text() == "content"
    assert len(fills) == 1


def test_two_at_the_same_time_fill_once(tmp_path: Path) -> None:
    fills: list[Path] = []

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: once(tmp_path, "thing", fills.append), range(8)))

    assert found == [tmp_path / "thing"] * 8
    assert len(fills) == 1


def test_a_failed_filling_leaves_nothing_that_counts(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("of it")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        once(tmp_path, "thing", fail)

    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]


def test_what_a_killed_filling_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".thing.part-dead").mkdir()
    (tmp_path / ".thing.part-dead" / "half").write_text("of it")

    filled = once(tmp_path, "thing", lambda directory: (directory / "whole").touch())

    assert [path.name for path in filled.iterdir()] == ["whole"]
    assert not (tmp_path / ".thing.part-dead").exists()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"AUTOTUNER_CACHE": "{0}/own", "XDG_CACHE_HOME": "{0}/xdg", "HOME": "{0}"}, "own"),
        ({"XDG_CACHE_HOME": "{0}/xdg", "HOME": "{0}"}, "xdg/autotuner"),
        ({"HOME": "{0}"}, ".cache/autotuner"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    environment: dict[str, str], place: str, tmp_path: Path
) -> None:
    named = {name: value.format(tmp_path) for name, value in environment.items()}

    assert cache_directory(named) == tmp_path / place
    assert (tmp_path / place).is_dir()


def test_a_cache_that_cannot_be_written_is_refused_with_the_variable_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidInput, match="AUTOTUNER_CACHE"):
        cache_directory({"AUTOTUNER_CACHE": str(tmp_path / "file" / "below")})


def test_an_old_c_library_is_refused_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 2.31")

    with pytest.raises(UnsupportedMachine, match=r"needs glibc 2\.35 .* this machine has glibc 2\.31"):
        require_machine(PYTRITON)


def test_another_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    with pytest.raises(UnsupportedMachine, match="x86-64"):
        require_machine(PYTRITON)


def test_every_pin_has_one_version_and_one_hash_and_no_address() -> None:
    for pin in (Path(wheels.__file__).parent / "pins").iterdir():
        text = pin.read_text()
        assert text.count("==") == text.count("--hash=sha256:") == 1
        assert "://" not in text


def test_a_download_that_fails_says_what_pip_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho no route to index >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    said: list[str] = []

    with pytest.raises(Unavailable, match="no route to index"):
        wheels.unpacked(PYTRITON, tmp_path, said.append)

    assert "55 MB" in said[0]
    assert not (tmp_path / PYTRITON.label).exists()
