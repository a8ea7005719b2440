"""`autotuner worker`: carries every unfinished study until it is told to stop.

A signal ends it between two ticks: production gets its traffic back, studies stay as they are recorded, and the next
worker carries them on. What it does is logged, so that its output is lines of JSON where no person looks.
"""

from __future__ import annotations

import logging
import threading
from typing import Annotated

import typer

from autotuner.bootstrap import Application, collected_rarely
from autotuner.cli.invocation import Json, of
from autotuner.cli.stopping import stopped_by_signals
from autotuner.controller import Tick
from autotuner.errors import AutotunerError
from autotuner.worker import Worker

log = logging.getLogger(__name__)


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

    A signal ends it between two ticks: production gets its traffic back, and the next worker carries the studies on.
    Any number of workers may run: a lease decides who drives a target.
    """
    invocation = of(context, json=json)
    log.setLevel(min(logging.INFO, logging.getLogger().level))
    stop = invocation.event()
    with invocation.opened() as app, stopped_by_signals(stop), app.metrics_served():
        log.info("worker_started", extra={"holder": app.settings.holder})
        ticks = carry(app, stop, until_idle=until_idle)
        why = "asked to stop; the next worker carries on" if stop.is_set() else "no study is unfinished"
        log.info("worker_stopped", extra={"holder": app.settings.holder, "ticks": ticks, "reason": why})
    if json:
        invocation.answer({"holder": app.settings.holder, "ticks": ticks, "stopped": stop.is_set()})


def carry(app: Application, stop: threading.Event, *, until_idle: bool) -> int:
    """Run a worker until `stop`, log each new thing it does, give its leases back; returns how many ticks it made."""
    told: dict[str, str] = {}
    ticks = 0

    def tell(study_id: str, tick: Tick) -> None:
        nonlocal ticks
        ticks += 1
        if told.get(study_id) != tick.reason:
            told[study_id] = tick.reason
            log.info("study_advanced", extra={"study": study_id, "reason": tick.reason})

    made = app.worker()
    made.told = tell
    try:
        with collected_rarely():
            made.run(stop, until_idle)
    finally:
        give_back(made)
    return ticks


def scheduler(context: typer.Context, json: Json = False) -> None:
    """Start studies at night and deliver notices, until SIGTERM or Ctrl-C.

    Any number may run: one leads, another takes over within seconds when it dies. Studies are carried by workers.
    """
    invocation = of(context, json=json)
    log.setLevel(min(logging.INFO, logging.getLogger().level))
    stop = invocation.event()
    with invocation.opened() as app, stopped_by_signals(stop), app.metrics_served():
        made = app.scheduler()
        log.info("scheduler_started", extra={"holder": app.settings.holder})
        made.run(stop)
        log.info("scheduler_stopped", extra={"holder": app.settings.holder})
    if json:
        invocation.answer({"holder": app.settings.holder, "stopped": stop.is_set()})


def give_back(worker: Worker) -> None:
    """Let a worker give up what it holds; what cannot be given back is logged, for its leases expire by themselves."""
    try:
        worker.leave()
    except AutotunerError as error:
        log.warning("leases_not_given_back", extra={"reason": str(error)})
