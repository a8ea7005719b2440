"""Every gateway's own text is read as what it means: edges, requests, failures, one replica apart from the other."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from autotuner.domain.measurement import GatewayCounters
from autotuner.domain.sources import FailedWhere, Instrumentation, LatencyHistogram, PrometheusServer
from autotuner.errors import InvalidInput
from autotuner.instruments import devices, triton
from autotuner.instruments.envoy import edge_seconds
from autotuner.instruments.exposition import Page
from autotuner.instruments.presets import FOLDER, Preset, preset, preset_names, preset_of
from autotuner.instruments.readings import Readings, Unreadable
from autotuner.sandbox.envoy import bucket_edges_ms

FIXTURES = Path(__file__).parents[1] / "fixtures" / "exposition"
PAGE = Path(__file__).parents[2] / "docs" / "prometheus.md"


@dataclass(frozen=True)
class Told:
    """What a fixture holds: labels of two replicas, edges, and (requests, within 100 ms, failed) of each replica."""

    replicas: dict[str, dict[str, str]]
    edges_seconds: tuple[float, ...]
    counts: dict[str, tuple[int, int, int]]


ISTIO_EDGES = (0.006, 0.011, 0.026, 0.051, 0.1, 0.26, 1.1, math.inf)
ENVOY_EDGES = (
    *(
        0.001,
        0.002,
        0.006,
        0.011,
        0.026,
        0.051,
        0.11,
        0.26,
        0.51,
        1.1,
        2.6,
        5.1,
        11.0,
        31.0,
        61.0,
        310.0,
        610.0,
    ),
    *(1900.0, 3700.0, math.inf),
)
NGINX_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
DOCUMENTED = {"stable-0": (906, 893, 6), "canary": (106, 93, 6)}
OF_ENVOY = {"stable-0": (903, 891, 3), "canary": (103, 91, 3)}

TOLD = {
    "envoy": Told(
        {n: {"envoy_cluster_name": n} for n in OF_ENVOY},
        (*(edge_seconds(label) for label in bucket_edges_ms(timedelta(milliseconds=100))), math.inf),
        {"stable-0": (51, 45, 5), "canary": (6, 6, 1)},
    ),
    "traefik": Told(
        {n: {"service": f"{n}@file"} for n in OF_ENVOY},
        (0.05, 0.1, 0.2, 1.0, math.inf),
        {"stable-0": (92, 80, 8), "canary": (10, 10, 2)},
    ),
    "contour": Told(
        {n: {"envoy_cluster_name": f"serving_{n}_8000"} for n in OF_ENVOY}, ENVOY_EDGES, OF_ENVOY
    ),
    "envoy-gateway": Told(
        {n: {"envoy_cluster_name": f"httproute/serving/{n}/rule/0"} for n in OF_ENVOY}, ENVOY_EDGES, OF_ENVOY
    ),
    "ingress-nginx": Told(
        {n: {"ingress": n} for n in DOCUMENTED},
        NGINX_EDGES,
        {"stable-0": (906, 891, 6), "canary": (106, 91, 6)},
    ),
    "istio": Told({n: {"destination_workload": n} for n in DOCUMENTED}, ISTIO_EDGES, DOCUMENTED),
    "kserve": Told({n: {"destination_canonical_revision": n} for n in DOCUMENTED}, ISTIO_EDGES, DOCUMENTED),
}
"""Envoy's and Traefik's text is of the real programs; that of the others is made from their documentation."""


def page(name: str, wanted: frozenset[str]) -> Readings:
    return Page((FIXTURES / f"{name}.txt").read_text("utf-8"), wanted)


def read(found: Preset, told: Told, name: str) -> GatewayCounters:
    scrape = page(found.name, found.reading.wanted)
    match = dict(found.reading.match)
    matched = Readings({sample: scrape.samples(sample, **match) for sample in found.reading.wanted})
    edges = found.reading.edges(matched, list(told.replicas.values()))
    assert edges == pytest.approx(told.edges_seconds)
    return found.reading.counters(matched, told.replicas[name], edges)


@pytest.mark.parametrize("name", sorted(TOLD))
@pytest.mark.parametrize("replica", ["stable-0", "canary"])
def test_requests_and_failures_of_each_replica_are_read_from_the_gateways_text(
    name: str, replica: str
) -> None:
    told = TOLD[name]
    counters = read(preset(name), told, replica)
    requests, within, failed = told.counts[replica]
    ceiling = max(i for i, edge in enumerate(told.edges_seconds) if edge <= 0.1101)
    assert counters.sent == counters.ended == counters.buckets[-1] == requests
    assert counters.buckets[ceiling] == within
    assert counters.failed == failed
    assert counters.failed_unmeasured == 0
    assert counters.latency_sum_seconds > 0


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "custom"))
def test_every_preset_has_a_page_of_its_gateway_that_names_its_source(name: str) -> None:
    text = (FIXTURES / f"{name}.txt").read_text("utf-8")
    assert text.startswith("# ")
    assert preset(name).reading.latency in text
    assert preset(name).source.startswith("https://")
    labels = set(
        re.findall(r'(\w+)="', "".join(x for x in text.splitlines() if preset(name).reading.latency in x))
    )
    assert labels <= preset(name).own_labels


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="contour, envoy"):
        preset("haproxy")
    assert preset_names()[-1] == "custom"


def test_a_custom_gateway_is_read_by_what_the_target_says_of_it() -> None:
    histogram = LatencyHistogram("proxy_ms", 0.001, (FailedWhere("code", "[45].."),), (("zone", "a"),))
    plan = Instrumentation(
        PrometheusServer("http://p"), "custom", gateway=(("app", "{name}"),), histogram=histogram
    )
    found = preset_of(plan)
    lines = "".join(
        f'proxy_ms_bucket{{app="canary",code="{code}",le="{le}"}} {count}\n'
        for code, counts in (("200", (7, 9)), ("500", (0, 1)))
        for le, count in zip(("50.0", "+Inf"), counts, strict=True)
    )
    scrape = Page(lines, found.reading.wanted)
    edges = found.reading.edges(scrape, [{"app": "canary"}])
    counters = found.reading.counters(scrape, {"app": "canary"}, edges)
    assert edges == (0.05, math.inf)
    assert (counters.sent, counters.buckets, counters.failed) == (10, (7, 10), 1)
    assert found.reading.match == (("zone", "a"),)
    assert {"app", "code", "le"} <= found.own_labels
    with pytest.raises(InvalidInput, match=r"metrics\.custom"):
        preset_of(Instrumentation(PrometheusServer("http://p"), "custom"))


def test_a_replica_without_a_request_has_zeros_and_no_histogram_at_all_is_unreadable() -> None:
    reading = preset("traefik").reading
    line = 'traefik_service_request_duration_seconds_bucket{code="200",service="a@file",le="+Inf"} 5\n'
    scrape = Page(line, reading.wanted)
    edges = reading.edges(scrape, [{"service": "a@file"}, {"service": "b@file"}])
    assert reading.counters(scrape, {"service": "b@file"}, edges).buckets == (0,)
    with pytest.raises(Unreadable, match="no latency histogram yet"):
        reading.counters(scrape, {"service": "b@file"}, ())


@pytest.mark.parametrize(
    "lines",
    [
        (
            'traefik_service_request_duration_seconds_bucket{service="a",le="0.1"} 5\n'
            'traefik_service_request_duration_seconds_bucket{service="a",le="+Inf"} 4\n'
        ),
        'traefik_service_request_duration_seconds_bucket{service="a",le="0.1"} 5\n',
        'traefik_service_request_duration_seconds_bucket{service="a",le="+Inf"} NaN\n',
    ],
)
def test_a_histogram_that_cannot_be_is_unreadable(lines: str) -> None:
    reading = preset("traefik").reading
    scrape = Page(lines, reading.wanted)
    with pytest.raises(Unreadable):
        reading.counters(scrape, {"service": "a"}, reading.edges(scrape, [{"service": "a"}]))


def test_replicas_with_different_buckets_cannot_be_compared() -> None:
    reading = preset("traefik").reading
    lines = "".join(
        f'traefik_service_request_duration_seconds_bucket{{service="{s}",le="{le}"}} 1\n'
        for s, le in (("a", "0.1"), ("a", "+Inf"), ("b", "0.2"), ("b", "+Inf"))
    )
    with pytest.raises(Unreadable, match="different histogram buckets"):
        reading.edges(Page(lines, reading.wanted), [{"service": "a"}, {"service": "b"}])


def test_the_documented_table_is_what_the_presets_say() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| `(\w+)` \| `(.+?)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    expected = []
    for name in preset_names()[:-1]:
        found = preset(name)
        labels = ", ".join(f'{label}="{value}"' for label, value in found.replica.items())
        expected.append((name, found.reading.latency.removesuffix("_bucket"), labels, found.note or "–"))
    assert rows == expected


# ---- a real server ----


def test_a_real_servers_page_is_read_as_what_it_answered() -> None:
    counted = triton.read_server(page("triton", triton.WANTED), "quick", triton.UNTOLD)
    assert (counted.succeeded, counted.failed, counted.inferences, counted.executions) == (25, 0, 25, 25)
    assert counted.queue_seconds == 5947e-6
    assert counted.compute_seconds == pytest.approx((602 + 63031 + 1341) * 1e-6)
    assert (counted.memory_used_bytes, counted.memory_total_bytes) == (1e8, 2e9)


def test_the_machines_memory_stands_in_where_there_is_no_device() -> None:
    assert devices.cpu_memory(page("triton", devices.CPU_WANTED)) == (2135945216.0, 25276059648.0)
    assert devices.cpu_memory(page("envoy", devices.CPU_WANTED)) == (None, None)


# ---- devices ----

STABLE_UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
DIVIDED_UUID = "GPU-6ad7ea4c-5517-05e7-41a7-aa4a1f2d4a1e"
MIB = 1024 * 1024


def exporter(*extra: str) -> Readings:
    text = (FIXTURES / "dcgm.txt").read_text("utf-8") + "".join(extra)
    return Page(text, devices.DCGM_WANTED)


@pytest.mark.parametrize(
    ("pod", "uuids"), [("stable-0", []), ("", [STABLE_UUID]), ("unknown", [STABLE_UUID])]
)
def test_dcgms_memory_is_joined_by_pod_else_by_uuid(pod: str, uuids: list[str]) -> None:
    assert devices.dcgm_memory(exporter(), pod, uuids) == (6144 * MIB, (6144 + 16300) * MIB)


def test_of_a_divided_device_only_the_pods_instance_counts() -> None:
    assert devices.dcgm_memory(exporter(), "canary", [DIVIDED_UUID]) == (9216 * MIB, (9216 + 10752) * MIB)
    with pytest.raises(Unreadable, match="MIG"):
        devices.dcgm_memory(exporter(), "", [DIVIDED_UUID])


def test_reserved_memory_is_part_of_the_whole() -> None:
    reserved = f'DCGM_FI_DEV_FB_RESERVED{{gpu="0",UUID="{STABLE_UUID}",pod="stable-0"}} 256\n'
    assert devices.dcgm_memory(exporter(reserved), "stable-0", [])[1] == (6144 + 16300 + 256) * MIB


def test_a_device_nobody_tells_of_or_tells_twice_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="no series of pod somewhere"):
        devices.dcgm_memory(exporter(), "somewhere", ["GPU-x"])
    twice = f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="{STABLE_UUID}",Hostname="again",pod="stable-0"}} 6144\n'
    with pytest.raises(Unreadable, match="two exporters"):
        devices.dcgm_memory(exporter(twice), "stable-0", [])
    alone = Page('DCGM_FI_DEV_FB_USED{UUID="GPU-y",pod="p"} 1\n', devices.DCGM_WANTED)
    with pytest.raises(Unreadable, match="DCGM_FI_DEV_FB_FREE is missing"):
        devices.dcgm_memory(alone, "p", [])


@pytest.mark.parametrize(
    ("lines", "busy"),
    [
        ({"DCGM_FI_DEV_GPU_UTIL": "80"}, 0.8),
        ({"DCGM_FI_DEV_GPU_UTIL": "80", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.73"}, 0.73),
        ({"DCGM_FI_DEV_GPU_UTIL": "80", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "NaN"}, 0.8),
        ({"DCGM_FI_DEV_GPU_UTIL": "101"}, None),
        ({}, None),
    ],
)
def test_dcgms_utilisation_is_the_engines_else_the_older_gauge(
    lines: dict[str, str], busy: float | None
) -> None:
    page = "".join(f'{name}{{UUID="GPU-y"}} {value}\n' for name, value in {"other": "1", **lines}.items())
    assert devices.dcgm_utilisation(Page(page, devices.DCGM_WANTED), "", ["GPU-y"]) == busy


def test_the_exporters_own_pod_is_not_taken_for_the_replicas() -> None:
    lines = (
        'DCGM_FI_DEV_FB_USED{UUID="GPU-y",pod="dcgm-exporter-1",exported_pod="canary"} 5\n'
        'DCGM_FI_DEV_FB_FREE{UUID="GPU-y",pod="dcgm-exporter-1",exported_pod="canary"} 7\n'
    )
    read = Page(lines, devices.DCGM_WANTED)
    assert devices.dcgm_memory(read, "canary", []) == (5 * MIB, 12 * MIB)
    with pytest.raises(Unreadable):
        devices.dcgm_memory(read, "dcgm-exporter-1", [])
