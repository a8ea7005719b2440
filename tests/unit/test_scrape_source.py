"""One look never raises, never takes longer than its deadline, and explains what it could not read."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from autotuner.adapters.scrape import ScrapedMetrics, reading
from autotuner.domain.measurement import Sample
from autotuner.domain.target import Gateway, Replica, Target
from tests.builders import START, ManualClock, a_target
from tests.stub_server import Planned, StubServer

DEADLINE = timedelta(seconds=1)
MODEL = "vision"
FAMILIES = ("request_success", "request_failure", "count", "exec_count")
DURATIONS = ("queue", "compute_input", "compute_infer", "compute_output")


def triton_page(count: int = 10) -> str:
    names = [*FAMILIES, *(f"{name}_duration_us" for name in DURATIONS)]
    return "".join(f'nv_inference_{name}{{model="{MODEL}",version="1"}} {count}\n' for name in names)


def envoy_page(*names: str, active: int = 0) -> str:
    return "".join(
        f'envoy_cluster_upstream_rq_total{{envoy_cluster_name="{name}"}} 10\n'
        f'envoy_cluster_upstream_rq_active{{envoy_cluster_name="{name}"}} {active}\n'
        f'envoy_cluster_upstream_rq_time_bucket{{envoy_cluster_name="{name}",le="99.5"}} 9\n'
        f'envoy_cluster_upstream_rq_time_bucket{{envoy_cluster_name="{name}",le="+Inf"}} 10\n'
        for name in names
    )


STATISTICS = Planned('{"model_stats": [{"batch_stats": []}]}')
GOOD = {
    "/stats/prometheus": Planned(envoy_page("stable-0", "canary")),
    "/metrics": Planned(triton_page()),
    f"/v2/models/{MODEL}/stats": STATISTICS,
}


@pytest.fixture
def servers() -> Iterator[dict[str, StubServer]]:
    with (
        StubServer(dict(GOOD)) as gateway,
        StubServer(dict(GOOD)) as stable,
        StubServer(dict(GOOD)) as canary,
    ):
        yield {"gateway": gateway, "stable-0": stable, "canary": canary}


def a_scraped_target(servers: dict[str, StubServer]) -> Target:
    stable, canary = (
        Replica(name, servers[name].url, f"{servers[name].url}/metrics") for name in ("stable-0", "canary")
    )
    gateway = Gateway(servers["gateway"].url, "weights")
    return dataclasses.replace(a_target(), model=MODEL, stable=(stable,), canary=canary, gateway=gateway)


def look(servers: dict[str, StubServer]) -> Sample:
    return ScrapedMetrics(a_scraped_target(servers), ManualClock(), DEADLINE).sample()


def test_a_look_reads_every_replica_at_both_places(servers: dict[str, StubServer]) -> None:
    sample = look(servers)
    assert sample.at == START
    assert sample.edges_seconds == (0.1, math.inf)
    assert {name: counters.buckets for name, counters in sample.gateway.items()} == {
        "stable-0": (9, 10),
        "canary": (9, 10),
    }
    assert {name: counters.succeeded for name, counters in sample.servers.items()} == {
        "stable-0": 10,
        "canary": 10,
    }
    assert sample.faults == {}
    assert sample.missing(["stable-0", "canary"]) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Planned(hang=True), "no answer within 1 s"),
        (Planned("no", 500), "HTTP 500"),
        (Planned("", 302, {"location": "/elsewhere"}), "HTTP 302"),
        (Planned("<html>sign in</html>\n"), "a web page instead of metrics"),
        (Planned(""), "an empty page"),
        (Planned(triton_page()[:-1]), "cut off"),
        (Planned(triton_page(), promised=100_000), "broke off"),
        (Planned(triton_page().replace("} 10", "} NaN", 1)), "nan, which no counter can be"),
        (Planned(triton_page().replace("} 10", "} -1", 1)), "-1, which no counter can be"),
        (Planned(triton_page().replace(MODEL, "other")), "nothing about the model vision"),
        (Planned("\ufffd{\n"), "no metric"),
    ],
)
def test_a_server_that_cannot_be_read_is_absent_and_explained(
    servers: dict[str, StubServer], answer: Planned, words: str
) -> None:
    servers["canary"].answers["/metrics"] = answer
    started = time.monotonic()
    sample = look(servers)
    assert time.monotonic() - started < 3
    assert set(sample.servers) == {"stable-0"}
    assert set(sample.gateway) == {"stable-0", "canary"}
    assert words in sample.faults["canary"]
    assert "the server's metrics" in sample.faults["canary"]
    assert servers["canary"].url in sample.missing(["stable-0", "canary"])
    assert set(sample.faults) == {"canary"}


def test_nobody_listening_is_said_so(servers: dict[str, StubServer]) -> None:
    target = a_scraped_target(servers)
    with StubServer() as gone:
        url = gone.url
    target = dataclasses.replace(target, canary=Replica("canary", url, f"{url}/metrics"))
    sample = ScrapedMetrics(target, ManualClock(), DEADLINE).sample()
    assert "nothing accepts connections there" in sample.faults["canary"]
    assert set(sample.servers) == {"stable-0"}


@pytest.mark.parametrize("answer", [Planned(hang=True), Planned("<html/>"), Planned("no", 503)])
def test_without_the_gateway_the_servers_are_still_read(
    servers: dict[str, StubServer], answer: Planned
) -> None:
    servers["gateway"].answers["/stats/prometheus"] = answer
    sample = look(servers)
    assert sample.gateway == {}
    assert sample.edges_seconds == ()
    assert set(sample.servers) == {"stable-0", "canary"}
    assert set(sample.faults) == {"gateway", "stable-0", "canary"}
    assert "the gateway's statistics" in sample.missing(["stable-0"])


def test_one_broken_number_at_the_gateway_costs_that_replica_alone(servers: dict[str, StubServer]) -> None:
    broken = envoy_page("stable-0") + envoy_page("canary").replace("} 9", "} NaN")
    servers["gateway"].answers["/stats/prometheus"] = Planned(broken)
    sample = look(servers)
    assert set(sample.gateway) == {"stable-0"}
    assert "canary" in sample.faults["canary"]


def test_without_statistics_by_batch_size_the_counters_are_still_good(servers: dict[str, StubServer]) -> None:
    servers["canary"].answers[f"/v2/models/{MODEL}/stats"] = Planned("<html/>")
    sample = look(servers)
    assert sample.servers["canary"].batches == ()
    assert sample.missing(["canary"]) == ""
    assert "the server's statistics" in sample.faults["canary"]


def test_an_answer_without_end_is_cut_at_the_largest_size(
    servers: dict[str, StubServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LARGEST_ANSWER_BYTES", 1000)
    servers["canary"].answers["/metrics"] = Planned(triton_page() * 10)
    assert "more than 0.001 MB" in look(servers).faults["canary"]


def test_all_reads_of_a_look_wait_at_the_same_time(servers: dict[str, StubServer]) -> None:
    for server in servers.values():
        server.answers = dict.fromkeys(server.answers, Planned(hang=True))
    started = time.monotonic()
    sample = look(servers)
    assert time.monotonic() - started < 3 * DEADLINE.total_seconds()
    assert sample.gateway == {}
    assert sample.servers == {}


def test_ended_never_falls_by_requests_sent_between_two_reads_of_the_gateway(
    servers: dict[str, StubServer],
) -> None:
    metrics = ScrapedMetrics(a_scraped_target(servers), ManualClock(), DEADLINE)
    first = metrics.sample()
    servers["gateway"].answers["/stats/prometheus"] = Planned(envoy_page("stable-0", "canary", active=1))
    second = metrics.sample()
    assert first.gateway["canary"].ended == 10
    assert second.gateway["canary"].ended == 10
    assert not second.gateway["canary"].behind(first.gateway["canary"])


def test_a_restarted_gateway_is_seen_as_such(servers: dict[str, StubServer]) -> None:
    metrics = ScrapedMetrics(a_scraped_target(servers), ManualClock(), DEADLINE)
    first = metrics.sample()
    restarted = envoy_page("stable-0", "canary").replace("} 10", "} 3").replace("} 9", "} 3")
    servers["gateway"].answers["/stats/prometheus"] = Planned(restarted)
    second = metrics.sample()
    assert second.gateway["canary"].ended == 3
    assert second.gateway["canary"].behind(first.gateway["canary"])
