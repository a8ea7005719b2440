"""Threads that know on whose behalf they work: log fields and the open span go with what is handed to them."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class ContextThreads(ThreadPoolExecutor):
    """A pool whose work runs in the context of whoever submitted it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `fn` in a thread, with the log fields and the span of the caller."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)
