"""`autotuner serve`: the REST API and the web UI, until it is told to stop.

The API is the outermost layer, so nothing here imports it: the command finds it by name when it is asked for. So does
it find the sandbox, which an installation for production does not have.
"""

from __future__ import annotations

import importlib
import logging
from typing import Annotated, Any

import typer

from autotuner.bootstrap import Application, collected_rarely
from autotuner.cli.invocation import Invocation, Json, of, say
from autotuner.cli.stopping import stopped_by_signals
from autotuner.errors import Refused

log = logging.getLogger(__name__)

Address = tuple[str | None, int | None]
"""Host and port that were asked for; None where the settings say."""


def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: AUTOTUNER_API_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on. Default: AUTOTUNER_API_PORT.")
    ] = None,
    sandbox: Annotated[
        bool,
        typer.Option(
            "--sandbox",
            help="On a stack on this machine, with a worker, a scheduler and a token; no database needed.",
        ),
    ] = False,
    workload: Annotated[
        str, typer.Option(help="With --sandbox: a workload file, or the name of one that comes with it.")
    ] = "",
    json: Json = False,
) -> None:
    """Serve the REST API and the web UI until SIGTERM or Ctrl-C.

    It needs a database and no worker; workers carry the studies that it starts. It begins while the database is away,
    and says at /readyz what it lacks.
    """
    invocation = of(context, json=json)
    log.setLevel(min(logging.INFO, logging.getLogger().level))
    if sandbox:
        _on_a_sandbox(invocation, (host, port), workload)
    else:
        with invocation.opened(current_schema=False) as app:
            _serve(invocation, app, (host, port), [])
    if json:
        invocation.answer({"stopped": True})


def _on_a_sandbox(invocation: Invocation, asked: Address, workload: str) -> None:
    try:
        module = importlib.import_module("autotuner.cli.playground")
    except ImportError as error:
        raise Refused(
            f"`autotuner serve --sandbox` needs {error.name}: install it with pip install 'autotuner[sandbox]'"
        ) from error
    with module.playground(workload) as ground:
        _serve(invocation, ground.app, asked, _welcome(ground))


def _welcome(ground: Any) -> list[str]:
    """What a newcomer is told when everything runs."""
    return [
        f"target {ground.target} runs on this machine: {ground.note}",
        "metrics: " + ", ".join(f"{name} at {url}" for name, url in ground.metrics.items()),
        f"sign in with this token, good for 12 hours, shown once: {ground.secret}",
        "then set the target's SLO budget, set a schedule (*/10 * * * * is every ten minutes) or start a study,",
        "watch it and read why the winner won. A study takes some minutes. Ctrl-C stops everything.",
    ]


def _serve(invocation: Invocation, app: Application, asked: Address, welcome: list[str]) -> None:
    api = importlib.import_module("api.server")
    stop = invocation.event()

    def started(address: str) -> None:
        log.info("api_started", extra={"address": address})
        say(f"serving the web UI at {address}/ui and the REST API at {address}/v1")
        for line in welcome:
            say(line)

    settings = app.settings
    host, port = asked
    with stopped_by_signals(stop), collected_rarely():
        api.serve(app, stop, started, host or settings.api_host, settings.api_port if port is None else port)
