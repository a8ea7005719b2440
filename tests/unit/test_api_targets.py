"""Targets and SLO budgets over REST."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from autotuner.domain.access import Scope
from autotuner.domain.slo import SloBudget
from autotuner.errors import Refused, Unavailable
from autotuner.target_file import parse_target_file, sections_of, slo_section_of
from tests.builders import a_plan, a_study
from tests.command_line import TARGET
from tests.rest import Rest, serving

BODY: dict[str, Any] = {name: value for name, value in TARGET.items() if name != "slo"}


def created(rest: Rest, **changes: Any) -> Any:
    answer = rest.ask("POST", "/v1/targets", Scope.OPERATOR, json={**TARGET, **changes})
    assert answer.status_code == 201, answer.text
    return answer


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BODY), **changes}


# -- registering -------------------------------------------------------------------------------------------


def test_a_target_is_registered_as_its_file_would_have_it(rest: Rest) -> None:
    answer = created(rest)

    kept = rest.application.registry.registration("vision")
    asked = parse_target_file(TARGET)
    assert (kept.target, kept.defaults) == (asked.target(), asked.study.defaults())
    assert kept.slo.loosened_fields(asked.budget("x")) == ()
    assert (kept.slo.actor, kept.changed_by) == ("operator", "operator")
    assert answer.headers["Location"] == "/v1/targets/vision"
    assert answer.headers["ETag"] == f'"{kept.mark}.1"'


def test_what_is_read_can_be_sent_back_and_changes_nothing(rest: Rest) -> None:
    created(
        rest, study={"pace": {"warm_up": "1500ms", "bake": "90s", "study_limit": "6h"}, "four_eyes": True}
    )
    read = rest.ask("GET", "/v1/targets/vision", Scope.VIEWER)
    content = {
        name: value for name, value in read.json().items() if name in {*BODY, "objective", "cost", "note"}
    }

    again = rest.ask(
        "PUT", "/v1/targets/vision", Scope.OPERATOR, json=content, headers={"If-Match": read.headers["ETag"]}
    )

    assert again.status_code == 200, again.text
    assert again.json() == read.json()
    assert again.headers["ETag"] == read.headers["ETag"]
    assert read.json()["study"]["pace"]["warm_up"] == "1500ms"
    assert (read.json()["study"]["pace"]["bake"], read.json()["study"]["pace"]["study_limit"]) == (
        "90s",
        "6h",
    )


def test_sections_and_records_say_the_same_both_ways() -> None:
    asked = parse_target_file({**TARGET, "cost": {"replica_per_hour": 2.5}, "objective": "efficiency"})
    told = sections_of(asked.target(), asked.study.defaults())

    again = parse_target_file({**told, "slo": slo_section_of(asked.budget("x"))})

    assert (again.target(), again.study.defaults()) == (asked.target(), asked.study.defaults())
    assert again.budget("x") == asked.budget("x")


@pytest.mark.parametrize("milliseconds", [0.1, 1.1, 57, 33.333, 599999.9])
def test_a_ceiling_survives_the_way_to_milliseconds_and_back(milliseconds: float) -> None:
    slo = SloBudget(milliseconds / 1000, 0.001, 0.5, 500)

    assert slo_section_of(slo)["p99_ms"] / 1000 == pytest.approx(slo.p99_ceiling_seconds, rel=1e-15)
    assert slo_section_of(slo)["p99_ms"] == milliseconds


def test_a_target_is_registered_once(rest: Rest) -> None:
    created(rest)

    again = rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET)

    assert (again.status_code, again.json()["type"]) == (409, "urn:autotuner:problem:conflict")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slo": {"p99_ms": -5}}, "slo.p99_ms"),
        ({"slo": {"p99_ms": "100"}}, "slo.p99_ms"),
        ({"stable": []}, "stable"),
        ({"name": "Not A Name"}, "name"),
        ({"model": "a\x00b"}, "model"),
        ({"study": {"pace": {"bake": 30}}}, "study.pace.bake"),
        ({"study": {"pace": {"bake": "PT30M"}}}, "study.pace.bake"),
        ({"invented": 1}, "invented"),
        (
            {"limits": {"instance_count": 4, "max_queue_delay_microseconds": 200_000}},
            "limits.max_queue_delay_microseconds",
        ),
        ({"canary": TARGET["stable"][0]}, "canary.name"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_what_is_allowed(
    rest: Rest, changes: dict[str, Any], field: str
) -> None:
    answer = rest.ask("POST", "/v1/targets", Scope.OPERATOR, json={**TARGET, **changes})

    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert answer.json()["allowed"]
    assert rest.get("/v1/targets")["items"] == []


def test_all_fields_at_fault_are_named_at_once(rest: Rest) -> None:
    wrong = {**TARGET, "slo": {"p99_ms": -5}, "model": ""}

    answer = rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=wrong)

    assert {each["field"] for each in answer.json()["problems"]} == {"slo.p99_ms", "model"}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b'"text"', b"\xff\xfe"])
def test_a_body_that_is_no_object_is_said(rest: Rest, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}

    answer = rest.ask("POST", "/v1/targets", Scope.OPERATOR, content=content, headers=headers)

    assert (answer.status_code, answer.json()["field"]) == (422, "body")


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("canary.url", {"canary": {**TARGET["canary"], "url": "http://169.254.169.254"}}),
        ("canary.metrics", {"canary": {**TARGET["canary"], "metrics": "http://metadata.internal/metrics"}}),
        ("gateway.admin", {"gateway": {"admin": "http://[::ffff:10.0.0.1]:9901", "runtime_prefix": "x"}}),
        ("stable.0.url", {"stable": [{**TARGET["stable"][0], "url": "http://2130706433:8000"}]}),
    ],
)
def test_an_address_that_is_not_allowed_is_not_registered(
    rest: Rest, place: str, changes: dict[str, Any]
) -> None:
    answer = rest.ask("POST", "/v1/targets", Scope.OPERATOR, json={**TARGET, **changes})

    assert (answer.status_code, answer.json()["field"]) == (422, place)
    assert "127.0.0.0/8" in answer.json()["allowed"]
    assert rest.get("/v1/targets")["items"] == []


# -- changing and retiring ---------------------------------------------------------------------------------


def test_a_change_needs_the_etag_of_what_was_read(rest: Rest) -> None:
    tag = created(rest).headers["ETag"]
    body = changed(note="moved")

    without = rest.ask("PUT", "/v1/targets/vision", Scope.OPERATOR, json=body)
    first = rest.ask("PUT", "/v1/targets/vision", Scope.OPERATOR, json=body, headers={"If-Match": tag})
    second = rest.ask(
        "PUT", "/v1/targets/vision", Scope.OPERATOR, json=changed(note="again"), headers={"If-Match": tag}
    )
    now = rest.get("/v1/targets/vision")

    assert [each.status_code for each in (without, first, second)] == [428, 200, 412]
    assert without.json()["type"] == "urn:autotuner:problem:precondition-required"
    assert second.json()["type"] == "urn:autotuner:problem:outdated"
    assert now["note"] == "moved"


@pytest.mark.parametrize("tag", ["*", "nonsense", 'W/"x"', '""', '"', '"a", "b"'])
def test_what_is_no_etag_of_ours_changes_nothing(rest: Rest, tag: str) -> None:
    created(rest)

    answer = rest.ask("PUT", "/v1/targets/vision", Scope.OPERATOR, json=BODY, headers={"If-Match": tag})

    assert answer.status_code == 412


def test_a_change_leaves_the_budget_and_tells_why_in_the_audit(rest: Rest) -> None:
    tag = created(rest).headers["ETag"]
    body = changed(note="moved", reason="the rack moved")

    rest.ask("PUT", "/v1/targets/vision", Scope.OPERATOR, json=body, headers={"If-Match": tag})

    newest = rest.get("/v1/audit?limit=1")["items"][0]
    assert (newest["action"], newest["actor"], newest["reason"]) == (
        "target_saved",
        "operator",
        "the rack moved",
    )
    assert rest.get("/v1/targets/vision")["slo_budget"]["version"] == 1


def test_a_change_names_the_target_of_its_address(rest: Rest) -> None:
    tag = created(rest).headers["ETag"]

    answer = rest.ask(
        "PUT", "/v1/targets/vision", Scope.OPERATOR, json=changed(name="speech"), headers={"If-Match": tag}
    )

    assert (answer.status_code, answer.json()["field"]) == (422, "name")


def test_a_target_is_retired_by_an_admin_and_comes_back_when_it_is_registered_anew(rest: Rest) -> None:
    tag = created(rest).headers["ETag"]

    kept = rest.ask("DELETE", "/v1/targets/vision", headers={"If-Match": '"stale"'})
    retired = rest.ask("DELETE", "/v1/targets/vision?reason=replaced", headers={"If-Match": tag})
    start = rest.ask("POST", "/v1/studies", Scope.OPERATOR, json={"target": "vision"})
    change = rest.ask(
        "PUT", "/v1/targets/vision", Scope.OPERATOR, json=BODY, headers={"If-Match": retired.headers["ETag"]}
    )
    listed = rest.get("/v1/targets?retired=false")["items"], rest.get("/v1/targets?retired=true")["items"]
    anew = created(rest)

    assert [each.status_code for each in (kept, retired, start, change)] == [412, 200, 409, 409]
    assert retired.json()["retired_at"] is not None
    assert start.json()["type"] == change.json()["type"] == "urn:autotuner:problem:refused"
    assert (listed[0], [each["name"] for each in listed[1]]) == ([], ["vision"])
    assert anew.json()["retired_at"] is None


def test_targets_come_in_pages(rest: Rest) -> None:
    for name in ("c", "a", "b"):
        created(rest, name=name)

    first = rest.get("/v1/targets?limit=2")
    second = rest.get(f"/v1/targets?limit=2&cursor={first['next_cursor']}")

    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None


# -- trying ------------------------------------------------------------------------------------------------


def test_everything_a_target_names_is_tried_and_nothing_is_changed(rest: Rest) -> None:
    created(rest)
    before = rest.get("/v1/audit")

    told = rest.ask("POST", "/v1/targets/vision/check", Scope.OPERATOR).json()

    assert told == {
        "passed": True,
        "checks": [
            {"what": what, "passed": True, "detail": ""}
            for what in (
                "replica stable-0",
                "replica stable-1",
                "replica canary",
                "model",
                "gateway",
                "metrics",
            )
        ],
    }
    assert rest.get("/v1/audit") == before


def test_what_cannot_be_reached_is_told_thing_by_thing(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    created(rest)
    world = rest.terminal.target.world

    def away() -> None:
        raise Unavailable("envoy at http://127.0.0.1:9900", "connection refused")

    def unfit(_replica: str) -> None:
        raise Refused("the model has 2 instance groups")

    monkeypatch.setattr(world.route, "weights", away)
    monkeypatch.setattr(world.serving, "model_config", unfit)

    told = rest.ask("POST", "/v1/targets/vision/check", Scope.OPERATOR).json()

    failed = {each["what"]: each["detail"] for each in told["checks"] if not each["passed"]}
    assert told["passed"] is False
    assert set(failed) == {"replica stable-0", "replica stable-1", "replica canary", "model", "gateway"}
    assert failed["gateway"] == "envoy at http://127.0.0.1:9900 is unavailable: connection refused"


def test_what_is_allowed_no_longer_is_not_tried(rest: Rest) -> None:
    created(rest)
    rest.application.settings = rest.application.settings.model_copy(
        update={"target_addresses": "10.0.0.0/8"}
    )

    answer = rest.ask("POST", "/v1/targets/vision/check", Scope.OPERATOR)

    assert (answer.status_code, answer.json()["field"]) == (422, "stable.0.url")


# -- SLO budgets -------------------------------------------------------------------------------------------

PATH = "/v1/targets/vision/slo-budget"
TIGHTER = {**TARGET["slo"], "p99_ms": 50}
LOOSER = {**TARGET["slo"], "p99_ms": 200}


def test_a_new_version_is_made_of_the_one_that_was_read(rest: Rest) -> None:
    created(rest)
    read = rest.ask("GET", PATH, Scope.VIEWER)

    made = rest.ask("PUT", PATH, Scope.OPERATOR, json=TIGHTER, headers={"If-Match": read.headers["ETag"]})

    assert (read.headers["ETag"], made.headers["ETag"]) == ('"1"', '"2"')
    assert (made.json()["version"], made.json()["p99_ms"], made.json()["actor"]) == (2, 50.0, "operator")
    assert rest.get(PATH) == made.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 428), ({"If-Match": '"2"'}, 412), ({"If-Match": "*"}, 412), ({"If-Match": '"one"'}, 412)],
)
def test_without_the_version_in_force_no_version_is_made(
    rest: Rest, headers: dict[str, str], status: int
) -> None:
    created(rest)

    answer = rest.ask("PUT", PATH, Scope.OPERATOR, json=TIGHTER, headers=headers)

    assert answer.status_code == status
    assert rest.get(PATH)["version"] == 1


def test_loosening_needs_a_reason_and_is_marked(rest: Rest) -> None:
    created(rest)
    match = {"If-Match": '"1"'}

    silent = rest.ask("PUT", PATH, Scope.OPERATOR, json=LOOSER, headers=match)
    told = rest.ask("PUT", PATH, Scope.OPERATOR, json={**LOOSER, "reason": "agreed"}, headers=match)
    versions = rest.get(f"{PATH}/versions")["items"]

    assert (silent.status_code, silent.json()["field"]) == (422, "reason")
    assert "p99" in silent.json()["allowed"]
    assert told.status_code == 200
    assert [(each["version"], each["reason"], each["loosened_fields"]) for each in versions] == [
        (2, "agreed", ["p99_ms"]),
        (1, "", []),
    ]
    assert rest.get("/v1/audit?action=budget_loosened")["items"][0]["actor"] == "operator"


def test_the_same_promise_makes_no_version(rest: Rest) -> None:
    created(rest)
    said = {name: value for name, value in rest.get(PATH).items() if name in {*TARGET["slo"], "error_ratio"}}

    answer = rest.ask("PUT", PATH, Scope.OPERATOR, json=said, headers={"If-Match": '"1"'})

    assert (answer.status_code, answer.json()["version"]) == (200, 1)


def test_versions_come_in_pages(rest: Rest) -> None:
    created(rest)
    for version in (1, 2):
        body = {**TARGET["slo"], "p99_ms": 90 - version}
        rest.ask("PUT", PATH, Scope.OPERATOR, json=body, headers={"If-Match": f'"{version}"'})

    first = rest.get(f"{PATH}/versions?limit=2")
    second = rest.get(f"{PATH}/versions?limit=2&cursor={first['next_cursor']}")

    assert [each["version"] for each in first["items"] + second["items"]] == [3, 2, 1]


def test_a_running_study_keeps_the_version_it_was_started_with(rest: Rest) -> None:
    created(rest)
    started = rest.ask("POST", "/v1/studies", Scope.OPERATOR, json={"target": "vision"}).json()

    rest.ask("PUT", PATH, Scope.OPERATOR, json=TIGHTER, headers={"If-Match": '"1"'})

    assert rest.get(f"/v1/studies/{started['id']}")["slo_budget"]["version"] == 1
    assert rest.get(PATH)["version"] == 2


@pytest.mark.parametrize(
    "path", ["/v1/targets/nobody", "/v1/targets/nobody/slo-budget", "/v1/targets/nobody/slo-budget/versions"]
)
def test_an_unknown_target_is_not_found(rest: Rest, path: str) -> None:
    assert rest.ask("GET", path, Scope.VIEWER).status_code == 404


def test_a_target_under_study_is_not_retired() -> None:
    with serving() as rest:
        tag = created(rest).headers["ETag"]
        kept = rest.application.registry.registration("vision")
        rest.application.store.create_study(a_study(plan=a_plan(target=kept.target, slo=kept.slo)))

        answer = rest.ask("DELETE", "/v1/targets/vision", headers={"If-Match": tag})

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:autotuner:problem:conflict")
