"""Studies, trials, promotions, events and the audit over REST."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from api.routes.events import BATCH, HEARTBEAT_LOOKS, Seats, Stream
from api.routes.trials import COLUMNS
from autotuner.access import Wanted, issue_token
from autotuner.adapters.memory_store import MemoryCatalogue, MemoryLeases, MemoryStore
from autotuner.catalogue import Progress, StudyStanding
from autotuner.domain.access import Said, Scope
from autotuner.domain.configuration import Configuration
from autotuner.domain.registration import Wanted as WantedTarget
from autotuner.domain.study import Phase, Study, Wish
from autotuner.errors import Unauthenticated, Unavailable
from autotuner.ports import Grant
from autotuner.telemetry.metrics import Instruments
from tests.builders import START, ManualClock, a_budget, a_plan, a_study, a_target, at
from tests.command_line import TARGET, Terminal
from tests.rest import Rest, a_secret, serving
from tests.studies import TTL, a_rich_study, a_trial, append, decided, ended, judged


@pytest.fixture
def rest() -> Iterator[Rest]:
    """The API over a store that holds everything as JSON, like a database, and one registered target."""
    with serving(Terminal(store=MemoryStore())) as made:
        answer = made.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET)
        assert answer.status_code == 201
        yield made


def started(rest: Rest, scope: Scope = Scope.OPERATOR, **body: Any) -> Any:
    answer = rest.ask("POST", "/v1/studies", scope, json={"target": "vision", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def a_grant(rest: Rest, target: str = "vision") -> Grant:
    grant = MemoryLeases(rest.terminal.store, ManualClock()).acquire(target, "worker-1", TTL)
    assert grant is not None
    return grant


def moved(rest: Rest, study_id: str, **changes: Any) -> Study:
    """Append one step that leads a study to another state."""
    study = rest.application.store.study(study_id)
    return append(rest.application.store, study, replace(study, **changes), a_grant(rest))


# -- starting ----------------------------------------------------------------------------------------------


def test_a_study_starts_with_what_is_registered(rest: Rest) -> None:
    told = started(rest)

    study = rest.application.store.study(told["id"])
    kept = rest.application.registry.registration("vision")
    assert study.plan == kept.defaults.plan(kept.target, kept.slo)
    assert (study.actor, told["actor"], told["phase"], told["wish"]) == (
        "operator",
        "operator",
        "created",
        "run",
    )
    assert told["plan"]["max_trials"] == TARGET["study"]["max_trials"]


def test_what_is_asked_for_differs_from_what_is_registered_in_that_alone(rest: Rest) -> None:
    told = started(rest, study={"max_trials": 5, "approval": "manual", "pace": {"bake": "45s"}})

    plan = rest.application.store.study(told["id"]).plan
    kept = rest.application.registry.registration("vision").defaults
    assert (plan.max_trials, plan.approval.value, plan.pace.bake) == (5, "manual", timedelta(seconds=45))
    assert (plan.ramp_steps, replace(plan.pace, bake=kept.pace.bake)) == (kept.ramp_steps, kept.pace)


def test_a_rehearsals_limit_on_dispersion_stays_with_its_target_and_cannot_be_asked_for(rest: Rest) -> None:
    kept = rest.application.registry.registration("vision")
    limited = replace(kept.defaults, max_dispersion=3.0)
    wanted = WantedTarget(kept.target, defaults=limited)
    rest.application.registry.register(wanted, kept.mark, Said("sandbox", "", START))
    sections = {name: value for name, value in TARGET.items() if name != "slo"}
    tag = rest.ask("GET", "/v1/targets/vision").headers["ETag"]

    refused = rest.ask("POST", "/v1/studies", json={"target": "vision", "study": {"max_dispersion": 2}})
    changed = rest.ask("PUT", "/v1/targets/vision", json={**sections, "note": "x"}, headers={"If-Match": tag})
    told = started(rest, study={"max_trials": 5})

    assert (refused.status_code, changed.status_code) == (422, 200)
    assert "max_dispersion" not in changed.text
    assert rest.application.store.study(told["id"]).plan.max_dispersion == 3.0


def test_a_study_starts_under_a_budget_tightened_below_the_longest_delay(rest: Rest) -> None:
    tight = {**TARGET["slo"], "p99_ms": 10}
    rest.ask("PUT", "/v1/targets/vision/slo-budget", json=tight, headers={"If-Match": '"1"'})

    assert started(rest)["slo_budget"]["p99_ms"] == 10


@pytest.mark.parametrize(
    ("study", "field"),
    [
        ({"max_trials": 0}, "study.max_trials"),
        ({"invented": 1}, "study.invented"),
        ({"pace": {"bake": "soon"}}, "study.pace.bake"),
        ({"pace": {"step_minimum": "2h"}}, "study.pace.step_minimum"),
    ],
)
def test_what_cannot_be_asked_for_is_named(rest: Rest, study: dict[str, Any], field: str) -> None:
    answer = rest.ask("POST", "/v1/studies", Scope.OPERATOR, json={"target": "vision", "study": study})

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert rest.get("/v1/studies")["items"] == []


def test_a_target_has_one_unfinished_study(rest: Rest) -> None:
    started(rest)

    again = rest.ask("POST", "/v1/studies", Scope.OPERATOR, json={"target": "vision"})

    assert (again.status_code, again.json()["type"]) == (409, "urn:autotuner:problem:conflict")


def test_a_repeated_request_starts_nothing_and_gets_the_same_study(rest: Rest) -> None:
    key = {"Idempotency-Key": "night-1"}
    ask = {"json": {"target": "vision"}, "headers": key}

    first = rest.ask("POST", "/v1/studies", Scope.OPERATOR, **ask)
    second = rest.ask("POST", "/v1/studies", Scope.OPERATOR, **ask)

    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert second.json()["id"] == first.json()["id"]
    assert len(rest.get("/v1/studies")["items"]) == 1


def test_a_key_is_for_one_request_of_one_actor(rest: Rest) -> None:
    key = {"Idempotency-Key": "night-1"}
    body = {"target": "vision"}
    rest.ask("POST", "/v1/studies", Scope.OPERATOR, json=body, headers=key)

    other_request = rest.ask(
        "POST", "/v1/studies", Scope.OPERATOR, json={**body, "study": {"max_trials": 9}}, headers=key
    )
    other_actor = rest.ask("POST", "/v1/studies", Scope.ADMIN, json=body, headers=key)

    assert (other_request.status_code, other_request.json()["field"]) == (422, "Idempotency-Key")
    assert other_actor.status_code == 409


# -- wishes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "wish"), [("pause", Wish.PAUSE), ("resume", Wish.RUN), ("cancel", Wish.CANCEL)]
)
def test_a_wish_is_recorded_with_who_and_why(rest: Rest, verb: str, wish: Wish) -> None:
    study_id = started(rest)["id"]

    answer = rest.ask("POST", f"/v1/studies/{study_id}/{verb}", Scope.OPERATOR, json={"reason": "sale"})
    newest = rest.get("/v1/audit?limit=1")["items"][0]

    assert (answer.status_code, answer.json()["wish"]) == (202, wish.value)
    assert rest.application.store.wish(study_id) is wish
    assert (newest["action"], newest["actor"], newest["reason"], newest["subject"]) == (
        "wish_set",
        "operator",
        "sale",
        study_id,
    )


def test_a_wish_needs_no_body(rest: Rest) -> None:
    started(rest)

    assert rest.ask("POST", "/v1/studies/latest/pause", Scope.OPERATOR).status_code == 202


def test_nothing_is_asked_of_what_has_ended_or_is_cancelled(rest: Rest) -> None:
    study_id = started(rest)["id"]
    rest.ask("POST", f"/v1/studies/{study_id}/cancel", Scope.OPERATOR)
    refused = rest.ask("POST", f"/v1/studies/{study_id}/resume", Scope.OPERATOR)
    study = rest.application.store.study(study_id)
    append(rest.application.store, study, ended(study), a_grant(rest), observed={"wish": "cancel"})
    late = rest.ask("POST", f"/v1/studies/{study_id}/cancel", Scope.OPERATOR)

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:autotuner:problem:refused")
    assert (late.status_code, late.json()["type"]) == (409, "urn:autotuner:problem:conflict")


# -- promotions --------------------------------------------------------------------------------------------


def waiting(rest: Rest, scope: Scope = Scope.OPERATOR) -> str:
    study_id: str = started(rest, scope)["id"]
    moved(rest, study_id, phase=Phase.APPROVAL, trials=(judged(a_trial(0)),), winner=0)
    return study_id


@pytest.mark.parametrize(("verb", "wish"), [("approve", Wish.APPROVE), ("reject", Wish.DISAPPROVE)])
def test_an_approver_decides_on_a_winner_that_waits(rest: Rest, verb: str, wish: Wish) -> None:
    study_id = waiting(rest)

    answer = rest.ask(
        "POST", f"/v1/studies/{study_id}/promotion/{verb}", Scope.APPROVER, json={"reason": "seen"}
    )

    assert (answer.status_code, answer.json()["wish"]) == (202, wish.value)
    assert rest.get("/v1/audit?limit=1")["items"][0]["actor"] == "approver"


def test_there_is_nothing_to_approve_before_there_is_a_winner(rest: Rest) -> None:
    study_id = started(rest)["id"]

    answer = rest.ask("POST", f"/v1/studies/{study_id}/promotion/approve", Scope.APPROVER)

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:autotuner:problem:refused")


def test_four_eyes_are_two_people() -> None:
    careful = {**TARGET, "study": {**TARGET["study"], "four_eyes": True, "approval": "manual"}}
    with serving(Terminal(store=MemoryStore())) as rest:
        rest.ask("POST", "/v1/targets", json=careful)
        study_id = waiting(rest, Scope.ADMIN)

        own = rest.ask("POST", f"/v1/studies/{study_id}/promotion/approve", Scope.ADMIN)
        wish = rest.application.store.wish(study_id)
        twin = a_secret(rest.application, "admin", Scope.APPROVER)
        same_name = rest.client.post(
            f"/v1/studies/{study_id}/promotion/approve", headers={"Authorization": f"Bearer {twin}"}
        )
        reject = rest.ask("POST", f"/v1/studies/{study_id}/promotion/reject", Scope.ADMIN)
        other = rest.ask("POST", f"/v1/studies/{study_id}/promotion/approve", Scope.APPROVER)

    assert (own.status_code, own.json()["type"]) == (403, "urn:autotuner:problem:forbidden")
    assert "four eyes" in own.json()["detail"]
    assert wish is Wish.RUN
    assert [each.status_code for each in (same_name, reject, other)] == [403, 202, 202]


def test_a_promotion_tells_what_it_is_worth(rest: Rest) -> None:
    budget = rest.application.registry.registration("vision").slo
    study = a_rich_study(budget)
    rest.application.store.create_study(replace(study, trials=()))
    append(rest.application.store, replace(study, trials=()), study, a_grant(rest))

    told = rest.get(f"/v1/studies/{study.id}/promotion")

    assert (told["study"], told["started_by"], told["winner_trial"]) == (study.id, study.actor, study.winner)
    assert told["harm_budget_requests"] == study.plan.slo.harm_budget_requests


def test_promotions_that_wait_and_that_were_made_are_listed(rest: Rest) -> None:
    study_id = waiting(rest)

    assert [each["id"] for each in rest.get("/v1/promotions")["items"]] == [study_id]
    assert rest.get("/v1/promotions?waiting=false")["items"] == []


# -- lists and details -------------------------------------------------------------------------------------


def with_trials(rest: Rest, count: int = 5) -> str:
    """A study with trials of which the even ones are judged."""
    study_id: str = started(rest)["id"]
    trials = []
    for number in range(count):
        trial = a_trial(
            number,
            configuration=Configuration(100 * number, (4,) if number % 2 else (), 1 + number % 2, 16),
            proposed_at=at(number),
        )
        trials.append(replace(judged(trial), reason="=HYPERLINK(1)") if number % 2 == 0 else trial)
    moved(rest, study_id, trials=tuple(trials), reference_rate_per_second=90.0)
    return study_id


def numbers(answer: Any) -> list[int]:
    return [each["number"] for each in answer["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [4, 3, 2, 1, 0]),
        ("descending=false", [0, 1, 2, 3, 4]),
        ("verdict=accept", [4, 2, 0]),
        ("state=measuring", [3, 1]),
        ("delay_min=100&delay_max=300", [3, 2, 1]),
        ("instances_min=2", [3, 1]),
        ("preferred=4", [3, 1]),
        ("preferred=none", [4, 2, 0]),
        ("preferred=8,4,4", []),
        ("max_batch_size_max=15", []),
        ("target=vision&kind=candidate", [4, 3, 2, 1, 0]),
        ("target=speech", []),
        ("since=2026-01-05T02:00:03Z", [4, 3]),
        ("until=2026-01-05T03:00:01%2B01:00", [0]),
        ("sort=harm_requests&descending=false&limit=500", [0, 2, 4, 1, 3]),
    ],
)
def test_trials_are_filtered_and_sorted(rest: Rest, query: str, expected: list[int]) -> None:
    with_trials(rest)

    assert numbers(rest.get(f"/v1/trials?{query}")) == expected


def test_trials_come_in_pages_that_join_without_a_seam(rest: Rest) -> None:
    study_id = with_trials(rest)
    for sort in ("proposed_at", "capacity_per_second", "harm_requests"):
        found, cursor = [], ""
        while cursor is not None:
            page = rest.get(
                f"/v1/studies/{study_id}/trials?limit=2&sort={sort}{cursor and f'&cursor={cursor}'}"
            )
            found += numbers(page)
            cursor = page["next_cursor"]

        assert sorted(found) == [0, 1, 2, 3, 4], sort


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=many",
        "cursor=nonsense",
        "cursor=%00",
        "verdict=perhaps",
        "since=yesterday",
        "since=2026-01-05T02:00:00",
        "since=0001-01-01T00:00:00Z",
        "preferred=99999999999999999999",
        "preferred=0",
        "preferred=4,",
        "delay_min=-1",
        "target=No%00Body",
        "invented=1",
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(rest: Rest, query: str) -> None:
    answer = rest.ask("GET", f"/v1/trials?{query}", Scope.VIEWER)

    assert (answer.status_code, answer.json()["field"]) == (422, query.partition("=")[0])


def test_a_cursor_of_another_order_or_list_is_refused(rest: Rest) -> None:
    with_trials(rest)
    cursor = rest.get("/v1/trials?limit=2")["next_cursor"]

    for path in (
        "/v1/trials?descending=false",
        "/v1/trials?sort=harm_requests",
        "/v1/studies?limit=1",
        "/v1/audit?limit=1",
    ):
        answer = rest.ask("GET", f"{path}&cursor={cursor}", Scope.VIEWER)
        assert (answer.status_code, answer.json()["field"]) == (422, "cursor"), path


def test_a_trial_shows_all_its_evidence_and_where_it_came_from(rest: Rest) -> None:
    budget = rest.application.registry.registration("vision").slo
    study = a_rich_study(budget)
    rest.application.store.create_study(replace(study, trials=()))
    append(rest.application.store, replace(study, trials=()), study, a_grant(rest))

    told = rest.get(f"/v1/studies/{study.id}/trials/0")

    trial = study.trials[0]
    assert (told["number"], told["reason"], len(told["steps"])) == (0, trial.reason, len(trial.steps))
    step, kept = told["steps"][0], trial.steps[0]
    assert step["counts"]["total"] == kept.candidate.total
    assert step["control"]["bad_at_most"] == kept.control.bad_at_most
    assert (step["reason"], step["log_e_accept"]) == (kept.judgement.reason, kept.judgement.log_e_accept)
    gateway, servers = told["sources"]
    assert (gateway["what"], servers["what"]) == ("gateway", "servers")
    assert gateway["url"] == servers["url"] == "https://127.0.0.1:9090"
    assert "gateway_seconds_bucket" in gateway["query"]
    assert "nv_inference_request_success" in servers["query"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/studies/nobody",
        "/v1/studies/nobody/trials",
        "/v1/studies/latest/trials/99",
        "/v1/studies/nobody/events",
        "/v1/studies/nobody/journal",
        "/v1/studies/nobody/promotion",
    ],
)
def test_what_is_unknown_is_not_found(rest: Rest, path: str) -> None:
    started(rest)

    assert rest.ask("GET", path, Scope.VIEWER).status_code == 404


def test_studies_are_filtered(rest: Rest) -> None:
    study_id = started(rest)["id"]

    def ids(query: str) -> list[str]:
        return [each["id"] for each in rest.get(f"/v1/studies?{query}")["items"]]

    assert ids("target=vision") == ids("phase=created") == ids("since=2026-01-05T00:00:00Z") == [study_id]
    assert ids("outcome=promoted") == ids("until=2026-01-05T00:00:00Z") == ids("target=speech") == []


# -- exports -----------------------------------------------------------------------------------------------


def test_every_trial_is_exported_as_csv_that_no_spreadsheet_computes(rest: Rest) -> None:
    study_id = with_trials(rest)

    answer = rest.ask("GET", "/v1/trials.csv", Scope.VIEWER)
    rows = list(csv.DictReader(io.StringIO(answer.text)))

    assert answer.headers["content-type"].startswith("text/csv")
    assert "trials.csv" in answer.headers["content-disposition"]
    assert tuple(rows[0]) == COLUMNS
    assert [(row["study"], row["number"], row["preferred_batch_size"]) for row in rows[:2]] == [
        (study_id, "0", ""),
        (study_id, "1", "4"),
    ]
    assert rows[0]["reason"] == "'=HYPERLINK(1)"


def test_every_trial_is_exported_as_json_lines_as_lists_show_it(rest: Rest) -> None:
    with_trials(rest, 450)

    answer = rest.ask("GET", "/v1/trials.jsonl?verdict=accept", Scope.VIEWER)
    lines = [json.loads(line) for line in answer.text.splitlines()]

    assert [line["number"] for line in lines] == list(range(0, 450, 2))
    assert lines[0] == rest.get("/v1/trials?descending=false&limit=1")["items"][0]


def test_an_export_of_nothing_has_its_head(rest: Rest) -> None:
    assert rest.ask("GET", "/v1/trials.csv", Scope.VIEWER).text == ",".join(COLUMNS) + "\n"
    assert rest.ask("GET", "/v1/trials.jsonl", Scope.VIEWER).text == ""


def test_an_export_that_cannot_begin_is_a_problem_and_no_empty_file(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("postgres", "connection refused")

    monkeypatch.setattr(rest.application.catalogue, "every_trial", away)

    assert rest.ask("GET", "/v1/trials.csv", Scope.VIEWER).status_code == 503


# -- journal and events ------------------------------------------------------------------------------------


def test_the_journal_of_a_study_comes_in_pages(rest: Rest) -> None:
    study_id = started(rest)["id"]
    for _ in range(3):
        moved(rest, study_id)

    first = rest.get(f"/v1/studies/{study_id}/journal?limit=2")
    second = rest.get(f"/v1/studies/{study_id}/journal?limit=2&cursor={first['next_cursor']}")

    assert [each["sequence"] for each in first["items"] + second["items"]] == [1, 2, 3]
    assert second["next_cursor"] is None


def parsed(text: str) -> list[dict[str, Any]]:
    """Server-sent events as objects; comments are left out."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            events.append({**fields, "data": json.loads(fields["data"])})
    return events


