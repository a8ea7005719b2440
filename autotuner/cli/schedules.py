"""`autotuner schedule …`: when targets are tuned without anybody asking, and what keeps production as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer

from autotuner.bootstrap import Application
from autotuner.cli.durations import duration
from autotuner.cli.invocation import Json, of
from autotuner.domain.access import Said
from autotuner.domain.calendar import Freeze, Schedule, Standing
from autotuner.errors import InvalidInput, NotFound
from autotuner.ports import NightRecord

commands = typer.Typer(help="Nightly tuning: schedules, freezes, and the line.", no_args_is_help=True)

TargetName = Annotated[str, typer.Argument(metavar="TARGET", help="A registered target's name.")]
Why = Annotated[str, typer.Option(help="Why; recorded in the audit.")]
INSTANT_ALLOWED = "an instant with its offset, such as 2026-12-20T18:00+01:00 or 2026-12-20T17:00Z"


@commands.command("set")
def set_schedule(  # noqa: PLR0913, PLR0917 - each option is one field of a schedule
    context: typer.Context,
    target: TargetName,
    cron: Annotated[str, typer.Option(help="minute hour day-of-month month day-of-week, as '30 2 * * *'.")],
    time_zone: Annotated[str, typer.Option(help="Whose clock the cron means: an IANA name.")] = "UTC",
    window: Annotated[str, typer.Option(help="How long after its time a night may still start.")] = "4h",
    jitter: Annotated[str, typer.Option(help="Spread the starts of different targets over so long.")] = "0s",
    blackout: Annotated[
        list[str] | None, typer.Option(help="A date on which nothing starts or is promoted; may be repeated.")
    ] = None,
    reason: Why = "",
    json: Json = False,
) -> None:
    """Tune a registered target at the times of a cron expression; replaces the schedule it has."""
    from autotuner.scheduler import check_comes  # noqa: PLC0415 - APScheduler takes a moment to import

    invocation = of(context, json=json)
    wanted = Schedule(
        target=target,
        cron=cron,
        time_zone=time_zone,
        window=duration("--window", window),
        jitter=duration("--jitter", jitter),
        blackout_dates=tuple(_date(text) for text in blackout or ()),
    )
    with invocation.opened() as app:
        check_comes(wanted, app.clock.now())
        kept = app.nights.set_schedule(wanted, _said(app, reason))
        coming = _next(kept, app.clock.now())
    if json:
        invocation.answer(_schedule_object(kept, coming))
    else:
        print(f"target {target} is tuned at {cron} ({time_zone}); next: {_instant(coming)}")


@commands.command("list")
def list_all(context: typer.Context, json: Json = False) -> None:
    """List schedules with their next night, freezes that are not over, and whether the line is stopped."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        now = app.clock.now()
        found = [(schedule, _next(schedule, now)) for schedule in app.nights.schedules()]
        standing = app.nights.standing(now)
    if json:
        schedules = [_schedule_object(schedule, coming) for schedule, coming in found]
        invocation.answer({"schedules": schedules, **_standing_object(standing)})
    else:
        print("\n".join([*_standing_lines(standing), *_schedule_lines(found)]))


@commands.command()
def remove(context: typer.Context, target: TargetName, reason: Why = "", json: Json = False) -> None:
    """Remove a target's schedule; a study that is under way goes on."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        app.nights.remove_schedule(target, _said(app, reason))
    _tell(invocation, json, {"target": target}, f"target {target} is tuned on request only")


@commands.command()
def pause(context: typer.Context, target: TargetName, reason: Why = "", json: Json = False) -> None:
    """Let no night of a target start until `schedule resume`; those in between count as nobody's."""
    _set_paused(context, target, reason, json, paused=True)


@commands.command()
def resume(context: typer.Context, target: TargetName, reason: Why = "", json: Json = False) -> None:
    """Let the nights of a target start again."""
    _set_paused(context, target, reason, json, paused=False)


@commands.command()
def pause_all(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="Why the line is stopped; needed, recorded in the audit.")],
    json: Json = False,
) -> None:
    """Stop the line: every study ends safely at its next tick, and none starts until `schedule resume-all`."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        line = app.nights.stop_line(_said(app, reason))
    _tell(
        invocation,
        json,
        {"stopped_at": _text(line.stopped_at), "reason": line.reason},
        f"the line is stopped: {line.reason}; every study ends and restores the incumbent",
    )


@commands.command()
def resume_all(context: typer.Context, reason: Why = "", json: Json = False) -> None:
    """Release the line; studies that were ended stay ended."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        app.nights.release_line(_said(app, reason))
    _tell(invocation, json, {"stopped_at": None}, "the line runs")


@commands.command()
def freeze(
    context: typer.Context,
    until: Annotated[str, typer.Option(help="When it ends, with its offset: 2026-12-27T06:00+01:00.")],
    reason: Annotated[str, typer.Option(help="Why; needed, shown by whatever waits.")],
    begins: Annotated[str, typer.Option("--from", help="When it begins. Default: now.")] = "",
    target: Annotated[str, typer.Option(help="For this target only. Default: for every target.")] = "",
    json: Json = False,
) -> None:
    """Let nothing start and nothing be promoted for a time."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        begins_at = _when("--from", begins) if begins else app.clock.now()
        wanted = Freeze(begins_at, _when("--until", until), reason, target or None)
        kept = app.nights.add_freeze(wanted, _said(app, reason))
    _tell(invocation, json, _freeze_object(kept), f"freeze {kept.number}: {_freeze_line(kept)}")


@commands.command()
def unfreeze(
    context: typer.Context,
    number: Annotated[int, typer.Argument(help="A freeze's number, from `autotuner schedule list`.")],
    reason: Why = "",
    json: Json = False,
) -> None:
    """End a freeze now."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        app.nights.remove_freeze(number, _said(app, reason))
    _tell(invocation, json, {"number": number}, f"freeze {number} is over")


