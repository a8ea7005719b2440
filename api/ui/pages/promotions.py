"""Promotions: winners that wait for somebody to decide, and those that were promoted."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dependencies import App
from api.routes.promotions import list_promotions
from api.schemas.questions import PromotionsAsked
from api.ui.forms import question
from api.ui.rendering import renderer_of

router = APIRouter(prefix="/ui/promotions", include_in_schema=False)


@router.get("")
def show_promotions(app: App, request: Request) -> Response:
    """Show winners that wait, or those that were promoted."""
    asked = question(PromotionsAsked, request.scope)
    found = list_promotions(app, asked)
    return renderer_of(request).page(
        request.scope, "promotions.html.j2", studies=found.items, cursor=found.next_cursor, asked=asked
    )
