"""The audit: who did what to what and why, with search, and whether its hash chain is whole."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dependencies import App
from api.lists import ReadRoute, takes_long
from api.routes.audit import list_audit, verify
from api.schemas.questions import AuditAsked
from api.ui.forms import question
from api.ui.rendering import renderer_of
from autotuner.bookkeeping.audit import AuditAction

router = APIRouter(prefix="/ui/audit", include_in_schema=False, route_class=ReadRoute)


@router.get("")
def show_audit(app: App, request: Request) -> Response:
    """Show what was done, newest first, as far as the search leaves it."""
    asked = question(AuditAsked, request.scope)
    found = list_audit(app, asked)
    return renderer_of(request).page(
        request.scope,
        "audit.html.j2",
        records=found.items,
        cursor=found.next_cursor,
        asked=asked,
        actions=list(AuditAction),
    )


@router.get("/verification")
@takes_long
def show_verification(app: App, request: Request) -> Response:
    """Compute the hash chain again and show what came of it."""
    return renderer_of(request).page(request.scope, "verification.html.j2", found=verify(app))
