"""Secrets are found by name alone, in a folder before the environment, and show themselves nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.errors import InvalidInput
from autotuner.secret_shelf import SecretShelf
from autotuner.settings import read_settings


def test_a_file_comes_before_the_environment_and_counts_at_once_when_it_changes(tmp_path: Path) -> None:
    shelf = SecretShelf.read('{"token": "from the environment"}', str(tmp_path))
    assert shelf("token") == "from the environment"
    (tmp_path / "token").write_text("from a file\n")
    assert shelf("token") == "from a file"
    (tmp_path / "token").write_text("changed\n")
    assert shelf("token") == "changed"


@pytest.mark.parametrize("name", ["missing", "", "../token", "/etc/passwd", "TOKEN", "empty", "folder"])
def test_a_name_without_a_secret_is_refused(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "secrets"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "token").write_text("outside")
    (inside / "empty").write_text("\n")
    with pytest.raises(InvalidInput, match="secret"):
        SecretShelf({}, str(inside))(name)


@pytest.mark.parametrize("text", ["no JSON s3cret", '["s3cret"]', '{"a": 1}', '{"A b": "s3cret"}'])
def test_what_is_no_set_of_secrets_is_refused_without_showing_any(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SecretShelf.read(text, "")
    assert "s3cret" not in str(caught.value)


def test_its_text_shows_no_secret() -> None:
    assert "s3cret" not in repr(SecretShelf({"token": "s3cret"}))


def test_a_setting_that_is_no_set_of_secrets_is_refused_without_showing_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AUTOTUNER_SECRETS", "s3cret")
    with pytest.raises(InvalidInput, match="AUTOTUNER_SECRETS") as caught:
        read_settings()
    assert "s3cret" not in str(caught.value)
