"""Promotions: what a study would bring into production, and who lets it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import App, Caller
from api.description import problems
from api.paging import cursor_of, window
from api.parameters import StudyId
from api.routes.studies import AskBody
from api.schemas.questions import PromotionsAsked
from api.schemas.studies import PromotionAnswer, StudyItem, promotion_answer, study_item
from api.schemas.wire import Page
from autotuner.bootstrap import Application
from autotuner.domain.study import Wish
from autotuner.operations import approve, ask

router = APIRouter(prefix="/v1", tags=["Promotions"])


@router.get(
    "/promotions", response_model=Page[StudyItem], summary="Studies whose winner waits, or was promoted"
)
def list_promotions(app: App, asked: Annotated[PromotionsAsked, Query()]) -> Page[StudyItem]:
    """Return studies whose winner waits for an approver, or serves now; newest first."""
    name = f"promotions, {'waiting' if asked.waiting else 'made'}"
    found = app.catalogue.studies(asked.wanted(), window(name, "di", asked))
    return Page[StudyItem](
        items=[study_item(each) for each in found.items], next_cursor=cursor_of(name, found.mark)
    )


@router.get(
    "/studies/{study_id}/promotion",
    response_model=PromotionAnswer,
    responses=problems("not-found"),
    summary="What a study would bring into production, and what that is worth",
)
def read_promotion(app: App, study_id: StudyId) -> PromotionAnswer:
    """Return incumbent against winner, as the study measured them, and what finding out cost."""
    return _answer(app, study_id)


@router.post(
    "/studies/{study_id}/promotion/approve",
    response_model=PromotionAnswer,
    status_code=202,
    responses=problems("not-found", "conflict", "refused"),
    summary="Let the confirmed winner into production",
)
def approve_promotion(app: App, caller: Caller, study_id: StudyId, body: AskBody = None) -> PromotionAnswer:
    """Record the approval; the study's next tick promotes one replica at a time, each judged.

    Where the target asks for four eyes, whoever started the study may not approve it (403).
    """
    found = approve(app.store, app.registry, app.clock, study_id, (caller.actor, body.reason if body else ""))
    return _answer(app, found.id)


@router.post(
    "/studies/{study_id}/promotion/reject",
    response_model=PromotionAnswer,
    status_code=202,
    responses=problems("not-found", "conflict", "refused"),
    summary="Keep the incumbent although a winner is confirmed",
)
def reject_promotion(app: App, caller: Caller, study_id: StudyId, body: AskBody = None) -> PromotionAnswer:
    """Record the rejection; the study's next tick ends it and keeps the incumbent."""
    reason = body.reason if body else ""
    found = ask(app.store, app.clock, study_id, Wish.DISAPPROVE, caller.actor, reason)
    return _answer(app, found.id)


def _answer(app: Application, study_id: str) -> PromotionAnswer:
    study = app.store.study(study_id)
    return promotion_answer(study, app.store.wish(study.id))
