"""Serving the API over HTTP until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from api.app import create
from autotuner.bootstrap import Application
from autotuner.errors import AutotunerError, Unavailable

GRACE_SECONDS = 5
"""How long requests under way may take after it was told to stop."""

LOOK_SECONDS = 0.2
"""How often it is looked whether it shall stop."""

SETTLE_SECONDS = 2.0
"""How often spans that were sent here are judged when no others come."""

TURN_SECONDS = 0.0005
"""How long a thread keeps the interpreter when another wants it, a tenth of Python's own. A page that asks the database
ten times waits for its turn ten times while others write theirs."""

log = logging.getLogger(__name__)


def serve(
    application: Application, stop: threading.Event, started: Callable[[str], None], host: str, port: int
) -> None:
    """Serve until `stop` is set. started: called once with the address, when connections are taken.

    Raises Unavailable when the address cannot be had.
    """
    settings = application.settings
    config = uvicorn.Config(
        create(application),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.api_trusted_proxies),
        forwarded_allow_ips=settings.api_trusted_proxies or None,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="off",
    )
    with (
        _listening(host, port) as listener,
        _short_turns(),
        _spans_settled(application),
        asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
    ):
        runner.run(_until(_Server(config), listener, stop, started))


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _spans_settled(application: Application) -> Iterator[None]:
    """Judge spans in a thread of their own inside the block, whether or not others come."""
    done = threading.Event()

    def settle() -> None:
        while not done.wait(SETTLE_SECONDS):
            try:
                application.settle_spans()
            except AutotunerError as error:
                log.warning("spans_not_kept", extra={"reason": str(error)})

    thread = threading.Thread(target=settle, name="spans", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(GRACE_SECONDS)


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever called `serve`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _until(
    server: uvicorn.Server, listener: socket.socket, stop: threading.Event, started: Callable[[str], None]
) -> None:
    serving = asyncio.create_task(server.serve([listener]))
    told = False
    while not serving.done():
        await asyncio.sleep(LOOK_SECONDS)
        if server.started and not told:
            told = True
            started(_address(listener))
        if stop.is_set():
            server.should_exit = True
    await serving


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Unavailable(f"address {host}:{port}", error.strerror or str(error)) from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
