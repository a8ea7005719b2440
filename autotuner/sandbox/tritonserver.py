"""A real tritonserver on loopback: its files from a pinned wheel, its start, readiness and end.

What this module guards: a server that is asked to stop, or killed, takes its Python stub processes and its shared
memory with it, and several servers on one machine never meet.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Self

from autotuner.cache import cache_directory
from autotuner.sandbox.processes import ManagedProcess, free_port, remove_when_this_process_ends, wait_until
from autotuner.sandbox.python_runtime import STUB_MINORS, PythonRuntime, find_runtime, library_name
from autotuner.sandbox.wheels import Report, Wheel, once, to_stderr, unpacked

HOST = "127.0.0.1"
SERVER = "pytriton/tritonserver"
LIBRARIES = "nvidia_pytriton.libs"
STUB = "triton_python_backend_stub"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  the kernel's name for it
SHARED_MEMORY_PREFIX = "autotuner"
DEVICE_VARIABLE = "EMULATED_GPU_DIRECTORY"
EXIT_TIMEOUT_SECONDS = 2

PYTRITON = Wheel(
    name="nvidia-pytriton",
    version="0.7.0",
    size_bytes=55_369_373,
    glibc=(2, 35),
    wanted=lambda path: path.startswith((f"{SERVER}/", f"{LIBRARIES}/")) and "/caches/" not in path,
)


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """The server's files and the Python that its backend embeds."""

    root: Path
    runtime: PythonRuntime

    @property
    def program(self) -> Path:
        """The server's binary."""
        return self.root / SERVER / "bin" / "tritonserver"

    @property
    def backend_directory(self) -> Path:
        """The directory with the backend `python`, its stub being the one of this Python's minor version."""
        return self.root / SERVER / f"backends-3.{self.runtime.minor}"


def install(cache: Path | None = None, report: Report = to_stderr) -> TritonInstallation:
    """The server, downloaded into the cache at the first call (55 MB, 170 MB on disk).

    Raises UnsupportedMachine, Unavailable or InvalidInput (cache cannot be written).
    """
    cache = cache or cache_directory()
    runtime = find_runtime(cache, report)
    wheel = unpacked(PYTRITON, cache, report)
    root = once(cache, f"tritonserver-{PYTRITON.version}", lambda directory: _arrange(wheel, directory))
    return TritonInstallation(root, runtime)


def _arrange(wheel: Path, directory: Path) -> None:
    """Lay out one backend directory per Python minor, as many levels deep as the stubs' relative RPATH wants."""
    server = directory / SERVER
    shutil.copytree(wheel / LIBRARIES, directory / LIBRARIES, copy_function=os.link)
    shutil.copytree(wheel / SERVER / "bin", server / "bin", copy_function=os.link)
    for minor in STUB_MINORS:
        backend = server / f"backends-3.{minor}" / "python"
        shutil.copytree(wheel / SERVER / "backends" / "python", backend, copy_function=os.link)
        os.link(wheel / SERVER / "python_backend_stubs" / f"3.{minor}" / STUB, backend / STUB)
    (server / "bin" / "tritonserver").chmod(0o755)
    for stub in server.glob(f"backends-*/python/{STUB}"):
        stub.chmod(0o755)


@dataclass(frozen=True, slots=True)
class TritonPorts:
    """The three loopback ports of one server."""

    http: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)