@commands.command()
def nights(
    context: typer.Context,
    target: Annotated[str, typer.Option(help="Of this target only.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Nights shown at most, newest first.")] = 20,
    json: Json = False,
) -> None:
    """List what became of past nights, newest first."""
    invocation = of(context, json=json)
    with invocation.opened() as app:
        found = app.nights.nights(target or None, limit)
    if json:
        invocation.answer({"nights": [_night_object(record) for record in found]})
    else:
        print("\n".join(map(_night_line, found)) if found else "no night was due yet")


def _set_paused(context: typer.Context, target: str, reason: str, json: bool, *, paused: bool) -> None:
    invocation = of(context, json=json)
    with invocation.opened() as app:
        known = {schedule.target: schedule for schedule in app.nights.schedules()}
        if target not in known:
            raise NotFound("schedule of target", target)
        kept = app.nights.set_schedule(replace(known[target], paused=paused), _said(app, reason))
        coming = _next(kept, app.clock.now())
    text = "is paused" if paused else f"goes on; next: {_instant(coming)}"
    _tell(invocation, json, _schedule_object(kept, coming), f"the schedule of {target} {text}")


def _tell(invocation: Any, json: bool, content: dict[str, Any], text: str) -> None:
    if json:
        invocation.answer(content)
    else:
        print(text)


def _said(app: Application, reason: str) -> Said:
    return Said(app.settings.actor, reason, app.clock.now())


def _next(schedule: Schedule, now: datetime) -> datetime | None:
    from autotuner.scheduler import next_start  # noqa: PLC0415 - APScheduler takes a moment to import

    return next_start(schedule, now)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput("--blackout", text, "a date such as 2026-12-24") from error


def _when(option: str, text: str) -> datetime:
    try:
        made = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(option, text, INSTANT_ALLOWED) from error
    if made.tzinfo is None:
        raise InvalidInput(option, text, INSTANT_ALLOWED)
    return made.astimezone(UTC)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _instant(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def _schedule_object(schedule: Schedule, coming: datetime | None) -> dict[str, Any]:
    return {
        "target": schedule.target,
        "cron": schedule.cron,
        "time_zone": schedule.time_zone,
        "window_seconds": schedule.window.total_seconds(),
        "jitter_seconds": schedule.jitter.total_seconds(),
        "blackout_dates": [each.isoformat() for each in schedule.blackout_dates],
        "paused": schedule.paused,
        "set_by": schedule.set_by,
        "next_start": _text(coming),
    }


def _standing_object(standing: Standing) -> dict[str, Any]:
    line = standing.line
    return {
        "line": {"stopped_at": _text(line.stopped_at), "reason": line.reason, "actor": line.actor},
        "freezes": [_freeze_object(each) for each in standing.freezes],
    }


def _freeze_object(freeze: Freeze) -> dict[str, Any]:
    return {
        "number": freeze.number,
        "target": freeze.target,
        "begins_at": freeze.begins_at.isoformat(),
        "ends_at": freeze.ends_at.isoformat(),
        "reason": freeze.reason,
    }


def _night_object(record: NightRecord) -> dict[str, Any]:
    return {
        "target": record.night.target,
        "night": record.night.name,
        "due_at": record.night.due_at.isoformat(),
        "state": record.state.value,
        "study": record.study_id,
        "outcome": record.outcome,
        "reason": record.reason,
    }


def _standing_lines(standing: Standing) -> list[str]:
    lines = [f"freeze {each.number}: {_freeze_line(each)}" for each in standing.freezes]
    if standing.line.stopped_at is not None:
        since = f"{standing.line.stopped_at:%Y-%m-%d %H:%M} UTC"
        lines.insert(0, f"THE LINE IS STOPPED since {since} by {standing.line.actor}: {standing.line.reason}")
    return lines


def _freeze_line(freeze: Freeze) -> str:
    span = f"{_instant(freeze.begins_at)} to {_instant(freeze.ends_at)}"
    return f"{freeze.target or 'every target'}, {span}: {freeze.reason}"


def _schedule_lines(found: Sequence[tuple[Schedule, datetime | None]]) -> list[str]:
    if not found:
        return ["no target is scheduled: autotuner schedule set TARGET --cron '30 2 * * *'"]
    return [
        f"{each.target:24} {each.cron:16} {each.time_zone:16} "
        + ("paused" if each.paused else f"next {_instant(coming)}")
        for each, coming in found
    ]


def _night_line(record: NightRecord) -> str:
    told = record.reason or record.outcome or "its study is under way"
    study = f" {record.study_id}" if record.study_id else ""
    return f"{record.night.name} {record.night.target:24} {record.state.value:8}{study} {told}"
