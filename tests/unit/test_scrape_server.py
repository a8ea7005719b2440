"""Triton's counters and statistics become seconds, and what is not reported stays unknown."""

from __future__ import annotations

import json

import pytest

from autotuner.domain.measurement import BatchTiming, ServerCounters
from autotuner.instruments.exposition import Page
from autotuner.instruments.readings import Unreadable
from autotuner.instruments.triton import WANTED, Statistics, read_server, read_statistics, statistics_path

PAGE = """\
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="vision",version="1"} 90
nv_inference_request_success{model="vision",version="2"} 10
nv_inference_request_success{model="other",version="1"} 5000
nv_inference_request_failure{model="vision",reason="BACKEND",version="1"} 2
nv_inference_request_failure{model="vision",reason="REJECTED",version="1"} 1
nv_inference_count{model="vision",version="1"} 120
nv_inference_exec_count{model="vision",version="1"} 40
nv_inference_request_duration_us{model="vision",version="1"} 9000000
nv_inference_queue_duration_us{model="vision",version="1"} 2000000
nv_inference_compute_input_duration_us{model="vision",version="1"} 100000
nv_inference_compute_infer_duration_us{model="vision",version="1"} 3000000
nv_inference_compute_output_duration_us{model="vision",version="1"} 50000
nv_inference_request_summary_us{model="vision",version="1",quantile="0.5"} Nan
"""
BATCHES = (BatchTiming(1, 2, 0.5),)


def read(text: str, model: str = "vision") -> ServerCounters:
    return read_server(Page(text, WANTED), model, Statistics(BATCHES, ("1", "2")))


def part(milliseconds: float, count: int) -> dict[str, int]:
    return {"count": count, "ns": round(milliseconds * 1e6)}


def statistics(*versions: list[dict[str, object]]) -> str:
    return json.dumps({"model_stats": [{"name": "vision", "batch_stats": batches} for batches in versions]})


def batch(size: int, executions: int, infer_ms: float) -> dict[str, object]:
    times = {"compute_input": 1.0, "compute_infer": infer_ms, "compute_output": 2.0}
    return {"batch_size": size, **{name: part(ms, executions) for name, ms in times.items()}}


def test_counters_of_the_model_are_summed_over_versions_and_reasons_in_seconds() -> None:
    assert read(PAGE) == ServerCounters(
        succeeded=100,
        failed=3,
        inferences=120,
        executions=40,
        queue_seconds=2.0,
        input_seconds=0.1,
        infer_seconds=3.0,
        output_seconds=0.05,
        batches=BATCHES,
        model_versions=("1", "2"),
    )


def test_memory_of_all_gpus_is_added_up() -> None:
    gpus = 'nv_gpu_memory_used_bytes{gpu_uuid="a"} 5\nnv_gpu_memory_used_bytes{gpu_uuid="b"} 6\n'
    gpus += 'nv_gpu_memory_total_bytes{gpu_uuid="a"} 50\nnv_gpu_memory_total_bytes{gpu_uuid="b"} 60\n'
    counted = read(PAGE + gpus)
    assert (counted.memory_used_bytes, counted.memory_total_bytes) == (11, 110)
    assert counted.device_busy_seconds is None


def test_the_emulated_device_is_preferred_to_a_real_one() -> None:
    emulated = 'emulated_gpu_memory_used_bytes{gpu="e"} 7\nemulated_gpu_memory_total_bytes{gpu="e"} 70\n'
    busy = 'emulated_gpu_busy_microseconds_total{gpu="e"} 1500000\n'
    counted = read(PAGE + emulated + busy + 'nv_gpu_memory_used_bytes{gpu_uuid="a"} 5\n')
    assert (counted.memory_used_bytes, counted.memory_total_bytes) == (7, 70)
    assert counted.device_busy_seconds == 1.5


def test_a_model_that_is_not_there_is_said_by_name() -> None:
    with pytest.raises(Unreadable, match="nothing about the model missing"):
        read(PAGE, "missing")


@pytest.mark.parametrize("value", ["NaN", "-5", "+Inf"])
@pytest.mark.parametrize("family", ["request_success", "exec_count", "queue_duration_us"])
def test_a_broken_number_makes_the_server_unreadable_never_zero(family: str, value: str) -> None:
    text = "".join(
        f"{line.rpartition(' ')[0]} {value}\n" if f"{family}{{" in line else f"{line}\n"
        for line in PAGE.splitlines()
    )
    with pytest.raises(Unreadable, match=family):
        read(text)


def test_a_family_that_is_missing_makes_the_server_unreadable() -> None:
    with pytest.raises(Unreadable, match="nv_inference_queue_duration_us for vision"):
        read("\n".join(line for line in PAGE.splitlines() if "queue" not in line) + "\n")


def test_statistics_give_executions_and_compute_time_by_batch_size() -> None:
    text = statistics([batch(8, 3, 60.0), batch(1, 10, 117.0)], [batch(8, 1, 20.0)])
    small, large = read_statistics(text).batches
    assert (small.size, small.executions, large.size, large.executions) == (1, 10, 8, 4)
    assert small.compute_seconds == pytest.approx(0.120)
    assert large.compute_seconds == pytest.approx(0.086)


def test_statistics_after_a_load_are_empty() -> None:
    assert read_statistics(statistics([])) == Statistics()


def test_statistics_name_the_versions_that_are_loaded() -> None:
    entries = [{"name": "vision", "version": version} for version in ("10", "2")]
    assert read_statistics(json.dumps({"model_stats": entries})).versions == ("2", "10")


@pytest.mark.parametrize(
    "text",
    ["<html></html>", "[]", "{}", "null", '{"model_stats": [{"batch_stats": [{"batch_size": 1}]}]}']
    + [statistics([batch(1, 1, 5.0)]).replace("5000000", broken) for broken in ("NaN", "-3", '"many"')]
    + [statistics([batch(1, 1, 5.0)]).replace("5000000", f"1{'0' * 400}"), "[" * 100_000]
    + [statistics([batch(7, 1, 5.0)]).replace("7", size, 1) for size in ("0", "-7", "Infinity", "NaN")],
)
def test_statistics_in_an_unknown_form_are_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="inference statistics"):
        read_statistics(text)


def test_a_models_name_is_escaped_in_the_path() -> None:
    assert statistics_path("a/b c") == "/v2/models/a%2Fb%20c/stats"
