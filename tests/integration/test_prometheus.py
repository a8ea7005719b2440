"""A real Prometheus beside direct scraping: the same requests, the same verdicts, and no wrong one whatever fails."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations, product
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.envoy import EnvoyRoute
from autotuner.adapters.prometheus import PrometheusMetrics
from autotuner.adapters.scrape import ScrapedMetrics, ScrapedStatistics
from autotuner.cli.app import app
from autotuner.cli.invocation import Invocation
from autotuner.domain.judgement import SCREENING, Counts, Verdict, judge
from autotuner.domain.measurement import GatewayCounters, Sample, Window
from autotuner.domain.needs import EDGE
from autotuner.domain.sources import Instrumentation
from autotuner.domain.sources import PrometheusServer as Address
from autotuner.domain.target import Replica, Target
from autotuner.instruments import envoy, triton
from autotuner.instruments.exposition import Page
from autotuner.sandbox.envoy import EnvoyProcess, Topology
from autotuner.sandbox.model_repository import reference_requests, write_repository
from autotuner.sandbox.processes import wait_until
from autotuner.sandbox.tritonserver import TritonProcess, install
from autotuner.sandbox.workload import parse_workload
from autotuner.secret_shelf import SecretShelf
from autotuner.settings import Settings
from tests.builders import a_target
from tests.command_line import a_target_file
from tests.prometheus_server import PrometheusServer, job

EVERY = timedelta(milliseconds=500)
CEILING = timedelta(milliseconds=20)
PATIENCE = timedelta(seconds=20)
NAMES = ("stable-0", "canary")


class Relay:
    """Stands between Prometheus and a page: keeps every page it hands on, and can hide it. Answers for `path`."""

    def __init__(self, page: str) -> None:
        self.pages: list[tuple[float, str]] = []
        self.hidden = False
        self._page = page
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="relay")

    @property
    def url(self) -> str:
        """Where Prometheus scrapes."""
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(relay) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler's own self is another
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = relay.read()
                self.send_response(503 if text is None else 200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def read(self) -> str | None:
        """The page as it is now, kept with its time; None while it is hidden or cannot be read."""
        asked = time.time()
        if self.hidden:
            return None
        try:
            with urllib.request.urlopen(self._page, timeout=2) as answer:
                text: str = answer.read().decode()
        except OSError:
            return None
        self.pages.append((asked, text))
        return text


class AheadClock(SystemClock):
    """Our clock while the server's is behind it."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead


@dataclass
class Stack:
    """Two real servers behind a real Envoy, a real Prometheus that scrapes them through relays, and both sources."""

    target: Target
    envoy: EnvoyProcess
    prometheus: PrometheusServer
    relays: dict[str, Relay]
    route: EnvoyRoute
    requests: Any
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def source(self, clock: SystemClock | None = None) -> PrometheusMetrics:
        """A new source through Prometheus."""
        statistics = ScrapedStatistics(self.target, timedelta(seconds=2))
        return PrometheusMetrics(self.target, SecretShelf(), statistics, clock or SystemClock())

    @property
    def scraped(self) -> ScrapedMetrics:
        return ScrapedMetrics(self.target, SystemClock())

    def send(self, requests: int, threads: int = 8) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self._send_one, range(requests)))

    def _send_one(self, number: int) -> None:
        bodies = self.requests.bodies
        body = bodies[number % len(bodies)]
        asked = urllib.request.Request(self.envoy.url + self.requests.path, body, dict(self.requests.headers))
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=10) as answer:
            answer.read()

    def quiet(self, source: PrometheusMetrics | ScrapedMetrics) -> Sample:
        """A sample from now on in which every request has ended and is visible."""
        since = datetime.now().astimezone()
        return awaited(
            source, lambda sample: sample.at > since and not sample.missing(NAMES) and settled(sample)
        )


def settled(sample: Sample) -> bool:
    counters = sample.gateway.values()
    return all(c.ended == c.sent == c.buckets[-1] + c.failed_unmeasured for c in counters)


