"""A real Prometheus for tests: scrapes what it is told to, may be killed, may lose its data."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest

from autotuner.sandbox.processes import ManagedProcess, free_port, wait_until

READY_WITHIN = timedelta(seconds=20)
HOST = "127.0.0.1"


def installed() -> str:
    """The program's path; skips the test where there is none."""
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip("there is no prometheus here: apt-get install prometheus")
    return found


def job(name: str, url: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A scrape job for one metrics page at a URL."""
    address, _, path = url.partition("://")[2].partition("/")
    return {
        "job_name": name,
        "metrics_path": f"/{path}",
        "static_configs": [{"targets": [address], "labels": dict(labels or {})}],
    }


class PrometheusServer:
    """Prometheus as a child process. Its port stays over a restart; its data too, unless it is told to forget."""

    def __init__(
        self, folder: Path, every: timedelta, jobs: Sequence[Mapping[str, Any]], rules: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._every = every
        self._rules = list(rules)
        self._port = free_port()
        self._data = folder / "data"
        self._configuration = folder / "prometheus.yml"
        folder.mkdir(parents=True, exist_ok=True)
        self.write(jobs)
        self._process = self._made(())

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self._port}"

    def write(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Write what is to be scraped; counts from the next start or reload."""
        seconds = f"{self._every / timedelta(milliseconds=1):.0f}ms"
        told = {
            "global": {
                "scrape_interval": seconds,
                "scrape_timeout": seconds,
                "evaluation_interval": seconds,
            },
            "rule_files": self._rules,
            "scrape_configs": list(jobs),
        }
        self._configuration.write_text(json.dumps(told))

    def start(self, *flags: str) -> None:
        """Start it and return when it answers."""
        self._process = self._made(flags)
        self._process.start()
        wait_until(self.ready, within=READY_WITHIN, what="Prometheus is ready", process=self._process)

    def reload(self) -> None:
        """Read the configuration again."""
        assert self._ask("POST", "/-/reload")[0] == http.client.OK

    def kill(self, *, forget: bool = False) -> None:
        """End it as a crash would. forget: its data is lost too."""
        self._process.kill()
        if forget:
            shutil.rmtree(self._data)

    def ready(self) -> bool:
        """Whether it answers queries."""
        return self._ask("GET", "/-/ready")[0] == http.client.OK

    def query(self, text: str) -> Any:
        """Return the result of an instant query."""
        status, body = self._ask("GET", f"/api/v1/query?query={quote(text)}")
        assert status == http.client.OK, body
        return json.loads(body)["data"]["result"]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def _made(self, flags: Sequence[str]) -> ManagedProcess:
        command = [
            installed(),
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={self._data}",
            f"--web.listen-address={HOST}:{self._port}",
            "--web.enable-lifecycle",
            "--log.level=error",
            *flags,
        ]
        return ManagedProcess("Prometheus", command, self._folder / "prometheus.log")

    def _ask(self, method: str, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=5)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()