@dataclass(slots=True)
class TritonProcess:
    """One replica: a server with one model under explicit model control, and its emulated device.

    directory: this replica's own; gets its log (`triton.log`) and its emulated device's files.
    host: the loopback address it listens on.
    spans_to: where it sends spans of every request by OTLP, empty for nowhere; spans_token: the bearer token that may.
    A restarted server keeps its ports and is back to its repository's configuration, as any Triton is.
    """

    name: str
    installation: TritonInstallation
    repository: Path
    model: str
    directory: Path
    ports: TritonPorts = field(default_factory=TritonPorts)
    host: str = HOST
    spans_to: str = ""
    spans_token: str = field(default="", repr=False)
    _process: ManagedProcess = field(init=False, repr=False)
    _prefix: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._prefix = f"{SHARED_MEMORY_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}-"
        self._process = ManagedProcess(
            name=f"tritonserver {self.name}",
            command=self._command(),
            log_path=self.directory / "triton.log",
            environment=self._environment(),
            directory=self.directory,
            grace=timedelta(seconds=EXIT_TIMEOUT_SECONDS + 2),
        )

    def _command(self) -> list[str]:
        flags = {
            "model-repository": self.repository,
            "backend-directory": self.installation.backend_directory,
            "model-control-mode": "explicit",
            "load-model": self.model,
            "http-address": self.host,
            "http-port": self.ports.http,
            "http-thread-count": 2,
            "grpc-address": self.host,
            "grpc-port": self.ports.grpc,
            "metrics-address": self.host,
            "metrics-port": self.ports.metrics,
            "metrics-interval-ms": 500,
            "metrics-config": "summary_latencies=true",
            "allow-gpu-metrics": "false",
            "pinned-memory-pool-byte-size": 0,
            "model-load-thread-count": 2,
            "exit-timeout-secs": EXIT_TIMEOUT_SECONDS,
            "backend-config": f"python,shm-region-prefix-name={self._prefix}",
        }
        # The repository's configuration is complete. Completing it again starts a stub for each load, only to
        # ask it, which doubles the time a load takes.
        switches = ["--disable-auto-complete-config"]
        options = [f"--{name}={value}" for name, value in flags.items()]
        return [str(self.installation.program), *switches, *options, *self._tracing()]

    def _tracing(self) -> list[str]:
        """What makes it send spans of every request, under the name of its replica."""
        if not self.spans_to:
            return []
        settings = (
            "mode=opentelemetry",
            "level=TIMESTAMPS",
            "rate=1",
            f"opentelemetry,url={self.spans_to}",
            f"opentelemetry,resource=service.instance.id={self.name}",
            "opentelemetry,bsp_schedule_delay=500",
        )
        return [f"--trace-config={setting}" for setting in settings]

    def _environment(self) -> dict[str, str]:
        """The child's environment: the project's Python first on PATH, libpython visible, one thread a library."""
        runtime = self.installation.runtime
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        libraries = [str(self.installation.root / LIBRARIES)]
        if runtime.library is not None:
            libraries.append(str(self._libpython_directory))
        token = (
            {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {self.spans_token}"}
            if self.spans_token
            else {}
        )
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        return {
            **kept,
            **threads,
            **token,
            "PATH": f"{runtime.path_directory}:{os.environ.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            DEVICE_VARIABLE: str(self.device_directory),
        }

    @property
    def _libpython_directory(self) -> Path:
        return self.directory / "lib"

    @property
    def device_directory(self) -> Path:
        """The files (lock, memory ledger) of this replica's emulated device."""
        return self.directory / "emulated-gpu"

    @property
    def http_url(self) -> str:
        """Base URL of the HTTP endpoint."""
        return f"http://{self.host}:{self.ports.http}"

    @property
    def metrics_url(self) -> str:
        """URL of the Prometheus metrics."""
        return f"http://{self.host}:{self.ports.metrics}/metrics"

    @property
    def process(self) -> ManagedProcess:
        """The supervised process, for its pid, log and liveness."""
        return self._process

    def start(self, within: timedelta | None = timedelta(seconds=60)) -> None:
        """Start and wait until the model answers (about 3 s); `within` None returns at once.

        Raises ProcessFailed with the log's tail.
        """
        remove_when_this_process_ends(str(SHARED_MEMORY / f"{self._prefix}*"))
        self.device_directory.mkdir(parents=True, exist_ok=True)
        self._link_libpython()
        self._process.start()
        if within is not None:
            self.wait_ready(within)

    def _link_libpython(self) -> None:
        """Make libpython visible alone: its own directory may hold other libraries that must not be found."""
        runtime = self.installation.runtime
        if runtime.library is None:
            return
        self._libpython_directory.mkdir(parents=True, exist_ok=True)
        link = self._libpython_directory / library_name(runtime.minor)
        link.unlink(missing_ok=True)
        link.symlink_to(runtime.library)

    def wait_ready(self, within: timedelta) -> None:
        """Return when server and model are ready. Raises ProcessFailed."""
        what = f"tritonserver {self.name} serves {self.model}"
        wait_until(self.ready, within=within, what=what, process=self._process)

    def ready(self) -> bool:
        """Whether the server is up and the model can be asked."""
        paths = ("/v2/health/ready", f"/v2/models/{self.model}/ready")
        return all(self._status(path) == http.client.OK for path in paths)

    def configuration(self) -> Mapping[str, object]:
        """The complete configuration of the loaded model, as the server tells it."""
        connection = http.client.HTTPConnection(self.host, self.ports.http, timeout=2)
        with contextlib.closing(connection):
            connection.request("GET", f"/v2/models/{self.model}/config")
            answer: Mapping[str, object] = json.loads(connection.getresponse().read())
        return answer

    def _status(self, path: str) -> int | None:
        connection = http.client.HTTPConnection(self.host, self.ports.http, timeout=2)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            return connection.getresponse().status
        return None

    def stop(self) -> None:
        """Stop server and stubs and free their shared memory; does nothing when there is nothing left."""
        self._process.stop()
        self._free_shared_memory()

    def kill(self) -> None:
        """End server and stubs at once, as a crash would, and free their shared memory."""
        self._process.kill()
        self._free_shared_memory()

    def restart(self, within: timedelta | None = timedelta(seconds=60)) -> None:
        """Stop, then start again on the same ports. Raises ProcessFailed."""
        self.stop()
        self.start(within)

    def _free_shared_memory(self) -> None:
        for segment in SHARED_MEMORY.glob(f"{self._prefix}*"):
            segment.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
