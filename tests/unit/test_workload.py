"""Workload files: what ships loads, and what cannot work is refused by field, value and what is allowed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.configuration import Configuration
from autotuner.errors import InvalidInput
from autotuner.sandbox.arrivals import Poisson, Trace
from autotuner.sandbox.workload import (
    DEFAULT_WORKLOAD,
    ModelKind,
    Workload,
    load_workload,
    parse_workload,
    workload_names,
)

SHIPPED = {
    "embedding",
    "heavy-detector",
    "no-help",
    "onnx-magika",
    "small-vision",
    "stepped",
    "thin-traffic",
}

VALID: dict[str, Any] = {
    "name": "mine",
    "model": "emulated-gpu",
    "max_batch_size": 8,
    "batch_latency_ms": {1: 10, 4: 14, 8: 20},
    "transfer_ms_per_item": 0.5,
    "instance_memory_mb": 1000,
    "device_memory_mb": 8000,
    "incumbent": {"max_queue_delay_microseconds": 0, "preferred_batch_size": [4], "instance_count": 1},
    "limits": {"instance_count": 4},
    "traffic": {"requests_per_second": 100, "arrivals": {"poisson": True}},
    "slo": {"p99_ms": 80},
}

ONNX: dict[str, Any] = {
    "name": "real",
    "model": "onnx",
    "onnx": {"file": "magika"},
    "max_batch_size": 8,
    "traffic": {"requests_per_second": 10, "arrivals": {"poisson": True}},
    "slo": {"p99_ms": 80},
}


def changed(path: str, value: object, base: dict[str, Any] = VALID) -> dict[str, Any]:
    """The base with one field (dotted path) set."""
    content = copy.deepcopy(base)
    *parents, last = path.split(".")
    section: dict[Any, Any] = content
    for name in parents:
        section = section[name]
    section[int(last) if last.isdigit() else last] = value
    return content


def refusal(content: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse_workload(content)
    return caught.value


def test_the_named_workloads_ship() -> None:
    assert set(workload_names()) == SHIPPED


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_workload_loads_under_its_own_name_and_describes_itself(name: str) -> None:
    workload = load_workload(name)

    assert workload.name == name
    assert workload.description
    assert workload.traffic.process().requests_per_second == workload.traffic.requests_per_second
    assert workload.incumbent_configuration().instance_count <= workload.limits.instance_count


@pytest.mark.parametrize("name", sorted(SHIPPED - {"onnx-magika"}))
def test_a_workload_on_the_emulated_gpu_says_so(name: str) -> None:
    path = Path(__file__).parents[2] / "autotuner" / "sandbox" / "workloads" / f"{name}.yaml"

    assert "EMULATED GPU" in path.read_text("utf-8")


def test_the_default_workload_has_the_copied_preferred_sizes() -> None:
    workload = load_workload(DEFAULT_WORKLOAD)

    assert workload.incumbent_configuration() == Configuration(0, (4, 8), 1, 32)
    assert isinstance(workload.traffic.process(), Trace)


def test_a_file_of_the_users_own_loads_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nmodel: emulated-gpu\nmax_batch_size: 4\nbatch_latency_ms: {1: 5, 4: 9}\n"
        "transfer_ms_per_item: 0\ninstance_memory_mb: 10\ndevice_memory_mb: 100\n"
        "traffic: {requests_per_second: 9, arrivals: {poisson: true}}\nslo: {p99_ms: 50}\n"
    )

    workload = load_workload(file)

    assert workload.batch_latency_ms == {1: 5.0, 4: 9.0}
    assert workload.incumbent_configuration() == Configuration(0, (), 1, 4)
    assert workload.traffic.process() == Poisson(9.0)


def test_what_is_left_out_has_sensible_values() -> None:
    workload = parse_workload(VALID)

    assert (workload.slo.error_ratio, workload.slo.max_canary_share) == (0.001, 0.85)
    assert (workload.gpu_cost_per_hour, workload.currency) == (2.5, "USD")
    assert workload.jitter_sigma == 0.0
    assert workload.study is None


def test_study_settings_are_carried_along() -> None:
    assert parse_workload(VALID | {"study": {"max_trials": 5}}).study == {"max_trials": 5}


def test_an_onnx_workload_needs_no_latency_curve() -> None:
    workload = parse_workload(ONNX)

    assert workload.model is ModelKind.ONNX
    assert workload.batch_latency_ms is None


@pytest.mark.parametrize(
    ("path", "value", "field", "allowed"),
    [
        ("name", "Not a name", "name", "lower-case letters, digits and hyphens"),
        ("model", "gpu", "model", "one of: emulated-gpu, onnx"),
        ("max_batch_size", 0, "max_batch_size", "1 to 1024"),
        ("max_batch_size", 8.5, "max_batch_size", "a whole number"),
        ("batch_latency_ms", [1, 2], "batch_latency_ms", "a map of batch size to milliseconds"),
        ("batch_latency_ms", {1: 10, "x": 20}, "batch_latency_ms.x", "a map of batch size to milliseconds"),
        ("batch_latency_ms.4", 25, "batch_latency_ms.8", "at least the 25 ms of the next smaller batch"),
        ("batch_latency_ms.4", -1, "batch_latency_ms.4", "above 0"),
        ("batch_latency_ms.4", float("nan"), "batch_latency_ms.4", "above 0"),
        ("batch_latency_ms.16", 30, "batch_latency_ms", "from 1 to max_batch_size, 8"),
        ("transfer_ms_per_item", -0.1, "transfer_ms_per_item", "0 to 10000"),
        ("instance_memory_mb", 0, "instance_memory_mb", "above 0"),
        ("device_memory_mb", 500, "device_memory_mb", "at least the 1000 MB"),
        ("incumbent.preferred_batch_size", [4, 16], "incumbent.preferred_batch_size", "max_batch_size, 8"),
        ("incumbent.preferred_batch_size", [0], "incumbent.preferred_batch_size", "1 to max_batch_size"),
        ("incumbent.preferred_batch_size", [True], "incumbent.preferred_batch_size.0", "a list of whole"),
        ("incumbent.preferred_batch_size", 4, "incumbent.preferred_batch_size", "a list of whole"),
        ("incumbent.instance_count", 5, "incumbent.instance_count", "at most limits.instance_count, 4"),
        ("incumbent.max_queue_delay_microseconds", -1, "incumbent.max_queue_delay_microseconds", "0 to"),
        ("limits.instance_count", 0, "limits.instance_count", "1 to 64"),
        ("limits", None, "limits", "a section"),
        ("traffic.requests_per_second", 0, "traffic.requests_per_second", "above 0"),
        ("traffic.arrivals", {"uniform": True}, "traffic.arrivals", "{poisson: true}"),
        ("traffic.arrivals", {"trace": "nobody"}, "traffic.arrivals.trace", "azure_llm_2023_conv"),
        (
            "traffic.arrivals",
            {"bursty": {"high": 0.5, "low": 0.2, "mean_seconds": 1}},
            "traffic.arrivals.bursty.high",
            "above 1",
        ),
        (
            "traffic.arrivals",
            {"bursty": {"high": 2, "low": "slow", "mean_seconds": 1}},
            "traffic.arrivals",
            "{bursty: {high, low, mean_seconds}}",
        ),
        ("slo.p99_ms", -100, "slo.p99_ms", "above 0"),
        ("slo.p99_ms", "100", "slo.p99_ms", "milliseconds"),
        ("slo.p99_ms", 10.5, "slo.p99_ms", "more than 10.5 ms"),
        ("slo.error_ratio", 0.1, "slo.error_ratio", "up to 0.01 (1 %)"),
        ("slo.max_canary_share", 85, "slo.max_canary_share", "not a percentage"),
        ("slo.harm_budget_requests", 0, "slo.harm_budget_requests", "at least 1"),
        ("gpu_cost_per_hour", 0, "gpu_cost_per_hour", "above 0"),
        ("currency", "dollars", "currency", "three capital letters"),
        ("jitter_sigma", 2, "jitter_sigma", "0 (no jitter) to 1"),
        ("study", [1], "study", "a section"),
        ("onnx", {"file": "magika"}, "onnx", "model: emulated-gpu does not have it"),
    ],
)
def test_a_bad_value_is_refused_by_field_and_value_with_what_is_allowed(
    path: str, value: object, field: str, allowed: str
) -> None:
    error = refusal(changed(path, value))

    assert error.field == field
    assert allowed in error.allowed
    assert f"{field}: " in str(error)
    assert allowed in str(error)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("batch_latencies", "batch_latency_ms"),
        ("slo.p99ms", "p99_ms"),
        ("incumbent.delay", "max_queue_delay_microseconds"),
        ("traffic.rate", "requests_per_second"),
    ],
)
def test_an_unknown_field_is_refused_with_the_known_ones(path: str, known: str) -> None:
    error = refusal(changed(path, 1))

    assert error.field == path
    assert error.value == 1
    assert known in error.allowed


@pytest.mark.parametrize("field", ["name", "model", "max_batch_size", "traffic", "slo", "batch_latency_ms"])
def test_a_missing_field_is_named(field: str) -> None:
    content = {name: value for name, value in VALID.items() if name != field}

    assert refusal(content).field == field


@pytest.mark.parametrize("size", [1, 8])
def test_a_curve_must_cover_single_requests_and_full_batches(size: int) -> None:
    curve = {points: ms for points, ms in VALID["batch_latency_ms"].items() if points != size}

    error = refusal(VALID | {"batch_latency_ms": curve})

    assert error.field == "batch_latency_ms"
    assert "with 1 and max_batch_size, 8" in error.allowed


def test_an_onnx_workload_has_nothing_of_the_emulated_gpu() -> None:
    assert refusal(ONNX | {"transfer_ms_per_item": 1.0}).field == "transfer_ms_per_item"
    assert refusal(changed("onnx.file", "other", ONNX)).allowed == "one of: magika"


def test_an_unknown_name_is_refused_with_the_names_that_ship() -> None:
    with pytest.raises(InvalidInput, match="small-vision"):
        load_workload("no-such-workload")


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("name: [unclosed")

    with pytest.raises(InvalidInput, match="YAML"):
        load_workload(file)


def test_a_file_that_is_no_mapping_is_refused() -> None:
    assert "a mapping" in refusal(["name"]).allowed


def test_a_workload_cannot_be_changed() -> None:
    workload: Any = parse_workload(VALID)

    with pytest.raises(ValueError, match="frozen"):
        workload.name = "other"
    assert isinstance(workload, Workload)
