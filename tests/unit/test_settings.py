"""Settings: each documented, each checked, none that is secret ever shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotuner.errors import InvalidInput
from autotuner.settings import PREFIX, Settings, read_settings, variables

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
URL = "postgresql+psycopg://me:s3cret@db.example/autotuner"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in variables():
        monkeypatch.delenv(each.name, raising=False)


def test_every_setting_is_documented_as_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*)`|–) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [(each.name, each.default, each.description) for each in variables()]


def test_every_setting_says_what_it_is_for() -> None:
    assert all(len(each.description) > 20 for each in variables())
    assert {each.name for each in variables()} == {
        f"{PREFIX}{name.upper()}" for name in Settings.model_fields
    }


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", URL)
    monkeypatch.setenv("AUTOTUNER_LEASE_SECONDS", "20")

    settings = read_settings()

    assert settings.database_url.get_secret_value() == URL
    assert settings.lease_seconds == 20.0


def test_a_process_is_known_by_host_and_number_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r".+:\d+", read_settings().holder)
    monkeypatch.setenv("AUTOTUNER_HOLDER", "night-shift")
    assert read_settings().holder == "night-shift"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("AUTOTUNER_LEASE_SECONDS", "soon", "Seconds after which"),
        ("AUTOTUNER_LEASE_SECONDS", "-1", "Seconds after which"),
        ("AUTOTUNER_LEASE_SECONDS", "4", "at least 10"),
        ("AUTOTUNER_THREADS", "1", "greater than or equal to 2"),
        ("AUTOTUNER_LOG_FORMAT", "xml", "text, json, or auto"),
        ("AUTOTUNER_LOG_LEVEL", "loud", "DEBUG, INFO, WARNING or ERROR"),
        ("AUTOTUNER_HOLDER", "", "Name of this process"),
    ],
)
def test_a_bad_value_names_the_variable_the_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", URL)
    monkeypatch.setenv(name, value)

    with pytest.raises(InvalidInput) as caught:
        read_settings()

    assert caught.value.field == name
    assert allowed in caught.value.allowed
    assert "s3cret" not in str(caught.value)


def test_printing_settings_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", URL)

    settings = read_settings()

    assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump_json()}"
