"""promtool agrees with the rules, and a real Prometheus with data answers every query of every dashboard."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.domain.certificate import Band
from autotuner.domain.coverage import Day, covered
from autotuner.sandbox.processes import wait_until
from autotuner.telemetry.coverage import ShownCoverage
from autotuner.telemetry.metrics import Instruments
from scripts.monitoring.files import FOLDER, files
from tests.builders import START
from tests.prometheus_server import PrometheusServer, installed, job
from tests.stub_server import Planned, StubServer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "exposition"
RULES = [name for name in files() if name.startswith("rules/")]


def promtool(*words: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool here: apt-get install prometheus")
    ran = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_finds_no_fault_in_the_rules() -> None:
    promtool("check", "rules", *(str(FOLDER / name) for name in RULES))


def test_alerts_come_when_they_should_and_not_otherwise() -> None:
    promtool("test", "rules", str(FOLDER / "rules" / "tests.yaml"))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that has scraped the service, a gateway and a server three times; counters move."""
    installed()
    with contextlib.ExitStack() as leaving:
        site = leaving.enter_context(StubServer())
        every = timedelta(milliseconds=300)
        jobs = [
            job(name, f"{site.url}/{name}", {"cluster": "prod"}) for name in ("service", "envoy", "triton")
        ]
        rules = [str(FOLDER / name) for name in RULES]
        server = PrometheusServer(tmp_path_factory.mktemp("prometheus"), every, jobs, rules)
        publish(site, 1)
        leaving.enter_context(server)
        for number in range(2, 5):
            scraped(server, number)
            publish(site, number)
        scraped(server, 6)
        yield server


def publish(site: StubServer, number: int) -> None:
    """Let every counter have grown, and every instrument have been written to."""
    instruments = Instruments()
    written(instruments, number)
    day = Day(START).with_load(START, 35.0)
    band = Band(20.0, 120.5, 3, at_least=False, requests=21_000, bad=31)
    ShownCoverage(instruments).show("small-vision", covered("a-study", band, "", day, START), day)
    site.answers["/service"] = Planned(instruments.page().decode())
    envoy = (FIXTURES / "envoy.txt").read_text("utf-8")
    site.answers["/envoy"] = Planned(grown(envoy, number))
    triton = (FIXTURES / "triton.txt").read_text("utf-8").replace('"quick"', '"small_vision"')
    memory = 'nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} 5\nnv_gpu_memory_total_bytes{gpu_uuid="GPU-a"} 9\n'
    site.answers["/triton"] = Planned(grown(triton + memory, number))


def grown(page: str, number: int) -> str:
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    moved = [line.rpartition(" ") for line in lines]
    return "".join(f"{name} {float(value) * number}\n" for name, _, value in moved)


def written(instruments: Instruments, number: int) -> None:
    """Write to every instrument `number` times, labels with a value each."""
    for name in vars(instruments):
        instrument = getattr(instruments, name)
        labelled = getattr(instrument, "_labelnames", ())
        each = instrument.labels(*("x" for _ in labelled)) if labelled else instrument
        for _ in range(number):
            for method in ("inc", "observe"):
                if hasattr(each, method):
                    getattr(each, method)(*((0.2,) if method == "observe" else ()))


def scraped(server: PrometheusServer, times: int) -> None:
    """Wait until the service was scraped so often."""

    def often() -> bool:
        found = server.query('count_over_time(up{job="service"}[5m])')
        return bool(found) and int(found[0]["value"][1]) >= times

    wait_until(often, within=timedelta(seconds=15), what=f"it is scraped {times} times")


@pytest.mark.parametrize("name", [name for name in files() if name.startswith("dashboards/")])
def test_every_query_of_a_dashboard_has_an_answer(prometheus: PrometheusServer, name: str) -> None:
    panels = json.loads(files()[name])["panels"]
    asked = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    assert [(title, query) for title, query in asked if not prometheus.query(query)] == []
