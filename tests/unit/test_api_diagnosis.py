"""Diagnoses over REST: what was seen, within the target's allowed addresses, and never too many at the same time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create
from api.routes import diagnosis
from autotuner.bootstrap import Application
from autotuner.domain.access import Scope
from autotuner.errors import AutotunerError, NotFound, Refused, Unavailable
from tests.command_line import TARGET
from tests.observers import StandInObserver
from tests.rest import Rest, serving

PATH = "/v1/targets/vision/diagnosis"


@pytest.fixture
def rest(rest: Rest) -> Rest:
    """The API over one registered target."""
    assert rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET).status_code == 201
    return rest


def test_a_brief_look_tells_what_is_the_matter(rest: Rest) -> None:
    told = rest.get(f"{PATH}?seconds=2")

    assert told["findings"][0]["kind"] == "healthy"
    assert told["window_seconds"] == 2.0
    assert told["p99_ceiling_ms"] == TARGET["slo"]["p99_ms"]
    assert set(told["replicas"]) == {"stable-0", "stable-1"}
    assert told["prediction"]["possible"] is False


def test_a_chosen_look_may_be_held_against_another_ceiling(rest: Rest) -> None:
    answer = rest.ask("POST", PATH, Scope.OPERATOR, json={"window": "20s", "p99_ms": 10})

    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["window_seconds"], told["p99_ceiling_ms"]) == (20.0, 10.0)


def test_a_prediction_is_told_with_its_bands() -> None:
    def seen(application: Application) -> Application:
        return replace(application, observers=partial(StandInObserver, batches=True))

    with serving(move=seen) as rest:
        rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET)
        told = rest.ask("POST", PATH, Scope.OPERATOR, json={"window": "20s"}).json()

    best = told["prediction"]["best"]
    assert best["capacity_per_second"]["low"] < best["capacity_per_second"]["value"]
    assert told["realised_batch"]["histogram"][0]["batch_size"] == 1


@pytest.mark.parametrize("window", ["1s", "61s", "soon"])
def test_a_window_that_is_not_allowed_is_named(rest: Rest, window: str) -> None:
    answer = rest.ask("POST", PATH, Scope.OPERATOR, json={"window": window})

    assert (answer.status_code, answer.json()["field"]) == (422, "window")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unavailable("triton stable-0", "it is gone"), 503),
        (Refused("stable-0 does not let us read"), 409),
        (NotFound("model", "small_vision"), 404),
    ],
)
def test_what_cannot_be_read_is_a_problem(error: AutotunerError, status: int) -> None:
    def broken(application: Application) -> Application:
        return replace(application, observers=partial(StandInObserver, error=error))

    with serving(move=broken) as rest:
        rest.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET)
        answer = rest.ask("GET", PATH, Scope.VIEWER)

    assert answer.status_code == status
    assert str(error) in answer.json()["detail"]


def test_addresses_that_are_no_longer_allowed_are_not_looked_at(rest: Rest) -> None:
    application = rest.application
    narrow = replace(
        application, settings=application.settings.model_copy(update={"target_addresses": "10.0.0.0/8"})
    )
    with TestClient(create(narrow)) as client:
        answer = client.get(PATH, headers=rest.headers(Scope.VIEWER))

    assert (answer.status_code, answer.json()["field"]) == (422, "stable.0.url")


def test_an_unknown_target_is_not_found(rest: Rest) -> None:
    assert rest.ask("GET", "/v1/targets/nobody/diagnosis", Scope.VIEWER).status_code == 404


def test_a_viewer_may_look_briefly_and_not_choose(rest: Rest) -> None:
    assert rest.ask("GET", PATH, Scope.VIEWER).status_code == 200
    assert rest.ask("POST", PATH, Scope.VIEWER, json={}).status_code == 403


def test_too_many_at_the_same_time_are_turned_away(rest: Rest) -> None:
    taken = [diagnosis._seats.acquire(blocking=False) for _ in range(diagnosis.AT_ONCE)]
    try:
        answer: Any = rest.ask("GET", PATH, Scope.VIEWER)
    finally:
        for _ in taken:
            diagnosis._seats.release()

    assert all(taken)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
