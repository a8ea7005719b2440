"""Nightly tuning: schedules, freezes, the line, and what became of past nights."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.responses import RedirectResponse

from api.dependencies import App, Caller
from api.lists import ReadRoute
from api.parameters import TargetName
from api.routes.schedules import (
    add_freeze,
    changed,
    list_nights,
    list_schedules,
    read_standing,
    release_line,
    remove_freeze,
    removed,
    schedule_of,
    stop_line,
)
from api.schemas.questions import NightsAsked, Paged
from api.schemas.schedules import AddFreeze, ScheduleAnswer, SetSchedule
from api.schemas.targets import Reason
from api.ui.forms import Form, problems_in, question, reason_of, section_of
from api.ui.pages.entrance import SEE_OTHER
from api.ui.rendering import renderer_of
from autotuner.bookkeeping.nightly import NO_SCHEDULE, schedule_mark
from autotuner.bootstrap import Application
from autotuner.domain.calendar import zone
from autotuner.errors import InvalidInput

router = APIRouter(prefix="/ui", include_in_schema=False, route_class=ReadRoute)

FIELDS = ("cron", "time_zone", "window", "jitter", "blackout_dates", "paused", "reason")
SUGGESTED = {
    "cron": "30 2 * * *",
    "time_zone": "UTC",
    "window": "4h",
    "jitter": "",
    "blackout_dates": "",
    "paused": "",
    "reason": "",
}
FREEZE_FIELDS = ("from_date", "from_time", "until_date", "until_time", "time_zone", "target", "reason")

FREEZE_NAMES = {"until": "until_date", "ends_at": "until_date", "begins_at": "from_date"}
"""What the fields of a freeze are called on its form."""

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/schedules")
def show_schedules(app: App, request: Request) -> Response:
    """Show schedules with their next nights, what keeps production as it is, and past nights."""
    return _shown(app, request, {}, {})


@router.get("/targets/{name}/schedule")
def show_schedule(app: App, request: Request, name: TargetName) -> Response:
    """Show a target's schedule as a form; filled with a suggestion where it has none."""
    app.registry.registration(name)
    kept = schedule_of(app, name)
    written = SUGGESTED if kept is None else _written(kept)
    return _form(app, request, name, {**written, "mark": _mark_now(app, name)}, {})


@router.post("/targets/{name}/schedule")
def write_schedule(app: App, caller: Caller, request: Request, name: TargetName, form: Form) -> Response:
    """Set a target's schedule, if it still is what the form was filled with; 412 otherwise."""
    written = {field: form.get(field, "") for field in FIELDS}
    mark = form.get("mark", NO_SCHEDULE)
    try:
        asked = section_of(SetSchedule, written, lists=("blackout_dates",))
        changed(app, caller, name, asked, mark)
    except InvalidInput as error:
        return _form(app, request, name, {**written, "mark": mark}, problems_in(error), 422)
    return RedirectResponse("/ui/schedules", SEE_OTHER)


@router.post("/targets/{name}/schedule/remove")
def drop_schedule(app: App, caller: Caller, name: TargetName, form: Form) -> Response:
    """Remove a target's schedule; a study that is under way goes on."""
    removed(app, caller, name, reason_of(form), form.get("mark", ""))
    return RedirectResponse("/ui/schedules", SEE_OTHER)


@router.post("/freezes")
def freeze(app: App, caller: Caller, request: Request, form: Form) -> Response:
    """Record a freeze."""
    written = {field: form.get(field, "") for field in FREEZE_FIELDS}
    try:
        add_freeze(app, caller, _freeze(app, written))
    except InvalidInput as error:
        named = {FREEZE_NAMES.get(name, name): words for name, words in problems_in(error).items()}
        return _shown(app, request, written, named, 422)
    return RedirectResponse("/ui/schedules", SEE_OTHER)


