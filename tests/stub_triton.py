"""A Triton as far as a diagnosis reads one: planned pages whose counters go on, to be made hostile one at a time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.diagnoses import CONFIG, MODEL
from tests.stub_server import Planned, StubServer

METADATA = {"name": "triton", "version": "2.51.0", "extensions": ["statistics", "model_configuration"]}
STATS, CONFIG_PATH, METRICS = f"/v2/models/{MODEL}/stats", f"/v2/models/{MODEL}/config", "/metrics"


def duration(count: int, seconds: float) -> dict[str, int]:
    """A statistic as Triton writes it."""
    return {"count": count, "ns": round(seconds * 1e9)}


def statistics(requests: int, name: str = MODEL, **more: Any) -> dict[str, Any]:
    """Inference statistics of one version after so many requests, in batches of one that take 10 ms."""
    return {
        "name": name,
        "version": "1",
        "inference_count": requests,
        "execution_count": requests,
        "inference_stats": {
            "success": duration(requests, requests * 0.0125),
            "fail": duration(0, 0.0),
            "queue": duration(requests, requests * 0.002),
            "compute_input": duration(requests, requests * 0.0005),
            "compute_infer": duration(requests, requests * 0.009),
            "compute_output": duration(requests, requests * 0.0005),
        },
        "batch_stats": [
            {
                "batch_size": 1,
                "compute_input": duration(requests, requests * 0.0005),
                "compute_infer": duration(requests, requests * 0.009),
                "compute_output": duration(requests, requests * 0.0005),
            }
        ],
        **more,
    }


def metrics(requests: int, name: str = MODEL) -> str:
    """A metrics page after so many requests."""
    label = f'{{model="{name}",version="1"}}'
    rows = {
        "request_success": requests,
        "request_failure": 0,
        "count": requests,
        "exec_count": requests,
        "request_duration_us": requests * 12_500,
        "queue_duration_us": requests * 2_000,
        "compute_input_duration_us": requests * 500,
        "compute_infer_duration_us": requests * 9_000,
        "compute_output_duration_us": requests * 500,
        "pending_request_count": 0,
    }
    lines = [f"nv_inference_{row}{label} {value}" for row, value in rows.items()]
    for quantile, value in (("0.5", 12_000), ("0.95", 20_000), ("0.99", "Nan" if requests == 0 else 30_000)):
        lines.append(
            f'nv_inference_request_summary_us{{model="{name}",version="1",quantile="{quantile}"}} {value}'
        )
    return "\n".join(lines) + "\n"


def counting(page: Callable[[int], str], each: int = 20) -> Callable[[str], Planned]:
    """A page whose count goes up by `each` at every question."""
    counts: Iterator[int] = itertools.count(0, each)
    return lambda _: Planned(page(next(counts)))


def as_json(value: Any) -> Planned:
    """A JSON answer."""
    return Planned(json.dumps(value), headers={"Content-Type": "application/json"})


def a_triton() -> StubServer:
    """A healthy server that was not started yet; its answers may be changed."""
    return StubServer(
        {
            "/v2": as_json(METADATA),
            CONFIG_PATH: as_json(CONFIG),
            STATS: counting(lambda count: json.dumps({"model_stats": [statistics(count)]})),
            "/v2/models/stats": as_json({"model_stats": [statistics(1000), statistics(10, "other")]}),
            METRICS: counting(metrics, each=80),
        }
    )
