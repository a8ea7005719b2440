from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.memory import NO_LIMIT_KNOWN
from autotuner.domain.space import (
    PATIENCE,
    Exclusion,
    admissible,
    examine,
    least_compute_seconds,
    search_space,
    veto,
    why_done,
)
from autotuner.domain.study import GREYBOX, Proposal, Step, Study, TrialKind
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput
from tests.builders import a_configuration, a_study, changed
from tests.searches import a_search, a_step, a_trial, a_use


def _space(study: Study) -> tuple[Configuration, ...]:
    assert study.incumbent is not None
    return search_space(study.plan, study.incumbent.configuration).candidates


def _baseline_used(study: Study, **use: float) -> Study:
    first = replace(study.trials[0], steps=(a_step(use=a_use(**use)),))
    return replace(study, trials=(first, *study.trials[1:]))


def test_delays_run_up_to_the_limit() -> None:
    delays = {c.max_queue_delay_microseconds for c in _space(a_search())}

    assert delays == {0, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000}


def test_delays_never_exceed_the_ceiling_whatever_the_limit() -> None:
    study = a_search(
        limits={"max_queue_delay_microseconds": 5_000_000}, budget={"p99_ceiling_seconds": 0.010}
    )

    assert max(c.max_queue_delay_microseconds for c in _space(study)) == 10_000


def test_the_grey_box_sampler_chooses_from_delays_that_are_dense_as_shares_of_the_ceiling_too() -> None:
    usual = {c.max_queue_delay_microseconds for c in _space(a_search())}
    delays = {c.max_queue_delay_microseconds for c in _space(a_search(sampler=GREYBOX))}

    assert delays == usual | {3_000, *range(10_000, 50_001, 2_500)}


def test_dense_delays_keep_to_the_limit_in_whole_microseconds() -> None:
    study = a_search(
        sampler=GREYBOX,
        limits={"max_queue_delay_microseconds": 5_000},
        budget={"p99_ceiling_seconds": 0.012_345},
    )
    delays = {c.max_queue_delay_microseconds for c in _space(study)}

    assert {370, 1_234, 1_852} <= delays
    assert max(delays) == 5_000


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random"])
def test_the_space_of_other_samplers_stays_as_it_was(sampler: str) -> None:
    assert _space(a_search(sampler=sampler)) == _space(a_search())
    assert len(_space(a_search(sampler=sampler))) == 8 * 9 * 4


def test_preferred_sizes_are_none_powers_of_two_and_pairs_of_neighbours() -> None:
    sets = {c.preferred_batch_size for c in _space(a_search())}

    assert sets == {(), (2,), (4,), (8,), (16,), (2, 4), (4, 8), (8, 16), (16, 32)}


def test_listed_preferred_sizes_replace_the_usual_ones_and_the_incumbent_stays_a_member() -> None:
    candidates = _space(a_search(limits={"preferred_batch_sizes": ((), (6, 3))}))

    assert {c.preferred_batch_size for c in candidates if c != a_configuration()} == {(), (3, 6)}
    assert a_configuration() in candidates


def test_each_configuration_has_one_spelling_and_is_listed_once() -> None:
    candidates = _space(a_search(limits={"preferred_batch_sizes": ((), (32,), (8, 4), (4, 8), (4, 4, 8))}))

    assert {c.preferred_batch_size for c in candidates} == {(), (4, 8)}
    assert len(candidates) == len(set(candidates)) == 8 * 2 * 4


def test_listed_sizes_that_cannot_load_are_left_out_and_counted() -> None:
    study = a_search(limits={"preferred_batch_sizes": ((), (64,), (0,))})

    assert {c.preferred_batch_size for c in _space(study)} == {(), (4, 8)}
    assert examine(study).exclusions.counts[Exclusion.UNLOADABLE] == 2 * 8 * 4


def test_an_incumbent_outside_the_limits_is_a_member_alone() -> None:
    odd = a_configuration(max_queue_delay_microseconds=70_000, instance_count=6)
    candidates = search_space(a_search().plan, odd).candidates

    assert odd in candidates
    assert [c for c in candidates if c.max_queue_delay_microseconds == 70_000 or c.instance_count > 4] == [
        odd
    ]


