"""Exit codes: one table, the same in code and in the documentation, and one for everything that can happen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotuner.cli.exits import MEANINGS, Exit, exit_code_for, exit_code_of
from autotuner.domain.study import Outcome
from autotuner.errors import (
    AutotunerError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Outdated,
    Refused,
    Unauthenticated,
    Unavailable,
)

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_the_documented_table_is_the_one_in_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [(str(code.value), code.name, MEANINGS[code]) for code in Exit]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(Outcome.PROMOTED, 0), (Outcome.KEPT, 0), (Outcome.INCONCLUSIVE, 3), (Outcome.ABORTED, 4), (None, 1)],
)
def test_an_outcome_has_its_code(outcome: Outcome | None, code: int) -> None:
    assert exit_code_of(outcome) == code


def test_every_outcome_has_a_code() -> None:
    assert all(exit_code_of(outcome) is not Exit.UNEXPECTED for outcome in Outcome)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("slo.p99_ms", -1, "above 0"), 2),
        (Unavailable("postgres", "connection refused"), 5),
        (Conflict("study x", "it has already ended"), 6),
        (Outdated("target vision", "it has changed"), 6),
        (Refused("no"), 7),
        (Unauthenticated("the token has expired"), 7),
        (Forbidden("four eyes"), 7),
        (NotFound("study", "x"), 9),
        (AutotunerError("anything else"), 1),
        (ZeroDivisionError("a bug"), 1),
    ],
)
def test_an_error_has_its_code(error: Exception, code: int) -> None:
    assert exit_code_for(error) == code
