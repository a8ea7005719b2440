"""`autotuner history` and `autotuner show`: what was tried, what was measured, and why it ended as it did."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotuner.answers import study_object, summary_object, trial_object
from autotuner.cli.evidence import study_text, trial_text
from autotuner.cli.invocation import Json, of
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.study import Study, Trial
from autotuner.errors import InvalidInput, NotFound
from autotuner.ports import Store, StudySummary


def history(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="Only studies of this target.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Studies shown at most, newest first.")] = 50,
    json: Json = False,
) -> None:
    """List studies, newest first."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        if target is not None:
            app.store.target(target)
        studies = app.store.studies(target, limit)
    if json:
        invocation.answer({"studies": [summary_object(study) for study in studies]})
    elif not studies:
        print("no study is recorded")
    else:
        print("\n".join(_line(study) for study in studies))


def _line(study: StudySummary) -> str:
    ended = study.outcome or f"in {study.phase}"
    return f"{study.id}  {study.created_at:%Y-%m-%d %H:%M}  {study.trials} trials  {ended}: {study.reason or '-'}"


def show(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="STUDY|TRIAL", help="A study, `latest`, or a trial as STUDY/NUMBER.")
    ],
    json: Json = False,
) -> None:
    """Show a study, or all evidence behind the verdict of a trial."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        study, trial = trial_named(app.store, what) if "/" in what else (app.store.study(what), None)
    if json:
        invocation.answer(study_object(study) if trial is None else _trial_object(study, trial))
    else:
        print("\n".join(study_text(study) if trial is None else trial_text(study, trial)))


def _trial_object(study: Study, trial: Trial) -> dict[str, Any]:
    return {"study": study.id, **trial_object(trial, capacity_per_second(study, trial))}


def trial_named(store: Store, text: str) -> tuple[Study, Trial]:
    """Return the study and the trial that STUDY/NUMBER names. Raises InvalidInput, NotFound."""
    name, slash, number = text.partition("/")
    if not slash:
        raise InvalidInput("TRIAL", text, "STUDY/NUMBER, or STUDY/winner")
    study = store.study(name)
    return study, _trial(study, number)


def _trial(study: Study, number: str) -> Trial:
    """Return a study's trial by its number as text, or its `winner`. Raises InvalidInput, NotFound."""
    if number == "winner":
        if study.winner is None:
            raise NotFound("winner", study.id)
        return study.trials[study.winner]
    if not (number.isascii() and number.isdigit()):
        raise InvalidInput("TRIAL", f"{study.id}/{number}", "STUDY/NUMBER, or STUDY/winner")
    if int(number) >= len(study.trials):
        raise NotFound("trial", f"{study.id}/{number}")
    return study.trials[int(number)]
