"""A proxy address in front of a PostgreSQL that the test moves, slows down, cuts or holds, as a network would."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

CHUNK = 65_536


class MovingProxy:
    """Listens on loopback and passes everything on to a server's Unix socket.

    delay_seconds: how long each piece is held in each direction. held: while it is set nothing passes, and nobody is
    told. away: connections are refused.
    """

    def __init__(self, url: str) -> None:
        self.delay_seconds = 0.0
        self.held = threading.Event()
        self.away = False
        self._url = make_url(url)
        self._socket_path = _socket_of(url)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads = [threading.Thread(target=self._accept, name="moving-proxy")]

    @property
    def url(self) -> str:
        """The database at the proxy's address."""
        port = self._listener.getsockname()[1]
        moved = self._url.set(host="127.0.0.1", port=port, query={})
        return moved.render_as_string(hide_password=False)

    def move(self, url: str) -> None:
        """Lead to another server from now on; connections to the one before are cut."""
        self._socket_path = _socket_of(url)
        self.cut()

    def cut(self) -> None:
        """Break every connection off."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.held.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            if self.away or server.connect_ex(str(self._socket_path)):
                client.close()
                server.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, goal in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pump, args=(source, goal), name="moving-proxy-pump")
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, goal: socket.socket) -> None:
        try:
            while piece := source.recv(CHUNK):
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                while self.held.is_set() and not self._stop.is_set():
                    time.sleep(0.01)
                goal.sendall(piece)
        except OSError:
            pass
        finally:
            for each in (source, goal):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(source)
            source.close()


def _socket_of(url: str) -> Path:
    host = make_url(url).query["host"]
    assert isinstance(host, str)
    return Path(host) / ".s.PGSQL.5432"
