from __future__ import annotations

import math
from typing import Any

import pytest

from autotuner.errors import InvalidInput
from tests.builders import a_budget, changed


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("p99_ceiling_seconds", 0.0, "seconds above 0 and up to 600"),
        ("p99_ceiling_seconds", -0.1, "seconds above 0 and up to 600"),
        ("p99_ceiling_seconds", 601.0, "seconds above 0 and up to 600"),
        ("p99_ceiling_seconds", math.nan, "seconds above 0 and up to 600"),
        ("p99_ceiling_seconds", math.inf, "seconds above 0 and up to 600"),
        ("p99_ceiling_seconds", "0.1", "seconds above 0 and up to 600"),
        ("p99_ceiling_seconds", True, "seconds above 0 and up to 600"),
        ("error_ratio_ceiling", 0.0, "a fraction above 0 and up to 0.01 (1 %)"),
        ("error_ratio_ceiling", 0.1, "a fraction above 0 and up to 0.01 (1 %)"),
        ("error_ratio_ceiling", 1, "a fraction above 0 and up to 0.01 (1 %)"),
        ("max_canary_share", 85, "a fraction above 0 and up to 0.95, not a percentage"),
        ("max_canary_share", 1.0, "a fraction above 0 and up to 0.95, not a percentage"),
        ("max_canary_share", 0, "a fraction above 0 and up to 0.95, not a percentage"),
        ("harm_budget_requests", 0, "a whole number of requests, at least 1"),
        ("harm_budget_requests", 10.5, "a whole number of requests, at least 1"),
        ("harm_budget_requests", True, "a whole number of requests, at least 1"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        a_budget(**{field: value})
    assert caught.value.field == field
    assert caught.value.value is value
    assert caught.value.allowed == allowed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("p99_ceiling_seconds", 600),
        ("error_ratio_ceiling", 0.01),
        ("max_canary_share", 0.95),
        ("harm_budget_requests", 1),
    ],
)
def test_the_limits_themselves_are_allowed(field: str, value: Any) -> None:
    assert getattr(a_budget(**{field: value}), field) == value


@pytest.mark.parametrize(
    ("changes", "loosened"),
    [
        ({}, ()),
        ({"p99_ceiling_seconds": 0.09, "harm_budget_requests": 10}, ()),
        ({"p99_ceiling_seconds": 0.11}, ("p99_ceiling_seconds",)),
        ({"error_ratio_ceiling": 0.002}, ("error_ratio_ceiling",)),
        ({"max_canary_share": 0.9, "p99_ceiling_seconds": 0.05}, ("max_canary_share",)),
        (
            {"max_canary_share": 0.9, "harm_budget_requests": 201},
            ("max_canary_share", "harm_budget_requests"),
        ),
    ],
)
def test_a_newer_budget_that_promises_less_is_told(
    changes: dict[str, Any], loosened: tuple[str, ...]
) -> None:
    assert a_budget().loosened_fields(changed(a_budget(), **changes)) == loosened
