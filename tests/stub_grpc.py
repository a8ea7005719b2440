"""A Triton over gRPC as far as a diagnosis asks one: the pages of `stub_triton` as messages, with TLS if wanted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.diagnoses import CONFIG
from tests.stub_triton import METADATA, statistics

EACH = 20
"""Requests that have come from one question about statistics to the next."""


@dataclass
class GrpcTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # it has no types
    """What it answers. token: the `authorization` that every question must have, empty for none."""

    token: str = ""
    address: str = ""
    asked: list[str] = field(default_factory=list)
    _counts: Iterator[int] = field(default_factory=lambda: itertools.count(0, EACH))

    def _admit(self, question: str, context: Any) -> None:
        self.asked.append(question)
        sent = dict(context.invocation_metadata())
        if self.token and sent.get("authorization") != self.token:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    def ServerMetadata(self, _request: Any, context: Any) -> Any:  # noqa: N802 - Triton's names
        """Name and version."""
        self._admit("metadata", context)
        return ParseDict(METADATA, service_pb2.ServerMetadataResponse())

    def ModelConfig(self, _request: Any, context: Any) -> Any:  # noqa: N802
        """The usual configuration, whatever the model."""
        self._admit("configuration", context)
        return ParseDict({"config": CONFIG}, service_pb2.ModelConfigResponse())

    def ModelStatistics(self, _request: Any, context: Any) -> Any:  # noqa: N802
        """Counts that go on."""
        self._admit("statistics", context)
        return ParseDict(
            {"model_stats": [statistics(next(self._counts))]}, service_pb2.ModelStatisticsResponse()
        )


@contextmanager
def a_grpc_triton(token: str = "", certificate: Path | None = None) -> Iterator[GrpcTriton]:
    """Serve on loopback. certificate: PEM file of key and certificate to speak TLS with; None for plain text."""
    stub, server = GrpcTriton(token), grpc.server(ThreadPoolExecutor(2, thread_name_prefix="stub-grpc"))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(stub, server)
    if certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pem = certificate.read_bytes()
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
    stub.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield stub
    finally:
        server.stop(None).wait()
