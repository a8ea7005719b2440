"""What the real Envoy counts, when it shows it, and how its weights move: the facts that every verdict rests on."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.measurement import GatewayCounters
from autotuner.domain.target import Replica
from autotuner.errors import InvalidInput
from autotuner.instruments.envoy import (
    WANTED,
    edge_label_ms,
    read_edges,
    read_gateway,
    representable,
    statistics_path,
)
from autotuner.instruments.exposition import Page
from autotuner.sandbox.envoy import (
    RUNTIME_PREFIX,
    EnvoyProcess,
    Topology,
    bucket_edges_ms,
    default_route_timeout,
)
from autotuner.sandbox.processes import free_port, wait_until
from tests.integration.fake_upstream import FakeUpstream

CEILING = timedelta(milliseconds=100)
SAMPLE = re.compile(
    r'envoy_cluster_(\w+)\{(?:envoy_response_code(?:_class)?="(\d+)",)?'
    r'envoy_cluster_name="([^"]+)"(?:,le="([^"]+)")?\} (\S+)'
)
EVERYTHING_TO = {"one": {"one": 1000, "two": 0, "dead": 0}, "dead": {"one": 0, "two": 0, "dead": 1000}}
INTERESTING = (
    "upstream_rq_total",
    "upstream_rq_completed",
    "upstream_rq_xx/2",
    "upstream_rq_xx/4",
    "upstream_rq_xx/5",
    "upstream_rq_time_count",
    "upstream_rq_timeout",
    "upstream_cx_destroy_with_active_rq",
    "upstream_rq_pending_failure_eject",
)


class Stack:
    """Envoy before two fake upstreams and one port where nobody listens."""

    def __init__(self, envoy: EnvoyProcess, one: FakeUpstream, two: FakeUpstream) -> None:
        self.envoy, self.one, self.two = envoy, one, two

    def admin(self, path: str, method: str = "GET") -> str:
        return ask(self.envoy.admin_url, path, method)[1]

    def set_weights(self, weights: dict[str, int]) -> None:
        keys = "&".join(f"{RUNTIME_PREFIX}.{name}={weight}" for name, weight in weights.items())
        self.admin(f"/runtime_modify?{keys}", "POST")

    def request(self, path: str = "/", *, patience_seconds: float = 5.0) -> int | None:
        """Send one request; its status, or None when no complete answer came."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return ask(self.envoy.url, path, "POST", patience_seconds)[0]
        return None

    def counters(self, replica: str) -> dict[str, float]:
        """Counters and the histogram of a replica; label values after a slash, absent ones are absent."""
        found = {}
        for name, code, cluster, edge, value in SAMPLE.findall(
            self.admin("/stats/prometheus?filter=upstream_")
        ):
            if cluster == replica:
                label = code or edge
                found[f"{name}/{label}" if label else name] = float(value)
        return found

    def uptime(self) -> int:
        return int(self.admin("/stats?filter=server.uptime").split()[-1])

    def await_flush(self) -> None:
        """Return just after histograms became visible."""
        before = self.uptime()
        wait_until(
            lambda: self.uptime() != before,
            within=timedelta(seconds=3),
            what="Envoy flushed",
            poll=timedelta(seconds=0.01),
        )

    def moved(self, replica: str, act: Callable[[], object]) -> dict[str, float]:
        """Which of the interesting counters `act` moved, and by how much, after a flush."""
        self.await_flush()
        before = self.counters(replica)
        act()
        self.await_flush()
        after = self.counters(replica)
        changes = {name: after.get(name, 0) - before.get(name, 0) for name in INTERESTING}
        return {name: change for name, change in changes.items() if change}


