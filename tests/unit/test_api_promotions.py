"""Promotions over REST: taken back with a reason, certified, and listed in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from autotuner.bootstrap import Application
from autotuner.domain.access import Scope
from autotuner.domain.provenance import Provenance
from autotuner.domain.study import Outcome, TrialKind
from autotuner.operations import start_study
from tests.builders import a_configuration
from tests.closed_loop.loop import Loop
from tests.closed_loop.test_rollback import check_restored, promoted
from tests.command_line import Terminal
from tests.observers import StandInObserver
from tests.rest import Rest, serving
from tests.studies import a_step

BACK = {"json": {"reason": "incident 4711"}}


@pytest.fixture
def loop() -> Loop:
    """A target on which a study has promoted its winner, with evidence."""
    made = promoted()
    row = made.store.memory.studies[made.study_id]
    (winner,) = row.study.trials
    steps = tuple(a_step(number, model_versions=("1",)) for number in range(2))
    winner = replace(winner, kind=TrialKind.CONFIRMATION, steps=steps)
    assert row.study.incumbent is not None
    incumbent = replace(row.study.incumbent, provenance=Provenance(("1",), "2.51.0"))
    row.study = replace(row.study, trials=(winner,), reference_rate_per_second=300.0, incumbent=incumbent)
    return made


@pytest.fixture
def rest(loop: Loop) -> Iterator[Rest]:
    """The API over that target."""
    terminal = Terminal(store=loop.store)
    terminal.clock, terminal.target = loop.clock, loop.target
    with serving(terminal) as made:
        yield made


def back(rest: Rest, study_id: str, scope: Scope = Scope.OPERATOR, **body: Any) -> Any:
    return rest.ask("POST", f"/v1/promotions/{study_id}/rollback", scope, **(body or BACK))


def test_a_promotion_is_taken_back_by_the_next_ticks(loop: Loop, rest: Rest) -> None:
    answer = back(rest, loop.study_id)
    told = answer.json()

    assert (answer.status_code, told["begun"]) == (202, True)
    loop.study_id = told["study"]
    loop.run()
    assert check_restored(loop).actor == "operator"
    assert rest.get(f"/v1/studies/{told['study']}")["outcome"] == "rolled_back"


def test_a_repeated_request_begins_nothing(loop: Loop, rest: Rest) -> None:
    first = back(rest, loop.study_id)
    second = back(rest, loop.study_id, Scope.ADMIN)
    assert (second.status_code, second.json()) == (200, {**first.json(), "begun": False})


@pytest.mark.parametrize("reason", ["", "   ", None])
def test_a_reason_is_needed(loop: Loop, rest: Rest, reason: str | None) -> None:
    body = {} if reason is None else {"reason": reason}
    answer = back(rest, loop.study_id, json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "reason")
    assert loop.store.unfinished() == ()


@pytest.mark.parametrize("scope", [Scope.VIEWER, Scope.APPROVER])
def test_nobody_else_may(loop: Loop, rest: Rest, scope: Scope) -> None:
    assert back(rest, loop.study_id, scope).status_code == 403


def test_production_on_something_else_is_a_clear_problem(loop: Loop, rest: Rest) -> None:
    loop.target.faults.foreign_configuration("stable-1", a_configuration(instance_count=3))
    problem = back(rest, loop.study_id).json()
    assert problem["type"] == "urn:autotuner:problem:refused"
    assert "production is no longer on the promoted configuration" in problem["detail"]


def test_a_certificate_says_what_a_promotion_rests_on(loop: Loop, rest: Rest) -> None:
    told = rest.get(f"/v1/promotions/{loop.study_id}/certificate")

    study = loop.study
    assert told["configuration"]["preferred_batch_size"] == []
    assert (told["p99_ms"], told["confidence"], told["allowed_share"]) == (100.0, 0.99, 0.01)
    assert (told["levels"], told["requests"], told["bad"]) == (2, 2600, 6)
    assert (told["lowest_rate_per_second"], told["highest_rate_per_second"]) == (0.1 + 0.2, 0.1 + 0.2)
    assert (told["model"], told["platform"], told["hardware"]) == ("small_vision", "python", "KIND_CPU")
    assert told["version_policy"] == '{"latest": {"num_versions": 1}}'
    assert (told["model_versions"], told["triton"], told["image"]) == (["1"], "2.51.0", None)
    assert told["given_at"].startswith(f"{study.ended_at:%Y-%m-%dT%H:%M}")
    assert told["lapsed"] == ""


def next_night(loop: Loop) -> str:
    """The next study of the target, until it has read production or ended."""
    loop.study_id = start_study(loop.store, loop.clock, loop.plan, "scheduler").id
    loop.run(until=lambda study: study.incumbent is not None)
    return loop.study_id


@pytest.mark.parametrize(
    ("versions", "lapsed"),
    [
        (("1",), ""),
        ((), ""),
        (("2",), "study {} found version 2 of the model instead of 1: to be certified again"),
        (("1", "2"), "study {} found version 1 and 2 of the model instead of 1: to be certified again"),
    ],
)
def test_a_certificate_lapses_when_the_next_night_finds_another_version(
    loop: Loop, rest: Rest, versions: tuple[str, ...], lapsed: str
) -> None:
    promotion = loop.study_id
    for replica in ("stable-0", "stable-1", "canary"):
        loop.target.faults.another_version(replica, *versions)
    found_by = next_night(loop)

    told = rest.get(f"/v1/promotions/{promotion}/certificate")
    assert told["lapsed"] == lapsed.format(found_by)


@pytest.mark.parametrize(
    ("loaded", "lapsed"),
    [
        (("1",), ""),
        ((), ""),
        (("3",), "stable-0 runs version 3 of the model instead of 1: to be certified again"),
    ],
)
def test_a_diagnosis_says_whether_the_certificate_covers_what_it_sees(
    loop: Loop, loaded: tuple[str, ...], lapsed: str
) -> None:
    terminal = Terminal(store=loop.store)
    terminal.clock, terminal.target = loop.clock, loop.target

    def seen(application: Application) -> Application:
        return replace(application, observers=partial(StandInObserver, loaded=loaded))

    with serving(terminal, seen) as rest:
        told = rest.get("/v1/targets/vision/diagnosis?seconds=2")

    assert told["certificate"] == {"study": loop.study_id, "lapsed": lapsed}
    assert told["replicas"]["stable-0"]["model_versions"] == list(loaded)


def test_a_certificate_lapses_when_the_promise_is_tightened(loop: Loop, rest: Rest) -> None:
    body = {"p99_ms": 80, "max_canary_share": 0.5, "harm_budget_requests": 500}
    etag = rest.ask("GET", "/v1/targets/vision/slo-budget", Scope.VIEWER).headers["ETag"]
    changed = rest.ask("PUT", "/v1/targets/vision/slo-budget", json=body, headers={"If-Match": etag})
    assert changed.status_code == 200, changed.text

    told = rest.get(f"/v1/promotions/{loop.study_id}/certificate")
    assert told["lapsed"] == "version 2 of the SLO budget promises users more than version 1"


def test_what_promoted_nothing_has_no_certificate(loop: Loop, rest: Rest) -> None:
    row = loop.store.memory.studies[loop.study_id]
    row.study = replace(row.study, outcome=Outcome.KEPT)
    answer = rest.ask("GET", f"/v1/promotions/{loop.study_id}/certificate", Scope.VIEWER)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:autotuner:problem:refused")


def test_the_ledger_says_what_stands_and_what_was_taken_back(loop: Loop, rest: Rest) -> None:
    promotion = loop.study_id
    (before,) = rest.get("/v1/ledger?target=vision")["items"]
    loop.study_id = back(rest, promotion).json()["study"]
    loop.run()
    (after,) = rest.get("/v1/ledger")["items"]

    assert (before["study"], before["rolled_back_by"]) == (promotion, None)
    assert before["winner"]["capacity_per_second"] == pytest.approx(100.0)
    assert before["gpu_hours"]["unknown"] == "the model's instances are KIND_CPU"
    assert before["gpu_hours"]["canary"] is None
    assert (after["rolled_back_by"], after["rolled_back_at"] is None) == (loop.study_id, False)
    assert rest.get("/v1/ledger?target=speech")["items"] == []
