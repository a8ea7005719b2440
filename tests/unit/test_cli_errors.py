"""How a command ends that cannot do its work: a sentence and a code, never a traceback unless it is asked for."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.cli.invocation import LAZY, Invocation
from autotuner.domain.study import Study
from autotuner.errors import Unavailable
from autotuner.settings import Settings, variables
from tests.closed_loop.loop import QuickStore
from tests.command_line import Terminal


class Silent(QuickStore):
    """A store that does not answer, whose driver gives away the password."""

    def study(self, study_id: str) -> Study:
        """Raise Unavailable."""
        raise Unavailable("postgres", f"no answer from postgresql://me:s3cret@nowhere/x about {study_id}")


class Buggy(QuickStore):
    """A store with a bug."""

    def study(self, study_id: str) -> Study:
        """Raise what nobody foresaw."""
        raise ZeroDivisionError(study_id)


def test_a_database_that_does_not_answer_is_a_sentence_without_its_password() -> None:
    ran = Terminal(store=Silent()).run("show", "latest")

    assert (ran.code, ran.out) == (5, "")
    assert (
        ran.err
        == "error: postgres is unavailable: no answer from postgresql://me:***@nowhere/x about latest\n"
    )


def test_an_error_is_an_object_too_when_json_is_asked_for() -> None:
    answer = Terminal(store=Silent()).run("show", "latest", "--json").answer

    assert (answer["kind"], answer["exit_code"]) == ("Unavailable", 5)
    assert "s3cret" not in answer["error"]


def test_a_bug_is_a_sentence_that_says_how_to_see_more() -> None:
    ran = Terminal(store=Buggy()).run("show", "latest")

    assert ran.code == 1
    assert ran.err == "error: unexpected: ZeroDivisionError: latest (autotuner --debug shows where)\n"


def test_debug_shows_where_an_error_comes_from() -> None:
    terminal = Terminal(store=Buggy())

    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(
            app,
            ["--debug", "show", "latest"],
            obj=Invocation(opening=terminal.application, settings=lambda: terminal.settings),
            catch_exceptions=False,
        )


@pytest.mark.parametrize("words", [["worker"], ["history"], ["show", "latest"], ["replay", "--latest"]])
def test_a_database_with_another_schema_is_refused_with_what_to_do(words: list[str]) -> None:
    ran = Terminal(schema_is_current=False).run(*words)

    assert ran.code == 7
    assert "run `autotuner db upgrade` first" in ran.err


@pytest.mark.parametrize("words", [["db", "upgrade"], ["history"]])
def test_a_database_must_be_named(words: list[str]) -> None:
    settings = Settings(database_url=SecretStr(""))

    result = CliRunner().invoke(app, words, obj=Invocation(settings=lambda: settings))

    assert result.exit_code == 2
    assert "AUTOTUNER_DATABASE_URL" in result.stderr


@pytest.mark.parametrize(
    "url", ["mysql://me:s3cret@h/d", "s3cret", "postgresql+psycopg://me:s3cret@h:port/d"]
)
def test_a_database_url_that_cannot_be_used_is_refused_without_being_shown(url: str) -> None:
    settings = Settings(database_url=SecretStr(url))

    result = CliRunner().invoke(app, ["history"], obj=Invocation(settings=lambda: settings))

    assert result.exit_code == 2
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    "words", [["nonsense"], ["worker", "--nonsense"], ["show"], ["history", "--limit", "0"]]
)
def test_a_command_line_that_makes_no_sense_ends_with_2(words: list[str]) -> None:
    assert Terminal().run(*words).code == 2


@pytest.mark.parametrize("words", [["--help"], ["worker", "--help"], ["tune", "--help"]])
def test_help_shows_every_environment_variable_with_its_default(words: list[str]) -> None:
    out = " ".join(Terminal().run(*words).out.split())

    for each in variables():
        assert f"{each.name}: {each.description}" in out
        assert not each.default or f"Default: {each.default}." in out
    assert "s3cret" not in out


def test_help_lists_every_command() -> None:
    out = Terminal().run("--help").out

    for name in ("tune", "worker", "history", "show", "replay", "export", "audit", "target", "db", *LAZY):
        assert f" {name} " in out


def test_the_version_is_told() -> None:
    assert Terminal().run("--version").out.startswith("autotuner 0.")