def ask(url: str, path: str, method: str = "GET", patience_seconds: float = 5.0) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=patience_seconds)
    try:
        connection.request(method, path, body=b"{}" if method == "POST" else None)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def topology(one: str, two: str, dead: str, **settings: Any) -> Topology:
    replicas = [Replica(name, url, url) for name, url in (("one", one), ("two", two), ("dead", dead))]
    return Topology(replicas, CEILING, {"one": 500, "two": 500, "dead": 0}, **settings)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with FakeUpstream() as one, FakeUpstream() as two:
        dead = f"http://127.0.0.1:{free_port()}"
        layout = topology(one.url, two.url, dead, route_timeout=timedelta(milliseconds=400))
        envoy = EnvoyProcess(layout, run_directory=tmp_path_factory.mktemp("envoy"))
        envoy.start()
        try:
            yield Stack(envoy, one, two)
        finally:
            envoy.stop()


# ---- which counters move (the table that failures and completions are computed from) ----

ANSWERED = {"upstream_rq_total": 1, "upstream_rq_completed": 1, "upstream_rq_time_count": 1}
BROKEN = {"upstream_rq_total": 1, "upstream_rq_completed": 1, "upstream_cx_destroy_with_active_rq": 1}


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/status/200", 200, {**ANSWERED, "upstream_rq_xx/2": 1}),
        ("/slow/200", 200, {**ANSWERED, "upstream_rq_xx/2": 1}),
        ("/status/400", 400, {**ANSWERED, "upstream_rq_xx/4": 1}),
        ("/status/503", 503, {**ANSWERED, "upstream_rq_xx/5": 1}),
        ("/hang", 504, {**BROKEN, "upstream_rq_xx/5": 1, "upstream_rq_timeout": 1}),
        ("/reset", 503, {**BROKEN, "upstream_rq_xx/5": 1}),
        ("/close", 503, {**BROKEN, "upstream_rq_xx/5": 1}),
        ("/garbage", 502, {**BROKEN, "upstream_rq_xx/5": 1}),
        ("/cut", None, {**BROKEN, "upstream_rq_xx/2": 1}),
    ],
)
def test_counters_that_a_request_moves(
    stack: Stack, path: str, status: int | None, expected: dict[str, float]
) -> None:
    stack.set_weights(EVERYTHING_TO["one"])
    seen: list[int | None] = []
    assert stack.moved("one", lambda: seen.append(stack.request(path))) == expected
    assert seen == [status]


def test_a_refused_connection_is_a_failure_that_was_never_sent(stack: Stack) -> None:
    stack.set_weights(EVERYTHING_TO["dead"])
    expected = {"upstream_rq_completed": 1, "upstream_rq_xx/5": 1, "upstream_rq_pending_failure_eject": 1}
    assert stack.moved("dead", lambda: stack.request("/")) == expected


def test_a_client_that_gives_up_is_sent_and_broken_but_never_completed(stack: Stack) -> None:
    stack.set_weights(EVERYTHING_TO["one"])
    moved = stack.moved("one", lambda: stack.request("/hang", patience_seconds=0.1))
    assert moved == {"upstream_rq_total": 1, "upstream_cx_destroy_with_active_rq": 1}


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        ("/status/200", "one", (1, 1, 0, 0)),
        ("/status/503", "one", (1, 1, 1, 0)),
        ("/hang", "one", (1, 1, 1, 1)),
        ("/reset", "one", (1, 1, 1, 1)),
        ("/", "dead", (1, 1, 1, 1)),
    ],
)
def test_the_gateways_adapter_makes_of_it_sent_ended_failed_and_unmeasured(
    stack: Stack, path: str, target: str, expected: tuple[int, int, int, int]
) -> None:
    def read() -> GatewayCounters:
        page = Page(stack.admin(statistics_path(["one", "two", "dead"])), WANTED)
        return read_gateway(page, target, read_edges(page, ["one", "two", "dead"]))

    stack.set_weights(EVERYTHING_TO["one"])
    stack.request("/status/200")  # so that there is a histogram
    stack.await_flush()
    stack.set_weights(EVERYTHING_TO[target])
    before = read()
    stack.request(path)
    stack.await_flush()
    after = read()
    moved = [
        getattr(after, name) - getattr(before, name)
        for name in ("sent", "ended", "failed", "failed_unmeasured")
    ]
    assert tuple(moved) == expected
    # Every request is either in the histogram or among the unmeasured failures, never in both.
    assert moved[1] == (after.buckets[-1] - before.buckets[-1]) + moved[3]


