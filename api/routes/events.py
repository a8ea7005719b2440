"""Server-sent events of a study: every line of its journal as it is written, until the study has ended.

The stream looks into the database once a second; it holds no connection between two looks. An event's id is its number
in the journal, so a client that reconnects with `Last-Event-ID` misses nothing and gets nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.dependencies import App
from api.description import problems
from api.parameters import StudyId
from api.problems import TooManyRequests, problem_of
from api.schemas.studies import progress_answer
from autotuner.bootstrap import Application
from autotuner.catalogue import Catalogue, Progress
from autotuner.domain.study import Phase
from autotuner.errors import Forbidden, Unauthenticated, Unavailable
from autotuner.telemetry.metrics import Gauge

router = APIRouter(prefix="/v1/studies", tags=["Studies"])

LOOK_SECONDS = 1.0
"""How often a stream looks for news."""

HEARTBEAT_LOOKS = 15
"""After so many looks without news a comment is sent, so that proxies and clients know the stream lives."""

BATCH = 100
"""Lines of the journal that are read at a time."""

RETRY_SECONDS = 10

Pause = Callable[[float], Awaitable[object]]

LastEventId = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=2**31, description="Only events after this one.")
]


@router.get(
    "/{study_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events `progress`, then `ended`; `unavailable` while the database does not answer; "
            "`refused`, the last one, when the token has been revoked or has expired",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'id: 7\nevent: progress\ndata: {"sequence": 7, "reason": "level 2 is accepted"}\n\n',
                }
            },
        },
        **problems("not-found"),
    },
    summary="A study's journal as it is written",
)
async def events(
    app: App,
    request: Request,
    study_id: StudyId,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Stream server-sent events until the study has ended or the token is no longer good.

    Reconnect with `Last-Event-ID`.
    """
    return await streamed(app, request, study_id, last_event_id or 0)


async def streamed(app: Application, request: Request, study_id: str, after: int) -> StreamingResponse:
    """Return the stream of a study's events after the number `after`. Raises TooManyRequests, NotFound."""
    seats: Seats = request.app.state.seats
    seats.check()
    known = await run_in_threadpool(app.catalogue.study_id, study_id)
    stream = Stream(app.catalogue, known, after, asyncio.sleep, request.state.admitted_still)
    return StreamingResponse(_seated(seats, stream), media_type="text/event-stream")


class Seats:
    """How many streams may be open, and how many are. For one thread: the event loop's."""

    def __init__(self, most: int, gauge: Gauge) -> None:
        self._most = most
        self._gauge = gauge
        self.taken = 0

    def check(self) -> None:
        """Raise TooManyRequests when none is free."""
        if self.taken >= self._most:
            raise TooManyRequests(RETRY_SECONDS)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a seat for as long as the block lasts."""
        self.taken += 1
        self._gauge.set(self.taken)
        try:
            yield
        finally:
            self.taken -= 1
            self._gauge.set(self.taken)


async def _seated(seats: Seats, stream: Stream) -> AsyncIterator[str]:
    """A stream, counted while it is read."""
    with seats.one():
        async for event in stream.events():
            yield event


class Stream:
    """One client's stream of a study. after: the newest event it has; pause: waits so many seconds.

    admitted_still: raises what is wrong with the client's token by now.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        study_id: str,
        after: int,
        pause: Pause,
        admitted_still: Callable[[], None] = lambda: None,
    ) -> None:
        self._admitted_still = admitted_still
        self._catalogue = catalogue
        self._study_id = study_id
        self._after = after
        self._pause = pause

    async def events(self) -> AsyncIterator[str]:
        """Yield events as they are sent, the last one when the study has ended."""
        silent = 0
        while True:
            try:
                lines, ended = await run_in_threadpool(self._look)
            except Unavailable as error:
                yield event_text("unavailable", problem_of(error, "").model_dump(exclude_none=True))
                await self._pause(LOOK_SECONDS)
                continue
            except (Unauthenticated, Forbidden) as error:
                yield event_text("refused", problem_of(error, "").model_dump(exclude_none=True))
                return
            for line in lines:
                self._after = line.sequence
                yield event_text("progress", progress_answer(line).model_dump(mode="json"), line.sequence)
            if ended is not None and len(lines) < BATCH:
                yield event_text("ended", ended)
                return
            silent = 0 if lines else silent + 1
            if silent and silent % HEARTBEAT_LOOKS == 0:
                yield ": still here\n\n"
            if len(lines) < BATCH:
                await self._pause(LOOK_SECONDS)

    def _look(self) -> tuple[list[Progress], dict[str, Any] | None]:
        """New lines, and how the study ended if it has; asked in this order, so that no line is missed.

        Raises Unauthenticated, Forbidden when the client may no longer look.
        """
        self._admitted_still()
        standing = self._catalogue.standing(self._study_id)
        lines = list(self._catalogue.progress(self._study_id, self._after, BATCH))
        summary = standing.summary
        if summary.phase != Phase.ENDED:
            return lines, None
        return lines, {"outcome": summary.outcome, "reason": summary.reason}


def event_text(name: str, data: dict[str, Any], number: int | None = None) -> str:
    """Return one event as it goes over the wire."""
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
