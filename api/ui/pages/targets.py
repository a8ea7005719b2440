"""Targets: all at a glance, one with its history, the check of its connections, and the start of a study."""

from __future__ import annotations

import hashlib
import secrets

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from api.dependencies import App, Caller
from api.lists import ReadRoute, takes_long
from api.paging import cursor_of, window
from api.parameters import TargetName
from api.routes.diagnosis import brief_diagnosis
from api.routes.studies import planned
from api.routes.targets import BY_NAME
from api.routes.targets import check_target as try_target
from api.schemas.questions import Paged
from api.ui.forms import Form, question
from api.ui.glance import views
from api.ui.history import history_of
from api.ui.pages.entrance import SEE_OTHER
from api.ui.rendering import renderer_of
from autotuner.catalogue import StudyFilter, Window
from autotuner.errors import InvalidInput
from autotuner.operations import start_once
from autotuner.ports import RequestKey

router = APIRouter(prefix="/ui/targets", include_in_schema=False, route_class=ReadRoute)

ON_A_PAGE = 12
"""Targets on a page: each is looked up in the studies, trials and schedules."""

STUDIES_SHOWN = 8
"""Studies on the time line of a target."""

NIGHTS_SHOWN = 5

LOOK_SECONDS = 5.0
"""How long a diagnosis looks before its page comes."""


@router.get("")
def list_targets(app: App, request: Request) -> Response:
    """Show targets at a glance."""
    asked = question(Paged, request.scope)
    here = window(BY_NAME, "s", asked)
    found = app.catalogue.targets(Window(ON_A_PAGE, here.after))
    standing = app.nights.standing(app.clock.now())
    return renderer_of(request).page(
        request.scope,
        "targets.html.j2",
        targets=views(app, found.items, standing),
        cursor=cursor_of(BY_NAME, found.mark),
        line=standing.line,
    )


@router.get("/{name}")
def show_target(app: App, request: Request, name: TargetName) -> Response:
    """Show a target with its history."""
    kept = app.registry.registration(name)
    (view,) = views(app, [kept], app.nights.standing(app.clock.now()))
    studies = app.catalogue.studies(StudyFilter(name), Window(STUDIES_SHOWN)).items
    return renderer_of(request).page(
        request.scope,
        "target.html.j2",
        target=view,
        studies=studies,
        history=history_of(app, name, studies),
        nights=app.nights.nights(name, NIGHTS_SHOWN),
    )


@router.post("/{name}/check")
def check_target(app: App, request: Request, name: TargetName, _form: Form) -> Response:
    """Read servers, gateway and metrics once, and show what could be read."""
    checks = try_target(app, name)
    return renderer_of(request).page(request.scope, "checks.html.j2", name=name, checks=checks)


@router.get("/{name}/diagnosis")
@takes_long
def show_diagnosis(app: App, request: Request, name: TargetName) -> Response:
    """Look at servers and gateway for some seconds, change nothing, and say what is the matter."""
    found = brief_diagnosis(app, name, LOOK_SECONDS)
    return renderer_of(request).page(request.scope, "diagnosis.html.j2", name=name, found=found)


@router.get("/{name}/start")
def confirm_start(app: App, request: Request, name: TargetName) -> Response:
    """Say what a study would do and ask whether to start it. The key lets a form that is sent twice start one."""
    plan = planned(app.registry.registration(name), None)
    return renderer_of(request).page(
        request.scope, "start.html.j2", name=name, plan=plan, key=secrets.token_urlsafe(16)
    )


@router.post("/{name}/start")
def start(app: App, caller: Caller, name: TargetName, form: Form) -> Response:
    """Start a study with what is registered of the target."""
    key = form.get("key", "")
    if not 8 <= len(key) <= 100 or not key.isascii():
        raise InvalidInput("key", "(not shown)", "what the page that asks for a study put into its form")
    plan = planned(app.registry.registration(name), None)
    digest = hashlib.sha256(f"start {name}".encode()).hexdigest()
    study_id, _ = start_once(
        app.store, app.clock, plan, caller.actor, RequestKey(caller.actor, f"ui {key}", digest)
    )
    return RedirectResponse(f"/ui/studies/{study_id}", SEE_OTHER)
