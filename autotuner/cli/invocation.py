"""One run of the command line: how to open the application, what was asked for globally, and how errors end it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from autotuner.bootstrap import Application, application
from autotuner.cli.exits import Exit, exit_code_for
from autotuner.errors import AutotunerError, Refused
from autotuner.settings import Settings, read_settings
from autotuner.telemetry.logs import starred, start_logging


@dataclass
class Invocation:
    """What a command needs of its surroundings; `typer.Context.obj` holds it. Tests pass one of their own.

    opening: makes the application from settings. event: makes what a command waits on until it is stopped.
    json: whether the command ends in one JSON object on standard output. debug: whether errors show their origin.
    """

    opening: Callable[[Settings], Application] = application
    settings: Callable[[], Settings] = read_settings
    event: Callable[[], threading.Event] = threading.Event
    json: bool = False
    debug: bool = False

    @contextlib.contextmanager
    def opened(self, *, current_schema: bool = True) -> Iterator[Application]:
        """Open the application and close it afterwards; its schema must be current unless said otherwise."""
        with self.opening(self.settings()) as app:
            if current_schema:
                app.require_current_schema()
            yield app

    def answer(self, content: Any) -> None:
        """Print the command's JSON answer: one object on one line, the last of standard output."""
        print(json.dumps(content, ensure_ascii=False, allow_nan=False), flush=True)


def of(context: typer.Context, *, json: bool = False) -> Invocation:
    """Return the invocation a command belongs to, having noted that it is to answer in JSON."""
    found = context.find_object(Invocation)
    assert found is not None
    found.json = json
    return found


def say(text: str) -> None:
    """Print progress or a remark: to standard error, so that standard output holds answers alone."""
    print(text, file=sys.stderr, flush=True)


Json = Annotated[
    bool,
    typer.Option("--json", help="End with one JSON object on standard output; all else on standard error."),
]


LAZY = {
    "bench": "autotuner.cli.bench",
    "demo": "autotuner.cli.demo",
    "diagnose": "autotuner.cli.diagnose",
    "simulate": "autotuner.cli.simulate",
    "sweep": "autotuner.cli.sweep",
}
"""Commands with large parts, or with the sandbox's, by name: imported only when they are asked for."""


class CommandLine(TyperGroup):
    """The root of all commands: an error becomes one sentence and an exit code (see `cli.exits`)."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every command's name, those of the sandbox last."""
        return [*super().list_commands(ctx), *LAZY]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported now if it is one of the sandbox's."""
        return _lazy(cmd_name) if cmd_name in LAZY else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and translate what it raises."""
        try:
            return super().invoke(ctx)
        except AutotunerError as error:
            self._fail(ctx.obj, error, str(error))
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(Exit.INTERRUPTED) from None
        except (typer.Exit, typer.Abort, typer.TyperException) as error:
            raise error from None
        except Exception as error:  # noqa: BLE001 - the top of the program: a sentence instead of a traceback
            self._fail(
                ctx.obj, error, f"unexpected: {type(error).__name__}: {error} (autotuner --debug shows where)"
            )

    def _fail(self, invocation: Invocation, error: Exception, sentence: str) -> None:
        if invocation.debug:
            raise error
        sentence, code = starred(sentence), exit_code_for(error)
        say(f"error: {sentence}")
        if invocation.json:
            invocation.answer({"error": sentence, "kind": type(error).__name__, "exit_code": int(code)})
        raise typer.Exit(code) from None


def start(context: typer.Context, debug: bool) -> None:
    """Begin an invocation: read settings, start logging."""
    invocation = context.obj if isinstance(context.obj, Invocation) else Invocation()
    invocation.debug = debug
    context.obj = invocation
    settings = invocation.settings()
    start_logging("DEBUG" if debug else settings.log_level, settings.log_format)


@functools.cache
def _lazy(name: str) -> Any:
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    try:
        function = getattr(importlib.import_module(LAZY[name]), name)
    except ImportError as error:
        function = _absent(name, error.name or "")
    single.command(name)(function)
    return typer.main.get_command(single)


def _absent(name: str, missing: str) -> Callable[[], None]:
    def refuse() -> None:
        raise Refused(f"`autotuner {name}` needs {missing}: install it with pip install 'autotuner[sandbox]'")

    refuse.__doc__ = "Not installed: needs the extra `sandbox`."
    return refuse
