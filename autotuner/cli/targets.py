"""`autotuner target …`: what is tuned, and the promise to its users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.answers import slo_object
from autotuner.bootstrap import Application
from autotuner.cli.invocation import Json, of, say
from autotuner.domain.registration import Wanted
from autotuner.domain.slo import SloBudget
from autotuner.errors import Unavailable
from autotuner.operations import check_model
from autotuner.target_file import TargetFile, load_target_file
from autotuner.targets import Asked, register

commands = typer.Typer(help="What is tuned, and the promise to its users.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="TARGET.yaml", help="A target file; see examples/target.yaml.")]
Reason = Annotated[
    str, typer.Option(help="Why the budget changes; needed when it promises users less than before.")
]


@commands.command()
def apply(context: typer.Context, file: File, reason: Reason = "", json: Json = False) -> None:
    """Register a target and its SLO budget; a changed budget becomes a new version."""
    invocation = of(context, json=json)
    asked = load_target_file(file)
    with invocation.opened() as app:
        slo = registered(app, asked, reason)
    if json:
        invocation.answer({"target": asked.name, "slo": slo_object(slo)})
    else:
        print(f"target {asked.name} is registered; version {slo.version} of its SLO budget is in force")


def registered(app: Application, asked: TargetFile, reason: str) -> SloBudget:
    """Register what a target file says, checked against the server where one answers; return the budget in force."""
    target = asked.target()
    try:
        check_model(target, app.worlds(target).serving.model_config(target.stable_names[0]))
    except Unavailable as error:
        say(f"not checked against the model as it is served: {error}")
    actor = app.settings.actor
    wanted = Wanted(target, asked.budget(actor, reason), asked.study.defaults())
    return register(app.registry, app.clock, wanted, Asked(actor, reason or asked.slo.reason)).slo
