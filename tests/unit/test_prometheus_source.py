"""A look through a metrics server gives whole scrapes that belong together, or says why it gives nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from autotuner.adapters.prometheus import PrometheusMetrics
from autotuner.adapters.prometheus.scrapes import series_in
from autotuner.domain.measurement import BatchTiming, Sample
from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.domain.target import Replica
from autotuner.instruments import triton
from autotuner.instruments.gateways import NativeFamily
from autotuner.instruments.readings import Unreadable
from autotuner.secret_shelf import SecretShelf
from tests.builders import START, ManualClock, a_target, at
from tests.prometheus_stub import PrometheusStub
from tests.stub_server import Planned

EVERY = 5.0
BEGIN = START.timestamp()
NAMES = ("stable-0", "canary")
ENVOY = {"instance": "envoy:9901", "job": "envoy"}
COUNTERS = ("request_success", "request_failure", "count", "exec_count")
DURATIONS = ("queue", "compute_input", "compute_infer", "compute_output")


def triton_page(count: int) -> str:
    names = [*COUNTERS, *(f"{name}_duration_us" for name in DURATIONS)]
    return "".join(f'nv_inference_{name}{{model="vision",version="1"}} {count}\n' for name in names)


def envoy_page(count: int, *names: str, le: str = "99.5") -> str:
    return "".join(
        f'envoy_cluster_upstream_rq_total{{envoy_cluster_name="{name}"}} {count}\n'
        f'envoy_cluster_upstream_rq_active{{envoy_cluster_name="{name}"}} 0\n'
        f'envoy_cluster_upstream_rq_time_bucket{{envoy_cluster_name="{name}",le="{le}"}} {count - 1}\n'
        f'envoy_cluster_upstream_rq_time_bucket{{envoy_cluster_name="{name}",le="+Inf"}} {count}\n'
        for name in names
    )


class Rig:
    """A metrics server that has scraped everything every 5 s: 10 requests more at each scrape. Servers 2 s later."""

    def __init__(self, server: PrometheusStub, **plan: Any) -> None:
        self.server = server
        self.clock = ManualClock()
        replicas = [Replica(name, f"http://{name}:8000", f"http://{name}:8002/metrics") for name in NAMES]
        prometheus = plan.pop("prometheus", {})
        self.target = dataclasses.replace(
            a_target(),
            model="vision",
            stable=(replicas[0],),
            canary=replicas[1],
            metrics=Instrumentation(
                PrometheusServer(server.url, **{"deadline": timedelta(seconds=1), **prometheus}), **plan
            ),
        )
        self.statistics: Mapping[str, triton.Statistics] = {
            name: triton.Statistics((BatchTiming(4, 1, 0.1),), ("1",)) for name in NAMES
        }
        self.metrics = PrometheusMetrics(
            self.target, SecretShelf({"token": "s3cret"}), lambda: (self.statistics, {}), self.clock
        )

    def turn(self, seconds: float) -> None:
        self.clock.turn(seconds)
        self.server.now += seconds

    def scrape(self, number: int, *, servers: tuple[str, ...] = NAMES, gateway: bool = True) -> None:
        """Scrape number `number`, 10 requests a scrape."""
        count, when = 100 + 10 * number, BEGIN + number * EVERY
        if gateway:
            self.server.page(when, envoy_page(count, *NAMES), **ENVOY)
        for name in servers:
            self.server.page(when + 2, triton_page(count), instance=f"{name}:8002", job="triton")

    def look(self) -> Sample:
        return self.metrics.sample()


@pytest.fixture
def server() -> Iterator[PrometheusStub]:
    with PrometheusStub(BEGIN) as stub:
        yield stub


def scraped(server: PrometheusStub, until: int = 5, **plan: Any) -> Rig:
    """A rig after the scrapes 0 to `until`, 3 s after the last."""
    rig = Rig(server, **plan)
    for number in range(until + 1):
        rig.scrape(number)
    rig.turn(until * EVERY + 3)
    return rig


def test_a_look_gives_the_newest_scrape_of_everything_as_it_was(server: PrometheusStub) -> None:
    sample = scraped(server).look()
    assert sample.faults == {}
    assert sample.at == at(25)
    assert sample.edges_seconds == (0.1, math.inf)
    assert {name: (c.sent, c.ended, c.buckets) for name, c in sample.gateway.items()} == dict.fromkeys(
        NAMES, (150, 150, (149, 150))
    )
    assert {name: c.succeeded for name, c in sample.servers.items()} == dict.fromkeys(NAMES, 150)
    assert sample.servers["canary"].batches == (BatchTiming(4, 1, 0.1),)
    assert sample.servers["canary"].model_versions == ("1",)


def test_nothing_but_plain_selectors_and_the_time_is_asked_for(server: PrometheusStub) -> None:
    scraped(server).look()
    assert server.queries
    for query in server.queries:
        assert query == "time()" or (query.startswith("{__name__=") and query.endswith("ms]"))
        assert "rate(" not in query


def test_between_two_scrapes_the_sample_stays_the_same_moment(server: PrometheusStub) -> None:
    rig = scraped(server)
    first = rig.look()
    rig.turn(1)
    assert rig.look() == first
    rig.scrape(6)
    rig.turn(3)
    assert rig.look().at == at(30)


def test_a_gateway_scrape_waits_for_the_servers_scrapes_after_it(server: PrometheusStub) -> None:
    rig = scraped(server)
    rig.look()
    rig.scrape(6, servers=())
    rig.turn(3)
    assert rig.look().at == at(25)
    rig.scrape(6, gateway=False)
    rig.turn(2)
    sample = rig.look()
    assert sample.at == at(30)
    assert sample.servers["canary"].succeeded == sample.gateway["canary"].sent == 160


def test_a_servers_scrape_after_a_gap_does_not_belong_to_a_gateways_scrape_before_it(
    server: PrometheusStub,
) -> None:
    rig = scraped(server)
    rig.scrape(6, servers=("stable-0",))
    rig.scrape(7, servers=("stable-0",), gateway=False)
    rig.scrape(8, gateway=False)
    rig.turn(15)
    sample = rig.look()
    assert sample.at == at(25)
    assert sample.servers["canary"].succeeded == 150


def test_edges_are_matched_as_numbers(server: PrometheusStub) -> None:
    rig = scraped(server)
    first = rig.look()
    server.page(BEGIN + 30, envoy_page(160, *NAMES, le="99.50"), **ENVOY)
    rig.scrape(6, gateway=False)
    rig.turn(5)
    second = rig.look()
    assert second.edges_seconds == first.edges_seconds
    assert not second.gateway["canary"].behind(first.gateway["canary"])


def test_replicas_that_the_gateway_does_not_tell_apart_are_counted_as_one_backend(
    server: PrometheusStub,
) -> None:
    rig = scraped(server)
    replicas = [dataclasses.replace(replica, backend="all") for replica in rig.target.stable]
    stable = (*replicas, Replica("stable-1", "http://b:8000", "http://b:8002/metrics", backend="all"))
    gateway = dataclasses.replace(rig.target.gateway, clusters={"all": "stable-0"})
    target = dataclasses.replace(rig.target, stable=stable, gateway=gateway)
    metrics = PrometheusMetrics(target, SecretShelf(), lambda: ({}, {}), rig.clock)
    sample = metrics.sample()
    assert {name: counters.sent for name, counters in sample.gateway.items()} == {"all": 150, "canary": 150}
    assert set(sample.servers) == set(NAMES)
    assert 'instance="b:8002"' in sample.faults["stable-1"]


# ---- what goes wrong ----


@pytest.mark.parametrize("time", [math.inf, math.nan, -1.0, 10**400, 1e12])
def test_samples_at_a_time_that_is_none_are_no_samples(time: float) -> None:
    with pytest.raises(Unreadable, match="unknown form"):
        series_in([{"metric": {"__name__": "a"}, "values": [[1.0, "1"], [time, "2"]]}])


def answers(status: int, body: str = "", **more: Any) -> Planned:
    return Planned(body, status, **more)


@pytest.mark.parametrize(
    ("planned", "words"),
    [
        (answers(422, '{"status":"error","error":"too many samples"}'), "HTTP 422 instead of an answer: "),
        (answers(503, "<html><body>no backend</body></html>"), "HTTP 503 and a web page"),
        (answers(200, "<html>sign in</html>"), "something that is not JSON"),
        (answers(200, "[]"), "unknown form"),
        (answers(200, '{"status":"success","data":{"result":"?"}}'), "unknown form"),
        (answers(200, '"warnings"'), "unknown form"),
        (answers(200, "[" * 100_000), "unknown form"),
        *(
            (
                answers(200, f'{{"status":"success","data":{{"result":[0,{time}]}}}}'),
                "time in an unknown form",
            )
            for time in ("1e999", "NaN", "-1", f"1{'0' * 400}")
        ),
        (answers(302, headers={"location": "http://elsewhere/"}), "HTTP 302, a redirect"),
        (answers(200, "{", promised=100), "broke off"),
        (Planned(hang=True), "no answer within"),
    ],
)
def test_a_server_that_does_not_answer_as_it_should_leaves_nothing_and_a_reason(
    server: PrometheusStub, planned: Planned, words: str
) -> None:
    rig = scraped(server)
    rig.look()
    server.planned = planned
    sample = rig.look()
    assert sample.gateway == {}
    assert sample.servers == {}
    assert words in sample.faults["gateway"]
    assert server.url in sample.missing(NAMES)


def test_nobody_there_is_said_so(server: PrometheusStub) -> None:
    with PrometheusStub(BEGIN) as gone:
        url = gone.url
    rig = Rig(server)
    assert rig.target.metrics is not None
    away = dataclasses.replace(rig.target.metrics, prometheus=PrometheusServer(url, timedelta(seconds=1)))
    metrics = PrometheusMetrics(
        dataclasses.replace(rig.target, metrics=away), SecretShelf(), lambda: ({}, {}), ManualClock()
    )
    assert "no connection" in metrics.sample().faults["gateway"]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"warnings": ["store 2 is gone"]}, "store 2 is gone"), ({"isPartial": True}, "partial")],
)
def test_an_answer_that_is_not_all_there_is_none(
    server: PrometheusStub, more: dict[str, object], words: str
) -> None:
    rig = scraped(server)
    server.more = more
    sample = rig.look()
    assert sample.gateway == {}
    assert words in sample.faults["canary"]


def test_a_source_that_was_not_scraped_lately_is_not_the_present(server: PrometheusStub) -> None:
    rig = scraped(server)
    rig.look()
    rig.turn(20)
    sample = rig.look()
    assert sample.gateway == {}
    assert sample.servers == {}
    assert "was last scraped 23 s ago, where every 5 s is usual" in sample.faults["gateway"]


def test_a_server_that_is_gone_costs_that_replica_alone(server: PrometheusStub) -> None:
    rig = scraped(server)
    for number in range(6, 12):
        rig.scrape(number, servers=("stable-0",))
    rig.turn(30)
    sample = rig.look()
    assert set(sample.servers) == {"stable-0"}
    assert set(sample.gateway) == set(NAMES)
    assert 'instance="canary:8002"' in sample.faults["canary"] or "last scraped" in sample.faults["canary"]


def test_a_gap_is_told_and_costs_no_request(server: PrometheusStub) -> None:
    rig = scraped(server)
    first = rig.look()
    rig.turn(15)
    for number in (8, 9):
        rig.scrape(number)
    rig.turn(5)
    sample = rig.look()
    assert "was not scraped for 15 s" in sample.faults["canary"]
    assert sample.gateway["canary"].sent - first.gateway["canary"].sent == 40
    assert not sample.gateway["canary"].behind(first.gateway["canary"])


def test_a_counter_that_began_anew_and_grew_past_its_old_value_is_seen(server: PrometheusStub) -> None:
    rig = scraped(server)
    first = rig.look()
    server.page(BEGIN + 30, envoy_page(2, *NAMES), **ENVOY)
    server.page(BEGIN + 35, envoy_page(500, *NAMES), **ENVOY)
    for number in (6, 7):
        rig.scrape(number, gateway=False)
    rig.turn(10)
    sample = rig.look()
    assert sample.gateway["canary"].sent > first.gateway["canary"].sent
    assert sample.gateway["canary"].behind(first.gateway["canary"])
    assert "began anew" in sample.faults["gateway"]
    assert not sample.servers["canary"].behind(first.servers["canary"])


def test_a_server_that_was_scraped_twice_for_one_replica_is_refused(server: PrometheusStub) -> None:
    rig = scraped(server)
    for number in range(3, 6):
        server.page(BEGIN + number * EVERY + 1, triton_page(100), instance="canary:8002", job="annotations")
    sample = rig.look()
    assert set(sample.servers) == {"stable-0"}
    assert 'two series for canary:8002, {job="annotations"} and {job="triton"}' in sample.faults["canary"]
    assert "metrics.labels" in sample.faults["canary"]


def test_labels_pick_one_of_two(server: PrometheusStub) -> None:
    rig = scraped(server, labels=(("cluster", "a"),))
    assert "no samples" in rig.look().faults["gateway"] or "too few" in rig.look().faults["gateway"]
    assert any('cluster="a"' in query for query in server.queries)


def test_more_gateways_than_the_target_names_are_refused_and_as_many_are_added_up(
    server: PrometheusStub,
) -> None:
    rig = scraped(server)
    for number in range(6):
        server.page(
            BEGIN + number * EVERY + 1, envoy_page(1000, *NAMES), instance="envoy-2:9901", job="envoy"
        )
    assert (
        "2 are scraped (envoy-2:9901, envoy:9901) where metrics.gateway_pods says 1"
        in (rig.look().faults["gateway"])
    )
    both = scraped_again(server, gateway_pods=None)
    sample = both.look()
    assert sample.gateway["canary"].sent == 1150
    assert sample.gateway["canary"].counted_by == "envoy-2:9901; envoy:9901"


def scraped_again(server: PrometheusStub, **plan: Any) -> Rig:
    """Another source of what was scraped already."""
    rig = Rig(server, **plan)
    rig.clock.turn(server.now - BEGIN)
    return rig


def test_another_gateway_in_its_place_is_no_difference_of_counts(server: PrometheusStub) -> None:
    rig = scraped(server, gateway_pods=None)
    first = rig.look()
    rig.turn(5)
    for number in range(6, 12):
        server.page(BEGIN + number * EVERY, envoy_page(5000, *NAMES), instance="envoy-2:9901", job="envoy")
        rig.scrape(number, gateway=False)
    rig.turn(15)
    assert "last scraped" in rig.look().faults["gateway"]
    rig.turn(10)
    second = rig.look()
    assert second.gateway["canary"].sent > first.gateway["canary"].sent
    assert second.gateway["canary"].behind(first.gateway["canary"])


@pytest.mark.parametrize("ahead", [5.0, -5.0])
def test_a_clock_that_differs_is_corrected_and_told(server: PrometheusStub, ahead: float) -> None:
    rig = scraped(server)
    rig.clock = ManualClock(at(28 - ahead))
    rig.metrics = PrometheusMetrics(rig.target, SecretShelf(), lambda: (rig.statistics, {}), rig.clock)
    sample = rig.look()
    assert sample.at == at(25 - ahead)
    assert f"{ahead:+.1f} s" in sample.faults["clock"]
    assert set(sample.gateway) == set(NAMES)


def test_a_server_that_tells_whole_seconds_as_a_series_is_no_skewed_clock(server: PrometheusStub) -> None:
    rig = scraped(server)
    server.rounds_time = True
    rig.turn(0.9)
    sample = rig.look()
    assert sample.faults == {}
    assert sample.at == at(25)


def test_the_end_of_a_series_is_no_sample(server: PrometheusStub) -> None:
    rig = scraped(server)
    first = rig.look()
    server.page(BEGIN + 30, envoy_page(160, *NAMES).replace(" 160", " nan").replace(" 159", " nan"), **ENVOY)
    rig.turn(15)
    for number in (8, 9):
        rig.scrape(number)
    for number in (6, 7):
        rig.scrape(number, gateway=False)
    rig.turn(5)
    sample = rig.look()
    assert "was not scraped for" in sample.faults["gateway"]
    assert sample.gateway["canary"].sent - first.gateway["canary"].sent == 40
    assert not sample.gateway["canary"].behind(first.gateway["canary"])


def test_a_server_that_lost_its_data_is_waited_for_and_then_goes_on(server: PrometheusStub) -> None:
    rig = scraped(server)
    first = rig.look()
    server.forget()
    rig.turn(5)
    assert rig.look().gateway == {}
    rig.scrape(7)
    rig.turn(4)
    assert "too few scrapes" in rig.look().faults["gateway"]
    for number in (8, 9):
        rig.scrape(number)
    rig.turn(11)
    sample = rig.look()
    assert sample.gateway["canary"].sent - first.gateway["canary"].sent == 40
    assert not sample.gateway["canary"].behind(first.gateway["canary"])


def test_a_scrape_of_which_a_part_has_arrived_is_not_used_yet(server: PrometheusStub) -> None:
    rig = scraped(server)
    rig.look()
    server.page(BEGIN + 30, envoy_page(160, "stable-0"), **ENVOY)
    rig.scrape(6, gateway=False)
    rig.turn(5)
    assert rig.look().at == at(25)
    server.page(BEGIN + 30, envoy_page(160, "canary"), **ENVOY)
    assert rig.look().at == at(30)


SECONDS = NativeFamily("x", 1.0)


def native(*samples: tuple[float, str, list[list[object]]], **labels: str) -> dict[str, object]:
    """A series as the query API tells it: time, count and buckets of each sample."""
    told = [[at, {"count": count, "sum": "1.5", "buckets": buckets}] for at, count, buckets in samples]
    return {"metric": {"__name__": "x", **labels}, "histograms": told}


def counted(result: list[dict[str, object]], at: float = 1.0) -> dict[str, float]:
    """What a classic histogram would have counted at one time, by `le`."""
    found = series_in(result, SECONDS)
    return {labels["le"]: dict(values)[at] for labels, values in found if labels["__name__"] == "x_bucket"}


def test_a_native_histogram_alone_is_refused_where_its_edges_are_not_the_gateways() -> None:
    classic = {"metric": {"__name__": "x_bucket", "le": "+Inf"}, "values": [[1.0, "2"]]}
    alone = native((1.0, "2", []))
    assert series_in([classic, alone]) == [(classic["metric"], [(1.0, 2.0)])]
    assert series_in([classic, alone], SECONDS) == [(classic["metric"], [(1.0, 2.0)])]
    with pytest.raises(Unreadable, match="x is a native histogram alone"):
        series_in([alone])


def test_a_native_histogram_has_the_edges_of_its_own_scale_and_counts_at_each() -> None:
    buckets: list[list[object]] = [[0, "0.0625", "0.125", "3"], [0, "0.25", "0.5", "4"], [0, "1", "2", "1"]]
    found = counted([native((1.0, "8", buckets))])
    wanted = {"0.0625": 0.0, "0.125": 3.0, "0.25": 3.0, "0.5": 7.0, "1.0": 7.0, "2.0": 8.0, "+Inf": 8.0}
    assert {le: count for le, count in found.items() if le in wanted} == wanted
    assert len(found) == 18


def test_the_scale_is_the_coarsest_of_all_series_so_that_they_can_be_added_up() -> None:
    fine = native((1.0, "1", [[0, str(2**-0.5), "1", "1"]]), code="200")
    coarse = native((1.0, "2", [[0, "1", "2", "2"]]), code="503")
    assert len(counted([fine])) == 34
    assert len(counted([fine, coarse])) == 18


def test_edges_inside_a_bucket_with_requests_are_left_out() -> None:
    zero: list[list[object]] = [[3, "-0.003", "0.003", "5"], [0, "0.5", "1", "1"]]
    edges = counted([native((1.0, "6", zero))])
    assert min(float(le) for le in edges) == 2.0**-8
    assert edges["0.00390625"] == 5.0


def test_buckets_of_somebodys_choice_are_edges_themselves() -> None:
    chosen: list[list[object]] = [[0, "0.05", "0.1", "4"], [0, "0.1", "0.3", "2"], [0, "5", "+Inf", "1"]]
    assert counted([native((1.0, "7", chosen))]) == {
        "0.05": 0.0,
        "0.1": 4.0,
        "0.3": 6.0,
        "5.0": 6.0,
        "+Inf": 7.0,
    }


def test_a_native_histogram_without_a_request_has_no_edges_yet_and_is_a_scrape_all_the_same() -> None:
    series = series_in([native((1.0, "0", []), (2.0, "0", []))], SECONDS)
    assert [labels["__name__"] for labels, _ in series] == ["x_count", "x_sum"]
    assert series_in([native((1.0, "3", []))], SECONDS, pulse_only=True)[0][1] == [(1.0, 3.0)]


@pytest.mark.parametrize(
    "told",
    [
        {"count": "2"},
        {"count": "2", "sum": "1", "buckets": [[0, "1", "1", "1"]]},
        {"count": "2", "sum": "1", "buckets": [[0, "-2", "-1", "1"]]},
        {"count": "?", "sum": "1", "buckets": []},
        {"count": "2", "sum": "1", "buckets": [[0, "1"]]},
    ],
)
def test_a_native_histogram_in_an_unknown_form_is_none(told: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        series_in([{"metric": {"__name__": "x"}, "histograms": [[1.0, told]]}], SECONDS)


# ---- who asks ----


def test_tenant_and_bearer_are_sent_and_the_secret_is_in_no_reason(server: PrometheusStub) -> None:
    rig = scraped(server, prometheus={"tenant": "team-a", "bearer": "token"})
    rig.look()
    assert {headers["X-Scope-OrgID"] for headers in server.headers} == {"team-a"}
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer s3cret"}
    server.planned = Planned("no", 401)
    assert "s3cret" not in str(rig.look().faults)


def test_a_user_and_a_password_are_sent(server: PrometheusStub) -> None:
    rig = scraped(server, prometheus={"user": "anna", "password": "token"})
    rig.look()
    assert {headers["Authorization"] for headers in server.headers} == {"Basic YW5uYTpzM2NyZXQ="}


def test_a_secret_that_no_header_can_have_is_not_shown(server: PrometheusStub) -> None:
    rig = scraped(server, prometheus={"bearer": "odd"})
    shelf = SecretShelf({"odd": "s3cret\nX-Other: 1"})
    metrics = PrometheusMetrics(rig.target, shelf, lambda: ({}, {}), rig.clock)
    fault = metrics.sample().faults["gateway"]
    assert "the secret odd has characters" in fault
    assert "s3cret" not in fault
    assert server.queries == []


def test_a_secret_that_is_not_there_is_named(server: PrometheusStub) -> None:
    sample = scraped(server, prometheus={"bearer": "missing"}).look()
    assert "secret: 'missing' is not allowed" in sample.faults["gateway"]
    assert server.queries == []


def test_without_a_section_there_is_nothing_to_ask() -> None:
    with pytest.raises(Exception, match="metrics"):
        PrometheusMetrics(a_target(), SecretShelf(), lambda: ({}, {}), ManualClock())
