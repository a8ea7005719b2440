"""Nightly tuning: schedules of targets, freezes, the switch that stops the line, and what became of nights."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response

from api.dependencies import App, Caller
from api.description import problems
from api.lists import ReadRoute
from api.paging import cursor_of, window
from api.parameters import IfMatch, TargetName, etag, expected_mark
from api.schemas.questions import NightsAsked, Paged
from api.schemas.schedules import (
    EXAMPLE_FREEZE,
    EXAMPLE_SCHEDULE,
    AddFreeze,
    FreezeAnswer,
    LineAnswer,
    NightAnswer,
    ScheduleAnswer,
    SetSchedule,
    StandingAnswer,
    freeze_answer,
    line_answer,
    night_answer,
    schedule_answer,
)
from api.schemas.targets import Reason
from api.schemas.wire import Page
from autotuner.bookkeeping.nightly import ANY_SCHEDULE, NO_SCHEDULE, schedule_mark
from autotuner.bootstrap import Application
from autotuner.domain.access import Identity, Said
from autotuner.domain.calendar import Freeze, Schedule
from autotuner.errors import NotFound
from autotuner.scheduler import check_comes, next_start

router = APIRouter(prefix="/v1", tags=["Nightly tuning"], route_class=ReadRoute)

BY_TARGET = "schedules by target"
NIGHTS = "nights, newest first"
ETAG: dict[str, Any] = {
    "ETag": {
        "description": "What it is now, for If-Match.",
        "schema": {"type": "string"},
        "example": '"8f1e5c7f0a4be2d1"',
    }
}

RemovedWhy = Annotated[str, Query(max_length=1000, description="Why; recorded in the audit.")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="The freeze's number.", examples=[3])]


@router.get("/schedules", response_model=Page[ScheduleAnswer], summary="Schedules by target")
def list_schedules(app: App, asked: Annotated[Paged, Query()]) -> Page[ScheduleAnswer]:
    """Return schedules with their next nights, by target."""
    here = window(BY_TARGET, "s", asked)
    known = [
        each for each in app.nights.schedules() if here.after is None or each.target > str(here.after[0])
    ]
    shown = known[: here.limit]
    mark = (shown[-1].target,) if len(known) > len(shown) else None
    items = [_answer(app, each) for each in shown]
    return Page[ScheduleAnswer](items=items, next_cursor=cursor_of(BY_TARGET, mark))


@router.get(
    "/targets/{name}/schedule",
    response_model=ScheduleAnswer,
    responses={200: {"headers": ETAG}, **problems("not-found")},
    summary="A target's schedule",
)
def read_schedule(app: App, name: TargetName, response: Response) -> ScheduleAnswer:
    """Return when a target is tuned without anybody asking."""
    found = _found(app, name)
    if found is None:
        raise NotFound("schedule of target", name)
    return _answer(app, found, response)


@router.put(
    "/targets/{name}/schedule",
    response_model=ScheduleAnswer,
    responses={
        200: {"headers": ETAG},
        **problems("not-found", "conflict", "outdated", "precondition-required"),
    },
    summary="Tune a target at the times of a cron expression",
)
def set_schedule(
    app: App,
    caller: Caller,
    name: TargetName,
    response: Response,
    asked: Annotated[SetSchedule, Body(openapi_examples={"every night": {"value": EXAMPLE_SCHEDULE}})],
    if_match: IfMatch = None,
) -> ScheduleAnswer:
    """Set a target's schedule. One that it has already is replaced only with its ETag in `If-Match`.

    Where the clock is changed, each night is one night.
    """
    mark = _mark(_found(app, name), name, if_match)
    return _answer(app, changed(app, caller, name, asked, mark), response)


@router.delete(
    "/targets/{name}/schedule",
    status_code=204,
    response_class=Response,
    responses=problems("not-found", "outdated", "precondition-required"),
    summary="Tune a target on request only",
)
def remove_schedule(
    app: App, caller: Caller, name: TargetName, reason: RemovedWhy = "", if_match: IfMatch = None
) -> Response:
    """Remove a target's schedule, with its ETag in `If-Match`; a study that is under way goes on."""
    known = _found(app, name)
    if known is None:
        raise NotFound("schedule of target", name)
    removed(app, caller, name, reason, _mark(known, name, if_match))
    return Response(status_code=204)


@router.get("/standing", response_model=StandingAnswer, summary="What keeps production as it is")
def read_standing(app: App) -> StandingAnswer:
    """Return the line, and freezes that are not over."""
    found = app.nights.standing(app.clock.now())
    return StandingAnswer(
        line=line_answer(found.line), freezes=[freeze_answer(each) for each in found.freezes]
    )


