"""A real tritonserver with the emulated GPU: it takes the time and memory it should, and leaves nothing behind."""

from __future__ import annotations

import copy
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.configuration import read_configuration
from autotuner.sandbox.model_repository import ReferenceRequests, reference_requests, write_repository
from autotuner.sandbox.processes import wait_until
from autotuner.sandbox.reaper import group_members
from autotuner.sandbox.tritonserver import (
    HOST,
    SHARED_MEMORY,
    TritonInstallation,
    TritonProcess,
    install,
)
from autotuner.sandbox.workload import Workload, load_workload, parse_workload
from tests.integration.server_metrics import metric

SOON = timedelta(seconds=15)
REPOSITORY = Path(__file__).parents[2]

QUICK: dict[str, Any] = {
    "name": "quick",
    "model": "emulated-gpu",
    "max_batch_size": 8,
    "batch_latency_ms": {1: 20, 2: 24, 8: 60},
    "transfer_ms_per_item": 1,
    "instance_memory_mb": 900,
    "device_memory_mb": 5000,
    "incumbent": {"max_queue_delay_microseconds": 500, "preferred_batch_size": [2, 4]},
    "traffic": {"requests_per_second": 10, "arrivals": {"poisson": True}},
    "slo": {"p99_ms": 100},
    "faults": {
        "fail_load_when_delay_us": 111,
        "hang_load_when_delay_us": 222,
        "slow_when_delay_us": 333,
    },
}


@pytest.fixture(scope="module")
def installation() -> TritonInstallation:
    return install()


@pytest.fixture(scope="module")
def workload() -> Workload:
    return parse_workload(QUICK)


@pytest.fixture(scope="module")
def running(
    installation: TritonInstallation, workload: Workload, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonProcess]:
    directory = tmp_path_factory.mktemp("triton")
    repository = write_repository(workload, directory / "repository")
    with TritonProcess("quick", installation, repository, workload.name, directory) as server:
        yield server


@pytest.fixture
def server(running: TritonProcess, workload: Workload) -> TritonProcess:
    """The module's server with the incumbent loaded, whatever the test before did to it."""
    incumbent = workload.incumbent_configuration()
    if not running.process.alive or read_configuration(running.configuration()) != incumbent:
        running.restart()
    return running


@pytest.fixture
def asked(workload: Workload) -> ReferenceRequests:
    return reference_requests(workload)


def post(server: TritonProcess, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, server.ports.http, timeout=30)
    with closing(connection):
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def infer(server: TritonProcess, asked: ReferenceRequests) -> float:
    """Seconds that one request took; fails unless it was answered rightly."""
    started = time.perf_counter()
    status, body = post(server, asked.path, asked.bodies[0], dict(asked.headers))
    seconds = time.perf_counter() - started
    assert status == http.client.OK, body
    assert asked.answered_rightly(body)
    return seconds


def load(server: TritonProcess, change: Callable[[dict[str, Any]], object]) -> tuple[int, str]:
    """Load the server's complete configuration with a change; status and text of the answer."""
    config: dict[str, Any] = copy.deepcopy(dict(server.configuration()))
    change(config)
    body = json.dumps({"parameters": {"config": json.dumps(config)}}).encode()
    status, answer = post(server, f"/v2/repository/models/{server.model}/load", body, {})
    return status, answer.decode()


def instances(count: int) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["instance_group"][0].update(count=count)


def delay(microseconds: int) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["dynamic_batching"].update(max_queue_delay_microseconds=microseconds)


def memory_settles_at(server: TritonProcess, megabytes: float) -> None:
    wait_until(
        lambda: metric(server, "emulated_gpu_memory_used_bytes") == megabytes * 1e6,
        within=SOON,
        what=f"the emulated GPU has {megabytes} MB in use",
    )


def test_the_server_tells_a_complete_configuration_with_the_incumbent(
    server: TritonProcess, workload: Workload
) -> None:
    config = server.configuration()

    assert read_configuration(config) == workload.incumbent_configuration()
    assert config["backend"] == "python"
    assert config["input"]
    assert config["output"]


def test_an_answer_is_checked_by_its_values(server: TritonProcess, asked: ReferenceRequests) -> None:
    _, body = post(server, asked.path, asked.bodies[0], dict(asked.headers))

    assert asked.answered_rightly(body)
    assert not asked.answered_rightly(body[:-4] + b"\0\0\0\0")
    assert not asked.answered_rightly(b"")


def test_a_lone_request_takes_transfer_and_compute(server: TritonProcess, asked: ReferenceRequests) -> None:
    infer(server, asked)

    seconds = [infer(server, asked) for _ in range(15)]

    assert min(seconds) >= 0.021
    assert statistics.median(seconds) <= 0.021 + 0.020


