"""What `autotuner serve --sandbox` serves: the local stack with its target registered, a worker and a scheduler.

The service is the real one: API and web UI in this process, worker and scheduler in processes of their own that are
started again when they die. Only the servers behind the target are a rehearsal's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from types import FrameType

from pydantic import SecretStr

from autotuner.access import Wanted as WantedToken
from autotuner.access import issue_token
from autotuner.adapters.postgres.migrate import upgrade
from autotuner.bootstrap import Application, application
from autotuner.cli.invocation import say
from autotuner.domain.access import Scope
from autotuner.domain.registration import StudyDefaults, Wanted
from autotuner.sandbox.processes import ManagedProcess, free_port
from autotuner.sandbox.stack import SandboxStack, brisk_plan, remove_directory, run_directory
from autotuner.sandbox.workload import DEFAULT_WORKLOAD, load_workload
from autotuner.settings import PREFIX, Settings
from autotuner.targets import MUST_BE_NEW, Asked, register

ACTOR = "sandbox"
LOOPBACK = "127.0.0.0/8"
METRICS_HOST = "127.0.0.1"
TOKEN_LIFE = timedelta(hours=12)
LOOK_SECONDS = 0.5

BESIDE = ("worker", "scheduler")
"""What runs beside the API, each a command of its own."""


@dataclass(frozen=True)
class Playground:
    """A running sandbox.

    app: the service's application over it. secret: of an admin's token, good for half a day. metrics: where worker and
    scheduler show their metrics.
    """

    app: Application
    target: str
    note: str
    secret: str
    metrics: Mapping[str, str]


@contextmanager
def playground(workload: str) -> Iterator[Playground]:
    """Give a running sandbox, and stop all of it afterwards. workload: a name or a file; empty for the usual one.

    Raises InvalidInput for a workload that cannot be used, ProcessFailed when a part does not start.
    """
    chosen = load_workload(workload or DEFAULT_WORKLOAD)
    place = run_directory()
    with ExitStack() as opened:
        opened.callback(remove_directory, place)
        with _interruptible():
            stack = opened.enter_context(SandboxStack(chosen, place, report=say))
            say(f"database: {upgrade(stack.url)}")
            settings = Settings(
                database_url=SecretStr(stack.url), holder=ACTOR, actor=ACTOR, target_addresses=LOOPBACK
            )
            app = opened.enter_context(application(settings))
            _register(app, stack)
            metrics = opened.enter_context(_beside(stack.url, place))
            wanted = WantedToken(ACTOR, (Scope.ADMIN,), TOKEN_LIFE, "made by autotuner serve --sandbox")
            _, secret = issue_token(app.tokens, app.clock, wanted, ACTOR)
        yield Playground(app, stack.target().name, stack.note, secret, metrics)
        say("stopping everything")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM end the start as Ctrl-C does: what has been started by then is stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _register(app: Application, stack: SandboxStack) -> None:
    """Register the stack as a target whose studies go about it as a rehearsal does."""
    budget = stack.budget(ACTOR)
    plan = brisk_plan(stack, budget)
    told = {each.name: getattr(plan, each.name) for each in fields(StudyDefaults) if hasattr(plan, each.name)}
    wanted = Wanted(stack.target(), budget, StudyDefaults(**told))
    register(app.registry, app.clock, wanted, Asked(ACTOR, budget.reason, MUST_BE_NEW))


@contextmanager
def _beside(url: str, place: Path) -> Iterator[Mapping[str, str]]:
    """Keep a worker and a scheduler running; gives where each shows its metrics."""
    environment = {**os.environ, f"{PREFIX}DATABASE_URL": url, f"{PREFIX}LOG_FORMAT": "json"}
    ports = {name: free_port() for name in BESIDE}
    running = [
        ManagedProcess(
            name,
            [sys.executable, "-m", "autotuner", name],
            place / f"{name}.log",
            environment={
                **environment,
                f"{PREFIX}HOLDER": f"sandbox-{name}",
                f"{PREFIX}METRICS_HOST": METRICS_HOST,
                f"{PREFIX}METRICS_PORT": str(port),
            },
        )
        for name, port in ports.items()
    ]
    stop = threading.Event()
    keeper = threading.Thread(target=_keep, args=(running, stop), name="sandbox-keeper", daemon=True)
    try:
        for each in running:
            each.start()
        keeper.start()
        yield {name: f"http://{METRICS_HOST}:{port}/metrics" for name, port in ports.items()}
    finally:
        stop.set()
        if keeper.ident is not None:
            keeper.join()
        for each in running:
            each.stop()


def _keep(running: list[ManagedProcess], stop: threading.Event) -> None:
    while not stop.wait(LOOK_SECONDS):
        for each in running:
            if not each.alive:
                say(f"the {each.name} died ({each.exit_code}); a new one carries on")
                each.start()
