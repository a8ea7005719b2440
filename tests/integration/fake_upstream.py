"""A tiny HTTP/1.1 server in a thread that answers, is slow, fails or breaks off, as the request's path asks."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from types import TracebackType
from typing import Self

FOREVER_SECONDS = 3600.0
CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class FakeUpstream:
    """Behaviour by path: /status/503, /slow/97.5 (milliseconds), /hang, /reset, /close, /cut (in mid-body), /garbage.

    Any other path: `status` after `delay_seconds`; both can be changed at any time. received: requests seen.
    """

    def __init__(self) -> None:
        self.received = 0
        self.connections = 0
        self.delay_seconds = 0.0
        self.status = 200
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fake-upstream")

    @property
    def port(self) -> int:
        """Where it listens on loopback."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """The same as a URL."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket)
        await asyncio.to_thread(self._stop.wait)
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # the transports close their sockets in the loop's next rounds

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._answer(await self._path(reader), writer):
                    await writer.drain()
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _path(self, reader: asyncio.StreamReader) -> str:
        head = await reader.readuntil(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(head)
        if length is not None:
            await reader.readexactly(int(length[1]))
        self.received += 1
        return head.split()[1].decode()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is over."""
        match path.split("/")[1:]:
            case ["status", status]:
                writer.write(response(int(status)))
            case ["slow", milliseconds]:
                await asyncio.sleep(float(milliseconds) / 1000)
                writer.write(response(200))
            case ["hang"]:
                await asyncio.sleep(FOREVER_SECONDS)
            case ["reset"]:
                # Lingering for 0 s makes the close a TCP reset.
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case ["close"]:
                return False
            case ["cut"]:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbeginning")
                await asyncio.sleep(0.05)
                return False
            case ["garbage"]:
                writer.write(b"this is not HTTP\r\n\r\n")
            case _:
                await asyncio.sleep(self.delay_seconds)
                writer.write(response(self.status))
        return True


def response(status: int) -> bytes:
    """A complete answer with a small body."""
    return f"HTTP/1.1 {status} Because\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}".encode()