def test_instances_compute_one_after_the_other_and_busy_time_says_so(
    server: TritonProcess, asked: ReferenceRequests
) -> None:
    def unbatched(config: dict[str, Any]) -> None:
        instances(3)(config)
        config["dynamic_batching"].update(preferred_batch_size=[1], max_queue_delay_microseconds=0)
        config["max_batch_size"] = 1

    assert load(server, unbatched)[0] == http.client.OK
    memory_settles_at(server, 2700)
    before = metric(server, "emulated_gpu_busy_microseconds_total")

    started = time.perf_counter()
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: infer(server, asked), range(12)))
    elapsed = time.perf_counter() - started

    assert elapsed >= 12 * 0.020
    busy_us = 0.0

    def published() -> bool:
        nonlocal busy_us
        busy_us = metric(server, "emulated_gpu_busy_microseconds_total") - before
        return busy_us >= 12 * 20_000

    wait_until(published, within=SOON, what="all busy time is published")
    assert busy_us <= elapsed * 1e6


def test_memory_in_use_follows_every_reload(server: TritonProcess, asked: ReferenceRequests) -> None:
    memory_settles_at(server, 900)
    assert metric(server, "emulated_gpu_memory_total_bytes") == 5e9

    assert load(server, instances(3))[0] == http.client.OK
    memory_settles_at(server, 2700)
    assert load(server, instances(2))[0] == http.client.OK
    memory_settles_at(server, 1800)
    infer(server, asked)
    assert load(server, instances(1))[0] == http.client.OK
    memory_settles_at(server, 900)


def test_a_load_that_does_not_fit_is_refused_and_the_old_version_serves_on(
    server: TritonProcess, asked: ReferenceRequests
) -> None:
    status, answer = load(server, instances(6))

    assert status != http.client.OK
    assert "emulated GPU out of memory: tried to allocate 900 MB" in answer
    assert server.ready()
    infer(server, asked)
    memory_settles_at(server, 900)


def test_a_planted_load_failure_is_refused_and_the_old_version_serves_on(
    server: TritonProcess, asked: ReferenceRequests
) -> None:
    status, answer = load(server, delay(111))

    assert status != http.client.OK
    assert "planted failure" in answer
    infer(server, asked)


def test_a_planted_slowness_multiplies_the_compute_time(
    server: TritonProcess, asked: ReferenceRequests
) -> None:
    assert load(server, delay(333))[0] == http.client.OK

    assert infer(server, asked) >= 5 * 0.020


def test_while_a_load_hangs_the_old_version_serves_and_the_server_can_be_killed(
    server: TritonProcess, asked: ReferenceRequests
) -> None:
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(load, server, delay(222))
        wait_until(lambda: "planted hang" in server.process.log_tail(), within=SOON, what="the load hangs")
        infer(server, asked)
        assert not hanging.done()

        server.kill()

        assert isinstance(hanging.exception(timeout=10), http.client.HTTPException | OSError)
    assert group_members(server.process.pid) == []


def test_a_crashed_server_takes_its_stubs_along_and_comes_back_with_its_repository(
    server: TritonProcess, asked: ReferenceRequests, workload: Workload
) -> None:
    assert load(server, instances(2))[0] == http.client.OK
    group = server.process.pid

    os.kill(group, signal.SIGKILL)
    wait_until(lambda: not group_members(group), within=SOON, what="server and stubs are gone")
    assert not server.ready()
    server.restart()

    assert read_configuration(server.configuration()) == workload.incumbent_configuration()
    infer(server, asked)
    memory_settles_at(server, 900)


def test_when_the_owner_is_killed_no_process_and_no_shared_memory_is_left(
    workload: Workload, tmp_path: Path
) -> None:
    repository = write_repository(workload, tmp_path / "repository")
    program = f"""
import sys, time
sys.path.insert(0, {str(REPOSITORY)!r})
from pathlib import Path
from autotuner.sandbox.tritonserver import TritonProcess, install
server = TritonProcess("orphan", install(), Path({str(repository)!r}), "quick", Path({str(tmp_path)!r}))
server.start()
print(server.process.pid, flush=True)
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        assert len(group_members(group)) == 2
        assert list(SHARED_MEMORY.glob(f"autotuner-{owner.pid}-*"))

        owner.kill()
        owner.wait()

        wait_until(lambda: not group_members(group), within=SOON, what="server and stubs are gone")
        wait_until(
            lambda: not list(SHARED_MEMORY.glob(f"autotuner-{owner.pid}-*")),
            within=SOON,
            what="its shared memory is gone",
        )


def test_a_real_onnx_model_answers_with_a_distribution(
    installation: TritonInstallation, tmp_path: Path
) -> None:
    workload = load_workload("onnx-magika")
    repository = write_repository(workload, tmp_path / "repository")
    asked = reference_requests(workload)

    server = TritonProcess("magika", installation, repository, workload.name, tmp_path)

    def answer(body: bytes) -> tuple[int, bytes]:
        return post(server, asked.path, body, dict(asked.headers))

    with server, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(answer, asked.bodies[:32]))

    assert all(status == http.client.OK for status, _ in answers)
    assert all(asked.answered_rightly(body) for _, body in answers)
    assert len({body for _, body in answers}) > 16
