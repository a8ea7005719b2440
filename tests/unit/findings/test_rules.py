"""Each problem has a rule of its own; every threshold is crossed from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity
from autotuner.domain.findings.reading import Quantiles, Unread
from autotuner.domain.findings.rules import around, device, load, setup, tool
from autotuner.domain.findings.rules.load import too_slow
from tests.diagnoses import (
    CAPPED,
    MODEL,
    SATURATED,
    WAITING,
    a_config,
    a_gateway,
    a_replica,
    a_scene,
    batcher,
    instances,
    some_work,
)

SURE, LIKELY, POSSIBLE = Confidence


def confidence(found: Finding | None, kind: Kind) -> Confidence | None:
    """How sure a finding is, which must be of a kind if it is there."""
    assert found is None or found.kind is kind
    return None if found is None else found.confidence


# -- what the configuration says


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_transaction_policy": {"decoupled": True}}, "decoupled"),
        ({"backend": "vllm"}, "vllm"),
        ({"backend": "tensorrtllm"}, "tensorrtllm"),
    ],
)
def test_a_generative_or_decoupled_model_is_told_to_use_continuous_batching(
    changes: dict[str, Any], said: str
) -> None:
    found = tool.wrong_tool(a_scene(config=a_config(**changes)))

    assert found is not None
    assert (found.kind, found.confidence, found.severity) == (Kind.WRONG_TOOL, SURE, Severity.DECIDES)
    assert said in found.evidence[0]
    assert "vLLM" in found.remedy
    assert "TensorRT-LLM" in found.remedy


def test_an_ordinary_model_is_not_the_wrong_tool() -> None:
    assert tool.wrong_tool(a_scene()) is None


@pytest.mark.parametrize(
    ("section", "may"),
    [({"oldest": {}}, "max_candidate_sequences"), ({"direct": {}}, "minimum_slot_utilization")],
)
def test_a_sequence_batcher_says_what_may_be_tuned(section: dict[str, Any], may: str) -> None:
    config = a_config(sequence_batching=section, dynamic_batching=None)
    found = tool.stateful(a_scene(config=config))

    assert confidence(found, Kind.STATEFUL) is SURE
    assert found is not None
    assert may in found.remedy
    assert "must not change" in found.remedy


def test_an_ensemble_names_the_member_that_holds_the_time() -> None:
    steps = {"step": [{"model_name": "resize"}, {"model_name": "detect"}]}
    members = {"resize": some_work({1: (100, 2.0)}), "detect": some_work({1: (100, 20.0)}, queue_ms=9.0)}
    whole = some_work({}, requests=100, request_seconds=3.5)
    found = tool.ensemble(
        a_scene(a_replica(whole, members=members), config=a_config(ensemble_scheduling=steps))
    )

    assert confidence(found, Kind.ENSEMBLE) is SURE
    assert found is not None
    assert "detect holds 84 %" in found.evidence[1]
    assert "9 ms of it in its queue" in found.evidence[1]
    assert "--model detect" in found.remedy


def test_an_ensemble_without_traffic_asks_for_another_look() -> None:
    steps = {"step": [{"model_name": "resize"}]}
    found = tool.ensemble(a_scene(config=a_config(ensemble_scheduling=steps)))

    assert found is not None
    assert "look again" in found.remedy


@pytest.mark.parametrize(("delay_ms", "expected"), [(120, SURE), (95, LIKELY), (80, None), (0, None)])
def test_a_delay_that_takes_the_ceiling_is_a_misconfiguration(
    delay_ms: float, expected: Confidence | None
) -> None:
    scene = a_scene(config=a_config(dynamic_batching=batcher(delay_ms)))

    assert confidence(setup.delay_above_ceiling(scene), Kind.MISCONFIGURATION) is expected


def test_a_model_without_dynamic_batching_is_told_to_add_it() -> None:
    found = setup.no_batcher(a_scene(config=a_config(dynamic_batching=None)))

    assert confidence(found, Kind.MISCONFIGURATION) is SURE
    assert found is not None
    assert "dynamic_batching { }" in found.remedy
    assert setup.no_batcher(a_scene()) is None


def test_a_model_without_a_batch_dimension_cannot_be_batched() -> None:
    found = setup.no_batcher(a_scene(config=a_config(dynamic_batching=None, max_batch_size=0)))

    assert found is not None
    assert "one item at a time" in found.evidence[0]


def test_a_response_cache_makes_every_mean_a_mixture() -> None:
    work = some_work({1: (100, 10.0)}, cache_hits=25)
    found = setup.cache_on(a_scene(a_replica(work), config=a_config(response_cache={"enable": True})))

    assert confidence(found, Kind.MISCONFIGURATION) is SURE
    assert found is not None
    assert "25 %" in found.evidence[0]
    assert setup.cache_on(a_scene(config=a_config(response_cache={"enable": False}))) is None


def test_missing_metrics_are_told_with_the_reason() -> None:
    unread = Unread("metrics of r0 (http://a/metrics)", "an empty page", "no quantiles")
    found = setup.metrics_missing(a_scene(a_replica(metrics=False), unread=(unread,)))

    assert confidence(found, Kind.MISCONFIGURATION) is SURE
    assert found is not None
    assert "an empty page" in found.evidence[0]
    assert setup.metrics_missing(a_scene()) is None


def test_summaries_that_are_off_cost_the_p99_only_without_a_gateway() -> None:
    without = setup.summaries_off(a_scene(a_replica(quantiles={})))
    beside = setup.summaries_off(a_scene(a_replica(quantiles={}), gateway=a_gateway(15.0)))

    assert without is not None
    assert "--gateway" in without.remedy
    assert beside is not None
    assert "--gateway" not in beside.remedy
    assert setup.summaries_off(a_scene()) is None


# -- preferred sizes


def test_preferred_sizes_cap_the_batch_of_a_busy_model() -> None:
    found = setup.capped(a_scene(a_replica(CAPPED), config=a_config(dynamic_batching=batcher(0, 4, 8))))

    assert confidence(found, Kind.MISCONFIGURATION) is SURE
    assert found is not None
    assert "89 %" in found.evidence[0]
    assert "remove preferred_batch_size" in found.remedy


def test_fewer_batches_at_the_cap_are_likely_a_cap_only_near_the_ceiling() -> None:
    work = some_work({4: (200, 15.0), 8: (30, 21.0)}, queue_ms=25.0)
    config = a_config(dynamic_batching=batcher(0, 4, 8))

    assert confidence(setup.capped(a_scene(a_replica(work), config=config)), Kind.MISCONFIGURATION) is LIKELY
    assert setup.capped(a_scene(a_replica(work), config=config, ceiling_ms=400.0)) is None


def test_larger_batches_beside_the_cap_make_it_no_cap() -> None:
    work = some_work({8: (60, 21.0), 20: (80, 40.0)}, queue_ms=60.0)

    assert setup.capped(a_scene(a_replica(work), config=a_config(dynamic_batching=batcher(0, 4, 8)))) is None


@pytest.mark.parametrize("preferred", [(), (32,), (28,)])
def test_a_preferred_size_at_the_largest_batch_caps_nothing(preferred: tuple[int, ...]) -> None:
    config = a_config(dynamic_batching=batcher(0, *preferred))

    assert setup.capped(a_scene(a_replica(CAPPED), config=config)) is None


def test_a_cap_that_nobody_waits_for_is_none() -> None:
    work = some_work({8: (160, 21.0)}, queue_ms=3.0)

    assert setup.capped(a_scene(a_replica(work), config=a_config(dynamic_batching=batcher(0, 8)))) is None


def test_preferred_sizes_beyond_a_tensorrt_profile_are_possible_where_requests_fail() -> None:
    work = some_work({4: (200, 10.0)}, failures=30)
    config = a_config(backend="tensorrt", platform="tensorrt_plan", dynamic_batching=batcher(0, 16))

    assert (
        confidence(setup.above_profile(a_scene(a_replica(work), config=config)), Kind.MISCONFIGURATION)
        is POSSIBLE
    )
    assert setup.above_profile(a_scene(a_replica(some_work({4: (200, 10.0)})), config=config)) is None
    assert (
        setup.above_profile(a_scene(a_replica(work), config=a_config(dynamic_batching=batcher(0, 16))))
        is None
    )


# -- the model and its load


@pytest.mark.parametrize(
    ("fastest_ms", "expected"), [(120.0, SURE), (95.0, SURE), (94.0, LIKELY), (70.0, LIKELY), (69.0, None)]
)
def test_a_model_slower_than_the_ceiling_cannot_be_batched_under_it(
    fastest_ms: float, expected: Confidence | None
) -> None:
    scene = a_scene(a_replica(some_work({1: (100, fastest_ms)})))

    assert confidence(load.model(scene), Kind.MODEL) is expected


def test_a_batch_that_several_instances_slow_down_is_not_seen_alone() -> None:
    work = some_work({1: (150, 120.0)})
    scene = a_scene(a_replica(work), config=a_config(instance_group=instances(2)))

    assert confidence(load.model(scene), Kind.MODEL) is LIKELY


def test_compute_alone_takes_the_ceiling_means_the_same_to_a_study() -> None:
    assert too_slow(0.095, 0.1)
    assert not too_slow(0.0949, 0.1)


def test_arrivals_above_capacity_saturate_full_batches() -> None:
    scene = a_scene(a_replica(SATURATED, pending=(10.0, 300.0)), config=a_config(max_batch_size=8))
    found = load.saturation(scene)

    assert confidence(found, Kind.SATURATION) is SURE
    assert found is not None
    assert any("290 more requests" in sentence for sentence in found.evidence)


def test_small_batches_of_a_busy_model_are_not_saturation() -> None:
    work = some_work({1: (900, 10.8), 2: (10, 11.0)}, queue_ms=60.0)

    assert load.saturation(a_scene(a_replica(work))) is None


def test_an_instance_with_room_is_not_saturated() -> None:
    work = some_work({8: (100, 60.0)}, queue_ms=400.0)

    assert load.saturation(a_scene(a_replica(work), config=a_config(max_batch_size=8))) is None


def test_a_wait_for_batches_that_do_not_form_is_a_batching_problem() -> None:
    scene = a_scene(a_replica(WAITING, utilisation=0.2), config=a_config(dynamic_batching=batcher(50, 32)))
    found = load.batching(scene)

    assert confidence(found, Kind.BATCHING) is SURE
    assert found is not None
    assert "shorten max_queue_delay_microseconds" in found.remedy


def test_a_wait_that_no_delay_explains_is_likely_a_batching_problem() -> None:
    assert confidence(load.batching(a_scene(a_replica(WAITING))), Kind.BATCHING) is LIKELY


@pytest.mark.parametrize(
    "changes",
    [
        {"utilisation": 0.97},
        {"work": some_work({20: (30, 13.0)}, queue_ms=50.0)},
        {"work": some_work({4: (150, 13.0)}, queue_ms=10.0)},
    ],
)
def test_a_full_device_large_batches_or_a_short_wait_are_no_batching_problem(changes: dict[str, Any]) -> None:
    assert load.batching(a_scene(a_replica(**{"work": WAITING, **changes}))) is None


def test_a_long_wait_far_under_the_ceiling_is_meant() -> None:
    quantiles = {"request": Quantiles(0.05, 0.06, 0.065)}

    assert load.batching(a_scene(a_replica(WAITING, quantiles=quantiles), ceiling_ms=400.0)) is None


@pytest.mark.parametrize(("requests", "expected"), [(20, SURE), (170, SURE), (205, LIKELY), (300, None)])
def test_traffic_is_thin_when_no_second_request_comes_in_time(
    requests: int, expected: Confidence | None
) -> None:
    # 90 ms are left beside a batch: at 20/s, 1.8 more requests come within them.
    scene = a_scene(a_replica(some_work({1: (requests, 10.0)})))

    assert confidence(load.thin_traffic(scene), Kind.THIN_TRAFFIC) is expected


def test_a_delay_in_thin_traffic_is_waited_for_nothing() -> None:
    scene = a_scene(a_replica(some_work({1: (20, 10.0)})), config=a_config(dynamic_batching=batcher(5)))
    found = load.thin_traffic(scene)

    assert found is not None
    assert "waited for nothing" in found.evidence[1]


def test_no_request_is_idle_and_not_healthy() -> None:
    assert confidence(load.idle(a_scene(a_replica(some_work({})))), Kind.IDLE) is SURE
    assert load.idle(a_scene()) is None


def test_the_throughput_limit_follows_the_line_through_batch_times() -> None:
    # 8 ms + 2 ms an item: 32 items take 72 ms.
    scene = a_scene(a_replica(some_work({1: (100, 10.0), 11: (100, 30.0)})))
    limit = load.throughput_limit(scene)

    assert limit == pytest.approx(32 / 0.072, rel=1e-6)


# -- the device


def test_a_device_that_waits_for_its_only_instance_wants_another() -> None:
    work = some_work({4: (360, 25.0)}, queue_ms=50.0, copies=0.5)
    found = device.more_instances(a_scene(a_replica(work, utilisation=0.45)))

    assert confidence(found, Kind.INSTANCES) is SURE
    assert found is not None
    assert "try 2 instances" in found.remedy


def test_a_full_device_wants_no_other_instance() -> None:
    work = some_work({4: (360, 25.0)}, queue_ms=50.0, copies=0.5)

    assert device.more_instances(a_scene(a_replica(work, utilisation=0.9))) is None


def test_an_instance_that_rests_wants_no_other() -> None:
    work = some_work({4: (100, 25.0)}, copies=0.5)

    assert device.more_instances(a_scene(a_replica(work, utilisation=0.1))) is None


def test_instances_that_wait_for_one_another_are_too_many() -> None:
    work = some_work({2: (600, 60.0)}, queue_ms=40.0)
    config = a_config(instance_group=instances(4))
    found = device.fewer_instances(a_scene(a_replica(work, utilisation=0.96), config=config))

    assert confidence(found, Kind.INSTANCES) is SURE
    assert found is not None
    assert "fewer instances than 4" in found.remedy


def test_several_instances_on_a_device_with_room_are_not_too_many() -> None:
    work = some_work({2: (600, 60.0)}, queue_ms=40.0)
    config = a_config(instance_group=instances(4))

    assert device.fewer_instances(a_scene(a_replica(work, utilisation=0.6), config=config)) is None


@pytest.mark.parametrize(
    ("used", "models", "expected"),
    [
        (0.95, 1, SURE),
        (0.91, 3, SURE),
        (0.89, 1, LIKELY),
        (0.6, 1, LIKELY),
        (0.6, 3, POSSIBLE),
        (0.5, 1, None),
    ],
)
def test_memory_must_leave_the_headroom_and_room_for_a_reload(
    used: float, models: int, expected: Confidence | None
) -> None:
    scene = a_scene(a_replica(memory_used_bytes=used * 16e9), models=models)

    assert confidence(device.memory(scene), Kind.MEMORY) is expected


def test_memory_that_is_not_told_is_no_finding() -> None:
    assert device.memory(a_scene(a_replica(memory_used_bytes=None, memory_total_bytes=None))) is None


# -- around the model


@pytest.mark.parametrize(("mean_ms", "expected"), [(60.0, SURE), (25.0, LIKELY), (17.0, None)])
def test_time_before_triton_is_found_against_the_gateway(mean_ms: float, expected: Confidence | None) -> None:
    scene = a_scene(gateway=a_gateway(mean_ms))

    assert confidence(around.outside_triton(scene), Kind.OUTSIDE_TRITON) is expected


def test_a_large_share_of_a_tiny_time_is_not_worth_looking_for() -> None:
    scene = a_scene(gateway=a_gateway(25.0), ceiling_ms=1000.0)

    assert around.outside_triton(scene) is None


@pytest.mark.parametrize(("other", "expected"), [(100, SURE), (400, LIKELY), (600, None)])
def test_unequal_shares_are_sticky_connections(other: int, expected: Confidence | None) -> None:
    scene = a_scene(a_replica(some_work({1: (700, 10.0)})), a_replica(some_work({1: (other, 10.0)})))

    assert confidence(around.unequal_shares(scene), Kind.OUTSIDE_TRITON) is expected


def test_one_replica_has_no_shares() -> None:
    assert around.unequal_shares(a_scene()) is None


def test_clients_that_batch_are_a_notice() -> None:
    work = some_work({8: (100, 18.0)}, requests=200)

    assert confidence(around.client_batches(a_scene(a_replica(work))), Kind.OUTSIDE_TRITON) is POSSIBLE
    assert around.client_batches(a_scene()) is None


@pytest.mark.parametrize(("failed", "expected"), [(70, SURE), (7, None)])
def test_failures_come_before_any_tuning(failed: int, expected: Confidence | None) -> None:
    work = some_work({1: (900, 10.0)}, failures=failed)

    assert confidence(around.failures(a_scene(a_replica(work))), Kind.FAILURES) is expected


def test_failures_that_only_the_gateway_sees_count() -> None:
    scene = a_scene(gateway=a_gateway(15.0, requests=700, failed=100))

    assert confidence(around.failures(scene), Kind.FAILURES) is SURE


def test_a_reload_in_the_window_is_a_cold_start() -> None:
    found = around.cold_start(a_scene(a_replica(reloads=1)))

    assert confidence(found, Kind.COLD_START) is SURE
    assert found is not None
    assert "model_warmup" in found.remedy


def test_slow_first_executions_since_the_load_are_possibly_a_cold_start() -> None:
    now = some_work({1: (500, 10.0)})
    before = some_work({1: (100, 60.0)})
    scene = a_scene(a_replica(now, since_load=now + before))
    usual = a_scene(a_replica(now, since_load=now + some_work({1: (100, 11.0)})))

    assert confidence(around.cold_start(scene), Kind.COLD_START) is POSSIBLE
    assert around.cold_start(usual) is None


def test_a_model_with_a_warm_up_is_told_to_check_it() -> None:
    config = a_config(model_warmup=[{"name": "one"}])
    found = around.cold_start(a_scene(a_replica(reloads=1), config=config))

    assert found is not None
    assert "has a warm-up already" in found.remedy


def test_every_scene_is_of_the_model_that_was_looked_at() -> None:
    assert a_scene().model == MODEL
