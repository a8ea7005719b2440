"""Signals ask a command to stop between two ticks; impatience gets what a signal does without us."""

from __future__ import annotations

import signal
import threading

import pytest

from autotuner.cli.stopping import SIGNALS, stopped_by_signals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_sets_the_event(number: int) -> None:
    stop = threading.Event()

    with stopped_by_signals(stop):
        signal.raise_signal(number)
        assert stop.wait(5.0)


def test_as_many_signals_as_there_is_patience_set_the_event_and_the_next_acts_as_ever() -> None:
    stop = threading.Event()

    with stopped_by_signals(stop, patience=2):
        for _ in range(2):
            stop.clear()
            signal.raise_signal(signal.SIGINT)
            assert stop.wait(5.0)
        assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_DFL}


def test_afterwards_signals_mean_what_they_meant_before_and_no_thread_is_left() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]

    with stopped_by_signals(threading.Event()):
        pass

    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert "signals" not in {thread.name for thread in threading.enumerate()}
