"""The traffic source as a real process: it stays an open loop, counts from the scheduled time, and obeys signals."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.target import Replica
from autotuner.errors import InvalidInput
from autotuner.sandbox.envoy import EnvoyProcess, Topology
from autotuner.sandbox.keepalive import read_head
from autotuner.sandbox.processes import free_port, wait_until
from autotuner.sandbox.traffic import TrafficConfig, TrafficProcess, read_config, write_config
from tests.integration.fake_upstream import FakeUpstream

RATE = 200.0
PATIENCE = timedelta(seconds=12)


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    with FakeUpstream() as server:
        yield server


def config(directory: Path, url: str, path: str = "/v2/models/m/infer", **changes: Any) -> TrafficConfig:
    body = directory / "body"
    body.write_bytes(b'{"inputs": []}')
    plain = TrafficConfig(url, path, (str(body),), RATE, {"poisson": True}, str(directory / "status.json"))
    return replace(plain, **changes)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[TrafficConfig], TrafficProcess]]:
    """Start a traffic source that is stopped at the end of the test."""
    sources: list[TrafficProcess] = []

    def start(wanted: TrafficConfig) -> TrafficProcess:
        source = TrafficProcess(wanted, run_directory=tmp_path)
        sources.append(source)
        source.start()
        await_status(source, lambda status: status["sent"] > 0)
        return source

    yield start
    for source in sources:
        source.stop()


Started = Callable[[TrafficConfig], TrafficProcess]


def await_status(source: TrafficProcess, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first status from now on for which `condition` holds."""
    seen: list[dict[str, Any]] = []

    def holds() -> bool:
        status = source.status()
        if status is None or not condition(status):
            return False
        seen.append(status)
        return True

    wait_until(holds, within=PATIENCE, what="the status is as expected", process=source.process)
    return seen[0]


