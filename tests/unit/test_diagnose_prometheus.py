"""`autotuner diagnose --prometheus`: counters and devices from scrapes, and the same answer as from the pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autotuner.adapters.clock import ManualClock
from autotuner.cli import diagnose
from autotuner.cli.app import app
from autotuner.cli.exits import Exit
from tests.builders import START
from tests.diagnoses import MODEL
from tests.prometheus_stub import PrometheusStub
from tests.stub_server import Planned, StubServer
from tests.stub_triton import METRICS, STATS, a_triton, metrics

pytestmark = pytest.mark.usefixtures("own_logging")

BEGIN = START.timestamp()
EVERY = 5.0
PER_SCRAPE = 400
UUID = "GPU-604ac76c"
POD = "vision-0"


def envoy_page(count: int, name: str = "vision") -> str:
    labels = f'envoy_cluster_name="{name}"'
    return (
        f"envoy_cluster_upstream_rq_total{{{labels}}} {count}\n"
        f"envoy_cluster_upstream_rq_active{{{labels}}} 0\n"
        f'envoy_cluster_upstream_rq_time_bucket{{{labels},le="10.5"}} {count // 2}\n'
        f'envoy_cluster_upstream_rq_time_bucket{{{labels},le="99.5"}} {count - count // 200}\n'
        f'envoy_cluster_upstream_rq_time_bucket{{{labels},le="+Inf"}} {count}\n'
        f"envoy_cluster_upstream_rq_time_sum{{{labels}}} {count * 25}\n"
    )


def dcgm_page() -> dict[str, float]:
    told = f'{{gpu="0",UUID="{UUID}",exported_pod="{POD}"}}'
    return {
        f"DCGM_FI_DEV_FB_USED{told}": 6144.0,
        f"DCGM_FI_DEV_FB_FREE{told}": 16_300.0,
        f"DCGM_FI_DEV_GPU_UTIL{told}": 80.0,
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{told}": 0.73,
    }


class Scraped:
    """A Prometheus that scrapes every 5 s while the clock is turned. address: of the server's metrics."""

    def __init__(self, server: PrometheusStub, clock: ManualClock, address: str) -> None:
        self.server = server
        self.clock = clock
        self.address = address
        self._number = 0
        for _ in range(6):
            self._scrape()
        self._wait(timedelta(seconds=28))

    def _scrape(self) -> None:
        count, when = PER_SCRAPE * (self._number + 1), BEGIN + self._number * EVERY
        self.server.page(when, envoy_page(count), instance="envoy:9901", job="envoy")
        page = metrics(count) + f'nv_gpu_memory_used_bytes{{gpu_uuid="{UUID}"}} 1000000000\n'
        page += f'nv_gpu_memory_total_bytes{{gpu_uuid="{UUID}"}} 4000000000\n'
        page += f'nv_gpu_utilization{{gpu_uuid="{UUID}"}} 0.4\n'
        self.server.page(when + 1, page, instance=self.address, pod=POD, job="triton")
        self.server.put(when + 1, dcgm_page(), instance="dcgm:9400", job="dcgm")
        self._number += 1

    def _wait(self, pause: timedelta) -> None:
        self.clock.advance(pause)
        self.server.now += pause.total_seconds()

    def wait(self, pause: timedelta) -> None:
        """Turn the clock, and scrape what was due."""
        self._wait(pause)
        while BEGIN + self._number * EVERY + 2 <= self.server.now:
            self._scrape()


@pytest.fixture
def triton() -> Iterator[StubServer]:
    with a_triton() as server:
        server.answers[METRICS] = Planned("", status=404)
        yield server


@pytest.fixture
def scraped(monkeypatch: pytest.MonkeyPatch, triton: StubServer) -> Iterator[Scraped]:
    clock = ManualClock(START)
    port = int(triton.url.rpartition(":")[2])
    with PrometheusStub(BEGIN) as server:
        made = Scraped(server, clock, f"127.0.0.1:{port + 2}")
        monkeypatch.setattr(diagnose, "SystemClock", lambda: clock)
        monkeypatch.setattr(diagnose, "_wait", made.wait)
        yield made


def run(triton: StubServer, scraped: Scraped, *more: str) -> Result:
    arguments = ["diagnose", "--triton", triton.url, "--model", MODEL, "--p99", "100ms", "--for", "30s"]
    return CliRunner().invoke(app, [*arguments, "--prometheus", scraped.server.url, "--json", *more])


def answered(result: Result) -> dict[str, Any]:
    assert result.exit_code == Exit.DONE, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def test_gateway_counters_and_device_come_from_scrapes(triton: StubServer, scraped: Scraped) -> None:
    found = answered(run(triton, scraped, "--gateway-cluster", "vision"))

    assert found["breakdown_ms"]["source"] == "the gateway's histogram"
    assert found["breakdown_ms"]["total"]["mean"] == pytest.approx(25.0)
    assert found["breakdown_ms"]["total"]["p99"] == pytest.approx(100.0, rel=0.05)
    assert found["breakdown_ms"]["before_triton"]["mean"] == pytest.approx(12.5)
    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)
    assert found["realised_batch"]["device_utilisation"] == pytest.approx(0.4)
    assert found["realised_batch"]["memory_total_bytes"] == 4e9
    assert found["unread"] == []
    assert METRICS not in " ".join(triton.requests)
    assert all("rate(" not in query for query in scraped.server.queries)


