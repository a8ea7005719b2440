"""`autotuner serve`: the REST API, until it is told to stop.

The API is the outermost layer, so nothing here imports it: the command finds it by name when it is asked for.
"""

from __future__ import annotations

import importlib
import logging
from typing import Annotated

import typer

from autotuner.cli.invocation import Json, of, say
from autotuner.cli.stopping import stopped_by_signals

log = logging.getLogger(__name__)


def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: AUTOTUNER_API_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on. Default: AUTOTUNER_API_PORT.")
    ] = None,
    json: Json = False,
) -> None:
    """Serve the REST API until SIGTERM or Ctrl-C.

    It needs a database and no worker; workers carry the studies that it starts. It begins while the database is away,
    and says at /readyz what it lacks.
    """
    invocation = of(context, json=json)
    log.setLevel(min(logging.INFO, logging.getLogger().level))
    api = importlib.import_module("api.server")
    stop = invocation.event()

    def started(address: str) -> None:
        log.info("api_started", extra={"address": address})
        say(f"serving the REST API at {address}")

    with invocation.opened(current_schema=False) as app, stopped_by_signals(stop):
        settings = app.settings
        chosen = (host or settings.api_host, settings.api_port if port is None else port)
        api.serve(app, stop, started, *chosen)
    if json:
        invocation.answer({"stopped": True})
