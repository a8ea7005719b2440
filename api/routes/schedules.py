"""Nightly tuning: schedules of targets, freezes, the switch that stops the line, and what became of nights."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from api.dependencies import App, Caller
from api.description import problems
from api.paging import cursor_of, window
from api.parameters import TargetName
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
from autotuner.bootstrap import Application
from autotuner.domain.access import Identity, Said
from autotuner.domain.calendar import Freeze, Schedule
from autotuner.errors import InvalidInput, NotFound
from autotuner.scheduler import firings, trigger

router = APIRouter(prefix="/v1", tags=["Nightly tuning"])

BY_TARGET = "schedules by target"
AHEAD = timedelta(days=4 * 366)
"""How far ahead the next night is looked for: once a leap year is the rarest there is."""

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
    responses=problems("not-found"),
    summary="A target's schedule",
)
def read_schedule(app: App, name: TargetName) -> ScheduleAnswer:
    """Return when a target is tuned without anybody asking."""
    found = schedule_of(app, name)
    if found is None:
        raise NotFound("schedule of target", name)
    return found


@router.put(
    "/targets/{name}/schedule",
    response_model=ScheduleAnswer,
    responses=problems("not-found"),
    summary="Tune a target at the times of a cron expression",
)
def set_schedule(
    app: App,
    caller: Caller,
    name: TargetName,
    asked: Annotated[SetSchedule, Body(openapi_examples={"every night": {"value": EXAMPLE_SCHEDULE}})],
) -> ScheduleAnswer:
    """Set a target's schedule; it replaces the one it has. Where the clock is changed, each night is one night."""
    wanted = Schedule(
        target=name,
        cron=asked.cron,
        time_zone=asked.time_zone,
        window=asked.window,
        jitter=asked.jitter or timedelta(0),
        blackout_dates=asked.blackout_dates,
        paused=asked.paused,
    )
    _check_comes(wanted, app.clock.now())
    return _answer(app, app.nights.set_schedule(wanted, _said(app, caller, asked.reason)))


@router.delete(
    "/targets/{name}/schedule",
    status_code=204,
    response_class=Response,
    responses=problems("not-found"),
    summary="Tune a target on request only",
)
def remove_schedule(app: App, caller: Caller, name: TargetName, reason: RemovedWhy = "") -> Response:
    """Remove a target's schedule; a study that is under way goes on."""
    app.nights.remove_schedule(name, _said(app, caller, reason))
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


@router.get("/nights", response_model=list[NightAnswer], summary="What became of past nights, newest first")
def list_nights(app: App, asked: Annotated[NightsAsked, Query()]) -> list[NightAnswer]:
    """Return the newest nights that were started or missed."""
    return [night_answer(each) for each in app.nights.nights(asked.target, asked.limit)]


def schedule_of(app: Application, name: str) -> ScheduleAnswer | None:
    """Return a target's schedule; None when it has none."""
    found = next((each for each in app.nights.schedules() if each.target == name), None)
    return None if found is None else _answer(app, found)


def _check_comes(schedule: Schedule, now: datetime) -> None:
    """Raise InvalidInput for a cron expression that is none, or that no day fits: 30 February never comes."""
    trigger(schedule.cron, schedule.time_zone)
    if next(iter(firings(schedule, now, now + AHEAD)), None) is None:
        raise InvalidInput("schedule.cron", schedule.cron, "times that come within four years")


def _said(app: Application, caller: Identity, reason: str) -> Said:
    return Said(caller.actor, reason, app.clock.now())


def _answer(app: Application, schedule: Schedule) -> ScheduleAnswer:
    return schedule_answer(schedule, next_start(schedule, app.clock.now()))


def next_start(schedule: Schedule, now: datetime) -> datetime | None:
    """Return when the next night starts; None while the schedule is paused or never fires."""
    if schedule.paused:
        return None
    night = next(iter(firings(schedule, now, now + AHEAD)), None)
    return None if night is None else night.starts_at(schedule)
