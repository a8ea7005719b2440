"""Routes that read: what they ask the database for, and what they make of it, is the work of a few threads.

A thread for each request would have all of them wait for the interpreter in turn, and the longest page would hold up
the shortest: in the order they came, each is answered sooner. A page of a list is written as JSON in the thread that
made it; handed over to the framework as a model, it would be checked once more and written in further turns.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any, TypeVar

from fastapi import Response
from fastapi.routing import APIRoute

from api.schemas.wire import Page
from autotuner.bootstrap import Application

T = TypeVar("T")

_TAKES_LONG = "takes_long"


class ReadRoute(APIRoute):
    """A route that sends pages of lists itself; reads go to the threads that read, all else the framework's way."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        reads = set(options.get("methods") or ()) == {"GET"} and not hasattr(endpoint, _TAKES_LONG)
        made = _sending(endpoint)
        super().__init__(
            path, _reading(made) if reads and not inspect.iscoroutinefunction(endpoint) else made, **options
        )


def takes_long(endpoint: Callable[..., T]) -> Callable[..., T]:
    """Return an endpoint that waits for others than the database, or for minutes: it gets a thread of its own."""
    setattr(endpoint, _TAKES_LONG, True)
    return endpoint


def _sending(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    def send(*arguments: Any, **named: Any) -> Any:
        answer = endpoint(*arguments, **named)
        return sent(answer) if isinstance(answer, Page) else answer

    return send


def _reading(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(endpoint)
    async def read(*, app: Application, **named: Any) -> Any:
        return await in_a_reader(app, partial(endpoint, app=app, **named))

    return read


async def in_a_reader(app: Application, work: Callable[[], T]) -> T:
    """Return what `work` comes to in one of the threads that read."""
    return await asyncio.get_running_loop().run_in_executor(app.readers, work)


async def drawn(app: Application, first: str, others: Iterator[str]) -> AsyncIterator[str]:
    """Yield pieces of an answer, each but the first drawn in one of the threads that read, in its turn among others."""
    piece: str | None = first
    while piece is not None:
        yield piece
        piece = await in_a_reader(app, partial(next, others, None))


def sent(page: Page[Any]) -> Response:
    """Return a page as it goes over the wire."""
    return Response(page.model_dump_json(), media_type="application/json")
