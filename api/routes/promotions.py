"""Promotions: what a study would bring into production, and who lets it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from api.dependencies import App, Caller
from api.description import problems
from api.lists import ReadRoute
from api.paging import cursor_of, window
from api.parameters import StudyId
from api.routes.studies import AskBody
from api.schemas.promotions import (
    Because,
    CertificateAnswer,
    LedgerItem,
    RollbackAnswer,
    certificate_answer,
    ledger_item,
)
from api.schemas.questions import LedgerAsked, PromotionsAsked
from api.schemas.studies import PromotionAnswer, StudyItem, promotion_answer, study_item
from api.schemas.wire import Page
from autotuner.bootstrap import Application
from autotuner.domain.study import Wish
from autotuner.operations import approve, ask
from autotuner.promotions import proof_of, roll_back

router = APIRouter(prefix="/v1", tags=["Promotions"], route_class=ReadRoute)


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


@router.post(
    "/promotions/{study_id}/rollback",
    response_model=RollbackAnswer,
    status_code=202,
    responses={
        200: {"model": RollbackAnswer, "description": "It was asked for before"},
        202: {"description": "Begun; a worker carries it"},
        **problems("not-found", "conflict", "refused"),
    },
    summary="Take a promotion back",
)
def roll_back_promotion(
    app: App,
    caller: Caller,
    response: Response,
    study_id: StudyId,
    body: Annotated[Because, Body(openapi_examples={"incident": {"value": {"reason": "incident 4711"}}})],
) -> RollbackAnswer:
    """Restore the configuration from before the promotion exactly, one replica at a time; the next tick begins.

    A study of its own does it, whose id the answer has; while the promoting study has not ended, it is cancelled and
    restores. Refused when production is no longer on what was promoted, or a newer promotion stands.
    """
    found = roll_back(app.desk(), study_id, caller.actor, body.reason)
    if not found.begun:
        response.status_code = 200
    return RollbackAnswer(study=found.study_id, begun=found.begun)


@router.get(
    "/promotions/{study_id}/certificate",
    response_model=CertificateAnswer,
    responses=problems("not-found", "refused"),
    summary="What a promotion rests on, and whether it still holds",
)
def read_certificate(app: App, study_id: StudyId) -> CertificateAnswer:
    """Return configuration, load band, p99 bound with its confidence, model and hardware, and what ends it."""
    return certificate_answer(proof_of(app.desk(), study_id))


@router.get("/ledger", response_model=Page[LedgerItem], summary="What every promotion was worth")
def list_ledger(app: App, asked: Annotated[LedgerAsked, Query()]) -> Page[LedgerItem]:
    """Return promotions, newest first, each with capacity, compute time and cost before and after."""
    found = app.catalogue.ledger(asked.target, window("ledger", "ds", asked))
    return Page[LedgerItem](
        items=[ledger_item(each) for each in found.items], next_cursor=cursor_of("ledger", found.mark)
    )


def _answer(app: Application, study_id: str) -> PromotionAnswer:
    study = app.store.study(study_id)
    return promotion_answer(study, app.store.wish(study.id))
