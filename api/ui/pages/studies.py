"""Studies: the list, and one with what it does now; the live part is asked for again at each event while it runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.dependencies import App
from api.lists import ReadRoute
from api.paging import cursor_of, window
from api.parameters import StudyId
from api.routes.events import LastEventId, streamed
from api.routes.studies import NEWEST_FIRST
from api.schemas.questions import StudiesAsked
from api.ui.forms import question
from api.ui.rendering import HEADERS, renderer_of
from api.ui.studyview import view_of
from autotuner.catalogue import TrialFilter, TrialOrder, Window
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Phase
from autotuner.report.svg import icon

router = APIRouter(prefix="/ui/studies", include_in_schema=False, route_class=ReadRoute)

LISTED = 50
"""Trials that are listed of a study too large to be drawn."""

LEGEND = tuple((verdict.name, icon(verdict)) for verdict in Verdict)

Seen = Annotated[int, Query(ge=0, le=2**53)]


@router.get("")
def list_studies(app: App, request: Request) -> Response:
    """List studies, newest first."""
    asked = question(StudiesAsked, request.scope)
    found = app.catalogue.studies(asked.wanted(), window(NEWEST_FIRST, "di", asked))
    return renderer_of(request).page(
        request.scope,
        "studies.html.j2",
        studies=found.items,
        cursor=cursor_of(NEWEST_FIRST, found.mark),
        asked=asked,
        phases=list(Phase),
        outcomes=list(Outcome),
    )


@router.get("/{study_id}")
def show_study(app: App, request: Request, study_id: StudyId) -> Response:
    """Show a study as it stands."""
    view = view_of(app, app.catalogue.standing(study_id))
    listed = None
    if view.study is None:
        wanted = TrialFilter(study=view.standing.summary.id)
        listed = app.catalogue.trials(wanted, TrialOrder(), Window(LISTED)).items
    return renderer_of(request).page(request.scope, "study.html.j2", view=view, listed=listed, legend=LEGEND)


@router.get("/{study_id}/events")
async def events(
    app: App, request: Request, study_id: StudyId, seen: Seen = 0, last_event_id: LastEventId = None
) -> Response:
    """Stream what the study does from `seen` on, the newest entry shown; a browser that reconnects says the last."""
    return await streamed(app, request, study_id, seen if last_event_id is None else last_event_id)


@router.get("/{study_id}/live")
def live(app: App, request: Request, study_id: StudyId, seen: Seen = 0) -> Response:
    """Return the live part again, or nothing when nothing has happened since `seen`, the newest entry shown."""
    standing = app.catalogue.standing(study_id)
    if standing.summary.phase == Phase.ENDED:
        return Response(status_code=204, headers={"HX-Refresh": "true", **HEADERS})
    if standing.sequence == seen:
        return Response(status_code=204, headers=HEADERS)
    return renderer_of(request).page(
        request.scope, "live.html.j2", view=view_of(app, standing), legend=LEGEND
    )
