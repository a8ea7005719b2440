"""The conduct of a demo: real servers, a real study by a worker process, and what is left at the end.

The study is carried by `autotuner worker` in a process of its own, started again whenever it dies; this process
only starts things, looks into the database and stops things. Whatever ends it, the incumbent is restored first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import SecretStr

from autotuner.adapters.postgres.migrate import upgrade
from autotuner.bootstrap import Application, application, world_of
from autotuner.cli.lines import news
from autotuner.cli.live import Display
from autotuner.domain.configuration import Configuration, read_configuration
from autotuner.domain.study import Phase, Study, Wish
from autotuner.errors import AutotunerError, Conflict, Unavailable
from autotuner.operations import ask, register_target, start_study
from autotuner.sandbox.processes import ManagedProcess
from autotuner.sandbox.stack import SandboxStack, brisk_plan
from autotuner.sandbox.workload import Workload
from autotuner.settings import PREFIX, Settings

ACTOR = "demo"
FOLLOW_SECONDS = 0.3
RESTORE_LIMIT = timedelta(seconds=90)


@dataclass(frozen=True)
class Options:
    """What a demo was asked to do."""

    workload: Workload
    directory: Path
    database_url: str = ""
    short: bool = False
    seed: int = 1


@dataclass
class Rehearsal:
    """A running demo. Use as a context manager: leaving it restores the incumbent and stops everything."""

    options: Options
    display: Display
    interrupted: bool = False
    _worker: ManagedProcess | None = None
    _stack: SandboxStack = field(init=False)
    _app: Application = field(init=False)
    _study_id: str = ""

    def __post_init__(self) -> None:
        options = self.options
        self._stack = SandboxStack(
            options.workload, options.directory, options.database_url, options.seed, self.display.progress
        )

    def __enter__(self) -> Self:
        self._stack.__enter__()
        try:
            self.display.progress(f"database: {upgrade(self._stack.url)}")
            self._app = application(Settings(database_url=SecretStr(self._stack.url), holder=ACTOR))
        except BaseException:
            self._stack.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._study_id:
                self._restore()
        finally:
            if self._worker is not None:
                self._worker.stop()
            self._app.__exit__(kind, error, trace)
            self._stack.__exit__(kind, error, trace)

    @property
    def stack(self) -> SandboxStack:
        """The stack the demo runs on."""
        return self._stack

    def study(self) -> Study:
        """Run one study to its end and return it; Ctrl-C cancels it and waits until all is restored."""
        app, options = self._app, self.options
        target, now = self._stack.target(), app.clock
        slo = register_target(app.store, now, target, self._stack.budget(ACTOR), ACTOR, "")
        plan = brisk_plan(self._stack, slo, short=options.short, seed=options.seed)
        self._study_id = start_study(app.store, now, plan, ACTOR).id
        self._start_worker()
        try:
            return self._follow(None)
        except KeyboardInterrupt:
            self.interrupted = True
            return self._restore()

    def served(self) -> Mapping[str, Configuration]:
        """Read back from each server what it serves now."""
        world = world_of(self._stack.target(), self._app.clock)
        names = [replica.name for replica in self._stack.target().replicas]
        return {name: read_configuration(world.serving.model_config(name)) for name in names}

    def requests(self) -> int:
        """Requests that the traffic source has sent so far."""
        status = self._stack.traffic.status()
        return int(status["sent"]) if status else 0

    def weights(self) -> Mapping[str, int]:
        """Read the gateway's weights back."""
        return world_of(self._stack.target(), self._app.clock).route.weights()

    def _start_worker(self) -> None:
        environment = {
            **os.environ,
            f"{PREFIX}DATABASE_URL": self._stack.url,
            f"{PREFIX}HOLDER": "demo-worker",
            f"{PREFIX}LOG_FORMAT": "json",
        }
        self._worker = ManagedProcess(
            "worker",
            [sys.executable, "-m", "autotuner", "worker"],
            self.options.directory / "worker.log",
            environment=environment,
        )
        self._worker.start()
        self._stack.write_state(worker_pid=self._worker.pid, study=self._study_id)

    def _follow(self, seen: Study | None, until: datetime | None = None) -> Study:
        """Show what happens until the study has ended, or until the instant `until`."""
        while True:
            self._keep_worker()
            try:
                study = self._app.store.study(self._study_id)
            except Unavailable as error:
                self.display.progress(f"waiting: {error}")
                time.sleep(1.0)
                continue
            for kind, line in news(seen, study):
                self.display.line(kind, line)
            self.display.update(study)
            seen = study
            if study.phase is Phase.ENDED or (until is not None and self._app.clock.now() > until):
                return study
            time.sleep(FOLLOW_SECONDS)

    def _keep_worker(self) -> None:
        if self._worker is not None and not self._worker.alive:
            self.display.progress(f"the worker died ({self._worker.exit_code}); a new one carries on")
            self._start_worker()

    def _restore(self) -> Study:
        """Cancel the study if it has not ended and wait, within bounds, until it is."""
        study = self._app.store.study(self._study_id)
        if study.phase is Phase.ENDED:
            return study
        self.display.progress("stopping: the study is cancelled and the incumbent restored")
        try:
            ask(
                self._app.store,
                self._app.clock,
                self._study_id,
                Wish.CANCEL,
                ACTOR,
                "the demo was interrupted",
            )
        except Conflict:
            return self._app.store.study(self._study_id)
        study = self._follow(study, until=self._app.clock.now() + RESTORE_LIMIT)
        if study.phase is not Phase.ENDED:
            raise AutotunerError(f"the incumbent was not restored within {RESTORE_LIMIT}")
        return study
