"""Nightly tuning over REST: schedules, freezes, the line and nights."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.access import Said, Scope
from autotuner.domain.calendar import night_of
from tests.builders import at
from tests.command_line import TARGET
from tests.rest import Rest

PATH = "/v1/targets/vision/schedule"
NIGHTLY = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}


@pytest.fixture
def rest(rest: Rest) -> Rest:
    """The API over one registered target."""
    assert rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET).status_code == 201
    return rest


def mark(rest: Rest) -> dict[str, str]:
    """The header that says which schedule was read; none while there is none."""
    answer = rest.ask("GET", PATH, Scope.VIEWER)
    return {"If-Match": answer.headers["ETag"]} if answer.status_code == 200 else {}


def scheduled(rest: Rest, **changes: Any) -> Any:
    answer = rest.ask("PUT", PATH, Scope.OPERATOR, json={**NIGHTLY, **changes}, headers=mark(rest))
    assert answer.status_code == 200, answer.text
    return answer.json()


def newest(rest: Rest) -> tuple[str, str, str]:
    record = rest.get("/v1/audit?limit=1")["items"][0]
    return record["action"], record["actor"], record["reason"]


def test_a_target_is_scheduled_and_the_next_night_is_told(rest: Rest) -> None:
    told = scheduled(rest, blackout_dates=["2026-12-24"], reason="agreed")

    assert told == rest.get(PATH)
    assert (told["window"], told["jitter"], told["paused"], told["set_by"]) == ("4h", None, False, "operator")
    assert (told["next_start"], told["blackout_dates"]) == ("2026-01-06T01:30:00Z", ["2026-12-24"])
    assert newest(rest) == ("schedule_set", "operator", "agreed")


def test_a_schedule_replaces_the_one_before(rest: Rest) -> None:
    scheduled(rest, window="90m", jitter="30m")

    told = scheduled(rest, cron="0 3 * * 1", paused=True)

    assert (told["cron"], told["jitter"], told["next_start"]) == ("0 3 * * 1", None, None)
    assert [each["target"] for each in rest.get("/v1/schedules")["items"]] == ["vision"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "every night"}, "schedule.cron"),
        ({"cron": "0 0 30 2 *"}, "schedule.cron"),
        ({"cron": "0 0 30 2 *", "paused": True}, "schedule.cron"),
        ({"time_zone": "Mars/Olympus"}, "schedule.time_zone"),
        ({"time_zone": "../../etc/passwd"}, "schedule.time_zone"),
        ({"window": "25h"}, "schedule.window"),
        ({"window": 4}, "window"),
        ({"jitter": "5h"}, "schedule.jitter"),
        ({"blackout_dates": ["christmas"]}, "blackout_dates.0"),
        ({"invented": 1}, "invented"),
    ],
)
def test_what_cannot_be_scheduled_is_named(rest: Rest, changes: dict[str, Any], field: str) -> None:
    answer = rest.ask("PUT", PATH, Scope.OPERATOR, json={**NIGHTLY, **changes})

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert rest.get("/v1/schedules")["items"] == []


def test_a_schedule_is_removed(rest: Rest) -> None:
    scheduled(rest)

    gone = rest.ask("DELETE", f"{PATH}?reason=replaced", Scope.OPERATOR, headers=mark(rest))
    again = rest.ask("DELETE", PATH, Scope.OPERATOR)

    assert (gone.status_code, gone.text, again.status_code) == (204, "", 404)
    assert rest.ask("GET", PATH, Scope.VIEWER).status_code == 404
    assert newest(rest) == ("schedule_removed", "operator", "replaced")


def test_schedules_come_in_pages(rest: Rest) -> None:
    for name in ("speech", "search"):
        rest.ask("POST", "/v1/targets", json={**TARGET, "name": name})
        rest.ask("PUT", f"/v1/targets/{name}/schedule", json=NIGHTLY)
    scheduled(rest)

    first = rest.get("/v1/schedules?limit=2")
    second = rest.get(f"/v1/schedules?limit=2&cursor={first['next_cursor']}")

    assert [each["target"] for each in first["items"] + second["items"]] == ["search", "speech", "vision"]


def test_a_freeze_is_recorded_shown_and_ended(rest: Rest) -> None:
    wanted = {"begins_at": "2026-01-05T03:00:00+01:00", "ends_at": "2026-01-06T00:00:00Z", "reason": "sale"}

    made = rest.ask("POST", "/v1/freezes", Scope.OPERATOR, json=wanted)
    shown = rest.get("/v1/standing")
    ended = rest.ask("DELETE", f"/v1/freezes/{made.json()['number']}?reason=over", Scope.OPERATOR)
    again = rest.ask("DELETE", f"/v1/freezes/{made.json()['number']}", Scope.OPERATOR)

    assert (made.status_code, made.json()["begins_at"], made.json()["target"]) == (
        201,
        "2026-01-05T02:00:00Z",
        None,
    )
    assert shown == {"line": {"stopped_at": None, "reason": "", "actor": ""}, "freezes": [made.json()]}
    assert (ended.status_code, again.status_code) == (204, 404)
    assert rest.get("/v1/standing")["freezes"] == []


@pytest.mark.parametrize(
    ("changes", "field", "status"),
    [
        ({"ends_at": "2026-01-04T00:00:00Z"}, "freeze.until", 422),
        ({"ends_at": "2026-01-06T00:00:00"}, "ends_at", 422),
        ({"reason": ""}, "reason", 422),
        ({"reason": "  "}, "freeze.reason", 422),
        ({"target": "nobody"}, None, 404),
    ],
)
def test_a_freeze_that_cannot_be_is_refused(
    rest: Rest, changes: dict[str, Any], field: str | None, status: int
) -> None:
    wanted = {"begins_at": "2026-01-05T00:00:00Z", "ends_at": "2026-01-06T00:00:00Z", "reason": "sale"}

    answer = rest.ask("POST", "/v1/freezes", Scope.OPERATOR, json={**wanted, **changes})

    assert (answer.status_code, answer.json().get("field")) == (status, field)


def test_the_line_is_stopped_with_a_reason_and_released(rest: Rest) -> None:
    silent = rest.ask("POST", "/v1/line/stop", Scope.OPERATOR, json={})
    stopped = rest.ask("POST", "/v1/line/stop", Scope.OPERATOR, json={"reason": "incident 4711"})
    shown = rest.get("/v1/standing")["line"]
    released = rest.ask("POST", "/v1/line/release", Scope.ADMIN, json={"reason": "it is over"})

    assert silent.status_code == 422
    assert (stopped.status_code, shown["reason"], shown["actor"]) == (200, "incident 4711", "operator")
    assert shown["stopped_at"] is not None
    assert (released.json()["stopped_at"], newest(rest)[1:]) == (None, ("admin", "it is over"))


def test_what_became_of_nights_is_told_newest_first(rest: Rest) -> None:
    for day in (1, 2):
        night = night_of("vision", at(86_400 * day), "UTC")
        rest.application.nights.miss_night(
            night, Said("scheduler", f"frozen on day {day}", at(86_400 * day + 1))
        )

    page = rest.get("/v1/nights?target=vision")
    told = page["items"]

    assert [(each["state"], each["reason"], each["study"]) for each in told] == [
        ("missed", "frozen on day 2", None),
        ("missed", "frozen on day 1", None),
    ]
    assert page["next_cursor"] is None
    assert rest.get("/v1/nights?target=nobody")["items"] == []


def test_nights_come_in_pages_that_neither_repeat_nor_lose_one(rest: Rest) -> None:
    rest.ask("POST", "/v1/targets", json={**TARGET, "name": "speech"})
    for day in (1, 2, 3):
        for name in ("vision", "speech"):
            night = night_of(name, at(86_400 * day), "UTC")
            rest.application.nights.miss_night(night, Said("scheduler", "frozen", at(86_400 * day + 1)))
    whole = rest.get("/v1/nights")["items"]
    walked: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rest.get(f"/v1/nights?limit=1{cursor and '&cursor=' + cursor}")
        walked, cursor = walked + page["items"], page["next_cursor"]

    assert walked == whole
    assert [(each["due_at"][:10], each["target"]) for each in whole[:3]] == [
        ("2026-01-08", "speech"),
        ("2026-01-08", "vision"),
        ("2026-01-07", "speech"),
    ]
    assert rest.ask("GET", f"/v1/trials?cursor={cursor or 'x'}", Scope.VIEWER).status_code == 422


# -- who changes what they have read -----------------------------------------------------------------------


def test_a_schedule_that_is_there_is_changed_only_by_who_has_read_it(rest: Rest) -> None:
    scheduled(rest)
    read = mark(rest)

    blind = rest.ask("PUT", PATH, Scope.OPERATOR, json=NIGHTLY)
    first = rest.ask("PUT", PATH, Scope.OPERATOR, json={**NIGHTLY, "paused": True}, headers=read)
    late = rest.ask("PUT", PATH, Scope.OPERATOR, json=NIGHTLY, headers=read)

    assert (blind.status_code, first.status_code, late.status_code) == (428, 200, 412)
    assert first.headers["ETag"] == mark(rest)["If-Match"] != read["If-Match"]
    assert rest.get(PATH)["paused"] is True


def test_a_schedule_is_removed_only_by_who_has_read_it(rest: Rest) -> None:
    scheduled(rest)
    read = mark(rest)
    scheduled(rest, paused=True)

    assert rest.ask("DELETE", PATH, Scope.OPERATOR).status_code == 428
    assert rest.ask("DELETE", PATH, Scope.OPERATOR, headers=read).status_code == 412
    assert rest.ask("DELETE", PATH, Scope.OPERATOR, headers=mark(rest)).status_code == 204
    assert rest.ask("PUT", PATH, Scope.OPERATOR, json=NIGHTLY, headers=read).status_code == 412
