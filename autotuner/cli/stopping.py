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
SIGNALLED, OVER = b"!", b"."


@contextmanager
def stopped_by_signals(stop: threading.Event, patience: int = 1) -> Iterator[None]:
    """Let the first `patience` signals set `stop`; one more does what a signal does without us.

    The handler only writes to a pipe and a thread sets the event: the main thread may at that moment hold the very
    lock that setting it, or starting a thread, needs.
    """
    received = 0
    reading, writing = os.pipe()

    def asked(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received >= patience:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        os.write(writing, SIGNALLED)

    def relay() -> None:
        while os.read(reading, 1) == SIGNALLED:
            stop.set()

    relaying = threading.Thread(target=relay, name="signals", daemon=True)
    relaying.start()
    before = {number: signal.signal(number, asked) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.write(writing, OVER)
        relaying.join()
        os.close(reading)
        os.close(writing)


def leave(code: object) -> NoReturn:
    """End the process now, without waiting for a load in a thread: whoever carries on asks for it again."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
