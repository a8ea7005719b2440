"""Spans reach a collector that speaks OTLP over HTTP, and one that is away costs spans and nothing else."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from autotuner.bootstrap import application
from autotuner.telemetry import traces
from autotuner.telemetry.traces import course_of_trial
from tests.rest import rest_settings


class Collector(ThreadingHTTPServer):
    """Takes exports and keeps them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exports: list[tuple[str, str, ExportTraceServiceRequest]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        made = ExportTraceServiceRequest.FromString(body)
        self.server.exports.append((self.path, self.headers.get("x-key", ""), made))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def a_collector() -> Iterator[Collector]:
    """A collector that runs."""
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_what_a_process_did_is_at_the_collector_when_it_ends() -> None:
    with a_collector() as collector:
        settings = rest_settings(otlp_endpoint=collector.url, otlp_headers="x-key=s3cret", holder="worker-7")
        with application(settings):
            assert traces.recording()
            with traces.within(course_of_trial("study-1", 3), "tick", study="study-1"):
                pass
        assert not traces.recording()

        ((path, key, export),) = collector.exports
        (of_one_process,) = export.resource_spans
        resource = {each.key: each.value.string_value for each in of_one_process.resource.attributes}
        (span,) = of_one_process.scope_spans[0].spans
        assert (path, key) == ("/v1/traces", "s3cret")
        assert (resource["service.name"], resource["service.instance.id"]) == ("autotuner", "worker-7")
        assert (span.name, span.trace_id.hex()) == ("tick", course_of_trial("study-1", 3).trace_id)


def test_a_collector_that_is_away_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    with a_collector() as collector:
        url = collector.url
    done = threading.Event()

    def work() -> None:
        with application(rest_settings(otlp_endpoint=url)), traces.span("tick"):
            pass
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert done.wait(20)
    thread.join()