def awaited(source: PrometheusMetrics | ScrapedMetrics, wanted: Callable[[Sample], bool]) -> Sample:
    """The first sample that is as wanted."""
    found: list[Sample] = []

    def looked() -> bool:
        found.append(source.sample())
        return wanted(found[-1])

    wait_until(looked, within=PATIENCE, what="the samples are as they should be")
    return found[-1]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    workload = parse_workload(
        {
            "name": "quick",
            "model": "emulated-gpu",
            "max_batch_size": 8,
            "batch_latency_ms": {1: 3, 8: 9},
            "transfer_ms_per_item": 0,
            "instance_memory_mb": 100,
            "device_memory_mb": 2000,
            "traffic": {"requests_per_second": 10, "arrivals": {"poisson": True}},
            "slo": {"p99_ms": 20},
        }
    )
    folder = tmp_path_factory.mktemp("stack")
    repository = write_repository(workload, folder / "models")
    with contextlib.ExitStack() as leaving:
        servers = {n: TritonProcess(n, install(), repository, workload.name, folder / n) for n in NAMES}
        for server in servers.values():
            leaving.callback(server.kill)
            server.start(within=None)
        for server in servers.values():
            server.wait_ready(timedelta(seconds=60))
        replicas = [Replica(s.name, s.http_url, s.metrics_url) for s in servers.values()]
        layout = Topology(
            tuple(replicas), CEILING, dict.fromkeys(NAMES, 500), flush_interval=timedelta(milliseconds=100)
        )
        gateway = EnvoyProcess(layout, run_directory=folder / "envoy")
        leaving.callback(gateway.stop)
        gateway.start()
        names = envoy.statistics_path(NAMES)
        relays = {"envoy": leaving.enter_context(Relay(gateway.admin_url + names))}
        relays |= {n: leaving.enter_context(Relay(s.metrics_url)) for n, s in servers.items()}
        jobs = [job(name, relay.url, {"pod": name}) for name, relay in relays.items()]
        prometheus = leaving.enter_context(PrometheusServer(folder / "prometheus", EVERY, jobs))
        metrics = Instrumentation(
            Address(prometheus.url), server=(("pod", "{name}"),), device="triton", gateway_pods=1
        )
        target = a_target(
            model=workload.name,
            stable=(replicas[0],),
            canary=replicas[1],
            gateway=gateway.gateway,
            metrics=metrics,
        )
        made = Stack(
            target, gateway, prometheus, relays, EnvoyRoute(target), reference_requests(workload), jobs
        )
        made.send(40)
        made.quiet(made.source())
        yield made


@pytest.fixture
def sending(stack: Stack) -> Iterator[Callable[[], None]]:
    """Steady traffic from when it is called to the test's end."""
    stop = threading.Event()

    def steady() -> None:
        while not stop.is_set():
            stack.send(12, 4)

    thread = threading.Thread(target=steady, name="traffic")
    yield thread.start
    stop.set()
    if thread.is_alive():
        thread.join()


# ---- the same requests, the same verdicts ----


def verdict(window: Window, ceiling_seconds: float, *, alone: bool = False) -> Verdict | None:
    """What is decided of the canary in one window, beside the stable replica or alone."""
    found = judge(
        window.counts(["canary"], ceiling_seconds),
        None if alone else window.counts(["stable-0"], ceiling_seconds),
        Counts(0, 0, 0, 0),
        error_ceiling=0.001,
        levels=SCREENING,
        dispersion=1.0,
        exhausted=False,
    )
    return found.verdict if found else None


def test_counts_are_equal_to_the_request_and_verdicts_in_every_window(stack: Stack) -> None:
    direct, source = stack.scraped, stack.source()
    pairs: list[tuple[Sample, Sample]] = []
    for number in range(16):
        stack.send(60 if number % 3 else 20, 6 if number % 2 else 16)
        pairs.append((stack.quiet(direct), stack.quiet(source)))
    edges = [edge for edge in pairs[0][0].edges_seconds if 0.004 < edge < 0.5]
    compared: Counter[bool] = Counter()
    decided: Counter[Verdict | None] = Counter()
    for (first, first_seen), (last, last_seen) in combinations(pairs, 2):
        ours, theirs = Window(first, last), Window(first_seen, last_seen)
        for name in NAMES:
            assert theirs.sent(name) == ours.sent(name)
            assert counted(theirs, name) == counted(ours, name)
        for ceiling, alone in product(edges, (False, True)):
            expected = verdict(ours, ceiling, alone=alone)
            compared[verdict(theirs, ceiling, alone=alone) is expected] += 1
            decided[expected] += 1
    print(f"{compared.total()} windows, verdicts equal in {compared[True]}: {dict(decided)}")
    assert compared.total() > 2000
    assert compared[True] >= 0.99 * compared.total()
    assert min(decided[each] for each in (Verdict.ACCEPT, Verdict.REJECT, Verdict.VOID, None)) >= 5


def counted(window: Window, name: str) -> tuple[object, ...]:
    """Everything that is counted of a replica in a window, at the gateway and at the server."""
    (now, then), (served, before) = (
        (sample.gateway[name] for sample in (window.last, window.first)),
        (sample.servers[name] for sample in (window.last, window.first)),
    )
    return (
        tuple(a - b for a, b in zip(now.buckets, then.buckets, strict=True)),
        now.failed - then.failed,
        served.succeeded - before.succeeded,
        served.inferences - before.inferences,
        served.executions - before.executions,
    )


