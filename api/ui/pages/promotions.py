"""Promotions: winners that wait for somebody to decide, those that were promoted, what each rests on and was worth."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dependencies import App
from api.lists import ReadRoute
from api.parameters import StudyId
from api.routes.promotions import list_ledger, list_promotions, read_certificate
from api.schemas.questions import LedgerAsked, PromotionsAsked
from api.ui.forms import question
from api.ui.rendering import renderer_of

router = APIRouter(prefix="/ui", include_in_schema=False, route_class=ReadRoute)


@router.get("/promotions")
def show_promotions(app: App, request: Request) -> Response:
    """Show winners that wait, or those that were promoted."""
    asked = question(PromotionsAsked, request.scope)
    found = list_promotions(app, asked)
    return renderer_of(request).page(
        request.scope, "promotions.html.j2", studies=found.items, cursor=found.next_cursor, asked=asked
    )


@router.get("/ledger")
def show_ledger(app: App, request: Request) -> Response:
    """Show what every promotion was worth, newest first."""
    asked = question(LedgerAsked, request.scope)
    found = list_ledger(app, asked)
    return renderer_of(request).page(
        request.scope, "ledger.html.j2", lines=found.items, cursor=found.next_cursor, asked=asked
    )


@router.get("/studies/{study_id}/certificate")
def show_certificate(app: App, request: Request, study_id: StudyId) -> Response:
    """Show what a promotion rests on, and whether it still holds."""
    given = read_certificate(app, study_id)
    return renderer_of(request).page(request.scope, "certificate.html.j2", given=given)
