"""Spans of requests, as gateways and servers send them: OTLP over HTTP, as protobuf or as JSON.

What is no slow request to a target that listens is forgotten; see `autotuner.receiving`.
"""

from __future__ import annotations

import zlib
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from api.dependencies import App
from api.description import problems
from autotuner.errors import InvalidInput
from autotuner.instruments.readings import Unreadable

router = APIRouter(prefix="/v1", tags=["Spans"])

PROTOBUF, JSON = "application/x-protobuf", "application/json"
LARGEST_BYTES = 8 << 20
"""What a compressed body may come to."""

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
            JSON: {"schema": {"type": "object"}, "example": {"resourceSpans": []}},
        },
    }
}
ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Taken in, as OTLP says it: an empty message",
        "content": {JSON: {"schema": {"type": "object"}}, PROTOBUF: {"schema": {"type": "string"}}},
    },
    **problems("invalid-input"),
}


@router.post(
    "/traces",
    response_class=Response,
    responses=ANSWERED,
    openapi_extra=BODY,
    summary="Take in spans of requests (OTLP)",
)
async def receive(app: App, request: Request) -> Response:
    """Take in an OTLP export request (`ExportTraceServiceRequest`), also with `Content-Encoding: gzip`.

    Kept are the slow requests of targets whose `traces` section says `source: otlp`, while a study of them runs.
    """
    kind = request.headers.get("content-type", PROTOBUF).partition(";")[0].strip().lower()
    if kind not in (PROTOBUF, JSON):
        raise InvalidInput("Content-Type", kind[:100], f"{PROTOBUF} or {JSON}")
    body = _unpacked(await request.body(), request.headers.get("content-encoding", ""))
    try:
        await run_in_threadpool(app.receiver.take, body, as_json=kind == JSON)
    except Unreadable as error:
        raise InvalidInput("body", "(not shown)", f"an OTLP export request ({error})") from error
    return Response(b"{}" if kind == JSON else b"", media_type=kind)


def _unpacked(body: bytes, encoding: str) -> bytes:
    """The body without its compression. Raises InvalidInput."""
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() != "gzip":
        raise InvalidInput("Content-Encoding", encoding[:100], "gzip, or none")
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = unpacking.decompress(body, LARGEST_BYTES)
    except zlib.error as error:
        raise InvalidInput("body", "(not shown)", "gzip, as Content-Encoding says") from error
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise InvalidInput("body", "(not shown)", f"whole, and at most {LARGEST_BYTES} bytes unpacked")
    return found
