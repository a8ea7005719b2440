"""A real control plane on loopback: etcd, API server, controller manager and scheduler as processes of one program.

The program is built once from `control_plane/` into the cache. Without Go the tests are skipped with a sentence; on CI
they are not. Everything here is for tests: certificates are made for a day, and etcd does not wait for the disk.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from autotuner.cache import cache_directory
from autotuner.sandbox.processes import ManagedProcess, free_port, wait_until
from tests.kubernetes.api import Api

BUILD = Path(__file__).parent / "control_plane" / "build.sh"
OLDEST, NEWEST = "v1.34.4", "v1.37.2"
"""The versions of Kubernetes that are supported: the oldest and the newest."""

VERSION_VARIABLE = "AUTOTUNER_TEST_KUBERNETES"
"""Which version the tests run on; the oldest supported one when it is not set."""

READY_WITHIN = timedelta(seconds=60)
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "disruption-controller",
    "pod-garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
    "horizontal-pod-autoscaler-controller",
)
"""What the tests need of the controller manager; each one left out is processor time for what is tested."""


class NoGo(Exception):
    """There is no Go to build the control plane with."""


def version() -> str:
    """The version of Kubernetes that is tested."""
    return os.environ.get(VERSION_VARIABLE, OLDEST)


def program() -> Path:
    """The control plane's program, built when it is not there yet. Raises NoGo."""
    cache = cache_directory()
    built = cache / f"control-plane-{version()}"
    if built.exists():
        return built
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise NoGo("no Go found: the test control plane cannot be built (scripts/go.sh installs one)")
    environment = {**os.environ, "PATH": f"{Path(go).parent}:{os.environ.get('PATH', '')}"}
    subprocess.run(
        [str(BUILD), version(), str(cache)], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    return built


@dataclass
class Credentials:
    """A certificate authority of a day and what it has signed, as files of one folder."""

    folder: Path
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    _ca: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = _name("control-plane-test")
        builder = _builder(name, name, self._key).add_extension(
            x509.BasicConstraints(True, None), critical=True
        )
        self._ca = builder.sign(self._key, hashes.SHA256())
        (self.folder / "ca.crt").write_bytes(_pem(self._ca))
        self._write_key("sa", ec.generate_private_key(ec.SECP256R1()))

    def sign(self, name: str, user: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> None:
        """Write `NAME.crt` and `NAME.key` for a user, or for a server at `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = _builder(_name(user, groups), self._ca.subject, key)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if hosts:
            names = [x509.IPAddress(ip_address(host)) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        (self.folder / f"{name}.crt").write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        self._write_key(name, key)

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        form = serialization.PrivateFormat.TraditionalOpenSSL
        plain = serialization.NoEncryption()
        path = self.folder / f"{name}.key"
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        path.chmod(0o600)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / f"{name}.pub").write_bytes(public)


def _name(user: str, groups: tuple[str, ...] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@dataclass
class ControlPlane:
    """The four parts. Use as a context manager."""

    directory: Path
    built: Path
    parts: dict[str, ManagedProcess] = field(default_factory=dict)
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self._credentials = Credentials(self.directory / "pki")
        self._credentials.sign("apiserver", "kube-apiserver", hosts=("127.0.0.1",))
        self._credentials.sign("admin", "admin", ("system:masters",))
        self._ports = {name: free_port() for name in ("etcd", "peer", "api", "controllers", "scheduler")}
        self.url = f"https://127.0.0.1:{self._ports['api']}"
        self.kubeconfig = self.directory / "admin.kubeconfig"
        pki = self._credentials.folder
        user = {"client-certificate": str(pki / "admin.crt"), "client-key": str(pki / "admin.key")}
        self.write_kubeconfig(self.kubeconfig, user)
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self.api = Api(self.url, tls)

    def write_kubeconfig(self, path: Path, user: dict[str, Any], namespace: str = "default") -> None:
        """Write a kubeconfig file for a user of this API server."""
        authority = str(self._credentials.folder / "ca.crt")
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": authority}}
            ],
            "users": [{"name": "test", "user": user}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}
            ],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))

    def __enter__(self) -> Self:
        try:
            self._start("etcd", self._etcd())
            self.start_api_server()
            self._start("kube-controller-manager", self._controllers())
            self._start("kube-scheduler", self._scheduler())
            self.api.wait_for("/api/v1/namespaces/default/serviceaccounts/default", READY_WITHIN)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all parts, the last started one first."""
        for part in reversed(self.parts.values()):
            part.stop()

    def start_api_server(self) -> None:
        """Start the API server, or start it again, and return when it is ready."""
        self._start("kube-apiserver", self._api_server())
        wait_until(
            lambda: self.api.status("/readyz") == 200,
            within=READY_WITHIN,
            what="the API server is ready",
            process=self.parts["kube-apiserver"],
        )

    def _start(self, part: str, flags: dict[str, object]) -> None:
        command = [str(self.built), part, *(f"--{name}={value}" for name, value in flags.items())]
        made = ManagedProcess(part, command, self.directory / f"{part}.log", directory=self.directory)
        self.parts[part] = made
        made.start()

    def _etcd(self) -> dict[str, object]:
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        return {
            "data-dir": self.directory / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }

    def _api_server(self) -> dict[str, object]:
        pki = self._credentials.folder
        return {
            "etcd-servers": f"http://127.0.0.1:{self._ports['etcd']}",
            "bind-address": "127.0.0.1",
            "secure-port": self._ports["api"],
            # Nobody is told of this address: the one of documentation, because loopback is not allowed.
            "advertise-address": "192.0.2.1",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
            "client-ca-file": pki / "ca.crt",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki / "sa.pub",
            "service-account-signing-key-file": pki / "sa.key",
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "RBAC",
            "profiling": "false",
        }

    def _controllers(self) -> dict[str, object]:
        pki = self._credentials.folder
        return {
            "kubeconfig": self.kubeconfig,
            "authentication-skip-lookup": "true",
            "bind-address": "127.0.0.1",
            "secure-port": self._ports["controllers"],
            "cert-dir": self.directory / "controllers",
            "service-account-private-key-file": pki / "sa.key",
            "root-ca-file": pki / "ca.crt",
            "leader-elect": "false",
            "controllers": ",".join(CONTROLLERS),
        }

    def _scheduler(self) -> dict[str, object]:
        return {
            "kubeconfig": self.kubeconfig,
            "authentication-skip-lookup": "true",
            "bind-address": "127.0.0.1",
            "secure-port": self._ports["scheduler"],
            "cert-dir": self.directory / "scheduler",
            "leader-elect": "false",
        }
