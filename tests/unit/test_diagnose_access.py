"""How a diagnosis reaches servers: headers with every question, TLS against named authorities, refusals over gRPC."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.scrape.reading import Access
from autotuner.adapters.scrape.serving import HttpServing
from autotuner.adapters.triton.telling import GrpcServing
from autotuner.bootstrap import observer_of
from autotuner.diagnosing import Deployment, ServerPlace
from autotuner.errors import InvalidInput, Unavailable
from tests.diagnoses import MODEL
from tests.stub_server import StubServer
from tests.stub_triton import a_triton

SOON = timedelta(seconds=2)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a certificate for loopback that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "triton")])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "triton.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


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


def test_nothing_behind_a_grpc_address_is_one_sentence() -> None:
    with pytest.raises(Unavailable, match=r"no gRPC connection to 127\.0\.0\.1:9"):
        GrpcServing("r0", "127.0.0.1:9", limit=SOON).metadata()


def test_http_behind_a_grpc_address_is_one_sentence() -> None:
    with a_triton() as server, pytest.raises(Unavailable, match="triton r0"):
        GrpcServing("r0", server.url.removeprefix("http://"), limit=SOON).metadata()
