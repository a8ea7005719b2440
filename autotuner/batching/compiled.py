"""The one door to numba: functions of arrays, compiled at their first call and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Return `function` compiled without Python objects. Results do not depend on the machine: no fast-math.

    Where nothing can be written, neither beside the code nor in the user's cache, it is compiled in every process.
    """
    try:
        return cast("Function", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast("Function", numba.njit(nogil=True)(function))


def inlined(function: Function) -> Function:
    """Return `function` such that compiled callers take it into their own loop: a call costs nothing then."""
    return cast("Function", numba.njit(inline="always", nogil=True)(function))
