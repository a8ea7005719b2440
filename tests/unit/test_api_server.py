"""Serving over a real socket: an address is told, requests are answered, and it stops when it is told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from api.server import serve
from autotuner.bootstrap import Application
from autotuner.domain.access import Scope
from autotuner.errors import Unavailable
from tests.command_line import Terminal
from tests.rest import a_secret, rest_settings

PATIENCE_SECONDS = 30


@contextmanager
def served(application: Application) -> Iterator[str]:
    """Serve on a free port of loopback; give the address."""
    stop, told = threading.Event(), threading.Event()
    addresses: list[str] = []

    def started(address: str) -> None:
        addresses.append(address)
        told.set()

    thread = threading.Thread(target=serve, args=(application, stop, started, "127.0.0.1", 0))
    thread.start()
    try:
        assert told.wait(PATIENCE_SECONDS)
        yield addresses[0]
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@pytest.fixture
def application() -> Application:
    return Terminal().application(rest_settings())


def test_it_is_served_until_it_is_told_to_stop(application: Application) -> None:
    secret = a_secret(application, "anna", Scope.VIEWER)
    with served(application) as address:
        answer = httpx.get(f"{address}/v1/me", headers={"Authorization": f"Bearer {secret}"})
        alive = httpx.get(f"{address}/healthz")

    assert (answer.status_code, answer.json()["actor"]) == (200, "anna")
    assert (alive.status_code, "server" in alive.headers) == (200, False)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz")


def test_no_header_of_a_stranger_names_the_client(application: Application) -> None:
    limited = Terminal().application(rest_settings(api_failures_per_minute=10))
    unknown = {"Authorization": f"Bearer autotuner_{'A' * 43}"}
    with served(limited) as address:
        statuses = [
            httpx.get(f"{address}/v1/me", headers={**unknown, "X-Forwarded-For": f"10.0.0.{n}"}).status_code
            for n in range(2)
        ]

    assert statuses == [401, 429]


def test_an_address_that_is_taken_is_said(application: Application) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            serve(application, threading.Event(), lambda _: None, "127.0.0.1", port)