# ---- the histogram: what an edge means, and when it moves ----


def test_the_edge_at_the_ceiling_separates_requests_below_and_above_it(stack: Stack) -> None:
    """Serial, and judged by what the client saw, which is never less than what Envoy measured."""
    stack.set_weights(EVERYTHING_TO["one"])

    def counted(milliseconds: float, below_ms: float) -> tuple[int, float, float]:
        """How many requests the client saw end within `below_ms`; what Envoy counted at 100 and at 110 ms."""
        stack.await_flush()
        before, quick = stack.counters("one"), 0
        for _ in range(40):
            begin = time.monotonic()
            assert stack.request(f"/slow/{milliseconds}") == 200
            quick += time.monotonic() - begin < below_ms / 1000
            if quick == 3:
                break
        stack.await_flush()
        after = stack.counters("one")
        at_100, at_110 = (f"upstream_rq_time_bucket/{edge}" for edge in ("99.5", "105"))
        return quick, after[at_100] - before.get(at_100, 0), after[at_110] - before.get(at_110, 0)

    quick, at_100, at_110 = counted(50, below_ms=100)
    assert 3 == quick <= at_100 <= at_110
    quick, at_100, at_110 = counted(101, below_ms=110)
    assert at_100 == 0
    assert 3 == quick <= at_110


def test_envoy_counts_a_whole_bin_into_an_edge_inside_it(tmp_path: Path) -> None:
    """Why no edge is put on the ceiling itself: `le="100"` would hold a request of 104 ms."""
    assert edge_label_ms(100) == 99.5
    assert edge_label_ms(110) == 105
    assert 100 not in bucket_edges_ms(CEILING)


def test_counters_move_at_once_and_the_histogram_at_the_flush(stack: Stack) -> None:
    stack.set_weights(EVERYTHING_TO["one"])
    for _ in range(5):  # until the requests and both readings fall between two flushes
        stack.await_flush()
        uptime, before = stack.uptime(), stack.counters("one")
        assert stack.request() == 200
        after = stack.counters("one")
        if stack.uptime() == uptime:
            break
    else:
        pytest.fail("a request and two readings took longer than the flush interval, five times")
    assert after["upstream_rq_completed"] - before["upstream_rq_completed"] == 1
    assert after["upstream_rq_time_count"] == before["upstream_rq_time_count"]
    stack.await_flush()
    assert stack.counters("one")["upstream_rq_time_count"] - before["upstream_rq_time_count"] == 1


# ---- weights ----


def test_weights_change_at_once(stack: Stack) -> None:
    for target in ("one", "two", "one"):
        stack.set_weights({"one": 0, "two": 0, "dead": 0} | {target: 1000})
        before = stack.one.received, stack.two.received
        assert all(stack.request() == 200 for _ in range(20))
        received = {"one": stack.one.received - before[0], "two": stack.two.received - before[1]}
        assert received == {"one": 0, "two": 0} | {target: 20}


def test_requests_are_spread_by_weight(stack: Stack) -> None:
    stack.set_weights({"one": 800, "two": 200, "dead": 0})
    before = stack.one.received
    assert all(stack.request() == 200 for _ in range(500))
    assert 360 <= stack.one.received - before <= 440  # 400 +- 4.5 standard deviations


def test_runtime_reads_back_the_weights(stack: Stack) -> None:
    stack.set_weights({"one": 700, "two": 300, "dead": 0})
    found = re.findall(
        rf'"{RUNTIME_PREFIX}\.(\w+)": \{{[^}}]*"final_value": "(\d+)"', stack.admin("/runtime?format=json")
    )
    assert dict(found) == {"one": "700", "two": "300", "dead": "0"}


# ---- the process ----