def test_a_delay_the_incumbent_chose_within_the_limits_is_combined_with_the_rest() -> None:
    odd = a_configuration(max_queue_delay_microseconds=3_000)

    assert (
        a_configuration(max_queue_delay_microseconds=3_000, instance_count=2)
        in search_space(a_search().plan, odd).candidates
    )


def test_the_veto_holds_where_delay_compute_and_margin_exceed_the_ceiling_together() -> None:
    slow = a_configuration(max_queue_delay_microseconds=50_000)

    assert veto(slow, 0.100, 0.045, 0.005) is None
    reason = veto(slow, 0.100, 0.046, 0.005)
    assert reason is not None
    assert "50 ms" in reason
    assert "46.0 ms" in reason
    assert "100 ms" in reason


def test_measured_compute_holds_where_batches_are_no_smaller() -> None:
    longer = a_configuration(max_queue_delay_microseconds=5_000)

    assert least_compute_seconds(longer, a_configuration(), a_use()) == pytest.approx(0.012)


@pytest.mark.parametrize(
    "candidate",
    [a_configuration(preferred_batch_size=(2,)), a_configuration(instance_count=2)],
    ids=["a lower cap", "more instances"],
)
def test_where_batches_may_be_smaller_only_the_mean_time_of_an_inference_is_certain(
    candidate: Configuration,
) -> None:
    assert least_compute_seconds(candidate, a_configuration(), a_use()) == pytest.approx(0.004)


def test_fewer_instances_may_interfere_less() -> None:
    measured, fewer = a_configuration(instance_count=4), a_configuration(instance_count=1)

    assert least_compute_seconds(fewer, measured, a_use()) == pytest.approx(0.003)


def test_unknown_compute_time_leaves_the_veto_to_the_delay() -> None:
    assert least_compute_seconds(a_configuration(), a_configuration(), a_use(compute_seconds=None)) == 0.0
    assert (
        least_compute_seconds(
            a_configuration(instance_count=2), a_configuration(), a_use(compute_seconds_per_inference=None)
        )
        == 0.0
    )


def test_what_cannot_meet_the_ceiling_is_excluded_and_counted() -> None:
    study = _baseline_used(a_search(), compute_seconds=0.048, compute_seconds_per_inference=0.048)
    examination = examine(study)

    # 50 ms of delay, 48 ms of compute and 5 ms of margin: over 100 ms for every preferred set and count.
    assert all(c.max_queue_delay_microseconds < 50_000 for c in examination.admissible)
    assert examination.exclusions.counts[Exclusion.CEILING] == 9 * 4
    assert "36 cannot meet the ceiling" in examination.exclusions.describe()


def test_compute_alone_above_the_ceiling_leaves_nothing_to_try() -> None:
    study = _baseline_used(
        a_search(limits={"max_instance_count": 1}), compute_seconds=0.2, compute_seconds_per_inference=0.2
    )

    assert admissible(study) == ()
    assert (why_done(study) or "").startswith(
        "no candidate is left: 1 already tried, 71 cannot meet the ceiling"
    )


def test_instances_without_memory_headroom_are_excluded_and_counted() -> None:
    study = _baseline_used(a_search(), memory_used_bytes=4e9, memory_total_bytes=16e9)
    examination = examine(study)

    # At 4 GB each, 4 instances would fill the device, and 3 would fill it while the incumbent still serves.
    assert {c.instance_count for c in examination.admissible} == {1, 2, 3}
    assert examination.exclusions.counts[Exclusion.MEMORY] == 8 * 9
    assert examination.exclusions.note == ""


def test_a_reload_that_does_not_fit_beside_the_incumbent_is_excluded_and_counted() -> None:
    study = _baseline_used(
        a_search(limits={"memory_headroom": 0.0}), memory_used_bytes=4e9, memory_total_bytes=16e9
    )
    examination = examine(study)

    assert {c.instance_count for c in examination.admissible} == {1, 2, 3}
    assert examination.exclusions.counts[Exclusion.RELOAD] == 8 * 9