def test_without_a_name_at_the_gateway_the_servers_are_read_alone(
    triton: StubServer, scraped: Scraped
) -> None:
    found = answered(run(triton, scraped))

    (missing,) = found["unread"]
    assert "--gateway-cluster" in missing["why"]
    assert found["breakdown_ms"]["total"]["p99"] == pytest.approx(30.0)
    assert "envoy" not in " ".join(scraped.server.queries)


@pytest.mark.parametrize("by_pod", [False, True])
def test_dcgm_tells_the_device_by_pod_or_by_uuid(triton: StubServer, scraped: Scraped, by_pod: bool) -> None:
    labels = ["--server-label", "instance={address}", "--server-label", f"pod={POD}"] if by_pod else []
    found = answered(run(triton, scraped, "--device", "dcgm", *labels))

    assert found["realised_batch"]["device_utilisation"] == pytest.approx(0.73)
    assert found["realised_batch"]["memory_used_bytes"] == pytest.approx(6144 * 2**20)


def test_statistics_that_are_restricted_are_replaced_by_scrapes_over_their_own_time(
    triton: StubServer, scraped: Scraped
) -> None:
    triton.answers[STATS] = Planned(json.dumps({"error": "This API is restricted"}), status=403)
    found = answered(run(triton, scraped))

    assert found["rate_per_second"] == pytest.approx(PER_SCRAPE / EVERY)
    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)
    assert "no times by batch size" in found["prediction"]["why_not"]


def test_a_server_that_nothing_scrapes_loses_its_metrics_alone(triton: StubServer, scraped: Scraped) -> None:
    more = ("--gateway-cluster", "vision", "--server-label", "instance={host}:1")
    found = answered(run(triton, scraped, *more))

    lost = {one["what"]: one["why"] for one in found["unread"]}
    assert "no series with instance=" in lost[f"metrics of {triton.url.removeprefix('http://')}"]
    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)


def test_another_address_of_the_metrics_may_be_what_prometheus_scrapes(
    triton: StubServer, scraped: Scraped
) -> None:
    more = ("--gateway-cluster", "vision", "--metrics", "http://10.1.2.3:9000")
    found = answered(run(triton, scraped, *more))
    lost = next(one["why"] for one in found["unread"] if one["what"].startswith("metrics"))

    assert 'instance="10.1.2.3:9000"' in lost


@pytest.mark.parametrize(
    ("planned", "said"),
    [
        (Planned("<html>sign in", 200), "no Prometheus answers there"),
        (Planned("no", 401), "HTTP 401"),
        (Planned("", 302, headers={"location": "/"}), "a redirect"),
        (Planned('{"status":"success","data":{"result":"?"}}'), "unknown form"),
    ],
)
def test_a_prometheus_that_answers_oddly_is_told_and_the_rest_is_diagnosed(
    triton: StubServer, scraped: Scraped, planned: Planned, said: str
) -> None:
    scraped.server.planned = planned
    found = answered(run(triton, scraped, "--gateway-cluster", "vision"))

    assert all(said in one["why"] for one in found["unread"])
    assert len(found["unread"]) == 2
    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)


def test_a_token_and_a_tenant_are_sent_and_shown_nowhere(
    triton: StubServer, scraped: Scraped, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    result = run(
        triton, scraped, "--prometheus-token", str(tmp_path / "token"), "--prometheus-tenant", "team-a"
    )

    assert {sent["Authorization"] for sent in scraped.server.headers} == {"Bearer s3cret"}
    assert {sent["X-Scope-OrgID"] for sent in scraped.server.headers} == {"team-a"}
    assert not any("authorization" in {name.lower() for name in sent} for sent in triton.sent_headers)
    assert "s3cret" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (["--prometheus", "http://p:9090", "--gateway", "http://envoy:9901"], "--prometheus"),
        (["--prometheus", "p:9090"], "--prometheus"),
        (["--prometheus", "http://p:9090", "--preset", "nginx"], "--preset"),
        (["--prometheus", "http://p:9090", "--label", "cluster"], "--label"),
        (["--prometheus", "http://p:9090", "--label", "__name__=x"], "--label"),
        (["--prometheus", "http://p:9090", "--server-label", "job=triton"], "--server-label"),
        (["--prometheus", "http://p:9090", "--gateway-label", "service={name}"], "--gateway-label"),
        (["--prometheus", "http://p:9090", "--device", "tpu"], "--device"),
        (["--prometheus", "http://p:9090", "--prometheus-token", "/no/such/file"], "--prometheus-token"),
        (["--preset", "istio"], "--prometheus"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(more: list[str], field: str) -> None:
    result = CliRunner().invoke(app, ["diagnose", "--triton", "http://x:8000", "--p99", "50ms", *more])

    assert result.exit_code == Exit.INVALID_INPUT, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: {field}: ")
