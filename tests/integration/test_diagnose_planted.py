"""A problem planted in a real Triton is found first, and nothing else is called sure; a healthy one is called healthy.

One server with one traffic source serves all cases: each loads a configuration, waits until it is warm, and looks.
The loads are this test's; a diagnosis never loads.
"""

from __future__ import annotations

import copy
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.adapters.clock import SystemClock
from autotuner.bootstrap import observer_of
from autotuner.diagnosing import USUAL, Asked, Deployment, ServerPlace, diagnose, looked
from autotuner.domain.configuration import read_configuration
from autotuner.domain.findings.assess import assess
from autotuner.domain.findings.kinds import Confidence, Finding, Kind
from autotuner.domain.findings.scene import Scene
from autotuner.domain.findings.window import gather
from autotuner.sandbox.model_repository import ReferenceRequests, reference_requests, write_repository
from autotuner.sandbox.traffic import TrafficConfig, TrafficProcess
from autotuner.sandbox.tritonserver import HOST, TritonProcess, install
from autotuner.sandbox.workload import Workload, parse_workload

WINDOW = timedelta(seconds=5)
WARM = timedelta(seconds=1.5)
"""After a load the first second is slow; a half more, for the traffic to be what it was set to."""

BESIDES_THE_WINDOW = timedelta(minutes=1) - USUAL
"""What a command may take beside its window: the page of the usual window is then there within a minute."""

CURVE = {1: 12, 2: 13, 4: 15.5, 8: 21, 16: 32, 32: 54}
MODEL = "planted"
CLOCK = SystemClock()

Change = Callable[[dict[str, Any]], object]


def wait(duration: timedelta) -> None:
    time.sleep(duration.total_seconds())


@pytest.fixture(scope="module")
def workload() -> Workload:
    return parse_workload(
        {
            "name": MODEL,
            "model": "emulated-gpu",
            "max_batch_size": 32,
            "batch_latency_ms": CURVE,
            "transfer_ms_per_item": 0.2,
            "instance_memory_mb": 500,
            "device_memory_mb": 16_000,
            "traffic": {"requests_per_second": 60, "arrivals": {"poisson": True}},
            "slo": {"p99_ms": 100},
        }
    )


@dataclass
class Rig:
    """A server, what is sent to it, and how it is looked at."""

    server: TritonProcess
    traffic: TrafficProcess
    asked: ReferenceRequests
    config: Mapping[str, Any] = field(repr=False)

    def load(self, change: Change, model: str = MODEL) -> None:
        """Load the first configuration with a change."""
        config = copy.deepcopy(dict(self.config))
        change(config)
        body = json.dumps({"parameters": {"config": json.dumps(config)}})
        status, answer = self.post(f"/v2/repository/models/{model}/load", body.encode())
        assert status == http.client.OK, answer

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        with closing(http.client.HTTPConnection(HOST, self.server.ports.http, timeout=30)) as connection:
            connection.request("POST", path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")

    def get(self, path: str) -> Any:
        with closing(http.client.HTTPConnection(HOST, self.server.ports.http, timeout=30)) as connection:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())

    def infer(self, model: str, times: int) -> None:
        path = self.asked.path.replace(f"/{MODEL}/", f"/{model}/")
        for _ in range(times):
            status, answer = self.post(path, self.asked.bodies[0], self.asked.headers)
            assert status == http.client.OK, answer

    @property
    def place(self) -> ServerPlace:
        return ServerPlace(self.server.name, self.server.http_url, self.server.metrics_url)

    def look(self, ceiling_ms: float = 100.0, model: str = MODEL, *more: ServerPlace) -> tuple[Finding, ...]:
        """What is found within the window, without the prediction."""
        observer = observer_of(Deployment((self.place, *more), model), CLOCK)
        facts = observer.facts()
        looks = looked(observer, CLOCK, wait, WINDOW)
        return assess(Scene(ceiling_ms / 1e3, gather(looks, model), facts))


