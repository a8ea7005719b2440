"""The door to a metrics server: one deadline for everything, quick retries, and trust in nobody who is not named."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.prometheus.client import PrometheusClient
from autotuner.domain.sources import PrometheusServer
from autotuner.secret_shelf import SecretShelf
from tests.certificates import certificate
from tests.prometheus_stub import PrometheusStub
from tests.stub_server import Planned

SECOND = timedelta(seconds=1)
ASKED = {"clock": "time()"}


def client(url: str, secrets: SecretShelf | None = None, ca: str = "") -> PrometheusClient:
    return PrometheusClient(PrometheusServer(url, ca=ca), secrets or SecretShelf(), SystemClock())


@pytest.fixture
def server() -> Iterator[PrometheusStub]:
    with PrometheusStub(100.0) as stub:
        yield stub


def test_an_answer_comes_between_two_moments_of_our_clock(server: PrometheusStub) -> None:
    answer = client(server.url).ask(ASKED, SECOND)["clock"]
    assert answer.read() == [100.0, "100.0"]
    assert answer.asked is not None
    assert answer.answered is not None
    assert answer.asked < answer.answered


class Hiccups(PrometheusStub):
    """Answers 503 a few times, then as it should."""

    def __init__(self, times: int) -> None:
        super().__init__(100.0)
        self.left = times

    def answer(self, path: str, headers: object, body: str) -> Planned:
        self.left -= 1
        return Planned("busy", 503) if self.left >= 0 else super().answer(path, {}, body)


@pytest.mark.parametrize(("times", "fault"), [(2, ""), (3, "HTTP 503")])
def test_a_server_that_is_busy_is_asked_again_twice(times: int, fault: str) -> None:
    with Hiccups(times) as server:
        answer = client(server.url).ask(ASKED, SECOND)["clock"]
    assert answer.fault.startswith(fault)
    assert bool(answer.fault) == bool(fault)
    assert len(server.requests) == 3


def test_what_is_tried_again_is_not_logged_at_every_look(caplog: pytest.LogCaptureFixture) -> None:
    with Hiccups(2) as server:
        assert client(server.url).ask(ASKED, SECOND)["clock"].fault == ""
    assert caplog.records == []


def test_a_query_that_cannot_be_answered_is_not_asked_again(server: PrometheusStub) -> None:
    server.planned = Planned('{"status":"error","error":"no"}', 422)
    assert client(server.url).ask(ASKED, SECOND)["clock"].fault.startswith("HTTP 422")
    assert len(server.requests) == 1


@pytest.fixture
def trickle() -> Iterator[str]:
    """A server that sends a byte now and then and never ends."""
    stop = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while not stop.wait(0.02):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=serve, name="trickle")
    thread.start()
    with listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        stop.set()
        thread.join()


def test_an_answer_that_trickles_is_given_up_at_the_deadline_and_no_thread_stays(trickle: str) -> None:
    began = time.monotonic()
    answer = client(trickle).ask(ASKED, timedelta(seconds=0.3))["clock"]
    assert time.monotonic() - began < 2
    assert answer.fault == "no answer within 0.3 s"
    give_up = time.monotonic() + 5
    while any(thread.name.startswith("prometheus") for thread in threading.enumerate()):
        assert time.monotonic() < give_up, "the thread that reads is still there"
        time.sleep(0.01)


# ---- TLS ----


class SecureStub(PrometheusStub):
    """The same behind TLS."""

    def __init__(self, pem: Path) -> None:
        super().__init__(100.0)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return super().url.replace("http:", "https:")


def test_a_certificate_is_trusted_when_its_authority_is_named_and_not_otherwise(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    authority = pem.read_text().partition("-----END PRIVATE KEY-----\n")[2]
    shelf = SecretShelf({"authority": authority, "other": "s3cret"})
    with SecureStub(pem) as server:
        assert client(server.url, shelf, ca="authority").ask(ASKED, 3 * SECOND)["clock"].read()[0] == 100.0
        unknown = client(server.url).ask(ASKED, 3 * SECOND)["clock"]
        broken = client(server.url, shelf, ca="other").ask(ASKED, 3 * SECOND)["clock"]
    assert "certificate" in unknown.fault
    assert broken.fault
    assert "s3cret" not in broken.fault


def test_the_environment_sets_neither_a_proxy_nor_a_password(
    server: PrometheusStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "nowhere"))
    assert client(server.url).ask(ASKED, SECOND)["clock"].fault == ""
    assert "Authorization" not in server.headers[0]
