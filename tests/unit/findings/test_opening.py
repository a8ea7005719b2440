"""What a study found production to be like: the rules of a diagnosis over the counts of production's window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotuner.domain.findings.kinds import Confidence, Kind
from autotuner.domain.findings.opening import opening
from autotuner.domain.measurement import BatchTiming, Sample, ServerCounters
from autotuner.domain.study import Incumbent, Study, TrialKind
from tests.builders import (
    EDGES_SECONDS,
    REPLICAS,
    a_configuration,
    a_gateway_count,
    a_server_count,
    a_study,
    at,
    changed,
)
from tests.diagnoses import a_config, batcher
from tests.studies import a_step, a_trial, judged

SECONDS = 10.0
STABLE = ("stable-0", "stable-1")


def a_server(batches: Mapping[int, tuple[int, float]], queue_ms: float, **changes: Any) -> ServerCounters:
    """What a server counted: executions and milliseconds by batch size, and how long requests waited."""
    ran = tuple(BatchTiming(size, count, count * ms / 1e3) for size, (count, ms) in batches.items())
    requests = sum(one.size * one.executions for one in ran)
    fields: dict[str, Any] = {
        "succeeded": requests,
        "inferences": requests,
        "executions": sum(one.executions for one in ran),
        "queue_seconds": requests * queue_ms / 1e3,
        "input_seconds": 0.0,
        "infer_seconds": sum(one.size * one.compute_seconds for one in ran),
        "batches": ran,
        "device_busy_seconds": 4.0,
        **changes,
    }
    made: ServerCounters = changed(a_server_count(), **fields)
    return made


HEALTHY = a_server({1: (200, 10.0), 2: (100, 11.0), 4: (60, 13.0)}, queue_ms=6.0)
CAPPED = a_server({4: (40, 15.0), 8: (160, 21.0)}, queue_ms=60.0)


def a_begun_study(server: ServerCounters, config: Mapping[str, Any], **gateway: int) -> Study:
    """A study whose production was two replicas that counted the same in ten seconds."""
    counted = Sample(
        at(SECONDS),
        EDGES_SECONDS,
        dict.fromkeys(STABLE, a_gateway_count(server.succeeded, **gateway)),
        dict.fromkeys(STABLE, server),
    )
    step = a_step(started_at=at(0), ended_at=at(SECONDS), counted=counted)
    production = judged(a_trial(kind=TrialKind.PRODUCTION, replicas=STABLE, steps=(step,), proposal=None))
    incumbent = Incumbent(a_configuration(), dict.fromkeys(REPLICAS, json.dumps(config)), {}, {})
    return a_study(incumbent=incumbent, trials=(production,))


def test_production_that_is_well_is_called_healthy_and_nothing_is_said_of_instruments() -> None:
    (found,) = opening(a_begun_study(HEALTHY, a_config()))

    assert (found.kind, found.confidence) == (Kind.HEALTHY, Confidence.SURE)


def test_sizes_that_cap_the_batch_are_found_from_the_counts_of_the_study() -> None:
    config = a_config(dynamic_batching=batcher(0, 4, 8))
    first, *_ = opening(a_begun_study(CAPPED, config, slow=40))

    assert (first.kind, first.confidence) == (Kind.MISCONFIGURATION, Confidence.SURE)
    assert "largest preferred size" in first.evidence[0]


def test_time_before_triton_and_failures_are_the_gateways_to_tell() -> None:
    slow = a_begun_study(HEALTHY, a_config(), slow=HEALTHY.succeeded // 2)
    failing = a_begun_study(HEALTHY, a_config(), failed=40)

    assert [one.kind for one in opening(slow)] == [Kind.OUTSIDE_TRITON]
    assert opening(failing)[0].evidence[0].startswith("80 of 1,280 requests failed")


def test_a_device_that_tells_nothing_is_no_hindrance() -> None:
    silent = changed(HEALTHY, device_busy_seconds=None, memory_used_bytes=None, batches=())

    assert [one.kind for one in opening(a_begun_study(silent, a_config()))] == [Kind.HEALTHY]


def test_nothing_is_said_before_production_was_measured_or_where_counts_were_not_kept() -> None:
    study = a_begun_study(HEALTHY, a_config())
    (trial,) = study.trials
    without = changed(trial, steps=tuple(changed(step, counted=None) for step in trial.steps))

    assert opening(a_study()) == ()
    assert opening(changed(study, trials=(without,))) == ()
    assert opening(changed(study, incumbent=None)) == ()