@router.post(
    "/freezes",
    response_model=FreezeAnswer,
    status_code=201,
    responses=problems("not-found"),
    summary="Let nothing start and nothing be promoted for a time",
)
def add_freeze(
    app: App,
    caller: Caller,
    asked: Annotated[AddFreeze, Body(openapi_examples={"holidays": {"value": EXAMPLE_FREEZE}})],
) -> FreezeAnswer:
    """Record a freeze for one target or for all; it is looked up at every tick."""
    wanted = Freeze(asked.begins_at, asked.ends_at, asked.reason, asked.target)
    return freeze_answer(app.nights.add_freeze(wanted, _said(app, caller, asked.reason)))


@router.delete(
    "/freezes/{number}",
    status_code=204,
    response_class=Response,
    responses=problems("not-found"),
    summary="End a freeze",
)
def remove_freeze(app: App, caller: Caller, number: Number, reason: RemovedWhy = "") -> Response:
    """End a freeze now."""
    app.nights.remove_freeze(number, _said(app, caller, reason))
    return Response(status_code=204)


@router.post("/line/stop", response_model=LineAnswer, summary="Stop the line")
def stop_line(app: App, caller: Caller, asked: Reason) -> LineAnswer:
    """End every study safely at its next tick and let none start until the line is released. Needs a reason."""
    return line_answer(app.nights.stop_line(_said(app, caller, asked.reason)))


@router.post("/line/release", response_model=LineAnswer, summary="Release the line")
def release_line(app: App, caller: Caller, asked: Reason) -> LineAnswer:
    """Let studies start again; those that were ended stay ended."""
    return line_answer(app.nights.release_line(_said(app, caller, asked.reason)))


@router.get("/nights", response_model=Page[NightAnswer], summary="What became of past nights, newest first")
def list_nights(app: App, asked: Annotated[NightsAsked, Query()]) -> Page[NightAnswer]:
    """Return nights that were started or missed."""
    here = window(NIGHTS, "ds", asked)
    found = app.nights.nights(asked.target, here.limit + 1, here.after)  # type: ignore[arg-type]
    shown = found[: here.limit]
    mark = (shown[-1].night.due_at, shown[-1].night.target) if len(found) > len(shown) else None
    return Page[NightAnswer](
        items=[night_answer(each) for each in shown], next_cursor=cursor_of(NIGHTS, mark)
    )


def changed(
    app: Application, caller: Identity, name: str, asked: SetSchedule, mark: str | None = ANY_SCHEDULE
) -> Schedule:
    """Set a target's schedule and return it. mark: what it was read as; see `ports.Nights.set_schedule`."""
    wanted = Schedule(
        target=name,
        cron=asked.cron,
        time_zone=asked.time_zone,
        window=asked.window,
        jitter=asked.jitter or timedelta(0),
        blackout_dates=asked.blackout_dates,
        paused=asked.paused,
    )
    check_comes(wanted, app.clock.now())
    return app.nights.set_schedule(wanted, _said(app, caller, asked.reason), mark)


def removed(
    app: Application, caller: Identity, name: str, reason: str, mark: str | None = ANY_SCHEDULE
) -> None:
    """Remove a target's schedule. mark: what it was read as. Raises NotFound, Outdated."""
    app.nights.remove_schedule(name, _said(app, caller, reason), mark)


def schedule_of(app: Application, name: str) -> ScheduleAnswer | None:
    """Return a target's schedule; None when it has none."""
    found = _found(app, name)
    return None if found is None else _answer(app, found)


def _said(app: Application, caller: Identity, reason: str) -> Said:
    return Said(caller.actor, reason, app.clock.now())


def _answer(app: Application, schedule: Schedule, response: Response | None = None) -> ScheduleAnswer:
    if response is not None:
        response.headers["ETag"] = etag(schedule_mark(schedule))
    return schedule_answer(schedule, next_start(schedule, app.clock.now()))


def _found(app: Application, name: str) -> Schedule | None:
    return next((each for each in app.nights.schedules() if each.target == name), None)


def _mark(known: Schedule | None, name: str, if_match: str | None) -> str:
    """Return what the schedule must be: as it was read, or none at all. Raises PreconditionMissing, Outdated."""
    if known is None and if_match is None:
        return NO_SCHEDULE
    return expected_mark(f"schedule of target {name}", if_match)