def test_the_events_of_an_ended_study_are_its_journal_and_its_end(rest: Rest) -> None:
    study_id = started(rest)["id"]
    moved(rest, study_id)
    study = rest.application.store.study(study_id)
    append(rest.application.store, study, ended(study), a_grant(rest))

    answer = rest.ask("GET", f"/v1/studies/{study_id}/events", Scope.VIEWER)
    resumed = rest.ask("GET", f"/v1/studies/{study_id}/events", Scope.VIEWER, headers={"Last-Event-ID": "1"})

    events = parsed(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [(each["event"], each.get("id")) for each in events] == [
        ("progress", "1"),
        ("progress", "2"),
        ("ended", None),
    ]
    assert events[-1]["data"] == {"outcome": "kept", "reason": "nothing better"}
    assert [each.get("id") for each in parsed(resumed.text)] == ["2", None]


class Fragile(MemoryCatalogue):
    """A catalogue that does not answer once when it is away."""

    away = False

    def standing(self, study_id: str) -> StudyStanding:
        """Return a study, unless it is away."""
        if self.away:
            self.away = False
            raise Unavailable("postgres", "no route to postgresql://me:s3cret@host")
        return super().standing(study_id)


class Watched:
    """A study in a store, and a stream of it whose pauses are counted; at each pause something may happen."""

    def __init__(self, *happenings: str) -> None:
        self.store = MemoryStore()
        budget = self.store.save_target(a_target(), a_budget(), "operator", "", START)
        self.study = a_study(plan=a_plan(slo=budget))
        self.store.create_study(self.study)
        self.catalogue = Fragile(self.store.memory)
        grant = MemoryLeases(self.store, ManualClock()).acquire("vision", "worker-1", timedelta(hours=1))
        assert grant is not None
        self.grant = grant
        self.happenings = list(happenings)
        self.pauses = 0
        self.revoked = False

    async def pause(self, _seconds: float) -> None:
        self.pauses += 1
        if self.happenings:
            getattr(self, self.happenings.pop(0))()

    def nothing(self) -> None: ...

    def step(self) -> None:
        self.study = append(self.store, self.study, decided(self.study), self.grant)

    def many_steps(self) -> None:
        for _ in range(2 * BATCH):
            self.step()

    def end(self) -> None:
        self.study = append(self.store, self.study, ended(self.study), self.grant)

    def fail(self) -> None:
        self.catalogue.away = True

    def revoke(self) -> None:
        self.revoked = True

    def admitted_still(self) -> None:
        if self.revoked:
            raise Unauthenticated("the token was revoked")

    def told(self, after: int = 0) -> str:
        async def read() -> str:
            stream = Stream(self.catalogue, self.study.id, after, self.pause, self.admitted_still)
            return "".join([event async for event in stream.events()])

        return asyncio.run(read())


def test_a_stream_tells_each_step_as_it_comes_and_ends_with_the_study() -> None:
    watched = Watched("step", "nothing", "step", "end")

    events = parsed(watched.told())

    assert [(each["event"], each.get("id")) for each in events] == [
        ("progress", "1"),
        ("progress", "2"),
        ("progress", "3"),
        ("ended", None),
    ]
    assert watched.pauses == 4


def test_a_stream_that_is_far_behind_catches_up_without_pausing() -> None:
    watched = Watched("many_steps", "end")

    events = parsed(watched.told())

    assert [each.get("id") for each in events] == [*map(str, range(1, 2 * BATCH + 2)), None]
    assert watched.pauses == 2


def test_a_silent_stream_says_that_it_lives() -> None:
    watched = Watched(*["nothing"] * (2 * HEARTBEAT_LOOKS), "end")

    assert watched.told().count(": still here\n\n") == 2


def test_a_stream_survives_a_database_that_is_away_and_shows_no_password() -> None:
    watched = Watched("fail", "step", "end")

    text = watched.told()

    assert [each["event"] for each in parsed(text)] == ["unavailable", "progress", "progress", "ended"]
    assert "s3cret" not in text


def test_a_stream_ends_with_the_token_it_was_opened_with() -> None:
    events = parsed(Watched("step", "revoke", "step").told())

    assert [each["event"] for each in events] == ["progress", "refused"]
    assert "the token was revoked" in events[-1]["data"]["detail"]


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_client_whose_token_ends_hears_no_more(
    rest: Rest, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id = started(rest)["id"]
    app = rest.application
    token, secret = issue_token(
        app.tokens, app.clock, Wanted("eve", (Scope.VIEWER,), timedelta(hours=1)), "x"
    )

    def ending(*_: object) -> tuple[Progress, ...]:
        if how == "revoked":
            app.tokens.revoke(token.id, "tester", "lost", app.clock.now())
        else:
            rest.terminal.clock.advance(timedelta(hours=2))
        return ()

    monkeypatch.setattr("api.routes.events.LOOK_SECONDS", 0.0)
    monkeypatch.setattr(app.catalogue, "progress", ending)
    answer = rest.ask(
        "GET", f"/v1/studies/{study_id}/events", None, headers={"Authorization": f"Bearer {secret}"}
    )

    (last,) = parsed(answer.text)
    assert (last["event"], last["data"]["type"]) == ("refused", "urn:autotuner:problem:unauthenticated")


def test_streams_are_counted_and_bounded() -> None:
    instruments = Instruments()
    seats = Seats(1, instruments.streams)

    seats.check()
    with seats.one():
        assert "autotuner_event_streams 1.0" in instruments.page().decode()
        with pytest.raises(Exception, match="ask again in 10 s"):
            seats.check()
    seats.check()
    assert seats.taken == 0


# -- audit -------------------------------------------------------------------------------------------------


def test_every_write_carries_its_actor_into_the_audit(rest: Rest) -> None:
    study_id = started(rest)["id"]
    rest.ask("POST", f"/v1/studies/{study_id}/pause", Scope.ADMIN)

    told = rest.get("/v1/audit?limit=4")["items"]

    of_targets = rest.get("/v1/audit?subject=vision")["items"]
    assert [(each["action"], each["actor"]) for each in told if each["subject"] == study_id] == [
        ("wish_set", "admin"),
        ("study_started", "operator"),
    ]
    assert {each["actor"] for each in of_targets} == {"operator"}


def test_the_audit_is_filtered(rest: Rest) -> None:
    study_id = started(rest)["id"]

    assert [each["subject"] for each in rest.get("/v1/audit?action=study_started")["items"]] == [study_id]
    assert rest.get("/v1/audit?actor=nobody")["items"] == []
    assert rest.ask("GET", "/v1/audit?action=invented", Scope.VIEWER).status_code == 422


def test_a_whole_audit_verifies_and_a_changed_one_shows(rest: Rest) -> None:
    started(rest)
    whole = rest.get("/v1/audit/verification")
    chain = rest.terminal.store.memory.audit
    chain[1] = replace(chain[1], record=replace(chain[1].record, actor="somebody else"))

    assert whole == {"intact": True, "first_broken": None}
    assert rest.get("/v1/audit/verification") == {"intact": False, "first_broken": 2}


def test_one_verification_runs_at_a_time(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []

    def verifying() -> None:
        inside.append(rest.ask("GET", "/v1/audit/verification", Scope.VIEWER).status_code)

    monkeypatch.setattr(rest.application.store, "first_broken_audit", verifying)

    assert rest.get("/v1/audit/verification")["intact"] is True
    assert inside == [503]
