from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.domain.judgement import Counts
from autotuner.domain.measurement import (
    BatchTiming,
    GatewayCounters,
    Sample,
    Window,
    edges_around,
    histogram_quantile,
    overdue,
)
from autotuner.errors import InvalidInput
from tests.builders import a_gateway_count, a_sample, a_server_count, at

EDGES = (0.05, 0.1, 0.15, math.inf)


def a_look(seconds: float, buckets: tuple[int, ...], failed: int = 0, unmeasured: int = 0) -> Sample:
    ended = buckets[-1] + unmeasured
    counters = GatewayCounters(ended, ended, failed, unmeasured, buckets, 0.0)
    return Sample(at(seconds), EDGES, {"canary": counters}, {"canary": a_server_count()})


def counted(
    buckets: tuple[int, ...], failed: int = 0, unmeasured: int = 0, ceiling_seconds: float = 0.1
) -> Counts:
    before = a_look(0, (10, 20, 30, 40), failed=5, unmeasured=1)
    raised = tuple(then + more for then, more in zip((10, 20, 30, 40), buckets, strict=True))
    after = a_look(10, raised, failed=5 + failed, unmeasured=1 + unmeasured)
    return Window(before, after).counts(["canary"], ceiling_seconds)


def test_with_an_edge_at_the_ceiling_both_counts_are_the_same() -> None:
    assert counted((80, 95, 98, 100)) == Counts(100, 5, 5, 0)


def test_between_two_edges_accepting_counts_from_below_and_rejecting_from_above() -> None:
    assert counted((80, 95, 98, 100), ceiling_seconds=0.12) == Counts(100, 5, 2, 0)


def test_failures_are_bad_and_those_in_no_histogram_are_requests_too() -> None:
    assert counted((80, 95, 98, 100), failed=3, unmeasured=2) == Counts(102, 8, 7, 3)


def test_fast_failures_are_counted_once() -> None:
    assert counted((100, 100, 100, 100), failed=4) == Counts(100, 4, 4, 4)


def test_more_failures_than_requests_ended_are_no_more_than_all_of_them() -> None:
    assert counted((0, 0, 0, 2), failed=9) == Counts(2, 2, 2, 2)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.integers(0, 60), st.integers(0, 20))
def test_counts_are_always_possible(steps: list[int], failed: int, unmeasured: int) -> None:
    buckets = tuple(sum(steps[: index + 1]) for index in range(4))
    for ceiling in (0.06, 0.1, 0.12):
        counts = counted(buckets, max(failed, unmeasured), unmeasured, ceiling)
        assert counts.total == buckets[-1] + unmeasured


def test_counts_of_several_replicas_are_pooled() -> None:
    window = Window(
        a_sample(0, 1000), a_sample(10, {"stable-0": 1500, "stable-1": 1200, "canary": 1000}, slow=3)
    )
    assert window.counts(["stable-0", "stable-1"], 0.1) == Counts(700, 6, 6, 0)
    assert window.rate_per_second(["stable-0", "stable-1"]) == pytest.approx(70.0)
    assert window.sent("canary") == 0


def test_a_replica_that_could_not_be_read_is_not_counted_as_zero() -> None:
    window = Window(a_sample(0), a_sample(1, faults={"canary": "NaN"}))
    with pytest.raises(KeyError):
        window.counts(["canary"], 0.1)
    assert window.last.missing(["stable-0", "canary"]) == "canary: NaN"
    assert window.last.missing(["stable-0"]) == ""


@pytest.mark.parametrize(
    ("ceiling_seconds", "indices"),
    [(0.1, (1, 1)), (0.1000000001, (1, 1)), (0.12, (1, 2)), (0.07, (0, 1)), (0.05, (0, 0)), (0.15, (2, 2))],
)
def test_the_edges_around_a_ceiling(ceiling_seconds: float, indices: tuple[int, int]) -> None:
    assert edges_around(EDGES, ceiling_seconds) == indices


@pytest.mark.parametrize("ceiling_seconds", [0.04, 0.2, 600.0])
def test_a_histogram_that_ends_before_the_ceiling_is_useless(ceiling_seconds: float) -> None:
    with pytest.raises(InvalidInput, match="bucket edges on both sides"):
        edges_around(EDGES, ceiling_seconds)


@pytest.mark.parametrize(
    ("cumulative", "share", "quantile"),
    [
        ((50, 100, 100), 0.5, 1.0),
        ((50, 100, 100), 0.75, 1.5),
        ((50, 100, 100), 0.25, 0.5),
        ((0, 100, 100), 0.5, 1.5),
        ((100, 100, 100), 1.0, 1.0),
        ((50, 90, 100), 0.95, None),
        ((0, 0, 10), 0.01, None),
        ((0, 0, 0), 0.5, None),
        ((), 0.5, None),
    ],
)
def test_quantiles_are_interpolated_and_unknown_beyond_the_last_edge(
    cumulative: tuple[int, ...], share: float, quantile: float | None
) -> None:
    assert histogram_quantile((1.0, 2.0, math.inf), cumulative, share) == quantile


def looks(*sent_and_ended: tuple[float, int, int]) -> list[Sample]:
    return [
        Sample(at(seconds), EDGES, {"canary": replace(a_gateway_count(0), sent=sent, ended=ended)}, {})
        for seconds, sent, ended in sent_and_ended
    ]


