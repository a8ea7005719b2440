"""The door to the compiler: functions over numbers and arrays as machine code, kept on disk between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Return the function as machine code, compiled at its first call; threads may run it side by side."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
