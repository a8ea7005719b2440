"""`POST /v1/traces`: OTLP as Envoy and Triton send it, from whoever may, and refusals that a sender understands."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from autotuner.domain.access import Scope
from tests.request_spans import FIXTURES
from tests.rest import Rest, serving

ENVOY = (FIXTURES / "envoy-1.40.pb").read_bytes()
TRITON = (FIXTURES / "triton-2.51.json").read_bytes()
PATH = "/v1/traces"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def rest() -> Iterator[Rest]:
    with serving() as made:
        yield made


@pytest.mark.parametrize(
    ("body", "headers", "answer"),
    [
        (ENVOY, PROTOBUF, b""),
        (ENVOY, {}, b""),
        (TRITON, JSON, b"{}"),
        (TRITON, {"Content-Type": "application/json; charset=utf-8"}, b"{}"),
        (gzip.compress(ENVOY), {**PROTOBUF, "Content-Encoding": "gzip"}, b""),
        (b"", PROTOBUF, b""),
    ],
)
def test_an_export_is_taken_and_answered_in_its_own_form(
    rest: Rest, body: bytes, headers: dict[str, str], answer: bytes
) -> None:
    found = rest.ask("POST", PATH, Scope.TRACER, content=body, headers=headers)
    assert (found.status_code, found.content) == (200, answer)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<html>", JSON),
        (ENVOY[:-7], PROTOBUF),
        (ENVOY, {"Content-Type": "text/plain"}),
        (ENVOY, {**PROTOBUF, "Content-Encoding": "br"}),
        (ENVOY, {**PROTOBUF, "Content-Encoding": "gzip"}),
        (gzip.compress(ENVOY)[:-4], {**PROTOBUF, "Content-Encoding": "gzip"}),
        (gzip.compress(bytes(9 << 20)), {**PROTOBUF, "Content-Encoding": "gzip"}),
    ],
)
def test_what_cannot_be_read_is_refused(rest: Rest, body: bytes, headers: dict[str, str]) -> None:
    found = rest.ask("POST", PATH, Scope.TRACER, content=body, headers=headers)
    assert found.status_code == 422
    assert found.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("scope", [Scope.VIEWER, Scope.OPERATOR, Scope.APPROVER])
def test_nobody_else_may_send(rest: Rest, scope: Scope) -> None:
    assert rest.ask("POST", PATH, scope, content=b"", headers=PROTOBUF).status_code == 403


def test_who_may_send_may_do_nothing_else(rest: Rest) -> None:
    assert rest.ask("GET", "/v1/studies", Scope.TRACER).status_code == 403
    assert rest.ask("POST", "/v1/studies", Scope.TRACER, json={"target": "vision"}).status_code == 403
