"""An HTTP server in a thread that gives planned answers, right or wrong, for tests of what reads over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Planned:
    """One answer. hang: none before the server ends; promised: the body length told, by default the true one."""

    body: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    promised: int | None = None


Answering = Planned | Callable[[str], Planned]
"""An answer, or what makes one of the request's body."""


class StubServer:
    """Answers by path (without query), 404 for others. Answers may be changed at any time; requests are recorded."""

    def __init__(self, answers: dict[str, Answering] | None = None) -> None:
        self.answers: dict[str, Answering] = answers or {}
        self.requests: list[str] = []
        self.sent_headers: list[dict[str, str]] = []
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="stub-server")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, headers: Mapping[str, str], body: str) -> Planned:
        """Return the answer to one request."""
        planned = self.answers.get(path.partition("?")[0], Planned("not here", 404))
        return planned if isinstance(planned, Planned) else planned(body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(stub) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler's own self is another
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.requests.append(f"{self.command} {self.path}")
                stub.sent_headers.append({name.lower(): value for name, value in self.headers.items()})
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                stub._send(self, stub.answer(self.path, dict(self.headers.items()), body))

            do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815  the names that http.server looks for

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def _send(self, handler: BaseHTTPRequestHandler, planned: Planned) -> None:
        if planned.hang:
            self._released.wait()
            return
        content = planned.body.encode()
        handler.send_response(planned.status)
        for name, value in planned.headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(planned.promised or len(content)))
        handler.end_headers()
        try:
            handler.wfile.write(content)
        except ConnectionError:
            return  # the reader had enough