def test_requests_sent_longer_ago_than_the_ceiling_and_not_ended_are_overdue() -> None:
    *earlier, now = looks((0, 100, 100), (1, 150, 100), (2, 200, 100))
    assert overdue(earlier, now, "canary", 0.5) == 50


def test_requests_within_the_ceiling_are_not_overdue() -> None:
    *earlier, now = looks((0, 100, 100), (1.9, 150, 100), (2, 160, 100))
    assert overdue(earlier, now, "canary", 0.5) == 0


def test_a_look_exactly_the_ceiling_ago_counts() -> None:
    *earlier, now = looks((1.5, 150, 100), (2, 160, 120))
    assert overdue(earlier, now, "canary", 0.5) == 30


def test_overdue_is_a_lower_bound_and_never_negative() -> None:
    *earlier, now = looks((0, 100, 90), (1, 120, 118), (2, 150, 149))
    assert overdue(earlier, now, "canary", 0.5) == 0
    assert overdue([], now, "canary", 0.5) == 0
    assert overdue(looks((0, 900, 0)), now, "canary", 0.5) == 751


def test_counters_that_went_back_are_noticed_each() -> None:
    then = a_gateway_count(1000, slow=10, failed=2, waiting=1)
    assert not then.behind(then)
    assert not a_gateway_count(1001, slow=10, failed=2, waiting=1).behind(then)
    for fewer in (
        replace(then, sent=then.sent - 1),
        replace(then, failed=1),
        replace(then, buckets=(*then.buckets[:-1], then.buckets[-1] - 1)),
        replace(then, buckets=then.buckets[:-1]),
    ):
        assert fewer.behind(then)


def test_ended_requests_come_from_a_gauge_and_may_seem_fewer() -> None:
    then = a_gateway_count(1000)
    assert not replace(then, ended=then.ended - 1).behind(then)


def test_a_servers_counters_that_went_back_are_noticed_each() -> None:
    then = a_server_count(1000)
    assert not then.behind(then)
    assert replace(then, succeeded=999).behind(then)
    assert replace(then, executions=then.executions - 1).behind(then)
    assert replace(then, infer_seconds=then.infer_seconds - 0.01).behind(then)
    assert then.behind(replace(then, failed=1))


def test_use_is_the_means_over_the_window() -> None:
    use = Window(a_sample(0, 1000), a_sample(10, 3000)).use("canary")
    assert use.queue_seconds == pytest.approx(0.005)
    assert use.compute_seconds == pytest.approx(0.010)
    assert use.realised_batch == pytest.approx(4.0)
    assert use.device_utilisation == pytest.approx(0.009 * 500 / 10)
    assert use.compute_seconds_per_inference == pytest.approx(0.009 / 4)
    assert use.fastest_batch_seconds == pytest.approx(0.01)


def test_without_requests_no_mean_is_known() -> None:
    use = Window(a_sample(0), a_sample(10)).use("canary")
    assert (use.queue_seconds, use.compute_seconds, use.realised_batch) == (None, None, None)
    assert use.compute_seconds_per_inference is None


def sample_of(**server: object) -> Sample:
    return replace(a_sample(), servers={"canary": a_server_count(**server)})  # type: ignore[arg-type]


def test_without_a_device_the_batch_statistics_tell_the_compute_time() -> None:
    first = sample_of(requests=1000, device_busy_seconds=None)
    last = replace(sample_of(requests=2000, device_busy_seconds=None), at=at(10))
    use = Window(first, last).use("canary")
    assert use.compute_seconds_per_inference == pytest.approx(0.01 / 4)
    assert use.device_utilisation is None


def test_batch_statistics_that_began_anew_tell_nothing() -> None:
    first = sample_of(requests=1000, device_busy_seconds=None)
    anew = sample_of(requests=2000, device_busy_seconds=None, batches=(BatchTiming(4, 10, 0.1),))
    other = sample_of(requests=2000, device_busy_seconds=None, batches=(BatchTiming(8, 500, 9.0),))
    assert Window(first, anew).use("canary").compute_seconds_per_inference is None
    assert Window(first, other).use("canary").compute_seconds_per_inference is None


def test_batches_of_a_window_are_what_was_added_to_each_size() -> None:
    then = (BatchTiming(4, 10, 0.2), BatchTiming(1, 5, 0.05))
    now = (BatchTiming(8, 3, 0.09), BatchTiming(4, 12, 0.25), BatchTiming(1, 5, 0.05))
    ran = Window(sample_of(batches=then), sample_of(batches=now)).batches("canary")
    assert [(batch.size, batch.executions) for batch in ran] == [(4, 2), (8, 3)]
    assert [batch.compute_seconds for batch in ran] == pytest.approx([0.05, 0.09])


@pytest.mark.parametrize("now", [(), (BatchTiming(4, 9, 0.1),), (BatchTiming(8, 500, 9.0),)])
def test_batches_of_a_window_in_which_the_model_was_loaded_again_are_unknown(
    now: tuple[BatchTiming, ...],
) -> None:
    then = (BatchTiming(4, 10, 0.2),)
    assert Window(sample_of(batches=then), sample_of(batches=now)).batches("canary") == ()


def test_the_fastest_batch_is_that_of_the_smallest_size_that_ran() -> None:
    batches = (BatchTiming(1, 0, 0.0), BatchTiming(2, 4, 0.08), BatchTiming(8, 1, 0.01))
    use = Window(sample_of(), sample_of(batches=batches)).use("canary")
    assert use.fastest_batch_seconds == pytest.approx(0.02)
