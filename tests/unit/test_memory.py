from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.domain.measurement import ServerUse
from autotuner.domain.memory import MemoryModel, lands_in_headroom, learn
from tests.searches import a_use


def _use(used_gb: float | None, total_gb: float | None) -> ServerUse:
    return a_use(
        memory_used_bytes=None if used_gb is None else used_gb * 1e9,
        memory_total_bytes=None if total_gb is None else total_gb * 1e9,
    )


def _model(total_gb: float, *points: tuple[int, float]) -> MemoryModel:
    model = learn((count, _use(used, total_gb)) for count, used in points)
    assert model is not None
    return model


def test_one_count_puts_everything_in_use_down_to_its_instances() -> None:
    assert _model(16, (2, 3.0)).predict(4) == pytest.approx(6e9)


def test_one_count_says_nothing_cheaper_of_fewer_instances() -> None:
    assert _model(16, (4, 6.0)).predict(1) == pytest.approx(6e9)


def test_two_counts_tell_the_base_from_the_instances() -> None:
    model = _model(16, (1, 3.0), (2, 4.0))

    assert model.bytes_per_instance == pytest.approx(1e9)
    assert model.base_bytes == pytest.approx(2e9)
    assert model.predict(5) == pytest.approx(7e9)


def test_the_highest_reading_of_a_count_is_the_one_that_counts() -> None:
    assert _model(16, (1, 3.0), (2, 4.0), (1, 2.0), (2, 3.5)).predict(2) == pytest.approx(4e9)


def test_memory_that_shrinks_with_more_instances_is_not_believed() -> None:
    model = _model(16, (1, 4.0), (2, 3.0))

    assert model.bytes_per_instance == 0.0
    assert model.predict(3) >= 4e9


@given(
    st.dictionaries(st.integers(1, 12), st.floats(0.1, 100.0), min_size=1, max_size=6),
    st.integers(1, 20),
)
def test_no_prediction_is_below_what_was_measured_with_as_many_or_fewer(
    used_gb: dict[int, float], count: int
) -> None:
    predicted = _model(1000, *used_gb.items()).predict(count)

    assert predicted >= max((used * 1e9 for seen, used in used_gb.items() if seen <= count), default=0.0) * (
        1 - 1e-9
    )


def test_counts_that_leave_less_than_the_headroom_are_refused() -> None:
    model = _model(10, (1, 2.0), (2, 3.0))  # 1 GB each on a base of 1 GB

    assert model.refusal(8, headroom=0.10) is None
    assert model.largest_count(headroom=0.10) == 8
    refused = model.refusal(9, headroom=0.10)
    assert refused is not None
    assert "9 instances would use about 10.00 GB of 10.00 GB" in refused
    assert "headroom of 10%" in refused


def test_no_count_is_allowed_where_one_instance_is_too_much() -> None:
    assert _model(10, (1, 9.5)).largest_count() == 0


def test_a_reload_needs_room_for_old_and_new_at_once() -> None:
    model = _model(10, (1, 2.0), (2, 3.0))

    assert model.reload_fits(4, 5) is None
    refused = model.reload_fits(4, 6)
    assert refused is not None
    assert "while 6 instances load beside the 4 that serve" in refused


@pytest.mark.parametrize(("used", "total"), [(None, 16.0), (3.0, None), (None, None), (3.0, 0.0)])
def test_without_reported_memory_there_is_no_model_and_no_objection(
    used: float | None, total: float | None
) -> None:
    assert learn([(1, _use(used, total))]) is None
    assert lands_in_headroom(_use(used, total)) is None


def test_a_trial_that_lands_in_the_headroom_says_by_how_much() -> None:
    reason = lands_in_headroom(_use(9.2, 10.0), headroom=0.10)

    assert reason is not None
    assert "8.0% free, less than the headroom of 10%" in reason


def test_a_trial_that_leaves_exactly_the_headroom_is_fine() -> None:
    assert lands_in_headroom(_use(9.0, 10.0), headroom=0.10) is None
