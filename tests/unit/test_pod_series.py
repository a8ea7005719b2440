"""Which series of a Prometheus belong to pods: those that run now, by their names, and nobody else's."""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.domain.target import Replica, Target
from autotuner.instruments.presets import preset
from autotuner.instruments.series import Measured, TargetSeries
from tests.closed_loop.pooled import a_pooled_target

SERVER = PrometheusServer("http://127.0.0.1:9090")
BY_POD = Instrumentation(SERVER, server=(("namespace", "prod"), ("pod", "{pod}")))


def at(replica: Replica, pod: str, host: str) -> Replica:
    return replace(replica, http_url=f"http://{host}:8000", metrics_url=f"http://{host}:8002/m", pod=pod)


def a_target_with_pods(*, canary: bool) -> Target:
    target = a_pooled_target()
    stable = tuple(at(each, f"vision-7d-{n}", f"10.0.0.{n}") for n, each in enumerate(target.stable, 1))
    found = replace(target, stable=stable)
    return replace(found, canary=at(target.canary, "vision-canary-x", "10.0.0.9")) if canary else found


def test_every_pod_is_asked_for_by_its_name_the_canarys_too() -> None:
    series = TargetSeries(Measured.of(a_target_with_pods(canary=True)), BY_POD, preset("istio"))
    assert series.servers["canary"] == {"namespace": "prod", "pod": "vision-canary-x"}
    assert series.server_selector(["nv_inference_count"]) == (
        '{__name__="nv_inference_count",namespace="prod",pod=~"vision\\\\-7d\\\\-1|vision\\\\-7d\\\\-2|'
        'vision\\\\-canary\\\\-x"}'
    )


def test_nothing_is_asked_for_in_place_of_a_pod_that_does_not_run() -> None:
    series = TargetSeries(Measured.of(a_target_with_pods(canary=False)), BY_POD, preset("istio"))
    assert set(series.servers) == {"stable-0", "stable-1"}
    assert set(series.gateway) == {"stable", "canary"}


def test_by_default_a_pod_is_the_address_that_is_scraped() -> None:
    series = TargetSeries(
        Measured.of(a_target_with_pods(canary=True)), Instrumentation(SERVER), preset("istio")
    )
    assert series.servers["stable-0"] == {"instance": "10.0.0.1:8002"}