def test_a_reload_must_also_fit_beside_what_the_last_trial_left_on_the_canary() -> None:
    def steps(used_gb: float) -> tuple[Step, ...]:
        return (a_step(use=a_use(memory_used_bytes=used_gb * 1e9, memory_total_bytes=8e9)),)

    # 1 GB an instance: 4 fit beside the incumbent's 1, and beside a trial's 4, but 5 do not fit beside 4.
    last = a_trial(1, a_configuration(instance_count=4), steps=steps(4.0))
    study = a_search(last, limits={"max_instance_count": 6})
    study = replace(study, trials=(replace(study.trials[0], steps=steps(1.0)), last))
    after_one_more = replace(
        study, trials=(*study.trials, a_trial(2, a_configuration(max_queue_delay_microseconds=500)))
    )

    assert max(c.instance_count for c in admissible(study)) == 4
    assert max(c.instance_count for c in admissible(after_one_more)) == 6


def test_a_second_measured_count_loosens_the_memory_limit() -> None:
    second = a_trial(
        1,
        a_configuration(instance_count=2),
        steps=(a_step(use=a_use(memory_used_bytes=4.5e9, memory_total_bytes=16e9)),),
    )
    study = _baseline_used(a_search(second), memory_used_bytes=4e9, memory_total_bytes=16e9)

    assert {c.instance_count for c in admissible(study)} == {1, 2, 3, 4}


def test_unreported_memory_is_said_and_limits_nothing() -> None:
    examination = examine(a_search())

    assert {c.instance_count for c in examination.admissible} == {1, 2, 3, 4}
    assert examination.exclusions.note == NO_LIMIT_KNOWN
    assert NO_LIMIT_KNOWN in examination.exclusions.describe()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_what_was_tried_is_never_admissible_again_whatever_came_of_it(verdict: Verdict) -> None:
    tried = a_configuration(instance_count=2)
    study = a_search(a_trial(1, tried, verdict=verdict, steps=(a_step(verdict=verdict),)))

    assert tried not in admissible(study)
    assert examine(study).exclusions.counts[Exclusion.TRIED] == 2


def test_every_configuration_is_either_admissible_or_counted_once() -> None:
    study = _baseline_used(a_search(), compute_seconds=0.048, memory_used_bytes=4e9, memory_total_bytes=16e9)
    examination = examine(study)

    assert len(examination.admissible) + sum(examination.exclusions.counts.values()) == len(
        examination.space.candidates
    )


def test_a_study_that_has_not_read_its_incumbent_cannot_be_searched() -> None:
    with pytest.raises(InvalidInput, match="incumbent"):
        examine(a_study())


def test_what_was_only_tried_to_be_learnt_from_may_be_tried_again() -> None:
    more = a_configuration(instance_count=2)
    gentle = Proposal(more, "because", GREYBOX, highest_rate_per_second=90.0)

    assert more not in admissible(a_search(a_trial(1, more)))
    assert more in admissible(a_search(a_trial(1, more, proposal=gentle)))


def test_a_search_ends_when_the_plan_s_trials_are_done() -> None:
    study = a_search(a_trial(1, a_configuration(instance_count=2)), max_trials=1)

    assert why_done(study) == "all 1 trials of the plan are done"
    assert why_done(changed(study, plan=changed(study.plan, max_trials=2))) is None


def _censored(count: int, spent: float, objective: Objective = Objective.CAPACITY) -> Study:
    start = a_trial(0, kind=TrialKind.BASELINE, limited_by="traffic")
    trials = [
        a_trial(
            number,
            a_configuration(preferred_batch_size=(), max_queue_delay_microseconds=500 * number),
            limited_by="traffic",
            steps=(a_step(use=a_use(compute_seconds_per_inference=spent)),),
        )
        for number in range(1, count + 1)
    ]
    study = a_search(*trials, objective=objective)
    return replace(study, trials=(start, *study.trials[1:]))


def test_a_search_limited_by_traffic_ends_when_compute_gets_no_less_either() -> None:
    assert why_done(_censored(PATIENCE - 1, spent=0.004)) is None
    assert "carried all the traffic there was" in (why_done(_censored(PATIENCE, spent=0.004)) or "")


def test_a_search_limited_by_traffic_goes_on_while_compute_gets_less() -> None:
    assert why_done(_censored(PATIENCE, spent=0.0035)) is None


def test_a_search_for_efficiency_is_not_ended_by_full_traffic() -> None:
    assert why_done(_censored(PATIENCE, spent=0.004, objective=Objective.EFFICIENCY)) is None


def test_a_search_limited_by_the_ceiling_goes_on() -> None:
    trials = [a_trial(n, a_configuration(max_queue_delay_microseconds=500 * n)) for n in range(1, 6)]

    assert why_done(a_search(*trials)) is None
