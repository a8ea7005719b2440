from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from autotuner.adapters.clock import ManualClock, SystemClock
from autotuner.errors import InvalidInput


def test_the_system_clock_tells_the_present_in_utc() -> None:
    before = datetime.now(UTC)
    now = SystemClock().now()

    assert before <= now <= datetime.now(UTC)
    assert now.tzinfo is UTC


def test_the_manual_clock_stands_still_until_it_is_turned() -> None:
    clock = ManualClock()
    start = clock.now()

    assert clock.now() == start
    assert clock.advance(timedelta(seconds=90)) == clock.now() == start + timedelta(seconds=90)


def test_the_manual_clock_tells_utc_wherever_it_was_started() -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))

    now = ManualClock(start).now()

    assert now == start
    assert now.utcoffset() == timedelta(0)


def test_the_manual_clock_does_not_start_without_a_time_zone() -> None:
    with pytest.raises(InvalidInput, match="start"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test


def test_time_does_not_run_backwards() -> None:
    clock = ManualClock()

    with pytest.raises(InvalidInput, match="backwards"):
        clock.advance(timedelta(microseconds=-1))
