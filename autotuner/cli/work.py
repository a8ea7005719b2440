"""`autotuner worker`: carries every unfinished study until it is told to stop.

A signal ends it between two ticks: studies stay as they are recorded, and the next worker carries them on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from autotuner.bootstrap import Application
from autotuner.cli.invocation import Json, of, say
from autotuner.controller import Tick


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM or SIGINT sets; a second signal of the kind does what it always does."""
    stop = threading.Event()

    def asked(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        # In a thread: the main thread may be inside the event it would have to lock.
        threading.Thread(target=stop.set, name="stopping").start()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> None:
    """End the process now: a load still running in a thread is asked for again by whoever carries on."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def worker(
    context: typer.Context,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle", help="End when no study is unfinished, instead of waiting for the next."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Carry every unfinished study, tick by tick, until SIGTERM or Ctrl-C.

    A signal ends it between two ticks and leaves the studies to the next worker. Any number of workers may run:
    a lease decides who drives a target.
    """
    invocation = of(context, json=json)
    with invocation.opened() as app, stopped_by_signals() as stop:
        say(f"worker {app.settings.holder} carries studies; Ctrl-C or SIGTERM leaves them to the next worker")
        ticks = carry(app, stop, until_idle=until_idle)
    say("stopped; nothing is lost" if stop.is_set() else "no study is unfinished")
    if json:
        invocation.answer({"holder": app.settings.holder, "ticks": ticks, "stopped": stop.is_set()})


def carry(app: Application, stop: threading.Event, *, until_idle: bool) -> int:
    """Run a worker until `stop` and tell each new thing it does; returns how many ticks it made."""
    told: dict[str, str] = {}
    ticks = 0

    def tell(study_id: str, tick: Tick) -> None:
        nonlocal ticks
        ticks += 1
        if told.get(study_id) != tick.reason:
            told[study_id] = tick.reason
            say(f"{study_id}: {tick.reason}")

    made = app.worker()
    made.told = tell
    made.run(stop, until_idle)
    return ticks
