"""Native histograms as a real program would expose them: Prometheus' protobuf format, written out by hand.

Only what the tests need of `io.prometheus.client` (client_model, metrics.proto): one histogram family with labels, and
an exponential scale. No library for it is needed, and none that we have writes native histograms.
"""

from __future__ import annotations

import contextlib
import math
import struct
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

MEDIA_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
HISTOGRAM = 4
ZERO_THRESHOLD = 2.0**-128


def bucket_number(value: float, schema: int) -> int:
    """The number of the bucket that a value belongs to: (2^((n−1)/2^schema), 2^(n/2^schema)]."""
    return math.ceil(math.log2(value) * 2.0**schema - 1e-9)


def family(name: str, series: Sequence[tuple[Mapping[str, str], Sequence[float]]], schema: int) -> bytes:
    """Return one family with a length before it; each series has the values that were observed so far."""
    metrics = b"".join(
        _field(4, _labels(labels) + _field(7, _histogram(values, schema))) for labels, values in series
    )
    message = _field(1, name.encode()) + _number(3, HISTOGRAM) + metrics
    return _varint(len(message)) + message


def _labels(labels: Mapping[str, str]) -> bytes:
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in labels.items()
    )


def _histogram(values: Sequence[float], schema: int) -> bytes:
    counts: dict[int, int] = {}
    for value in values:
        number = bucket_number(value, schema)
        counts[number] = counts.get(number, 0) + 1
    spans, deltas, last_number, last_count = b"", b"", 0, 0
    for place, number in enumerate(sorted(counts)):
        offset = number if place == 0 else number - last_number - 1
        spans += _field(12, _number(1, _zigzag(offset)) + _number(2, 1))
        deltas += _number(13, _zigzag(counts[number] - last_count))
        last_number, last_count = number, counts[number]
    head = _number(1, len(values)) + _double(2, math.fsum(values))
    scale = _number(5, _zigzag(schema)) + _double(6, ZERO_THRESHOLD) + _number(7, 0)
    return head + scale + spans + deltas


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


class Exporter:
    """Serves pages by path, each a media type and what is there now; 503 where there is none."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="exporter")

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(exporter) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler's own self is another
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                media_type, body = exporter.pages.get(self.path, ("text/plain", b""))
                self.send_response(200 if body else 503)
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
