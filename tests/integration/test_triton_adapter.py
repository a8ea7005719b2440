"""Model control against a real tritonserver: what is sent is what it serves, and each refusal says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.adapters.triton import TritonServing
from autotuner.domain.configuration import Configuration, fingerprint, read_configuration, with_configuration
from autotuner.domain.pbtxt import config_pbtxt
from autotuner.domain.target import Replica
from autotuner.errors import Refused, Unavailable
from autotuner.sandbox.model_repository import write_repository
from autotuner.sandbox.processes import wait_until
from autotuner.sandbox.tritonserver import TritonProcess, install
from autotuner.sandbox.workload import Workload, parse_workload
from tests.builders import a_target, changed
from tests.integration.server_metrics import metric

LIMIT = timedelta(seconds=60)
FAILING_DELAY, HANGING_DELAY = 111, 222
INSTANCE_BYTES = 400e6


@pytest.fixture(scope="module")
def workload() -> Workload:
    return parse_workload(
        {
            "name": "quick",
            "model": "emulated-gpu",
            "max_batch_size": 8,
            "batch_latency_ms": {1: 2, 8: 4},
            "transfer_ms_per_item": 0,
            "instance_memory_mb": INSTANCE_BYTES / 1e6,
            "device_memory_mb": 2000,
            "incumbent": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 500},
            "traffic": {"requests_per_second": 10, "arrivals": {"poisson": True}},
            "slo": {"p99_ms": 100},
            "faults": {"fail_load_when_delay_us": FAILING_DELAY, "hang_load_when_delay_us": HANGING_DELAY},
        }
    )


@pytest.fixture(scope="module")
def server(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonProcess]:
    directory = tmp_path_factory.mktemp("triton")
    repository = write_repository(workload, directory / "models")
    with TritonProcess("canary", install(), repository, workload.name, directory / "canary") as process:
        yield process


def serving_of(server: TritonProcess) -> TritonServing:
    canary = Replica("canary", server.http_url, server.metrics_url)
    return TritonServing(changed(a_target(), model=server.model, canary=canary))


@pytest.fixture
def serving(server: TritonProcess) -> TritonServing:
    """The server once it has unloaded what the test before left: until then its memory is taken twice."""
    door = serving_of(server)
    held = served(door).instance_count * INSTANCE_BYTES
    wait_until(
        lambda: metric(server, "emulated_gpu_memory_used_bytes") <= held,
        within=LIMIT,
        what="old versions are unloaded",
    )
    return door


def served(serving: TritonServing) -> Configuration:
    return read_configuration(serving.model_config("canary"))


@pytest.mark.parametrize(
    "wanted",
    [
        Configuration(5000, (2, 8), 2, 8),
        Configuration(0, (), 1, 8),
        Configuration(0, (), 1, 4),
        Configuration(60_000_000, (1, 3), 1, 16),
    ],
)
def test_a_loaded_configuration_is_read_back_with_the_same_fingerprint(
    serving: TritonServing, wanted: Configuration
) -> None:
    sent = with_configuration(serving.model_config("canary"), wanted)
    serving.load("canary", sent, LIMIT)
    assert fingerprint(serving.model_config("canary")) == fingerprint(sent)
    assert served(serving) == wanted
    assert serving.is_ready("canary")


def test_loading_what_was_read_changes_nothing(serving: TritonServing) -> None:
    config = serving.model_config("canary")
    serving.load("canary", config, LIMIT)
    assert serving.model_config("canary") == config


@pytest.mark.parametrize(
    ("fields", "batcher", "words"),
    [
        ({}, {"preferred_batch_size": [9000]}, "preferred size above max_batch_size"),
        ({}, {"max_queue_delay_microseconds": -1}, "not valid"),
        ({}, {"max_queue_delay_microseconds": FAILING_DELAY}, "planted failure"),
        ({"count": 6}, {}, "not enough memory"),
        ({"kind": "KIND_GPU"}, {}, "GPU that this server does not have"),
    ],
)
def test_a_refused_load_says_why_and_leaves_the_old_version_serving(
    serving: TritonServing, fields: dict[str, Any], batcher: dict[str, Any], words: str
) -> None:
    before = serving.model_config("canary")
    wrong = {
        **before,
        "instance_group": [before["instance_group"][0] | fields],
        "dynamic_batching": before["dynamic_batching"] | batcher,
    }
    with pytest.raises(Refused, match=f"canary refused to load quick: .*{words}") as caught:
        serving.load("canary", wrong, LIMIT)
    assert len(str(caught.value)) < 600
    assert ".py(" not in str(caught.value)
    assert serving.model_config("canary") == before
    assert serving.is_ready("canary")


def test_a_value_that_triton_silently_changes_is_refused_by_name(serving: TritonServing) -> None:
    config = serving.model_config("canary")
    nobody = {**config, "instance_group": [config["instance_group"][0] | {"count": 0}]}
    with pytest.raises(Refused, match=r"other values than were sent \(instance_group\)"):
        serving.load("canary", nobody, LIMIT)


def test_an_unknown_model_is_refused_with_advice(server: TritonProcess, serving: TritonServing) -> None:
    elsewhere = TritonServing(changed(serving.target, model="nothing"))
    assert not elsewhere.is_ready("canary")
    with pytest.raises(Refused, match="check the model's name"):
        elsewhere.model_config("canary")


def test_a_restarted_server_has_drifted_back_to_its_repository(
    server: TritonProcess, serving: TritonServing, workload: Workload
) -> None:
    sent = with_configuration(serving.model_config("canary"), Configuration(7000, (), 1, 8))
    serving.load("canary", sent, LIMIT)
    server.kill()
    assert not serving.is_ready("canary")
    with pytest.raises(Unavailable, match="connection refused"):
        serving.load("canary", sent, LIMIT)
    server.start()
    assert serving.is_ready("canary")
    assert fingerprint(serving.model_config("canary")) != fingerprint(sent)
    assert served(serving) == workload.incumbent_configuration()


def test_a_repository_with_the_exported_text_serves_the_same_configuration(
    serving: TritonServing, workload: Workload, tmp_path: Path
) -> None:
    wanted = with_configuration(serving.model_config("canary"), Configuration(3000, (2, 6), 2, 8))
    repository = write_repository(workload, tmp_path / "models")
    (repository / workload.name / "config.pbtxt").write_text(config_pbtxt(wanted))
    with TritonProcess("exported", install(), repository, workload.name, tmp_path / "exported") as other:
        assert fingerprint(serving_of(other).model_config("canary")) == fingerprint(wanted)


def test_a_load_that_hangs_is_given_up_at_the_limit_while_the_old_version_serves(
    workload: Workload, tmp_path: Path
) -> None:
    repository = write_repository(workload, tmp_path / "models")
    process = TritonProcess("hanging", install(), repository, workload.name, tmp_path / "hanging")
    try:
        process.start()
        serving = serving_of(process)
        before = serving.model_config("canary")
        hanging = with_configuration(before, Configuration(HANGING_DELAY, (), 1, 8))
        started = time.monotonic()
        with pytest.raises(Unavailable, match=r"triton canary is unavailable: no answer within 1\.5 s"):
            serving.load("canary", hanging, timedelta(seconds=1.5))
        assert time.monotonic() - started < 5
        assert serving.is_ready("canary")
        assert serving.model_config("canary") == before
    finally:
        process.kill()  # a server with a load under way does not stop when it is asked to
