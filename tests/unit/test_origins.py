"""A trial names the very pages or queries that its counts were read from."""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.instruments.origins import origins_of
from tests.builders import a_target
from tests.closed_loop.pooled import a_workload
from tests.studies import a_metrics_server


def test_pages_that_are_scraped_are_named() -> None:
    gateway, *replicas = origins_of(a_target())
    assert gateway.url.startswith("http://127.0.0.1:9900/stats/prometheus?filter=")
    assert [(each.what, each.url, each.query) for each in replicas] == [
        ("stable-0", "http://127.0.0.1:9002/metrics", ""),
        ("stable-1", "http://127.0.0.1:9012/metrics", ""),
        ("canary", "http://127.0.0.1:9022/metrics", ""),
    ]


def test_a_pod_has_no_address_of_its_own() -> None:
    _, *replicas = origins_of(replace(a_target(), workload=a_workload()))
    assert {each.url for each in replicas} == {"http://POD:8002/metrics"}


def test_a_metrics_server_is_asked_for_whichever_pods_there_are() -> None:
    server = PrometheusServer("http://127.0.0.1:9090")
    plan = Instrumentation(server, server=(("pod", "{pod}"), ("instance", "{address}")))
    _, servers = origins_of(replace(a_target(), workload=a_workload(), metrics=plan))
    assert servers.query.endswith(',pod="POD",instance="POD:8002"}')


def test_a_metrics_server_is_named_with_its_queries() -> None:
    gateway, servers = origins_of(replace(a_target(), metrics=a_metrics_server()))
    assert gateway.url == servers.url == "https://127.0.0.1:9090"
    assert "gateway_seconds" in gateway.query
    assert 'job="triton"' in servers.query
