"""`autotuner replay`, `audit` and `export`: what an auditor asks of the records, and what Git is given."""

from __future__ import annotations

import json as jsonlib
from enum import StrEnum
from typing import Annotated

import typer

from autotuner.answers import audit_object
from autotuner.bookkeeping.rules import LATEST
from autotuner.cli.exits import Exit
from autotuner.cli.history import trial_named
from autotuner.cli.invocation import Json, of
from autotuner.domain.configuration import ModelConfig, with_configuration
from autotuner.domain.pbtxt import config_pbtxt, patch
from autotuner.domain.study import Study, Trial
from autotuner.errors import InvalidInput, Refused
from autotuner.operations import Replay
from autotuner.operations import replay as replayed
from autotuner.records import to_record


def replay(
    context: typer.Context,
    study: Annotated[str | None, typer.Argument(help="A study's id, or `latest`.")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="The newest study.")] = False,
    json: Json = False,
) -> None:
    """Compute every decision and proposal of a study again from its records; exit code 8 on any difference."""
    if (study is None) is not latest:
        raise InvalidInput("STUDY", study, "either a study's id or --latest")
    invocation = of(context, json=json)
    with invocation.opened() as app:
        found = replayed(app.store, study or LATEST, app.proposers)
    if json:
        invocation.answer(
            {
                "study": found.study_id,
                "decisions": found.decisions,
                "outcomes": found.outcomes,
                "proposals": found.proposals,
                "proposals_taken_as_recorded": found.taken,
                "differences": len(found.differences),
                "details": [to_record(each) for each in found.differences],
            }
        )
    else:
        _tell(found)
    if found.differences:
        raise typer.Exit(Exit.DIFFERS)


def _tell(found: Replay) -> None:
    print(
        f"study {found.study_id}: {found.decisions} decisions, {found.outcomes} outcomes and {found.proposals} "
        f"proposals computed again, {len(found.differences)} differences"
    )
    if found.taken:
        print(
            f"  {found.taken} proposals are taken as recorded: they were made by another version of the grey-box "
            "method than this release has"
        )
    for each in found.differences:
        place = f"entry {each.sequence}" if each.sequence >= 0 else "at the end"
        print(f"  {place}, {each.field}: recorded {each.recorded!r}, computed {each.computed!r}")


VERIFY = "verify"


def audit(
    context: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="Only of this target or study. The word `verify` means --verify.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Records shown at most, newest first.")] = 50,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check the hash chain of the whole audit; exit code 8 if it is broken."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show what was done, by whom and why, from the append-only audit."""
    invocation = of(context, json=json)
    if subject == VERIFY:
        subject, verify = None, True
    with invocation.opened() as app:
        records = app.store.audit(limit, subject)
        broken = app.store.first_broken_audit() if verify else None
    if json:
        checked = {"intact": broken is None, "first_broken": broken} if verify else {}
        invocation.answer({"records": [audit_object(record) for record in records], **checked})
    else:
        for record in records:
            print(
                f"{record.number} {record.at:%Y-%m-%d %H:%M:%S} {record.actor}: {record.action} {record.subject}"
            )
            print(f"    {record.reason or '-'}")
        if verify:
            print(
                "the audit is intact"
                if broken is None
                else f"the audit was changed: record {broken} does not fit"
            )
    if broken is not None:
        raise typer.Exit(Exit.DIFFERS)


class Format(StrEnum):
    """How a configuration is written."""

    PBTXT = "pbtxt"
    JSON = "json"
    PATCH = "patch"


def export(
    context: typer.Context,
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER or STUDY/winner; STUDY may be `latest`.")
    ],
    style: Annotated[
        Format,
        typer.Option(
            "--format", help="A whole config.pbtxt, the same as JSON, or a patch against the incumbent."
        ),
    ] = Format.PBTXT,
    json: Json = False,
) -> None:
    """Write a trial's complete model configuration for the repository that owns production."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        study, found = trial_named(app.store, trial)
    text = _exported(study, found, style)
    if json:
        invocation.answer({"study": study.id, "trial": found.number, "format": style.value, "content": text})
    else:
        print(text, end="")


def _exported(study: Study, trial: Trial, style: Format) -> str:
    if study.incumbent is None:
        raise Refused(f"study {study.id} has not read production's configuration: there is nothing to export")
    config: ModelConfig = jsonlib.loads(study.incumbent.configs[study.plan.target.stable_names[0]])
    if style is Format.PATCH:
        return patch(config, trial.configuration)
    changed = with_configuration(config, trial.configuration)
    if style is Format.JSON:
        return jsonlib.dumps(changed, indent=2, ensure_ascii=False) + "\n"
    return config_pbtxt(changed)
