"""What people ask of a study: each is confirmed on a page of its own that says what it will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.responses import RedirectResponse

from api.dependencies import App, Caller
from api.lists import ReadRoute
from api.parameters import StudyId
from api.routes.promotions import approve_promotion, reject_promotion
from api.routes.studies import cancel, pause, resume
from api.schemas.targets import Reason
from api.ui.forms import Form, reason_of
from api.ui.pages.entrance import SEE_OTHER
from api.ui.rendering import renderer_of
from autotuner.bootstrap import Application
from autotuner.errors import NotFound
from autotuner.promotions import roll_back
from autotuner.report.tables import comparison

router = APIRouter(prefix="/ui/studies/{study_id}", include_in_schema=False, route_class=ReadRoute)


@dataclass(frozen=True)
class Step:
    """Something that can be asked: what the button says, what will happen, and what does it.

    perform: returns the id of another study where that is the one to look at then.
    """

    title: str
    button: str
    effect: str
    perform: Callable[..., Any]
    needs_reason: bool = False


ASKED: Mapping[str, Step] = {
    "pause": Step(
        "Pause",
        "Pause the study",
        "It starts no further trial until it is resumed. A trial that is under way is finished.",
        pause,
    ),
    "resume": Step("Resume", "Resume the study", "It goes on with the next trial.", resume),
    "rollback": Step(
        "Roll back",
        "Roll back: restore what was before",
        "Production goes back to exactly what it was before this promotion, one replica at a time, each judged. A "
        "study of its own does it and tries nothing; while this one has not ended, it is cancelled and restores.",
        lambda app, caller, study_id, said: (
            roll_back(app.desk(), study_id, caller.actor, said.reason).study_id
        ),
        needs_reason=True,
    ),
    "cancel": Step(
        "Cancel",
        "Cancel the study for good",
        "It restores the incumbent everywhere and ends. A cancellation cannot be undone.",
        cancel,
    ),
}
DECIDED: Mapping[str, Step] = {
    "approve": Step(
        "Approve",
        "Approve: promote the winner",
        "The winner goes to the stable replicas one at a time. Each is judged, then production is watched; "
        "what does not hold the ceiling is rolled back without anybody asking.",
        approve_promotion,
    ),
    "reject": Step(
        "Reject",
        "Reject: keep the incumbent",
        "The study ends and the incumbent serves on. The evidence stays on record.",
        reject_promotion,
    ),
}

Word = Annotated[str, Path(pattern="^[a-z]{1,20}$")]


@router.get("/ask/{wish}")
def confirm_wish(app: App, request: Request, study_id: StudyId, wish: Word) -> Response:
    """Ask whether it is meant."""
    return _confirm(app, request, study_id, _known(ASKED, wish))


@router.post("/ask/{wish}")
def ask_wish(app: App, caller: Caller, study_id: StudyId, wish: Word, form: Form) -> Response:
    """Record a wish."""
    return _perform(app, caller, study_id, _known(ASKED, wish), form)


@router.get("/decide/{wish}")
def confirm_decision(app: App, request: Request, study_id: StudyId, wish: Word) -> Response:
    """Show what would change in production and ask whether it is meant."""
    return _confirm(app, request, study_id, _known(DECIDED, wish))


@router.post("/decide/{wish}")
def decide(app: App, caller: Caller, study_id: StudyId, wish: Word, form: Form) -> Response:
    """Record a decision on a winner."""
    return _perform(app, caller, study_id, _known(DECIDED, wish), form)


def _known(steps: Mapping[str, Step], wish: str) -> Step:
    if wish not in steps:
        raise NotFound("wish", wish)
    return steps[wish]


def _confirm(app: Application, request: Request, study_id: str, step: Step) -> Response:
    standing = app.catalogue.standing(study_id)
    compared = comparison(app.store.study(standing.summary.id)) if step in DECIDED.values() else None
    return renderer_of(request).page(
        request.scope, "confirm.html.j2", standing=standing, step=step, compared=compared
    )


def _perform(app: Application, caller: Any, study_id: str, step: Step, form: Mapping[str, str]) -> Response:
    found = app.catalogue.study_id(study_id)
    said = Reason(reason=reason_of(form, needed=step.needs_reason))
    made = step.perform(app, caller, found, said)
    return RedirectResponse(f"/ui/studies/{made if isinstance(made, str) else found}", SEE_OTHER)
