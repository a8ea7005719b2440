from __future__ import annotations

import pickle

import pytest

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

EXAMPLES = [
    InvalidInput("slo.p99_ms", -5, "a positive number of milliseconds"),
    Unavailable("triton at 127.0.0.1:8000", "connection refused"),
    Refused("loading vision on canary-0 was refused: preferred size above max batch"),
    Conflict("lease of target vision", "expected token 3, found token 4"),
    Outdated("target vision", "expected 1f, found 2e"),
    Unauthenticated("the token has expired"),
    Forbidden("this needs the scope operator"),
    NotFound("study", "7f3a"),
]


def test_invalid_input_names_the_field_the_value_and_what_is_allowed() -> None:
    error = InvalidInput("slo.p99_ms", -5, "a positive number of milliseconds")

    assert str(error) == "slo.p99_ms: -5 is not allowed; allowed: a positive number of milliseconds"
    assert (error.field, error.value, error.allowed) == (
        "slo.p99_ms",
        -5,
        "a positive number of milliseconds",
    )


def test_invalid_input_tells_a_text_from_a_number() -> None:
    assert "'1'" in str(InvalidInput("limits.instance_count", "1", "a whole number"))


def test_a_pasted_file_does_not_become_the_message() -> None:
    error = InvalidInput("traffic", "x" * 100_000, "a mapping")

    assert len(str(error)) < 300
    assert str(error).endswith("… is not allowed; allowed: a mapping")
    assert error.value == "x" * 100_000


def test_unavailable_names_the_system_to_look_at() -> None:
    error = Unavailable("triton at 127.0.0.1:8000", "connection refused")

    assert error.system == "triton at 127.0.0.1:8000"
    assert str(error) == "triton at 127.0.0.1:8000 is unavailable: connection refused"


def test_refused_says_why_in_one_sentence() -> None:
    error = Refused("the model has 2 instance groups: exactly one can be tuned")

    assert error.reason == str(error) == "the model has 2 instance groups: exactly one can be tuned"


def test_conflict_says_what_changed_hands() -> None:
    error = Conflict("lease of target vision", "expected token 3, found token 4")

    assert str(error) == "lease of target vision: expected token 3, found token 4"


def test_who_is_turned_away_learns_why_and_no_more() -> None:
    assert str(Unauthenticated("the token has expired")) == "not authenticated: the token has expired"
    assert str(Forbidden("this needs the scope admin")) == "this needs the scope admin"


def test_not_found_says_what_was_looked_for() -> None:
    assert str(NotFound("study", "7f3a")) == "no study is known as '7f3a'"


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_has_the_one_root(error: AutotunerError) -> None:
    assert isinstance(error, AutotunerError)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_survives_the_trip_between_processes(error: AutotunerError) -> None:
    returned = pickle.loads(pickle.dumps(error))

    assert type(returned) is type(error)
    assert str(returned) == str(error)
    assert vars(returned) == vars(error)
