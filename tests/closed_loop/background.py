"""Work beside the ticks, done at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from autotuner.errors import AutotunerError


class Inline(Executor):
    """Runs work where it is submitted; what it raises is in the future."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` now."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except AutotunerError as error:
            done.set_exception(error)
        return done