def test_a_restarted_envoy_has_its_ports_its_initial_weights_and_counters_from_zero(tmp_path: Path) -> None:
    with FakeUpstream() as one, FakeUpstream() as two:
        envoy = EnvoyProcess(topology(one.url, two.url, "http://127.0.0.1:9"), run_directory=tmp_path)
        envoy.start()
        try:
            stack, url = Stack(envoy, one, two), envoy.url
            stack.set_weights(EVERYTHING_TO["dead"])
            assert stack.request() == 503
            envoy.kill()
            envoy.start()
            assert envoy.url == url
            assert all(stack.request() == 200 for _ in range(20))
            assert one.received > 0
            assert two.received > 0
            assert stack.counters("dead")["upstream_rq_completed"] == 0
            assert "one" not in stack.admin("/runtime?format=json")
        finally:
            envoy.stop()
        assert not envoy.is_ready()


def test_two_envoys_run_side_by_side(stack: Stack, tmp_path: Path) -> None:
    layout = topology(stack.one.url, stack.two.url, "http://127.0.0.1:9")
    second = EnvoyProcess(layout, run_directory=tmp_path)
    second.start()
    try:
        assert second.url != stack.envoy.url
        assert ask(second.url, "/", "POST")[0] == 200
        assert stack.envoy.is_ready()
    finally:
        second.stop()


def test_envoy_listens_on_loopback_only(stack: Stack) -> None:
    for url in (stack.envoy.url, stack.envoy.admin_url):
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), timeout=1):
            pass


def test_a_scrape_twice_a_second_costs_envoy_little(stack: Stack) -> None:
    """Bounded loosely, for slow machines: about 1 ms of Envoy's time was seen."""
    pid = stack.envoy.process.pid
    before, count = cpu_seconds(pid), 50
    for _ in range(count):
        stack.counters("one")
    assert (cpu_seconds(pid) - before) / count < 0.02


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


# ---- pure parts ----


@pytest.mark.parametrize(
    ("latency", "below", "above"),
    [(100, 100, 100), (99.5, 99, 100), (125, 120, 130), (0.2, 1, 1), (1234, 1200, 1300)],
)
def test_boundaries_that_envoy_can_represent(latency: float, below: float, above: float) -> None:
    assert representable(latency) == below
    assert representable(latency, up=True) == above


@pytest.mark.parametrize("milliseconds", [10, 20, 50, 100, 250, 1000])
def test_the_ladder_has_an_edge_at_the_ceiling_and_twenty_around_it(milliseconds: int) -> None:
    edges = bucket_edges_ms(timedelta(milliseconds=milliseconds))
    assert edge_label_ms(milliseconds) in edges
    assert len(edges) >= 20
    assert edges[-1] > 4 * milliseconds
    assert list(edges) == sorted(set(edges))


def test_a_ceiling_between_two_boundaries_gets_both() -> None:
    edges = bucket_edges_ms(timedelta(milliseconds=125))
    assert {edge_label_ms(120), edge_label_ms(130)} <= set(edges)


def test_the_route_timeout_is_bounded() -> None:
    seconds = [default_route_timeout(timedelta(milliseconds=ms)).total_seconds() for ms in (10, 100, 60_000)]
    assert seconds == [1, 2, 30]


@pytest.mark.parametrize(
    ("names", "weights", "field"),
    [
        (["a.b"], {"a.b": 1000}, "replicas.name"),
        (["a", "a"], {"a": 1000}, "replicas"),
        ([], {}, "replicas"),
        (["a", "b"], {"a": 1000}, "initial_weights"),
        (["a", "b"], {"a": 500, "b": 400}, "initial_weights"),
        (["a", "b"], {"a": 1100, "b": -100}, "initial_weights"),
    ],
)
def test_a_topology_that_envoy_cannot_keep_apart_is_refused(
    names: list[str], weights: dict[str, int], field: str
) -> None:
    replicas = [Replica(name, "http://127.0.0.1:1", "http://127.0.0.1:2") for name in names]
    with pytest.raises(InvalidInput) as caught:
        Topology(replicas, CEILING, weights)
    assert caught.value.field == field
