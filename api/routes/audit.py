"""The audit: who did what to what and why, and whether anything was changed afterwards."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import App
from api.lists import ReadRoute, takes_long
from api.paging import cursor_of, window
from api.schemas.audit import AuditItem, Verification, audit_item
from api.schemas.questions import AuditAsked
from api.schemas.wire import Page
from autotuner.errors import Unavailable

router = APIRouter(prefix="/v1/audit", tags=["Audit"], route_class=ReadRoute)

NEWEST_FIRST = "audit"
ONE_AT_A_TIME = threading.Lock()
"""A verification reads the whole audit."""


@router.get("", response_model=Page[AuditItem], summary="The audit, newest first")
def list_audit(app: App, asked: Annotated[AuditAsked, Query()]) -> Page[AuditItem]:
    """Return what was done, newest first."""
    found = app.catalogue.audit(asked.wanted(), window(NEWEST_FIRST, "di", asked))
    return Page[AuditItem](
        items=[audit_item(each) for each in found.items], next_cursor=cursor_of(NEWEST_FIRST, found.mark)
    )


@router.get("/verification", response_model=Verification, summary="Whether the audit's hash chain is whole")
@takes_long
def verify(app: App) -> Verification:
    """Compute the hash chain again from the first record to the last. One verification runs at a time (503)."""
    if not ONE_AT_A_TIME.acquire(blocking=False):
        raise Unavailable("verification", "another one is running in this process")
    try:
        broken = app.store.first_broken_audit()
    finally:
        ONE_AT_A_TIME.release()
    return Verification(intact=broken is None, first_broken=broken)
