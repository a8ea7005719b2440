"""`autotuner metrics …`: what a study would find of a target's metrics, before one is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from autotuner.bootstrap import Counted, counted_by
from autotuner.cli.exits import Exit
from autotuner.cli.invocation import Invocation, Json, of
from autotuner.domain.needs import Answer
from autotuner.domain.study import StudyPlan
from autotuner.inspection import Inspection, Looks, VerdictCost, inspect
from autotuner.target_file import load_target_file

commands = typer.Typer(help="What a study would find of a target's metrics.", no_args_is_help=True)

MARKS = {Answer.YES: "ok", Answer.DOUBTFUL: "??", Answer.UNKNOWN: "??", Answer.NO: "--"}


@commands.callback()
def root() -> None:
    """Keep `check` a command of its own beside those to come."""


@commands.command()
def check(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A target file, or a registered target's name.")
    ],
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long the traffic is looked at, in seconds.")
    ] = 20.0,
    json: Json = False,
) -> None:
    """Read everything a study would read, and say what is there, how fresh, how exact, and what is missing.

    Changes nothing. Ends with 0 when a study could measure with it, 7 when something is missing, 5 when nothing
    answers.
    """
    invocation = of(context, json=json)
    plan = _plan(invocation, target)
    found = inspect(plan, _looks(invocation, counted_by(plan.target, invocation.settings()), seconds))
    if json:
        invocation.answer(inspection_object(plan, found))
    else:
        print("\n".join(lines(plan, found)))
    if not found.usable:
        raise typer.Exit(Exit.REFUSED if found.reached else Exit.UNAVAILABLE)


def _plan(invocation: Invocation, target: str) -> StudyPlan:
    """The plan of a study of a target file or of a registered target."""
    if Path(target).suffix in (".yaml", ".yml", ".json") or Path(target).is_file():
        asked = load_target_file(Path(target))
        return asked.plan(asked.budget("metrics check"))
    with invocation.opened() as app:
        kept = app.registry.registration(target)
    return kept.defaults.plan(kept.target, kept.slo)


def _looks(invocation: Invocation, counted: Counted, seconds: float) -> Looks:
    """Two samples; a source that learns how often it is scraped says by how much longer it must be looked at."""
    first, waited = counted.source.sample(), dict(counted.backlogs())
    wait = max(seconds, *(3 * every for every in counted.every_seconds().values()), 0.0)
    invocation.event().wait(wait)
    last = counted.source.sample()
    every, waits = dict(counted.every_seconds()), dict(counted.backlogs())
    return Looks(first, last, counted.clock.now(), every, waited, waits)


def lines(plan: StudyPlan, found: Inspection) -> Iterator[str]:
    """Yield what was found as lines for people."""
    yield f"{plan.target.name}: measured by {found.source}"
    for finding in found.findings:
        yield f"  {MARKS[finding.answer]}  {finding.what}: {finding.detail}"
        if finding.advice:
            yield from (f"        {line}" for line in finding.advice.splitlines())
    yield "what a verdict costs at this rate, on the canary's fair share, if slow requests do not come in bursts:"
    yield from (f"  {_verdict_line(cost)}" for cost in found.verdicts)
    missing = [finding.what for finding in found.findings if finding.answer is Answer.NO]
    yield "a study could measure with this" if not missing else f"missing: {', '.join(missing)}"


def _verdict_line(cost: VerdictCost) -> str:
    kind = "promotion" if cost.strict else "screening"
    head = f"{kind}, {100 * cost.slow_share:g} % slow: "
    if cost.requests is None:
        return head + "never accepted"
    time = "no traffic to tell a time" if cost.duration is None else f"{cost.duration.total_seconds():.0f} s"
    return f"{head}{cost.requests:,} requests, {time}"


def inspection_object(plan: StudyPlan, found: Inspection) -> dict[str, Any]:
    """Return what was found as a JSON object."""
    return {
        "target": plan.target.name,
        "source": found.source,
        "usable": found.usable,
        "findings": [
            {"what": each.what, "answer": each.answer.value, "detail": each.detail, "advice": each.advice}
            for each in found.findings
        ],
        "edges_seconds": [edge if edge < float("inf") else None for edge in found.edges_seconds],
        "rates_per_second": dict(found.rates),
        "verdicts": [_verdict_object(cost) for cost in found.verdicts],
    }


def _verdict_object(cost: VerdictCost) -> dict[str, Any]:
    return {
        "slow_share": cost.slow_share,
        "kind": "promotion" if cost.strict else "screening",
        "requests": cost.requests,
        "seconds": None if cost.duration is None else cost.duration.total_seconds(),
    }