def test_requests_are_sent_at_the_wanted_rate_and_counted(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    source = started(config(tmp_path, upstream.url))
    first = await_status(source, lambda status: status["ok"] > 0)
    last = await_status(source, lambda status: status["sent"] >= first["sent"] + 3 * RATE)
    elapsed = datetime.fromisoformat(last["at"]) - datetime.fromisoformat(first["at"])
    # 600 Poisson arrivals are within 12 % of their mean but once in 300 runs; the rest is for a busy machine.
    assert (last["sent"] - first["sent"]) / elapsed.total_seconds() == pytest.approx(RATE, rel=0.2)
    assert last["failed"] == {}
    assert last["dropped"] == 0
    source.stop()
    final = source.status()
    assert final is not None
    assert final["ok"] == final["sent"] == upstream.received


def test_slow_answers_do_not_slow_the_sending(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    upstream.delay_seconds = 1.0
    source = started(config(tmp_path, upstream.url))
    status = await_status(source, lambda status: status["ok"] > 0)
    # Little's law: about RATE x 1 s requests are under way, each on a connection of its own.
    assert status["in_flight"] > RATE / 2
    assert status["latency_seconds"]["p50"] >= 1.0


def test_latency_and_lateness_count_from_the_scheduled_time(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    """A stopped source owes every request of the pause, and their waiting is not forgotten."""
    source = started(config(tmp_path, upstream.url))
    before = await_status(source, lambda status: status["ok"] > 0)
    os.kill(source.process.pid, signal.SIGSTOP)
    pause_seconds = 1.5
    time.sleep(pause_seconds)
    os.kill(source.process.pid, signal.SIGCONT)
    after = await_status(source, lambda status: status["late"] >= before["late"] + RATE)
    assert after["lateness_seconds"]["p99"] > 0.5 * pause_seconds
    assert after["latency_seconds"]["p99"] > 0.5 * pause_seconds


@pytest.mark.parametrize(
    ("path", "kind"), [("/status/503", "status_503"), ("/status/400", "status_400"), ("/reset", "broken")]
)
def test_failures_are_counted_by_kind(
    upstream: FakeUpstream, started: Started, tmp_path: Path, path: str, kind: str
) -> None:
    source = started(config(tmp_path, upstream.url, path))
    status = await_status(source, lambda status: sum(status["failed"].values()) > 10)
    assert set(status["failed"]) == {kind}
    assert status["ok"] == 0


def test_refused_connections_and_overdue_answers_are_failures(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    refused = started(config(tmp_path, f"http://127.0.0.1:{free_port()}"))
    assert set(await_status(refused, lambda status: len(status["failed"]) > 0)["failed"]) == {"connect"}
    refused.stop()
    overdue = started(config(tmp_path, upstream.url, "/hang", timeout_seconds=0.3))
    status = await_status(overdue, lambda status: status["failed"].get("timeout", 0) > RATE / 2)
    assert set(status["failed"]) == {"timeout"}
    assert status["in_flight"] < RATE


def test_the_safety_cap_is_reported_when_it_is_hit(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    source = started(config(tmp_path, upstream.url, "/hang", max_in_flight=10))
    status = await_status(source, lambda status: status["dropped"] > 0)
    assert status["sent"] == status["in_flight"] == 10


def test_the_rate_follows_the_configuration_file(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    source = started(config(tmp_path, upstream.url, requests_per_second=20.0))
    source.set_rate(400.0)
    begin = await_status(source, lambda status: status["requests_per_second"] == 400.0)
    # 600 requests at the old rate would take 30 s, longer than the test's patience.
    end = await_status(source, lambda status: status["sent"] >= begin["sent"] + 600)
    assert end["reloads"] == 1


def test_an_unusable_configuration_changes_nothing_and_is_reported(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    source = started(config(tmp_path, upstream.url))
    (tmp_path / "traffic.json").write_text('{"requests_per_second": -1}')
    os.kill(source.process.pid, signal.SIGHUP)
    sent = await_status(source, lambda status: status["ok"] > 0)["sent"]
    status = await_status(source, lambda status: status["sent"] > sent)
    assert status["requests_per_second"] == RATE
    assert status["reloads"] == 0
    assert "configuration not used" in source.process.log_tail()


def test_it_stops_cleanly_while_answers_are_outstanding(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    source = started(config(tmp_path, upstream.url, "/hang"))
    source.stop()
    assert source.process.exit_code == 0
    status = source.status()
    assert status is not None
    assert status["running"] is False
    assert source.process.log_tail() == ""


def test_it_survives_a_restart_of_envoy_and_counts_what_that_cost(
    upstream: FakeUpstream, started: Started, tmp_path: Path
) -> None:
    replica = Replica("only", upstream.url, upstream.url)
    envoy = EnvoyProcess(Topology([replica], timedelta(seconds=0.1), {"only": 1000}), run_directory=tmp_path)
    envoy.start()
    try:
        source = started(config(tmp_path, envoy.url))
        await_status(source, lambda status: status["ok"] > 0)
        envoy.kill()
        failed = await_status(source, lambda status: status["failed"].get("connect", 0) > 0)
        envoy.start()
        status = await_status(source, lambda status: status["ok"] > failed["ok"] + RATE)
        assert set(status["failed"]) <= {"connect", "broken"}
        source.stop()
    finally:
        envoy.stop()


def test_a_wrong_configuration_ends_with_code_2_and_names_the_field(tmp_path: Path) -> None:
    source = TrafficProcess(config(tmp_path, "http://127.0.0.1:1"), run_directory=tmp_path)
    write_config(tmp_path / "traffic.json", config(tmp_path, "http://127.0.0.1:1"))
    values = json.loads((tmp_path / "traffic.json").read_text()) | {"arrivals": {"trace": "unheard-of"}}
    (tmp_path / "traffic.json").write_text(json.dumps(values))
    source.process.start()
    wait_until(lambda: not source.process.alive, within=PATIENCE, what="it ended")
    assert source.process.exit_code == 2
    assert "arrivals.trace" in source.process.log_tail()


# ---- pure parts ----


def test_a_configuration_survives_being_written_and_read(tmp_path: Path) -> None:
    written = config(tmp_path, "http://127.0.0.1:1", headers={"inference-header-content-length": "14"})
    write_config(tmp_path / "traffic.json", written)
    assert read_config(tmp_path / "traffic.json") == written


def test_a_request_is_complete_and_carries_the_extra_headers(tmp_path: Path) -> None:
    (request,) = config(tmp_path, "http://127.0.0.1:81", headers={"x-extra": "1"}).requests()
    head, body = request.split(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/models/m/infer HTTP/1.1\r\nhost: 127.0.0.1:81\r\n")
    assert b"x-extra: 1" in head
    assert b"content-length: %d" % len(body) in head


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "https://127.0.0.1:80", "http://127.0.0.1"])
def test_an_address_that_cannot_be_used_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        config(tmp_path, url)
    assert caught.value.field == "url"


def test_an_answer_is_complete_when_its_length_says_so() -> None:
    received = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345"
    for cut in range(len(received)):
        answer = read_head(received[:cut])
        assert answer is None or not answer.is_complete(received[:cut])
    answer = read_head(received)
    assert answer is not None
    assert answer.is_complete(received)
    assert (answer.status, answer.reusable) == (200, True)


def test_an_answer_in_chunks_is_complete_with_its_last_chunk() -> None:
    received = (
        b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    answer = read_head(received)
    assert answer is not None
    assert (answer.status, answer.reusable) == (503, False)
    assert answer.is_complete(received)
    assert not answer.is_complete(received[:-5])