def test_under_traffic_every_sample_is_exactly_a_page_that_was_scraped(
    stack: Stack, sending: Callable[[], None]
) -> None:
    sending()
    source = stack.source()
    samples = [awaited(source, lambda sample: not sample.missing(NAMES))]
    while len(samples) < 8:
        samples.append(awaited(source, lambda sample: sample.at > samples[-1].at))
    for sample in samples:
        assert sample.faults == {}
        for name in NAMES:
            pages = as_scraped(stack.relays["envoy"], sample.at, 0.8 * EVERY, envoy.WANTED)
            assert alike(sample.gateway[name], envoy.read_gateway(pages[0], name, sample.edges_seconds))
            pages = as_scraped(stack.relays[name], sample.at, 1.2 * EVERY, triton.WANTED)
            served = replace(sample.servers[name], batches=(), counted_by="", model_versions=())
            assert served in [triton.read_server(page, "quick", triton.UNTOLD) for page in pages]


def as_scraped(relay: Relay, at: datetime, within: timedelta, wanted: frozenset[str]) -> list[Page]:
    """The pages scraped at `at` or little later. A scrape's time is taken just before it begins."""
    begin, end = at.timestamp() - 0.01, at.timestamp() + within.total_seconds()
    return [Page(text, wanted) for when, text in relay.pages if begin <= when <= end]


def alike(found: GatewayCounters, page: GatewayCounters) -> bool:
    """`ended` is kept from falling, so it may be a few more."""
    return replace(found, ended=0, counted_by="") == replace(page, ended=0) and found.ended >= page.ended


# ---- what fails ----


def watched(source: PrometheusMetrics, first: Sample, until: Callable[[Sample], bool]) -> list[str]:
    """What each look says until one is as wanted: `hold` without data, `void` for a restart, else a verdict.

    The ceiling is far above what anything takes: the canary is healthy, so a REJECT would be wrong.
    """
    said = []

    def looked(sample: Sample) -> bool:
        said.append(decision(first, sample))
        return until(sample)

    awaited(source, looked)
    return said


def decision(first: Sample, sample: Sample) -> str:
    if sample.missing(NAMES):
        return "hold"
    restarted = any(
        sample.gateway[n].behind(first.gateway[n]) or sample.servers[n].behind(first.servers[n])
        for n in NAMES
    )
    if restarted:
        return "void"
    found = verdict(Window(first, sample), 0.4)
    return found.name if found else "open"


def whole(sample: Sample) -> bool:
    return not sample.missing(NAMES)


def later_than(first: Sample) -> Callable[[Sample], bool]:
    return lambda sample: whole(sample) and sample.at > first.at


def test_a_prometheus_that_is_down_and_comes_back_without_its_data_costs_no_request(stack: Stack) -> None:
    direct, source = stack.scraped, stack.source()
    before, first = stack.quiet(direct), stack.quiet(source)
    stack.prometheus.kill(forget=True)
    down = source.sample()
    assert "no connection" in down.faults["gateway"]
    stack.send(80)
    stack.prometheus.start()
    said = watched(source, first, later_than(first))
    last = stack.quiet(source)
    assert set(said) <= {"hold", "open", "ACCEPT"}
    assert counted(Window(first, last), "canary") == counted(Window(before, stack.quiet(direct)), "canary")


def test_an_answer_of_422_is_told_and_holds(stack: Stack) -> None:
    source = stack.source()
    stack.quiet(source)
    stack.prometheus.kill()
    stack.prometheus.start("--query.max-samples=10")
    try:
        said = awaited(source, lambda sample: "HTTP 422" in sample.faults.get("gateway", ""))
        assert said.gateway == {}
        assert "too many samples" in said.faults["gateway"]
    finally:
        stack.prometheus.kill()
        stack.prometheus.start()


def test_a_target_that_disappears_for_two_scrapes_costs_no_request(stack: Stack) -> None:
    direct, source = stack.scraped, stack.source()
    before, first = stack.quiet(direct), stack.quiet(source)
    for name in ("envoy", "canary"):
        stack.relays[name].hidden = True
    stack.send(60)
    time.sleep(2.5 * EVERY.total_seconds())
    for name in ("envoy", "canary"):
        stack.relays[name].hidden = False
    said = watched(source, first, later_than(first))
    last = awaited(source, lambda sample: whole(sample) and "was not scraped for" in str(sample.faults))
    assert "stable-0 was not" not in str(last.faults)
    assert set(said) <= {"hold", "open", "ACCEPT"}
    assert counted(Window(first, stack.quiet(source)), "canary") == counted(
        Window(before, stack.quiet(direct)), "canary"
    )


def test_counters_that_begin_anew_in_a_window_are_void_and_never_a_verdict(stack: Stack) -> None:
    source = stack.source()
    first = stack.quiet(source)
    stack.envoy.restart()
    grown = max(counters.sent for counters in first.gateway.values())
    stack.send(3 * grown if grown < 400 else 800, 16)
    said = watched(source, first, lambda sample: whole(sample) and sample.at > first.at + 4 * EVERY)
    assert "void" in said
    assert set(said) <= {"hold", "void", "open"}
    assert said[-1] == "void"


