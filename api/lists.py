"""Routes of lists: a page is written as JSON in the thread that made it.

Handed over to the framework as a model, it would be checked once more and written in further turns of other threads,
each of which waits for the interpreter; under many requests at once that is most of what a list takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from fastapi import Response
from fastapi.routing import APIRoute

from api.schemas.wire import Page


class ListRoute(APIRoute):
    """A route that sends pages itself; every other answer goes the framework's way."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _sending(endpoint), **options)


def _sending(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(endpoint)
    def send(*arguments: Any, **named: Any) -> Any:
        answer = endpoint(*arguments, **named)
        return sent(answer) if isinstance(answer, Page) else answer

    return send


def sent(page: Page[Any]) -> Response:
    """Return a page as it goes over the wire."""
    return Response(page.model_dump_json(), media_type="application/json")