def sending(server: TritonProcess, asked: ReferenceRequests, directory: Path, rate: float) -> TrafficProcess:
    """A traffic source straight to one server."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "body.bin").write_bytes(asked.bodies[0])
    config = TrafficConfig(
        url=server.http_url,
        path=asked.path,
        body_paths=(str(directory / "body.bin"),),
        requests_per_second=rate,
        arrivals={"poisson": True},
        status_path=str(directory / "status.json"),
        headers=dict(asked.headers),
    )
    return TrafficProcess(config, run_directory=directory)


@pytest.fixture(scope="module")
def rig(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("planted")
    repository = write_repository(workload, directory / "models")
    for other in ("answers-often", "remembers"):
        shutil.copytree(repository / MODEL / "1", repository / other / "1")
    (repository / "chain" / "1").mkdir(parents=True)
    asked = reference_requests(workload)
    with TritonProcess("planted", install(), repository, MODEL, directory / "server") as server:
        traffic = sending(server, asked, directory / "traffic", 60)
        traffic.start()
        try:
            yield Rig(server, traffic, asked, dict(server.configuration()))
        finally:
            traffic.stop()


def test_grpc_tells_the_same_as_http(rig: Rig) -> None:
    wait(WARM)
    over_grpc = ServerPlace("grpc", f"grpc://{HOST}:{rig.server.ports.grpc}", rig.server.metrics_url)
    asked = Asked(0.1, WINDOW)

    found = diagnose(observer_of(Deployment((over_grpc,), MODEL), CLOCK), CLOCK, wait, asked)

    served = read_configuration(rig.get(f"/v2/models/{MODEL}/config"))
    assert read_configuration(found.scene.facts.configs[MODEL]) == served
    assert found.scene.facts.versions == {"grpc": "2.51.0"}
    assert found.findings[0].kind is Kind.HEALTHY
    assert found.prediction.prospect is not None


def batched(delay_ms: float = 0.0, *preferred: int) -> Change:
    """Sets the dynamic batcher."""
    return lambda config: config["dynamic_batching"].update(
        max_queue_delay_microseconds=round(delay_ms * 1e3), preferred_batch_size=list(preferred)
    )


def with_instances(count: int) -> Change:
    return lambda config: config["instance_group"][0].update(count=count)


def with_parameters(**parameters: Any) -> Change:
    """Sets what the emulated device takes."""

    def change(config: dict[str, Any]) -> None:
        for name, value in parameters.items():
            config["parameters"][name] = {"string_value": value if isinstance(value, str) else str(value)}

    return change


def with_largest(size: int) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["max_batch_size"] = size
        config["dynamic_batching"]["preferred_batch_size"] = []

    return change


@dataclass(frozen=True)
class Planted:
    """A problem: how the model is configured, what is sent, and what must be found first."""

    change: Change
    rate: float
    kind: Kind
    confidence: Confidence | None = Confidence.SURE
    """None: that it comes first is enough."""
    ceiling_ms: float = 100.0
    said: str = ""


COPIES = json.dumps({"1": 4, "32": 20})
CASES = {
    "healthy": Planted(batched(), 60, Kind.HEALTHY),
    "preferred sizes that cap the batch": Planted(
        batched(0, 4, 8), 300, Kind.MISCONFIGURATION, said="largest preferred size"
    ),
    "a delay for batches that do not form": Planted(batched(60, 32), 60, Kind.BATCHING),
    "a delay above the ceiling": Planted(batched(150, 32), 30, Kind.MISCONFIGURATION, said="the ceiling is"),
    "a model slower than the ceiling": Planted(batched(), 20, Kind.MODEL, ceiling_ms=10.0),
    "thin traffic": Planted(batched(5), 3, Kind.THIN_TRAFFIC),
    "memory within the headroom": Planted(
        with_parameters(instance_memory_mb=15_000), 40, Kind.MEMORY, said="headroom"
    ),
    "copies that another instance would overlap": Planted(
        with_parameters(batch_latency_ms=COPIES, transfer_ms_per_item=4),
        170,
        Kind.INSTANCES,
        None,
        said="try 2 instances",
    ),
    "instances that only contend": Planted(
        with_instances(4), 160, Kind.INSTANCES, None, said="fewer instances than 4"
    ),
    "arrivals above capacity": Planted(with_largest(8), 420, Kind.SATURATION),
}


@pytest.mark.parametrize("case", CASES)
def test_the_planted_problem_comes_first_and_no_other_is_sure(rig: Rig, case: str) -> None:
    planted = CASES[case]
    rig.load(planted.change)
    rig.traffic.set_rate(planted.rate)
    wait(WARM)

    first, *others = rig.look(planted.ceiling_ms)

    assert first.kind is planted.kind, (first, others)
    assert planted.confidence in (None, first.confidence), first
    assert planted.said in " ".join((*first.evidence, first.remedy))
    assert [one for one in others if one.confidence is Confidence.SURE] == []


def test_a_reload_in_the_window_is_survived_and_named(rig: Rig) -> None:
    rig.load(batched())
    rig.traffic.set_rate(60)
    wait(WARM)
    reload = threading.Timer(1.5, rig.load, (batched(1),))  # the same one again would be no load
    reload.start()

    first, *others = rig.look()

    reload.join()
    assert (first.kind, first.confidence) == (Kind.COLD_START, Confidence.SURE)
    assert [one for one in others if one.confidence is Confidence.SURE] == []


def test_a_model_of_many_answers_is_told_to_use_another_tool(rig: Rig) -> None:
    rig.load(
        lambda config: config.update(name="answers-often", model_transaction_policy={"decoupled": True}),
        "answers-often",
    )

    first, *_ = rig.look(model="answers-often")

    assert (first.kind, first.confidence) == (Kind.WRONG_TOOL, Confidence.SURE)


def test_a_sequence_batcher_is_told_what_may_be_tuned(rig: Rig) -> None:
    def sequences(config: dict[str, Any]) -> None:
        del config["dynamic_batching"]
        config.update(name="remembers", sequence_batching={"max_sequence_idle_microseconds": 5_000_000})

    rig.load(sequences, "remembers")

    first, *_ = rig.look(model="remembers")

    assert (first.kind, first.confidence) == (Kind.STATEFUL, Confidence.SURE)


def chained(config: dict[str, Any]) -> None:
    """An ensemble of one step, which is the model that has traffic."""
    step = {
        "model_name": MODEL,
        "model_version": -1,
        "input_map": {"INPUT0": "INPUT0"},
        "output_map": {"OUTPUT0": "OUTPUT0"},
    }
    tensors = {name: config[name] for name in ("input", "output", "max_batch_size")}
    config.clear()
    config.update(name="chain", platform="ensemble", ensemble_scheduling={"step": [step]}, **tensors)


def test_an_ensemble_names_the_member_that_holds_the_time(rig: Rig) -> None:
    rig.load(chained, "chain")
    asking = threading.Thread(target=rig.infer, args=("chain", 20))
    asking.start()

    first, *_ = rig.look(model="chain")

    asking.join()
    assert len(first.evidence) == 2, first
    assert (first.kind, first.confidence) == (Kind.ENSEMBLE, Confidence.SURE)
    assert f"{MODEL} holds" in first.evidence[1]


def test_unequal_shares_of_two_replicas_are_outside_triton(
    rig: Rig, workload: Workload, tmp_path: Path
) -> None:
    repository = write_repository(workload, tmp_path / "models")
    with TritonProcess("other", install(), repository, MODEL, tmp_path / "server") as other:
        traffic = sending(other, rig.asked, tmp_path / "traffic", 12)
        traffic.start()
        try:
            rig.traffic.set_rate(70)
            wait(WARM)
            place = ServerPlace(other.name, other.http_url, other.metrics_url)
            first, *others = rig.look(100.0, MODEL, place)
        finally:
            traffic.stop()

    assert (first.kind, first.confidence) == (Kind.OUTSIDE_TRITON, Confidence.SURE)
    assert "balance per request" in first.remedy
    assert [one for one in others if one.confidence is Confidence.SURE] == []


def test_the_page_is_there_within_a_minute_of_the_command(rig: Rig, tmp_path: Path) -> None:
    """The usual window, as in the README, and all else: what else takes is measured on a short window."""
    rig.load(batched(0, 4, 8))
    rig.traffic.set_rate(200)
    wait(WARM)
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "autotuner", "diagnose", "--triton", rig.server.http_url]
    command += ["--model", MODEL, "--p99", "100ms", "--for", f"{WINDOW.total_seconds():g}s"]
    command += ["--metrics", rig.server.metrics_url, "--html", str(page)]
    began = time.monotonic()

    subprocess.run(command, check=True, capture_output=True)

    assert time.monotonic() - began - WINDOW.total_seconds() < BESIDES_THE_WINDOW.total_seconds()
    assert "<svg" in page.read_text("utf-8")


def test_a_diagnosis_leaves_counters_and_configuration_as_they_were(rig: Rig) -> None:
    rig.traffic.stop()
    wait(WARM)

    def state() -> dict[str, Any]:
        paths = ("/v2/models/stats", f"/v2/models/{MODEL}/config", "/v2")
        index = json.loads(rig.post("/v2/repository/index", b"")[1])
        return {**{path: rig.get(path) for path in paths}, "index": index}

    before = state()
    found = diagnose(
        observer_of(Deployment((rig.place,)), CLOCK), CLOCK, wait, Asked(0.1, timedelta(seconds=2))
    )

    assert state() == before
    assert found.findings[0].kind is Kind.IDLE
