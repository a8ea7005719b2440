from __future__ import annotations

from typing import Any

import numba
import pytest

from autotuner.batching.compiled import compiled


def test_where_nothing_can_be_written_a_function_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = numba.njit

    def without_a_place(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return really(**options)

    monkeypatch.setattr(numba, "njit", without_a_place)

    @compiled
    def added(one: int, other: int) -> int:
        return one + other

    assert added(2, 3) == 5
