"""A metrics page that lies when it is told to: a small server in front of a real one, as a broken exporter would be."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VALUE = re.compile(rb"^([^#\n]*\S)[ \t]+\S+$", re.MULTILINE)


class Lie(StrEnum):
    """What is answered instead of the truth."""

    NAN = "NaN"
    HTML = "HTML"
    ZEROS = "zeros"
    OLD = "an old answer"


class LyingMetrics:
    """The page at `upstream_url`, told as it is or as `lie` wants it.

    `remember` takes the present page for the old answer.
    """

    def __init__(self, upstream_url: str) -> None:
        self._upstream_url = upstream_url
        self._old = b""
        self.lie: Lie | None = None
        self.url = ""

    def remember(self) -> None:
        """Keep the present page for later."""
        self._old = self._true()

    def page(self) -> bytes:
        """What is answered now. Raises OSError when the real server does not answer."""
        if self.lie is Lie.HTML:
            return b"<!DOCTYPE html><html><body>Please sign in.</body></html>\n"
        if self.lie is Lie.OLD:
            return self._old
        true = self._true()
        if self.lie is None:
            return true
        return VALUE.sub(rb"\1 NaN" if self.lie is Lie.NAN else rb"\1 0", true)

    def _true(self) -> bytes:
        with urllib.request.urlopen(self._upstream_url, timeout=2) as answer:
            page: bytes = answer.read()
            return page


@contextmanager
def lying_metrics(upstream_url: str) -> Iterator[LyingMetrics]:
    """Serve the page on a loopback port until the context ends."""
    metrics = LyingMetrics(upstream_url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, page = 200, metrics.page()
            except OSError:
                status, page = 502, b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, name="lying-metrics")
        serving.start()
        metrics.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        try:
            yield metrics
        finally:
            server.shutdown()
            serving.join()
