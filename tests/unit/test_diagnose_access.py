"""How a diagnosis reaches servers: headers with every question, TLS against named authorities, refusals over gRPC."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.scrape.reading import Access
from autotuner.adapters.scrape.serving import HttpServing
from autotuner.adapters.triton.telling import GrpcServing
from autotuner.bootstrap import observer_of
from autotuner.diagnosing import Deployment, ServerPlace
from autotuner.errors import InvalidInput, Refused, Unavailable
from tests.certificates import certificate
from tests.diagnoses import CONFIG, MODEL
from tests.stub_grpc import EACH, a_grpc_triton
from tests.stub_server import StubServer
from tests.stub_triton import a_triton

SOON = timedelta(seconds=2)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a certificate for loopback that vouches for itself, and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(authority: Path) -> Iterator[StubServer]:
    """A Triton over TLS."""
    server = a_triton()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    with server:
        yield server


def test_tls_is_verified_against_the_named_authorities(secure: StubServer, authority: Path) -> None:
    url = secure.url.replace("http:", "https:")
    place = ServerPlace("r0", url, f"{url}/metrics")
    clock = SystemClock()

    facts = observer_of(Deployment((place,), MODEL, authorities=str(authority)), clock).facts()

    assert facts.versions == {"r0": "2.51.0"}
    with pytest.raises(Unavailable, match="no TLS connection"):
        observer_of(Deployment((place,), MODEL), clock).facts()


def test_authorities_that_cannot_be_read_are_named() -> None:
    place = ServerPlace("r0", "https://triton:8000", "https://triton:8002/metrics")

    with pytest.raises(InvalidInput, match="--ca"):
        observer_of(Deployment((place,), MODEL, authorities=__file__), SystemClock())


def test_headers_go_with_every_question() -> None:
    with a_triton() as server:
        HttpServing("r0", server.url, Access({"Authorization": "Bearer x"}), SOON).metadata()

    assert [sent["authorization"] for sent in server.sent_headers] == ["Bearer x"]


def test_secrets_are_in_no_representation() -> None:
    access = Access({"Authorization": "Bearer s3cret"})
    place = ServerPlace("r0", "http://a:8000", "http://a:8002/metrics")

    for one in (
        access,
        HttpServing("r0", "http://a", access),
        GrpcServing("r0", "a:8001", headers=access.headers),
        Deployment((place,), headers=access.headers),
    ):
        assert "s3cret" not in repr(one)


def test_grpc_over_tls_is_verified_against_the_named_authorities(secure: StubServer, authority: Path) -> None:
    clock = SystemClock()
    with a_grpc_triton(certificate=authority) as triton:
        metrics = f"{secure.url.replace('http:', 'https:')}/metrics"
        place = ServerPlace("r0", f"grpcs://{triton.address}", metrics)
        observer = observer_of(Deployment((place,), MODEL, authorities=str(authority)), clock)
        facts, look = observer.facts(), observer.look()

        assert (facts.versions, facts.model_versions, facts.unread) == ({"r0": "2.51.0"}, {"r0": ("1",)}, ())
        assert facts.configs[MODEL]["max_batch_size"] == CONFIG["max_batch_size"]
        assert look.replicas["r0"].work[MODEL].requests == EACH
        with pytest.raises(Unavailable, match="no gRPC connection"):
            observer_of(Deployment((place,), MODEL), clock).facts()

    assert set(triton.asked) == {"metadata", "configuration", "statistics"}


def test_plain_grpc_behind_a_secure_address_is_one_sentence() -> None:
    with a_grpc_triton() as triton, pytest.raises(Unavailable, match="no gRPC connection"):
        GrpcServing("r0", triton.address, secure=True, limit=SOON).metadata()


def test_a_header_goes_with_every_question_over_grpc_and_its_want_is_told() -> None:
    with a_grpc_triton("Bearer s3cret") as triton:
        known = GrpcServing("r0", triton.address, headers={"Authorization": "Bearer s3cret"}, limit=SOON)

        assert known.metadata()["version"] == "2.51.0"
        with pytest.raises(Refused, match="pass credentials with --header"):
            GrpcServing("r0", triton.address, limit=SOON).metadata()


def test_nothing_behind_a_grpc_address_is_one_sentence() -> None:
    with pytest.raises(Unavailable, match=r"no gRPC connection to 127\.0\.0\.1:9"):
        GrpcServing("r0", "127.0.0.1:9", limit=SOON).metadata()


def test_http_behind_a_grpc_address_is_one_sentence() -> None:
    with a_triton() as server, pytest.raises(Unavailable, match="triton r0"):
        GrpcServing("r0", server.url.removeprefix("http://"), limit=SOON).metadata()
