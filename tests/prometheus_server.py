"""A real Prometheus for tests: scrapes what it is told to, may be killed, may lose its data.

`AUTOTUNER_TEST_PROMETHEUS` names another program in its place: a Prometheus of another version, or a VictoriaMetrics of
one process (a name that begins with `victoria`).
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest

from autotuner.sandbox.processes import ManagedProcess, free_port, wait_until

READY_WITHIN = timedelta(seconds=20)
HOST = "127.0.0.1"


PROGRAM_VARIABLE = "AUTOTUNER_TEST_PROMETHEUS"


def installed() -> str:
    """The program's path; skips the test where there is none."""
    found = shutil.which(os.environ.get(PROGRAM_VARIABLE, "prometheus"))
    if found is None:
        pytest.skip("there is no prometheus here: apt-get install prometheus")
    return found


def is_victoria(program: str) -> bool:
    """Whether the program is VictoriaMetrics."""
    return Path(program).name.startswith("victoria")


@cache
def major_version(program: str) -> int:
    """The first number of a Prometheus' version."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    found = re.search(r"version (\d+)\.", told.stdout + told.stderr)
    assert found is not None, told
    return int(found[1])


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
        self,
        folder: Path,
        every: timedelta,
        jobs: Sequence[Mapping[str, Any]],
        rules: Sequence[str] = (),
        *,
        native_histograms: bool = False,
        program: str = "",
    ) -> None:
        self._program = program or installed()
        self._folder = folder
        self._native = native_histograms
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
        every: dict[str, Any] = {
            "scrape_interval": seconds,
            "scrape_timeout": seconds,
            "evaluation_interval": seconds,
        }
        if self._native and not self._is_old:
            every["scrape_native_histograms"] = True
        told = {
            "global": every,
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

    @property
    def _is_old(self) -> bool:
        """Whether native histograms are asked for by a flag, as they are before 3."""
        return not is_victoria(self._program) and major_version(self._program) < 3

    def _made(self, flags: Sequence[str]) -> ManagedProcess:
        make = self._victoria if is_victoria(self._program) else self._prometheus
        command = [self._program, *make(), *flags]
        return ManagedProcess("Prometheus", command, self._folder / "prometheus.log")

    def _prometheus(self) -> list[str]:
        return [
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={self._data}",
            f"--web.listen-address={HOST}:{self._port}",
            "--web.enable-lifecycle",
            "--log.level=error",
            *(["--enable-feature=native-histograms"] if self._native and self._is_old else []),
        ]

    def _victoria(self) -> list[str]:
        return [
            f"-promscrape.config={self._configuration}",
            "-promscrape.config.strictParse=false",
            f"-storageDataPath={self._data}",
            f"-httpListenAddr={HOST}:{self._port}",
            "-loggerLevel=ERROR",
        ]

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