@router.post("/freezes/{number}/end")
def end_freeze(app: App, caller: Caller, number: Number, form: Form) -> Response:
    """End a freeze now."""
    remove_freeze(app, caller, number, reason_of(form))
    return RedirectResponse("/ui/schedules", SEE_OTHER)


@router.get("/line")
def confirm_line(app: App, request: Request) -> Response:
    """Say what stopping, or releasing, the line does and ask whether it is meant."""
    return renderer_of(request).page(request.scope, "line.html.j2", line=read_standing(app).line)


@router.post("/line")
def switch_line(app: App, caller: Caller, form: Form) -> Response:
    """Stop the line or release it, as the form says.

    It is never switched to what it is not now: a page that was opened before somebody else did it changes nothing back.
    """
    stop = form.get("switch") == "stop"
    if not stop and form.get("switch") != "release":
        raise InvalidInput("switch", form.get("switch", ""), "stop or release")
    said = Reason(reason=reason_of(form, needed=stop))
    (stop_line if stop else release_line)(app, caller, said)
    return RedirectResponse("/ui/schedules", SEE_OTHER)


def _freeze(app: Application, written: Mapping[str, str]) -> AddFreeze:
    """What a form asks for. Raises InvalidInput."""
    here = zone(written["time_zone"] or "UTC")
    now = app.clock.now().astimezone(here)
    begins = now
    if written["from_date"]:
        begins = _instant("from_date", written["from_date"], written["from_time"], here)
    ends = _instant("until_date", written["until_date"], written["until_time"], here)
    told: dict[str, str] = {"begins_at": begins.isoformat(), "ends_at": ends.isoformat()}
    told |= {field: written[field] for field in ("target", "reason")}
    return section_of(AddFreeze, told)


def _instant(field: str, day: str, at: str, here: Any) -> datetime:
    try:
        made = datetime.combine(date.fromisoformat(day), time.fromisoformat(at or "00:00"), here)
    except ValueError as error:
        raise InvalidInput(
            field, f"{day} {at}", "a day, such as 2026-12-24, and a time, such as 18:00"
        ) from error
    return made


def _shown(
    app: Application,
    request: Request,
    written: Mapping[str, str],
    problems: Mapping[str, str],
    status: int = 200,
) -> Response:
    asked = question(Paged, request.scope) if request.method == "GET" else Paged(limit=50, cursor=None)
    page = list_schedules(app, asked)
    tomorrow = app.clock.now() + timedelta(days=1)
    suggested = {"until_date": f"{tomorrow:%Y-%m-%d}", "until_time": "06:00", "time_zone": "UTC"}
    return renderer_of(request).page(
        request.scope,
        "schedules.html.j2",
        status,
        schedules=page.items,
        cursor=page.next_cursor,
        standing=read_standing(app),
        nights=list_nights(app, NightsAsked(limit=30)).items,
        written={**dict.fromkeys(FREEZE_FIELDS, ""), **suggested, **written},
        problems=problems,
    )


def _form(
    app: Application,
    request: Request,
    name: str,
    written: Mapping[str, str],
    problems: Mapping[str, str],
    status: int = 200,
) -> Response:
    return renderer_of(request).page(
        request.scope,
        "schedule.html.j2",
        status,
        name=name,
        kept=schedule_of(app, name),
        written={**SUGGESTED, **written},
        problems=problems,
    )


def _mark_now(app: Application, name: str) -> str:
    """What a target's schedule is now, for whoever changes it."""
    found = next((each for each in app.nights.schedules() if each.target == name), None)
    return NO_SCHEDULE if found is None else schedule_mark(found)


def _written(kept: ScheduleAnswer) -> dict[str, str]:
    return {
        "cron": kept.cron,
        "time_zone": kept.time_zone,
        "window": kept.window,
        "jitter": kept.jitter or "",
        "blackout_dates": "\n".join(map(str, kept.blackout_dates)),
        "paused": "on" if kept.paused else "",
    }
