"""Model control reads back what it loads, and every failure becomes one of our errors with a sentence."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.adapters.triton import TritonServing
from autotuner.adapters.triton.refusals import explain
from autotuner.adapters.triton.serving import differing_fields
from autotuner.domain.target import Replica
from autotuner.errors import InvalidInput, Refused, Unavailable
from tests.builders import a_target
from tests.stub_server import Planned, StubServer

LIMIT = timedelta(seconds=5)
SHORT = timedelta(seconds=0.3)
PREAMBLE = "load failed for model 'm': version 1 is at UNAVAILABLE state: "
CONFIG = {
    "name": "vision",
    "max_batch_size": 8,
    "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100},
    "instance_group": [{"name": "vision_0", "count": 1, "kind": "KIND_CPU"}],
}
LOAD, READY, CONFIGURATION = (
    "/v2/repository/models/vision/load",
    "/v2/models/vision/ready",
    "/v2/models/vision/config",
)


def changed_config(**batcher: object) -> dict[str, Any]:
    config: dict[str, Any] = copy.deepcopy(CONFIG)
    config["dynamic_batching"].update(batcher)
    return config


class FakeTriton(StubServer):
    """A server that loads what it is given, as `reports` rewrites it."""

    def __init__(self, reports: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: config) -> None:
        super().__init__({"/v2/health/ready": Planned(), READY: Planned(), LOAD: self._load})
        self.answers[CONFIGURATION] = Planned(json.dumps(CONFIG))
        self._reports = reports

    def _load(self, body: str) -> Planned:
        config = json.loads(json.loads(body)["parameters"]["config"])
        self.answers[CONFIGURATION] = Planned(json.dumps(self._reports(config)))
        return Planned()


@pytest.fixture
def triton() -> Iterator[FakeTriton]:
    with FakeTriton() as server:
        yield server


def serving(url: str) -> TritonServing:
    return TritonServing(
        dataclasses.replace(a_target(), model="vision", canary=Replica("canary", url, f"{url}/metrics"))
    )


def test_a_load_sends_the_complete_configuration_and_reads_it_back(triton: FakeTriton) -> None:
    wanted = changed_config(max_queue_delay_microseconds=5000)
    serving(triton.url).load("canary", wanted, LIMIT)
    assert serving(triton.url).model_config("canary") == wanted
    assert triton.requests[:3] == [f"POST {LOAD}", f"GET {READY}", f"GET {CONFIGURATION}"]


def test_a_server_that_spells_the_same_configuration_otherwise_has_loaded_it() -> None:
    def spelled(config: dict[str, Any]) -> dict[str, Any]:
        config["dynamic_batching"] |= {"preferred_batch_size": [8], "max_queue_delay_microseconds": "5000"}
        return config

    with FakeTriton(spelled) as triton:
        sent = changed_config(preferred_batch_size=[], max_queue_delay_microseconds=5000)
        serving(triton.url).load("canary", sent, LIMIT)


def test_a_value_that_the_server_changed_is_a_refusal_that_names_the_field() -> None:
    def silently(config: dict[str, Any]) -> dict[str, Any]:
        config["instance_group"][0]["count"] = 7
        return config

    with FakeTriton(silently) as triton, pytest.raises(Refused, match=r"canary.*\(instance_group\)"):
        serving(triton.url).load("canary", CONFIG, LIMIT)


def test_a_load_waits_until_the_model_is_ready(triton: FakeTriton) -> None:
    def ready_at_the_third_time(_: str) -> Planned:
        return Planned(status=200 if triton.requests.count(f"GET {READY}") >= 3 else 400)

    triton.answers[READY] = ready_at_the_third_time
    serving(triton.url).load("canary", CONFIG, LIMIT)
    assert triton.requests.count(f"GET {READY}") == 3


def test_a_model_that_never_gets_ready_is_unavailable_at_the_limit(triton: FakeTriton) -> None:
    triton.answers[READY] = Planned(status=400)
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"triton canary.*no answer within 0\.3 s"):
        serving(triton.url).load("canary", CONFIG, SHORT)
    assert time.monotonic() - started < 2


def test_a_load_that_hangs_is_unavailable_at_the_limit(triton: FakeTriton) -> None:
    triton.answers[LOAD] = Planned(hang=True)
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"triton canary.*no answer within 0\.3 s"):
        serving(triton.url).load("canary", CONFIG, SHORT)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (
            500,
            '{"error": "failed to load, failed to poll from model repository"}',
            Refused,
            "canary refused to load",
        ),
        (400, '{"error": "load failed for model \'vision\': out of memory"}', Refused, "fewer instances"),
        (502, "<html>bad gateway</html>", Unavailable, "HTTP 502"),
        (503, '{"error": "shutting down"}', Unavailable, "HTTP 503"),
        (500, "", Refused, "empty response"),
    ],
)
def test_what_the_server_says_to_a_load_becomes_our_error(
    triton: FakeTriton, status: int, body: str, error: type[Exception], words: str
) -> None:
    triton.answers[LOAD] = Planned(body, status)
    with pytest.raises(error, match=words):
        serving(triton.url).load("canary", CONFIG, LIMIT)


@pytest.mark.parametrize(
    "body",
    [
        "<html>sign in</html>",
        "[]",
        "{}",
        "",
        '{"name": "vision", "dynamic_batching": []}',
        '{"name": "vision", "max_batch_size": "many"}',
    ],
)
def test_an_answer_that_is_no_configuration_is_not_triton(triton: FakeTriton, body: str) -> None:
    triton.answers[CONFIGURATION] = Planned(body)
    with pytest.raises(Unavailable, match="not Triton's"):
        serving(triton.url).model_config("canary")


def test_a_model_the_server_does_not_know_is_refused(triton: FakeTriton) -> None:
    error = "Request for unknown model: 'vision' is not found"
    triton.answers[CONFIGURATION] = Planned(json.dumps({"error": error}), 400)
    with pytest.raises(Refused, match="check the model's name"):
        serving(triton.url).model_config("canary")


def test_nobody_listening_is_unavailable_and_not_ready() -> None:
    with StubServer() as gone:
        url = gone.url
    with pytest.raises(Unavailable, match=rf"triton canary is unavailable: connection refused \({url}\)"):
        serving(url).model_config("canary")
    with pytest.raises(Unavailable, match="connection refused"):
        serving(url).load("canary", CONFIG, LIMIT)
    assert not serving(url).is_ready("canary")


def test_ready_means_the_server_and_the_model(triton: FakeTriton) -> None:
    assert serving(triton.url).is_ready("canary")
    triton.answers[READY] = Planned(status=400)
    assert not serving(triton.url).is_ready("canary")
    triton.answers |= {READY: Planned(), "/v2/health/ready": Planned(status=503)}
    assert not serving(triton.url).is_ready("canary")


def test_an_unknown_replica_and_a_bad_url_are_wrong_inputs() -> None:
    with pytest.raises(InvalidInput, match="nobody"):
        serving("http://127.0.0.1:1").model_config("nobody")
    with pytest.raises(InvalidInput, match="http_url"):
        serving("ftp://127.0.0.1:1").model_config("canary")


def test_calls_in_many_threads_leave_no_descriptor_behind(triton: FakeTriton) -> None:
    triton.answers["/v2/health/ready"] = Planned()
    ready: list[bool] = []

    def ask() -> None:
        ready.append(serving(triton.url).is_ready("canary"))
        with pytest.raises(Unavailable):
            serving("http://127.0.0.1:1").load("canary", CONFIG, SHORT)

    def ask_in_threads(count: int) -> int:
        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = ask_in_threads(2)
    after = ask_in_threads(10)
    assert ready == [True] * 12
    assert after <= before + 2


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            f"{PREAMBLE}Internal: RuntimeError: disk full\n\nAt:\n  /models/m/1/model.py(6): initialize\n;\n",
            "Internal: RuntimeError: disk full",
        ),
        ("", "no reason given; see the server's log"),
        (
            "explicit model load / unload is not allowed if polling is enabled",
            "--model-control-mode=explicit",
        ),
        ("instance group m_0 of model m has kind KIND_GPU but no GPUs are available", "does not have"),
        ("x" * 1000, "…"),
    ],
)
def test_a_refusal_is_told_in_words_that_help(message: str, sentence: str) -> None:
    told = explain(message)
    assert sentence in told
    assert "/models/" not in told
    assert len(told) < 500


def test_fields_that_differ_in_meaning_are_named() -> None:
    assert differing_fields(CONFIG, changed_config(max_queue_delay_microseconds="100")) == []
    other = changed_config(preferred_batch_size=[2]) | {"backend": "python"}
    assert differing_fields(CONFIG, other) == ["backend", "dynamic_batching"]
