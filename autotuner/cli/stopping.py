"""What SIGTERM and Ctrl-C mean to a command that carries studies: stop between two ticks, never within one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: threading.Event, patience: int = 1) -> Iterator[None]:
    """Let the first `patience` signals set `stop`; one more does what a signal does without us."""
    received = 0

    def asked(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received >= patience:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        # In a thread: the main thread may be inside the event it would have to lock.
        threading.Thread(target=stop.set, name="stopping").start()

    before = {number: signal.signal(number, asked) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: object) -> NoReturn:
    """End the process now, without waiting for a load in a thread: whoever carries on asks for it again."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
