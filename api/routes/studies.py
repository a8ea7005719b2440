"""Studies: started once, listed, read, and asked to pause, resume or end."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from api.dependencies import App, Caller
from api.description import problems
from api.lists import ReadRoute
from api.paging import cursor_of, window
from api.parameters import IdempotencyKey, StudyId
from api.schemas.questions import Paged, StudiesAsked
from api.schemas.studies import (
    EXAMPLE_START,
    ProgressAnswer,
    StartStudy,
    StudyAnswer,
    StudyItem,
    progress_answer,
    study_answer,
    study_item,
)
from api.schemas.targets import Reason
from api.schemas.wire import Page
from autotuner.bootstrap import Application
from autotuner.domain.access import Identity
from autotuner.domain.registration import Registration
from autotuner.domain.study import StudyPlan, Wish
from autotuner.operations import ask, start_once
from autotuner.ports import RequestKey
from autotuner.sections import validated
from autotuner.target_file import StudySection, TargetFile, sections_of, slo_section_of

router = APIRouter(prefix="/v1/studies", tags=["Studies"], route_class=ReadRoute)

NEWEST_FIRST = "studies"
REPLAYED: dict[str, Any] = {
    "Idempotency-Replayed": {
        "description": "`true`: the same request had started this study before.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
AskBody = Annotated[
    Reason | None, Body(openapi_examples={"incident": {"value": {"reason": "incident 4711"}}})
]


@router.get("", response_model=Page[StudyItem], summary="Studies, newest first")
def list_studies(app: App, asked: Annotated[StudiesAsked, Query()]) -> Page[StudyItem]:
    """Return studies, newest first; `since` and `until` are of their start."""
    found = app.catalogue.studies(asked.wanted(), window(NEWEST_FIRST, "di", asked))
    return Page[StudyItem](
        items=[study_item(each) for each in found.items], next_cursor=cursor_of(NEWEST_FIRST, found.mark)
    )


@router.post(
    "",
    response_model=StudyAnswer,
    status_code=201,
    responses={
        200: {"model": StudyAnswer, "description": "The same request had started it", "headers": REPLAYED},
        201: {"description": "Started; a worker carries it"},
        **problems("not-found", "conflict", "refused"),
    },
    summary="Start a study",
)
def start(
    app: App,
    caller: Caller,
    response: Response,
    asked: Annotated[StartStudy, Body(openapi_examples={"eight trials": {"value": EXAMPLE_START}})],
    idempotency_key: IdempotencyKey = None,
) -> StudyAnswer:
    """Start a study of a target under the budget in force. A target has one unfinished study at most.

    With an `Idempotency-Key` a repeated request starts nothing and answers with the study of the first.
    """
    key = None if idempotency_key is None else _key(caller, idempotency_key, asked)
    plan = planned(app.registry.registration(asked.target), asked.study)
    study_id, started = start_once(app.store, app.clock, plan, caller.actor, key)
    response.headers["Location"] = f"{router.prefix}/{study_id}"
    if not started:
        response.status_code = 200
        response.headers["Idempotency-Replayed"] = "true"
    return study_answer(app.catalogue.standing(study_id))


@router.get(
    "/{study_id}", response_model=StudyAnswer, responses=problems("not-found"), summary="A study as it stands"
)
def read(app: App, study_id: StudyId) -> StudyAnswer:
    """Return a study without its trials; those are at `/v1/studies/{study_id}/trials`."""
    return study_answer(app.catalogue.standing(study_id))


@router.get(
    "/{study_id}/journal",
    response_model=Page[ProgressAnswer],
    responses=problems("not-found"),
    summary="What a study decided, and what came of it",
)
def journal(app: App, study_id: StudyId, asked: Annotated[Paged, Query()]) -> Page[ProgressAnswer]:
    """Return a study's journal in order: every decision and outcome with its reason."""
    known = app.catalogue.study_id(study_id)
    name = f"journal of {known}"
    here = window(name, "i", asked)
    after = 0 if here.after is None else int(str(here.after[0]))
    found = app.catalogue.progress(known, after, here.limit + 1)
    shown = found[: here.limit]
    mark = (shown[-1].sequence,) if len(found) > len(shown) else None
    return Page[ProgressAnswer](
        items=[progress_answer(each) for each in shown], next_cursor=cursor_of(name, mark)
    )


@router.post(
    "/{study_id}/cancel",
    response_model=StudyAnswer,
    status_code=202,
    responses=problems("not-found", "conflict"),
    summary="End a study and restore the incumbent",
)
def cancel(app: App, caller: Caller, study_id: StudyId, body: AskBody = None) -> StudyAnswer:
    """Record the wish; the study's next tick obeys. Nothing undoes a cancellation."""
    return _asked(app, caller, (study_id, Wish.CANCEL), body)


@router.post(
    "/{study_id}/pause",
    response_model=StudyAnswer,
    status_code=202,
    responses=problems("not-found", "conflict", "refused"),
    summary="Start no further trial until it is resumed",
)
def pause(app: App, caller: Caller, study_id: StudyId, body: AskBody = None) -> StudyAnswer:
    """Record the wish; the study's next tick obeys."""
    return _asked(app, caller, (study_id, Wish.PAUSE), body)


@router.post(
    "/{study_id}/resume",
    response_model=StudyAnswer,
    status_code=202,
    responses=problems("not-found", "conflict", "refused"),
    summary="Let a paused study go on",
)
def resume(app: App, caller: Caller, study_id: StudyId, body: AskBody = None) -> StudyAnswer:
    """Record the wish; the study's next tick obeys."""
    return _asked(app, caller, (study_id, Wish.RUN), body)


def planned(kept: Registration, asked: StudySection | None) -> StudyPlan:
    """Return the plan of a study of a target; what is not asked for is as it is registered. Raises InvalidInput."""
    if asked is None:
        return kept.defaults.plan(kept.target, kept.slo)
    told = sections_of(kept.target, kept.defaults)
    changes = asked.model_dump(mode="json", exclude_unset=True)
    pace = {**told["study"]["pace"], **{k: v for k, v in changes.pop("pace", {}).items() if v is not None}}
    told["study"] = {**told["study"], **changes, "pace": pace}
    study = validated(TargetFile, {**told, "slo": slo_section_of(kept.slo), **_as_kept(kept)}, "body").study
    defaults = replace(study.defaults(), max_dispersion=kept.defaults.max_dispersion)
    return defaults.plan(kept.target, kept.slo)


def _as_kept(kept: Registration) -> dict[str, Any]:
    """The limits without their delay: a budget may have been tightened below it since, which the search space minds."""
    limits = sections_of(kept.target, kept.defaults)["limits"]
    return {
        "limits": {name: value for name, value in limits.items() if name != "max_queue_delay_microseconds"}
    }


def _key(caller: Identity, key: str, asked: StartStudy) -> RequestKey:
    digest = hashlib.sha256(asked.model_dump_json(exclude_unset=True).encode()).hexdigest()
    return RequestKey(caller.actor, key, digest)


def _asked(app: Application, caller: Identity, what: tuple[str, Wish], body: Reason | None) -> StudyAnswer:
    study_id, wish = what
    reason = body.reason if body is not None else ""
    found = ask(app.store, app.clock, study_id, wish, caller.actor, reason)
    return study_answer(app.catalogue.standing(found.id))
