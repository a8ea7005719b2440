"""Test data builders: a valid value of each record in one call, so that a test states only what it is about.

Every builder takes the fields a test cares for as keyword arguments and fills in the rest. Import them with
`from tests.builders import a_target`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from autotuner.adapters import clock
from autotuner.domain.configuration import Configuration
from autotuner.domain.measurement import BatchTiming, GatewayCounters, Sample, ServerCounters
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Pace, Study, StudyPlan
from autotuner.domain.target import Gateway, Limits, Replica, Target

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
"""When every test begins."""

EDGES_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, math.inf)
"""Histogram edges of the tests; one lies at the ceiling of `a_budget()`."""

REPLICAS = ("stable-0", "stable-1", "canary")


def at(seconds: float) -> datetime:
    """The instant `seconds` after `START`."""
    return START + timedelta(seconds=seconds)


class ManualClock(clock.ManualClock):
    """A clock that begins at `START` and moves only when it is told to."""

    def __init__(self, start: datetime = START) -> None:
        super().__init__(start)

    def turn(self, seconds: float) -> datetime:
        """Move on by `seconds` and return the new present."""
        return self.advance(timedelta(seconds=seconds))


def a_replica(name: str = "stable-0") -> Replica:
    """A server at an address of its own that nobody listens on."""
    port = 9000 + 10 * (REPLICAS.index(name) if name in REPLICAS else len(REPLICAS))
    return Replica(name, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 2}/metrics")


def a_target(*, stable: int | tuple[Replica, ...] = 2, **changes: Any) -> Target:
    """Two stable replicas and a canary behind one gateway; at most 4 instances and 20 ms of queue delay.

    stable: the stable replicas, or how many.
    """
    if isinstance(stable, int):
        stable = tuple(a_replica(f"stable-{number}") for number in range(stable))
    fields: dict[str, Any] = {
        "name": "vision",
        "model": "small_vision",
        "stable": stable,
        "canary": a_replica("canary"),
        "gateway": Gateway("http://127.0.0.1:9900", "route.vision"),
        "limits": Limits(max_instance_count=4, max_queue_delay_microseconds=20_000),
    }
    return Target(**{**fields, **changes})


def a_budget(**changes: Any) -> SloBudget:
    """p99 within 100 ms, at most 0.1 % errors, up to 85 % on the canary, 200 requests of harm."""
    fields: dict[str, Any] = {
        "p99_ceiling_seconds": 0.1,
        "error_ratio_ceiling": 0.001,
        "max_canary_share": 0.85,
        "harm_budget_requests": 200,
        "actor": "operator",
        "created_at": START,
    }
    return SloBudget(**{**fields, **changes})


def a_pace(**changes: Any) -> Pace:
    """A quick pace: seconds of warm-up and settling, a look every second, histograms merged every second."""
    fields: dict[str, Any] = {
        "warm_up": timedelta(seconds=3),
        "settle": timedelta(seconds=2),
        "look_interval": timedelta(seconds=1),
        "flush_interval": timedelta(seconds=1),
        "step_limit": timedelta(minutes=2),
        "no_data_limit": timedelta(seconds=15),
        "load_limit": timedelta(seconds=30),
        "bake": timedelta(seconds=30),
    }
    return Pace(**{**fields, **changes})


def a_plan(**changes: Any) -> StudyPlan:
    """A plan for `a_target()` under `a_budget()` at `a_pace()`."""
    fields: dict[str, Any] = {"target": a_target(), "slo": a_budget(), "pace": a_pace()}
    return StudyPlan(**{**fields, **changes})


def a_study(**changes: Any) -> Study:
    """A study that was just created with `a_plan()`."""
    fields: dict[str, Any] = {"id": "study-1", "plan": a_plan(), "created_at": START, "actor": "operator"}
    return Study(**{**fields, **changes})


def a_configuration(**changes: Any) -> Configuration:
    """The incumbent of the tests: delay 0, preferred 4 and 8, one instance, batches of at most 32."""
    fields: dict[str, Any] = {
        "max_queue_delay_microseconds": 0,
        "preferred_batch_size": (4, 8),
        "instance_count": 1,
        "max_batch_size": 32,
    }
    return Configuration(**{**fields, **changes})


def a_model_config(configuration: Configuration | None = None, **changes: Any) -> dict[str, Any]:
    """A complete model configuration with the tuned fields of `configuration`, spelt as Triton spells it."""
    tuned = configuration or a_configuration()
    return {
        "name": "small_vision",
        "platform": "",
        "backend": "python",
        "max_batch_size": tuned.max_batch_size,
        "input": [{"name": "INPUT", "data_type": "TYPE_FP32", "dims": ["16"]}],
        "output": [{"name": "OUTPUT", "data_type": "TYPE_FP32", "dims": ["1"]}],
        "dynamic_batching": {
            "max_queue_delay_microseconds": str(tuned.max_queue_delay_microseconds),
            "preferred_batch_size": list(tuned.preferred_batch_size) or [tuned.max_batch_size],
        },
        "instance_group": [{"name": "small_vision_0", "kind": "KIND_CPU", "count": tuned.instance_count}],
        "parameters": {},
        **changes,
    }


def a_gateway_count(
    requests: int = 1000, slow: int = 0, failed: int = 0, waiting: int = 0
) -> GatewayCounters:
    """Counters of one replica after `requests` ended ones, of which `slow` took 200 ms and the others 20 ms.

    failed: how many of the ended ones failed (measured like the others); waiting: sent and not ended.
    """
    buckets = tuple(
        0 if edge < 0.02 else requests - slow if edge < 0.2 else requests for edge in EDGES_SECONDS
    )
    return GatewayCounters(
        sent=requests + waiting,
        ended=requests,
        failed=failed,
        failed_unmeasured=0,
        buckets=buckets,
        latency_sum_seconds=0.02 * (requests - slow) + 0.2 * slow,
    )


def a_server_count(requests: int = 1000, batch: int = 4, **changes: Any) -> ServerCounters:
    """Counters of one server after `requests` in batches of `batch`: 5 ms queued and 10 ms computed each."""
    executions = requests // batch
    fields: dict[str, Any] = {
        "succeeded": requests,
        "failed": 0,
        "inferences": requests,
        "executions": executions,
        "queue_seconds": 0.005 * requests,
        "input_seconds": 0.001 * requests,
        "infer_seconds": 0.009 * requests,
        "output_seconds": 0.0,
        "batches": (BatchTiming(batch, executions, 0.01 * executions),) if executions else (),
        "memory_used_bytes": 1e9,
        "memory_total_bytes": 16e9,
        "device_busy_seconds": 0.009 * executions,
    }
    return ServerCounters(**{**fields, **changes})


def a_sample(
    seconds: float = 0.0,
    requests: int | Mapping[str, int] = 1000,
    *,
    slow: int | Mapping[str, int] = 0,
    failed: int | Mapping[str, int] = 0,
    names: Iterable[str] = REPLICAS,
    faults: Mapping[str, str] | None = None,
) -> Sample:
    """A look `seconds` after the start; a number counts for every replica, a mapping for those it names.

    Replicas in `faults` are absent, with that explanation.
    """
    absent = dict(faults or {})
    readable = [name for name in names if name not in absent]
    return Sample(
        at=at(seconds),
        edges_seconds=EDGES_SECONDS,
        gateway={n: a_gateway_count(_of(requests, n), _of(slow, n), _of(failed, n)) for n in readable},
        servers={n: a_server_count(_of(requests, n)) for n in readable},
        faults=absent,
    )


def _of(number: int | Mapping[str, int], name: str) -> int:
    return number if isinstance(number, int) else number.get(name, 0)


def changed(value: Any, **changes: Any) -> Any:
    """A copy of a frozen record with some fields changed."""
    return dataclasses.replace(value, **changes)
