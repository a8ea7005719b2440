"""`autotuner kubernetes …`: what a workload has and lacks, canaries past their time, and leaving a cluster in order."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from autotuner.bootstrap import Application, canaries_past_their_time, preflight_of
from autotuner.cli.exits import Exit
from autotuner.cli.invocation import Json, of
from autotuner.cli.stopping import stopped_by_signals
from autotuner.cli.targets import File
from autotuner.cli.work import carry
from autotuner.domain.needs import Answer
from autotuner.domain.study import Wish
from autotuner.errors import Conflict, InvalidInput
from autotuner.operations import ask
from autotuner.settings import Settings
from autotuner.target_file import load_target_file

commands = typer.Typer(help="Targets on Kubernetes.", no_args_is_help=True)

log = logging.getLogger(__name__)


@commands.command()
def preflight(context: typer.Context, file: File, json: Json = False) -> None:
    """Say what a workload has and lacks for being tuned, with the patch that would add it; changes nothing."""
    invocation = of(context, json=json)
    target = load_target_file(file).target()
    if target.workload is None:
        raise InvalidInput(
            "kubernetes", None, "a section in the target file: this target has static endpoints"
        )
    findings = preflight_of(target, Settings())
    if json:
        found = [
            {"what": each.what, "answer": each.answer.value, "detail": each.detail, "advice": each.advice}
            for each in findings
        ]
        invocation.answer({"target": target.name, "findings": found})
    else:
        for each in findings:
            print(f"{'MISSING' if each.answer is Answer.NO else 'ok':8} {each.what}: {each.detail}")
            if each.advice:
                print(f"         {each.advice}")
    raise typer.Exit(Exit.REFUSED if any(each.answer is Answer.NO for each in findings) else Exit.DONE)


@commands.command()
def reap(
    context: typer.Context,
    namespace: Annotated[str, typer.Argument(help="Where to look for canaries.")],
    json: Json = False,
) -> None:
    """Take down every canary in a namespace that is past its time, whatever became of its study."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        done = canaries_past_their_time(app, namespace)
    if json:
        invocation.answer({"namespace": namespace, "reaped": list(done)})
    else:
        print("\n".join(done) or f"no canary in {namespace} is past its time")


@commands.command()
def leave(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="Why; recorded in the audit.")] = "the autotuner is uninstalled",
    json: Json = False,
) -> None:
    """Cancel every unfinished study and return when production is restored and no canary is left.

    For the moment before the autotuner is uninstalled. Workers that run carry the studies to their end; so does this.
    """
    invocation = of(context, json=json)
    stop = invocation.event()
    with invocation.opened() as app, stopped_by_signals(stop):
        cancelled = _cancel_all(app, reason)
        carry(app, stop, until_idle=True)
        left = [study for study, _ in app.store.unfinished()]
    if json:
        invocation.answer({"cancelled": cancelled, "unfinished": left})
    else:
        print(f"{len(cancelled)} studies are cancelled, {len(left)} have not ended")
    raise typer.Exit(Exit.INTERRUPTED if left else Exit.DONE)


def _cancel_all(app: Application, reason: str) -> list[str]:
    cancelled = []
    for study, _ in app.store.unfinished():
        try:
            ask(app.store, app.clock, study, Wish.CANCEL, app.settings.actor, reason)
        except Conflict:
            log.info("ended_by_itself", extra={"study": study})
            continue
        cancelled.append(study)
    return cancelled
