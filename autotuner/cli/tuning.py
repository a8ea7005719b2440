"""`autotuner tune TARGET.yaml`: one study from registration to its end, in this process.

Ctrl-C cancels the study and waits until the incumbent is restored; a second one gives production its traffic back
at once and leaves the rest to the next worker. Another worker may carry the study at any time: this process then
looks on.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from autotuner.answers import ending_object
from autotuner.bootstrap import Application
from autotuner.cli.evidence import standing_text
from autotuner.cli.exits import Exit, exit_code_of
from autotuner.cli.invocation import Json, of
from autotuner.cli.lines import news
from autotuner.cli.live import Display
from autotuner.cli.stopping import stopped_by_signals
from autotuner.cli.targets import File, Reason, registered
from autotuner.cli.work import give_back
from autotuner.controller import Tick
from autotuner.domain.benefit import benefit
from autotuner.domain.dispersion import REHEARSAL_LIMIT
from autotuner.domain.study import Phase, Study, Wish
from autotuner.errors import Conflict, Unavailable
from autotuner.operations import ask, start_study
from autotuner.report.tables import dispersion_sentence
from autotuner.target_file import load_target_file
from autotuner.worker import Worker

PATIENCE = 2
"""Signals that are obeyed politely: cancel and restore, then hurry."""


def tune(
    context: typer.Context,
    file: File,
    reason: Reason = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Only start the study; a running worker carries it.")
    ] = False,
    rehearsal: Annotated[
        bool,
        typer.Option(
            "--rehearsal",
            help="End within minutes on weaker evidence, and say so wherever it shows: for a cluster without users.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Register a target, tune it, and promote what is proved better, while showing every step.

    Ctrl-C cancels the study and restores the incumbent; a second Ctrl-C hurries.
    """
    invocation = of(context, json=json)
    asked = load_target_file(file)
    stop = invocation.event()
    with invocation.opened() as app:
        slo = registered(app, asked, reason)
        plan = asked.plan(slo)
        if rehearsal:
            plan = replace(plan, max_dispersion=REHEARSAL_LIMIT)
        study = start_study(app.store, app.clock, plan, app.settings.actor)
        if detach:
            code = int(Exit.DONE)
        else:
            with stopped_by_signals(stop, PATIENCE), Display(json=True) as display:
                tuning = Tuning(app, study.id, stop, display)
                study = tuning.run()
                code = Exit.INTERRUPTED if tuning.interrupted else exit_code_of(study.outcome)
    if json:
        invocation.answer(ending_object(study))
    elif detach:
        _tell_started(study)
    else:
        _tell_ended(study)
        if rehearsal:
            print(dispersion_sentence(study))
    raise typer.Exit(code)


LAST_LOOKS = 30
"""How often, a second apart, the ending of a study is asked for that a database keeps to itself."""


@dataclass
class Tuning:
    """One study carried in this process. interrupted: a signal came."""

    app: Application
    study_id: str
    stop: threading.Event
    display: Display
    interrupted: bool = False
    _seen: Study | None = None
    _said: str = ""
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        self._worker = self.app.worker()
        self._worker.only = self.study_id
        self._worker.told = self._told

    def run(self) -> Study:
        """Carry the study to its end, or to where a second signal leaves it, and return it."""
        try:
            self._worker.run(self.stop, until_idle=True)
            if self.stop.is_set():
                self._cancel()
            if self.stop.is_set():
                self.display.progress(f"hurried: {self._worker.controller.retreat(self.study_id)}")
                self.display.progress("`autotuner worker --until-idle` restores the rest")
        finally:
            give_back(self._worker)
        return self._last_look()

    def _last_look(self) -> Study:
        """Return the study as it ended. Raises Unavailable when the database stays away."""
        for _ in range(LAST_LOOKS):
            try:
                return self._show()
            except Unavailable as error:
                self.display.progress(f"waiting: {error}")
                self.stop.wait(1.0)
        return self._show()

    def _cancel(self) -> None:
        """Cancel the study and carry it until all is restored or another signal comes."""
        self.interrupted = True
        self.stop.clear()
        self.display.progress(
            "interrupted: the study is cancelled and the incumbent restored; again to hurry"
        )
        while not self.stop.is_set():
            try:
                ask(
                    self.app.store,
                    self.app.clock,
                    self.study_id,
                    Wish.CANCEL,
                    self.app.settings.actor,
                    "interrupted at the terminal",
                )
            except Unavailable as error:
                self.display.progress(f"waiting: {error}")
                self.stop.wait(1.0)
                continue
            except Conflict:
                return
            self._worker.run(self.stop, until_idle=True)
            return

    def _told(self, _study_id: str, tick: Tick) -> None:
        if tick.reason != self._said and tick.reason.startswith(("waiting", "another worker", "paused")):
            self.display.progress(tick.reason)
        self._said = tick.reason
        with contextlib.suppress(Unavailable):  # the next tick shows what this one could not
            self._show()

    def _show(self) -> Study:
        study = self.app.store.study(self.study_id)
        for kind, line in news(self._seen, study):
            self.display.line(kind, line)
        self.display.update(study)
        self._seen = study
        return study


def _tell_started(study: Study) -> None:
    print(f"study {study.id} is started; a worker carries it: autotuner show {study.id}")


def _tell_ended(study: Study) -> None:
    outcome = study.outcome.value.upper() if study.outcome else f"NOT ENDED, in phase {study.phase}"
    print(f"{outcome}: {study.reason}")
    worth = benefit(study)
    for title, standing in (("incumbent", worth.incumbent), ("winner", worth.winner)):
        if standing is not None:
            print(f"  {title}: {standing_text(standing, study.plan.target.currency)}")
    if worth.capacity_ratio is not None:
        print(f"  capacity: {worth.capacity_ratio:.2f} × the incumbent's")
    print(f"  harm: {worth.harm_requests:.0f} of {worth.harm_budget_requests} slow or failed requests")
    print(f"next: autotuner show {study.id}; autotuner replay {study.id}")
    if study.winner is not None and study.phase is Phase.ENDED:
        print(f"      autotuner export {study.id}/winner --format patch")