def test_two_series_for_one_pod_are_refused_until_one_is_picked(stack: Stack) -> None:
    source = stack.source()
    first = stack.quiet(source)
    again = job("canary-by-annotation", stack.relays["canary"].url, {"pod": "canary"})
    stack.prometheus.write([*stack.jobs, again])
    stack.prometheus.reload()
    try:
        doubled = awaited(source, lambda sample: "canary" not in sample.servers)
        assert "two series for" in doubled.faults["canary"]
        assert 'job="canary-by-annotation"' in doubled.faults["canary"]
        assert decision(first, doubled) == "hold"
        assert "stable-0" in doubled.servers
    finally:
        stack.prometheus.write(stack.jobs)
        stack.prometheus.reload()
    assert "canary" in awaited(source, whole).servers


@pytest.mark.parametrize("ahead", [5, -5])
def test_clocks_that_differ_by_five_seconds_change_no_count(stack: Stack, ahead: int) -> None:
    skewed, source = stack.source(AheadClock(timedelta(seconds=ahead))), stack.source()
    first, first_skewed = stack.quiet(source), awaited(skewed, whole)
    assert "its clock differs from ours" in first_skewed.faults["clock"]
    stack.send(40)
    last = stack.quiet(source)
    last_skewed = awaited(skewed, lambda sample: whole(sample) and sample.gateway == last.gateway)
    assert counted(Window(first_skewed, last_skewed), "canary") == counted(Window(first, last), "canary")
    difference = last_skewed.at - timedelta(seconds=ahead) - last.at
    assert abs(difference) < 4 * EVERY


# ---- the command ----


def test_the_check_says_what_a_study_would_find(
    stack: Stack, tmp_path: Path, sending: Callable[[], None]
) -> None:
    sending()
    replicas = [{"name": r.name, "url": r.http_url, "metrics": r.metrics_url} for r in stack.target.replicas]
    file = a_target_file(
        tmp_path,
        model="quick",
        stable=replicas[:1],
        canary=replicas[1],
        gateway={"admin": stack.target.gateway.admin_url, "runtime_prefix": "replica_weight"},
        slo={"p99_ms": 20, "max_canary_share": 0.5},
        metrics={"prometheus": {"url": stack.prometheus.url}, "server": {"pod": "{name}"}},
    )
    answer = checked("metrics", "check", str(file), "--seconds", "3", "--json")
    assert answer["usable"] is True, answer["findings"]
    found = {each["what"]: each for each in answer["findings"]}
    assert found[EDGE]["answer"] == "yes"
    assert found["server canary"]["answer"] == "yes"
    assert found["memory canary"]["answer"] == "yes"
    assert "requests wait for execution" in found["pending canary"]["detail"]
    assert found["failures canary"] == {
        "what": "failures canary",
        "answer": "yes",
        "detail": "none since it started",
        "advice": "",
    }
    assert answer["rates_per_second"]["canary"] > 0
    assert answer["verdicts"][0]["seconds"] > 0


def test_a_diagnosis_reads_gateway_servers_and_device_through_prometheus(
    stack: Stack, sending: Callable[[], None]
) -> None:
    sending()
    stable = stack.target.stable[0]
    asked = ["diagnose", "--triton", stable.http_url, "--model", "quick", "--p99", "20ms", "--for", "6s"]
    asked += ["--gateway-cluster", "stable-0", "--json"]
    relay = stack.relays["stable-0"].url
    direct = checked(*asked, "--gateway", stack.envoy.admin_url, "--metrics", stable.metrics_url)
    through = checked(*asked, "--prometheus", stack.prometheus.url, "--metrics", relay)
    assert through["unread"] == []
    assert through["breakdown_ms"]["source"] == "the gateway's histogram"
    for part in ("total", "queue", "compute_infer"):
        assert through["breakdown_ms"][part]["mean"] == pytest.approx(
            direct["breakdown_ms"][part]["mean"], rel=0.5, abs=1.0
        )
    assert through["breakdown_ms"]["before_triton"]["mean"] > 0
    assert through["breakdown_ms"]["queue"]["p99"] > 0
    for name in ("memory_used_bytes", "memory_total_bytes"):
        assert through["realised_batch"][name] == direct["realised_batch"][name]
    assert 0.0 < through["realised_batch"]["device_utilisation"] <= 1.0
    needs = {need["what"]: need["answer"] for need in through["study_possible"]["needs"]}
    assert needs[EDGE] == "yes"


def checked(*words: str) -> Any:
    """The answer of a command that really waits."""
    ran = CliRunner().invoke(app, list(words), obj=Invocation(settings=Settings))
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)
