"""SLO budgets: every version with who, when and why, and a form for the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from api.dependencies import App, Caller
from api.lists import ReadRoute
from api.parameters import TargetName, etag
from api.routes.budgets import change_budget, list_versions
from api.schemas.questions import Paged
from api.ui.forms import Form, problems_in, question, section_of
from api.ui.pages.entrance import SEE_OTHER
from api.ui.rendering import renderer_of
from autotuner.bootstrap import Application
from autotuner.errors import InvalidInput
from autotuner.target_file import SloSection, slo_section_of

router = APIRouter(prefix="/ui/targets/{name}/slo-budget", include_in_schema=False, route_class=ReadRoute)

FIELDS = ("p99_ms", "error_ratio", "max_canary_share", "harm_budget_requests", "reason")


@router.get("")
def show_budget(app: App, request: Request, name: TargetName) -> Response:
    """Show every version, newest first, and a form filled with the one in force."""
    return _shown(app, request, name)


@router.post("")
def make_version(app: App, caller: Caller, request: Request, name: TargetName, form: Form) -> Response:
    """Make a version of the one that the form was filled with; 412 when another one is in force by now."""
    try:
        asked = section_of(SloSection, {field: form.get(field, "") for field in FIELDS})
        change_budget(app, caller, name, Response(), asked, etag(form.get("version", "")))
    except InvalidInput as error:
        return _shown(app, request, name, form, problems_in(error), 422)
    return RedirectResponse(f"/ui/targets/{name}/slo-budget", SEE_OTHER)


def _shown(
    app: Application,
    request: Request,
    name: str,
    written: Mapping[str, str] | None = None,
    problems: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:
    """Show the form as it was written, or else filled with the budget in force."""
    slo = app.registry.registration(name).slo
    if written is None:
        in_force = {field: f"{value:.12g}" for field, value in slo_section_of(slo).items()}
        written = {**in_force, "version": str(slo.version)}
    page = list_versions(app, name, question(Paged, request.scope))
    given: dict[str, Any] = {
        "name": name,
        "slo": slo,
        "versions": page.items,
        "cursor": page.next_cursor,
        "written": {field: written.get(field, "") for field in (*FIELDS, "version")},
        "problems": problems or {},
    }
    return renderer_of(request).page(request.scope, "budget.html.j2", status, **given)
