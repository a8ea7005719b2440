"""The service around its routes: health, problems, ids, metrics, logs, and the description."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from api.context import LARGEST_BODY_BYTES
from api.problems import KINDS, UNEXPECTED, kind_of, problem_of
from autotuner.domain.access import Scope
from autotuner.errors import AutotunerError, InvalidInput, Outdated, Overtaken, Unavailable
from autotuner.sections import InvalidFields
from autotuner.telemetry.metrics import METRICS, Instruments
from tests.rest import Rest

DOCS = Path(__file__).parents[2] / "docs"
PAGE, METRICS_PAGE = DOCS / "api.md", DOCS / "metrics.md"


# -- health ------------------------------------------------------------------------------------------------


def test_the_service_is_ready_when_database_and_schema_are(rest: Rest) -> None:
    assert rest.client.get("/readyz").json() == {
        "ready": True,
        "checks": [
            {"name": "database", "ready": True, "detail": ""},
            {"name": "schema", "ready": True, "detail": ""},
            {"name": "writes", "ready": True, "detail": ""},
        ],
    }


def test_an_outdated_schema_is_said_with_what_to_do(rest: Rest) -> None:
    rest.terminal.schema_is_current = False

    answer = rest.client.get("/readyz")

    assert answer.status_code == 503
    database, schema = answer.json()["checks"]
    assert (database["ready"], schema["ready"]) == (True, False)
    assert "autotuner db upgrade" in schema["detail"]


def test_a_database_that_is_away_is_said_without_its_password(rest: Rest) -> None:
    def away() -> bool:
        raise Unavailable("postgres", "no route to postgresql://me:s3cret@nowhere")

    rest.application.schema_is_current = away
    alive, ready = rest.client.get("/healthz"), rest.client.get("/readyz")

    assert alive.status_code == 200
    assert (ready.status_code, [check["name"] for check in ready.json()["checks"]]) == (503, ["database"])
    assert "s3cret" not in ready.text


# -- problems ----------------------------------------------------------------------------------------------


def children(kind: type[AutotunerError]) -> set[type[AutotunerError]]:
    return {kind, *(each for child in kind.__subclasses__() for each in children(child))}


def test_every_error_of_ours_is_a_problem_with_a_type_of_its_own() -> None:
    inner = {each for each in children(AutotunerError) if each.__module__ == "autotuner.errors"}
    known = {kind for kind, _ in KINDS}
    slugs = [kind.slug for _, kind in KINDS]

    assert inner - known == {
        AutotunerError,
        Overtaken,
    }  # the controller decides again: no caller ever sees it
    assert len(set(slugs)) == len(slugs)


def test_a_child_is_told_apart_from_its_parent() -> None:
    assert kind_of(Outdated("target vision", "changed")).status == 412
    assert kind_of(ZeroDivisionError()) is UNEXPECTED


def test_every_field_at_fault_is_named() -> None:
    fields = (InvalidInput("slo.p99_ms", -5, "above 0"), InvalidInput("model", "", "a name"))

    problem = problem_of(InvalidFields(fields), "id")

    assert (problem.status, problem.field, problem.allowed) == (422, "slo.p99_ms", "above 0")
    assert problem.problems is not None
    assert [each.field for each in problem.problems] == ["slo.p99_ms", "model"]


def test_the_documented_problems_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+) \| (.+?) \|", PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [(kind.slug, str(kind.status), kind.title) for _, kind in KINDS] + [
        (UNEXPECTED.slug, "500", UNEXPECTED.title)
    ]


def test_an_unknown_address_and_method_are_problems(rest: Rest) -> None:
    missing, method = rest.client.get("/v2/anything"), rest.client.delete("/healthz")

    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert (method.status_code, method.headers["allow"]) == (405, "GET")


def test_what_nobody_foresaw_is_logged_and_not_told(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_digest: str) -> None:
        raise RuntimeError("the secret plan")

    monkeypatch.setattr(rest.application.tokens, "by_digest", broken)

    answer = rest.ask("GET", "/v1/me", headers={"X-Request-ID": "find-me"})

    assert (answer.status_code, answer.json()["request_id"]) == (500, "find-me")
    assert "secret plan" not in answer.text
    assert any(record.message == "request_failed" and record.exc_info for record in caplog.records)


@pytest.mark.parametrize("declared", [True, False], ids=["its length declared", "in pieces"])
def test_a_body_that_is_too_large_is_not_taken(rest: Rest, declared: bool) -> None:
    content: Any = b" " * (LARGEST_BODY_BYTES + 1)

    answer = rest.ask("POST", "/v1/studies", content=content if declared else iter([content]))

    assert (answer.status_code, answer.json()["type"]) == (413, "urn:autotuner:problem:too-large")


# -- ids, logs, metrics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["abc-123", "", "x" * 65, "two\twords", "ü"])
def test_a_request_has_one_id_and_nobody_forges_a_log_line_with_it(rest: Rest, given: str) -> None:
    answer = rest.client.get("/healthz", headers=[(b"X-Request-ID", given.encode())])

    kept = answer.headers["X-Request-ID"]
    assert (kept == given) is (given == "abc-123")
    assert re.fullmatch(r"[\w.-]{1,64}", kept)


def test_a_request_is_logged_with_who_and_what_and_without_its_token(
    rest: Rest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    rest.ask("GET", "/v1/me?token=hidden", Scope.OPERATOR)

    (line,) = [record for record in caplog.records if record.message == "request_served"]
    told = vars(line)
    assert (told["method"], told["route"], told["status"], told["actor"]) == (
        "GET",
        "/v1/me",
        200,
        "operator",
    )
    everything = " ".join(str(vars(record)) for record in caplog.records if record.name.startswith("api"))
    assert rest.secrets[Scope.OPERATOR] not in everything


def test_requests_are_counted_by_route_and_never_by_address(rest: Rest) -> None:
    rest.client.get("/healthz")
    rest.client.get("/v1/targets/anything/else/whatever")
    rest.client.request("INVENTED", "/somewhere")

    page = rest.ask("GET", "/metrics", Scope.VIEWER).text

    assert 'autotuner_http_requests_total{method="GET",route="/healthz",status="200"} 1.0' in page
    assert 'autotuner_http_requests_total{method="-",route="unmatched",status="404"} 2.0' in page
    assert 'autotuner_http_refusals_total{problem="not-found"} 2.0' in page
    assert "INVENTED" not in page
    assert "whatever" not in page


def test_the_documented_metrics_are_those_of_the_code() -> None:
    text = METRICS_PAGE.read_text("utf-8")
    rows = re.findall(r"^\| `(autotuner_\w+)` \| (.*?) \| (.+?) \|$", text, re.MULTILINE)

    assert rows == [
        (each.name, ", ".join(f"`{label}`" for label in each.labels) or "–", each.help) for each in METRICS
    ]


def test_every_metric_is_on_the_page_of_a_service_that_was_not_asked_yet() -> None:
    page = Instruments().page().decode()
    named = re.findall(r"^# HELP (\w+) ", page, re.MULTILINE)
    families = {each.removesuffix("_total") for each in named if not each.endswith("_created")}

    assert families == {each.name.removesuffix("_total") for each in METRICS}


def test_answers_tell_browsers_and_caches_to_leave_them_alone(rest: Rest) -> None:
    headers = rest.ask("GET", "/v1/me").headers

    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


# -- the description ---------------------------------------------------------------------------------------


def test_the_description_names_the_scope_and_the_problems_of_every_route(rest: Rest) -> None:
    told = rest.get("/v1/openapi.json", None)

    assert told["openapi"].startswith("3.1")
    me = told["paths"]["/v1/me"]["get"]
    assert (me["x-scope"], me["security"]) == ("viewer", [{"bearer": []}])
    assert {"200", "401", "403", "429", "500", "503"} <= set(me["responses"])
    assert set(me["responses"]["401"]["content"]) == {"application/problem+json"}


def properties(schema: Any, place: str = "") -> list[tuple[str, Any]]:
    """Every property of every object in a schema, with the place where it stands."""
    found = []
    for name, each in schema.get("properties", {}).items():
        found += [(f"{place}.{name}", each), *properties(each, f"{place}.{name}")]
    return found


def test_everything_in_the_description_is_described(rest: Rest) -> None:
    told = rest.get("/v1/openapi.json", None)
    schemas = told["components"]["schemas"]
    silent = [
        place
        for name, schema in schemas.items()
        for place, each in properties(schema, name)
        if not each.get("description")
    ]
    operations = [(path, each) for path, methods in told["paths"].items() for each in methods.values()]
    parameters = [
        f"{path}: {parameter['name']}"
        for path, operation in operations
        for parameter in operation.get("parameters", ())
        if not (parameter.get("description") or parameter["schema"].get("description"))
    ]

    assert silent == []
    assert parameters == []
    assert [path for path, operation in operations if not operation.get("summary")] == []


def test_no_description_is_served_to_a_browser_from_elsewhere(rest: Rest) -> None:
    assert [rest.client.get(path).status_code for path in ("/docs", "/redoc", "/openapi.json")] == [404] * 3
