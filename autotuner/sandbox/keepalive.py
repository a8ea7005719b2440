"""The smallest HTTP/1.1 client that an open loop needs: prebuilt requests on kept-alive connections.

Why not a library: the traffic source shares two cores with what it measures, and its own cost would blur the
latencies. One request at a time per connection, no redirects, no decoding; a new connection whenever none is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, cast

HEAD_END = b"\r\n\r\n"
LENGTH_FIELD = b"\ncontent-length:"
LAST_CHUNK = b"\r\n0\r\n\r\n"
CHUNKED_FIELD = b"\ntransfer-encoding: chunked"
CLOSE_FIELD = b"\nconnection: close"

Outcome = int | str
"""An HTTP status, or the kind of failure: `connect`, `broken`, `timeout`."""

Report = Callable[[float, Outcome], None]
"""Called once per request with the time it was scheduled for (monotonic seconds) and its outcome."""


class Connection(asyncio.Protocol):
    """One connection; carries one request at a time and returns to its pool in between."""

    def __init__(self, pool: Pool, request: bytes) -> None:
        self._pool = pool
        self._unsent = request
        self._received = b""
        self._answer: Answer | None = None
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self.scheduled = 0.0
        self.deadline = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request this connection was opened for."""
        self._transport = cast("asyncio.Transport", transport)
        if self._closed:  # its request was given up meanwhile
            self._transport.abort()
        else:
            self.send(self._unsent)

    def send(self, request: bytes) -> None:
        """Send a request now, or as soon as the connection is open."""
        if self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect the answer; when it is complete, report it and become idle."""
        received = self._received = self._received + data if self._received else data
        answer = self._answer or read_head(received)
        if answer is None or not answer.is_complete(received):
            self._answer = answer
            return
        self._received, self._answer = b"", None
        self._pool.answered(self, answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base class's signature
        """Report a request that now gets no answer."""
        self._pool.lost(self)

    def close(self) -> None:
        """Drop the connection at once."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()


class Answer(NamedTuple):
    """What the head of an answer says. length: of head and body in bytes, None for a body in chunks."""

    status: int
    length: int | None
    reusable: bool

    def is_complete(self, received: bytes) -> bool:
        """Whether all of it is there.

        A body in chunks is over once its last chunk is: an inference server's answer is not expected to contain
        those bytes at the end of a segment by chance.
        """
        if self.length is None:
            return received.endswith(LAST_CHUNK)
        return len(received) >= self.length


def read_head(received: bytes) -> Answer | None:
    """Read the head that `received` begins with; None while it is not complete."""
    head_end = received.find(HEAD_END)
    if head_end < 0:
        return None
    head = received[:head_end].lower()
    body_start = head_end + len(HEAD_END)
    length: int | None = body_start
    field = head.find(LENGTH_FIELD)
    if field >= 0:
        length = body_start + int(head[field + len(LENGTH_FIELD) :].split(b"\r\n", 1)[0])
    elif CHUNKED_FIELD in head:
        length = None
    return Answer(int(head[9:12]), length, reusable=CLOSE_FIELD not in head)


class Pool:
    """Connections to one address. Never waits for one to become free, so it cannot close the loop.

    timeout_seconds: counted from the scheduled time; `expire` must be called now and then to enforce it.
    """

    def __init__(self, host: str, port: int, *, timeout_seconds: float, report: Report) -> None:
        self._host, self._port = host, port
        self._timeout_seconds = timeout_seconds
        self._report = report
        self._idle: list[Connection] = []
        self._busy: dict[Connection, None] = {}  # in the order of sending
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Requests sent (or waiting for their new connection) and not yet reported."""
        return len(self._busy)

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._busy) + len(self._idle)

    def send(self, request: bytes, scheduled: float) -> None:
        """Send a request now on an idle connection, or on a new one."""
        if self._idle:
            connection = self._idle.pop()
            connection.send(request)
        else:
            connection = Connection(self, request)
            opening = asyncio.get_running_loop().create_task(self._open(connection))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        connection.scheduled = scheduled
        connection.deadline = scheduled + self._timeout_seconds
        self._busy[connection] = None

    async def _open(self, connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, self._host, self._port)
        except OSError:
            self._finish(connection, "connect")

    def answered(self, connection: Connection, answer: Answer) -> None:
        """Note a complete answer and keep the connection for the next request."""
        expected = connection in self._busy
        self._finish(connection, answer.status)
        if expected and answer.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def lost(self, connection: Connection) -> None:
        """Note that a connection is gone, with or without a request on it."""
        self._finish(connection, "broken")
        if connection in self._idle:
            self._idle.remove(connection)

    def expire(self) -> None:
        """Give up requests past their deadline, the oldest first."""
        now = monotonic()
        for connection in list(self._busy):
            if connection.deadline > now:
                break
            self._finish(connection, "timeout")
            connection.close()

    def _finish(self, connection: Connection, outcome: Outcome) -> None:
        if connection in self._busy:  # otherwise it was given up before
            del self._busy[connection]
            self._report(connection.scheduled, outcome)

    async def close(self) -> None:
        """Drop every connection; requests in flight are not reported."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        connections = [*self._busy, *self._idle]
        self._busy.clear()
        self._idle.clear()
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)
