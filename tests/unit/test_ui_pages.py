"""What the pages of the web UI show and do: targets, budgets, studies, trials, nights, promotions and the audit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from api.ui.pages import targets as target_pages
from api.ui.rendering import sentence
from api.ui.studyview import MOST_DRAWN
from autotuner.adapters.memory_store import MemoryLeases, MemoryStore
from autotuner.domain.access import Scope
from autotuner.domain.study import Outcome, Phase, Study, TrialKind, Wish
from tests.browser import Browser, signed_in
from tests.builders import ManualClock
from tests.closed_loop.test_rollback import promoted
from tests.command_line import TARGET, Terminal
from tests.rest import Rest, a_secret, serving
from tests.studies import TTL, a_fast_step, a_rich_study, a_step, a_trial, append, ended, judged

BUDGET = "/ui/targets/vision/slo-budget"
SCHEDULE = "/ui/targets/vision/schedule"


@pytest.fixture
def rest() -> Iterator[Rest]:
    """The service over a store that holds everything as JSON, and one registered target."""
    with serving(Terminal(store=MemoryStore())) as made:
        answer = made.ask("POST", "/v1/targets", Scope.OPERATOR, json=TARGET)
        assert answer.status_code == 201
        yield made


@pytest.fixture
def browser(rest: Rest) -> Browser:
    return signed_in(rest)


def a_recorded_study(rest: Rest, **changes: object) -> Study:
    """A study of the target with every part filled, as its worker would have left it."""
    store = rest.application.store
    study = a_rich_study(rest.application.registry.registration("vision").slo, **changes)
    bare = replace(study, trials=(), phase=Phase.SEARCH, outcome=None, ended_at=None)
    store.create_study(bare)
    grant = MemoryLeases(rest.terminal.store, ManualClock()).acquire("vision", "worker-1", TTL)
    assert grant is not None
    return append(store, bare, study, grant)


# -- targets


def test_without_a_target_the_first_page_says_what_to_type() -> None:
    with serving() as rest:
        page = signed_in(rest).open("/ui/targets")

    assert "No target is registered yet" in page.text
    assert "autotuner target apply target.yaml" in page.text
    assert "make serve" in page.text


def test_a_target_is_shown_at_a_glance(rest: Rest, browser: Browser) -> None:
    new = browser.open("/ui/targets").text
    a_recorded_study(rest, trials=(judged(a_trial(0, kind=TrialKind.PRODUCTION)),))
    tuned = browser.open("/ui/targets").text

    assert "vision idle SLO budget p99 ≤ 100 ms" in new
    assert "none yet" in new
    assert "no schedule: set one" in new
    assert "vision tuning So far so good." in tuned
    assert "delay 5 ms, preferred 4+8, 2 instances" in tuned


def test_targets_come_page_by_page(rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_pages, "ON_A_PAGE", 2)
    for name in ("a", "b"):
        rest.ask("POST", "/v1/targets", json={**TARGET, "name": name})

    first = browser.open("/ui/targets")
    following = next(address for address in first.addresses if "cursor=" in address)
    second = browser.open(f"/ui/targets{following}")

    assert ["/ui/targets/a" in page.addresses for page in (first, second)] == [True, False]
    assert ["/ui/targets/vision" in page.addresses for page in (first, second)] == [False, True]


def test_a_retired_target_and_a_frozen_one_say_so(rest: Rest, browser: Browser) -> None:
    now = rest.application.clock.now()
    until = (now + timedelta(days=1)).isoformat()
    freeze = {"begins_at": now.isoformat(), "ends_at": until, "reason": "the holidays"}
    rest.ask("POST", "/v1/freezes", json=freeze)
    frozen = browser.open("/ui/targets/vision").text
    rest.ask("POST", "/v1/line/stop", json={"reason": "incident 4711"})
    stopped = browser.open("/ui/targets").text

    assert re.search(r"vision frozen .*the holidays", frozen)
    assert "The line is stopped" in stopped
    assert "incident 4711" in stopped


def test_the_connections_of_a_target_are_checked_on_demand(browser: Browser) -> None:
    answer = browser.fill("/ui/targets/vision", "/ui/targets/vision/check")

    assert answer.status_code == 200
    assert "Everything that a study reads can be read" in answer.text


def test_a_target_is_diagnosed_on_demand(browser: Browser) -> None:
    page = browser.open("/ui/targets/vision/diagnosis")

    assert "Findings, most important first" in page.text
    assert "What to do:" in page.text
    assert "Where a request’s time goes" in page.text
    assert "Whether a study could run" in page.text


def test_the_history_of_a_target_tells_studies_promotions_and_budgets(rest: Rest, browser: Browser) -> None:
    browser.fill(BUDGET, BUDGET, p99_ms="90")
    trials = (
        judged(a_trial(0, kind=TrialKind.BASELINE)),
        judged(a_trial(1)),
        judged(a_trial(2, kind=TrialKind.CONFIRMATION)),
    )
    study = a_recorded_study(
        rest, **vars(ended(a_rich_study(trials=trials), Outcome.PROMOTED)) | {"plan": plan_of(rest)}
    )

    page = browser.open("/ui/targets/vision")

    assert "SLO budget, version 2 p99 ceiling 90 ms, by admin." in page.text
    assert "Promoted: delay 5 ms" in page.text
    assert "Capacity of vision over time" in page.text
    assert page.addresses.count(f"/ui/studies/{study.id}") >= 3


def plan_of(rest: Rest):  # type: ignore[no-untyped-def]
    """The plan of a rich study under the budget in force."""
    return a_rich_study(rest.application.registry.registration("vision").slo).plan


# -- budgets


def test_a_new_version_of_a_budget_is_made_from_the_one_that_was_read(rest: Rest, browser: Browser) -> None:
    answer = browser.fill(BUDGET, BUDGET, p99_ms="80", reason="agreed")

    slo = rest.application.registry.registration("vision").slo
    assert (answer.status_code, answer.headers["location"]) == (303, BUDGET)
    assert (slo.version, slo.p99_ceiling_seconds, slo.actor, slo.reason) == (2, 0.08, "admin", "agreed")
    page = browser.open(BUDGET)
    assert "version 2 in force" in page.text
    assert "admin" in page.text
    assert page.form(BUDGET).fields["p99_ms"] == "80"


def test_a_budget_that_somebody_changed_meanwhile_is_not_overwritten(rest: Rest, browser: Browser) -> None:
    form = browser.open(BUDGET).form(BUDGET)
    rest.ask(
        "PUT",
        "/v1/targets/vision/slo-budget",
        json={**TARGET["slo"], "p99_ms": 70},
        headers={"If-Match": '"1"'},
    )

    answer = browser.send(form, p99_ms="60")

    assert answer.status_code == 412
    assert "Somebody changed it" in answer.text
    assert rest.application.registry.registration("vision").slo.p99_ceiling_seconds == 0.07


def test_loosening_needs_a_reason_and_is_marked(rest: Rest, browser: Browser) -> None:
    refused = browser.fill(BUDGET, BUDGET, p99_ms="200")
    made = browser.fill(BUDGET, BUDGET, p99_ms="200", reason="the mobile team agreed")
    page = browser.open(BUDGET)

    assert refused.status_code == 422
    assert "a sentence that says why" in refused.text
    assert 'value="200"' in refused.text
    assert made.status_code == 303
    assert "loosened" in page.text
    assert "promises less: p99_ms" in page.text
    assert "the mobile team agreed" in page.text


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("p99_ms", "fast", "milliseconds above 0"),
        ("p99_ms", "-5", "milliseconds above 0"),
        ("max_canary_share", "50", "a fraction, not a percentage: 50 % is 0.5"),
        ("harm_budget_requests", "1.5", "a whole number of requests"),
        ("error_ratio", "", ""),
    ],
)
def test_what_cannot_be_used_is_said_beside_the_field_and_what_was_written_stays(
    browser: Browser, field: str, value: str, allowed: str
) -> None:
    answer = browser.fill(BUDGET, BUDGET, **{field: value, "reason": "because"})

    if value == "":
        assert answer.status_code == 303  # left out: as the file's default has it
        return
    assert answer.status_code == 422
    assert allowed in answer.text
    assert f'aria-describedby="{field}-hint {field}-wrong" aria-invalid="true"' in answer.text
    assert "because</textarea>" in answer.text


def test_who_only_looks_sees_versions_and_no_form(rest: Rest) -> None:
    page = signed_in(rest, Scope.VIEWER).open(BUDGET)

    assert "version 1" in page.text
    assert [form.action for form in page.forms] == ["/ui/sign-out"]


@pytest.mark.parametrize("written", ["٣", "१००", "１２", "1_000", "nan", "0x10"])  # noqa: RUF001 - what people may type
def test_a_ceiling_in_other_digits_is_refused_not_guessed(browser: Browser, written: str) -> None:
    answer = browser.fill(BUDGET, BUDGET, p99_ms=written)

    assert answer.status_code == 422
    assert "p99 ≤ 100 ms" in browser.open("/ui/targets").text


# -- studies


def test_a_study_is_started_once_however_often_the_form_is_sent(rest: Rest, browser: Browser) -> None:
    page = browser.open("/ui/targets/vision/start")
    form = page.form()

    first = browser.send(form, "/ui/targets/vision/start")
    second = browser.send(form, "/ui/targets/vision/start")

    (study,) = rest.application.store.studies()
    kept = rest.application.registry.registration("vision")
    assert first.headers["location"] == second.headers["location"] == f"/ui/studies/{study.id}"
    assert rest.application.store.study(study.id).plan == kept.defaults.plan(kept.target, kept.slo)
    assert "tries up to 2 configurations" in page.text


def test_a_second_study_is_refused_with_what_to_do(browser: Browser) -> None:
    browser.fill("/ui/targets/vision/start")
    answer = browser.fill("/ui/targets/vision/start")

    assert answer.status_code == 409
    assert "What to do:" in answer.text


def test_a_running_study_shows_its_ramp_its_verdicts_and_points_that_open_trials(
    rest: Rest, browser: Browser
) -> None:
    study = a_recorded_study(rest, winner=None)

    page = browser.open(f"/ui/studies/{study.id}")

    assert "The trial under way: #1, candidate" in page.text
    assert "33.3 % ACCEPT" in page.text
    assert "50 % now 107 requests so far" in page.text
    assert f"/ui/studies/{study.id}/trials/0" in page.addresses
    points = [told for tag, told in page.tags if tag == "a" and told.get("class") == "point"]
    assert {told["href"] for told in points} == {f"/ui/studies/{study.id}/trials/{n}" for n in (0, 1)}
    assert all(told["aria-label"] for told in points)
    assert "So far so good" in page.text
    assert any(tag == "script" for tag, _ in page.tags)


def test_the_live_part_is_sent_again_only_when_something_happened(rest: Rest, browser: Browser) -> None:
    study = a_recorded_study(rest, winner=None)
    page = browser.open(f"/ui/studies/{study.id}")
    live = next(str(told["hx-get"]) for _, told in page.tags if "hx-get" in told)

    quiet = browser.ask("GET", live)
    news = browser.ask("GET", live.replace("seen=1", "seen=0"))

    assert quiet.status_code == 204
    assert news.status_code == 200
    assert news.text.lstrip().startswith('<div id="live"')


def test_an_ended_study_asks_for_nothing_more_and_says_why_it_ended_so(rest: Rest, browser: Browser) -> None:
    study = a_recorded_study(
        rest,
        phase=Phase.ENDED,
        outcome=Outcome.KEPT,
        reason="nothing better",
        pending=None,
        winner=None,
        trials=(judged(a_trial(0, kind=TrialKind.BASELINE)),),
    )

    page = browser.open(f"/ui/studies/{study.id}")
    live = browser.ask("GET", f"/ui/studies/{study.id}/live?seen=0")
    events = browser.ask("GET", f"/ui/studies/{study.id}/events?seen=0")

    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.text.splitlines()[-3] == "event: ended"
    assert "Why was the incumbent kept? Nothing better." in page.text
    assert not [told for _, told in page.tags if "hx-get" in told]
    assert (live.status_code, live.headers["HX-Refresh"]) == (204, "true")


def test_a_study_too_large_for_one_page_is_listed_instead_of_drawn(rest: Rest, browser: Browser) -> None:
    trials = tuple(judged(a_trial(number)) for number in range(MOST_DRAWN + 1))
    study = a_recorded_study(rest, trials=trials, winner=None)

    page = browser.open(f"/ui/studies/{study.id}")

    assert "too many for a chart on one page" in page.text
    assert f"/ui/trials?study={study.id}" in page.addresses
    assert len([address for address in page.addresses if "/trials/" in address]) == 50


@pytest.mark.parametrize("wish", ["pause", "cancel"])
def test_what_is_asked_of_a_study_is_confirmed_first_and_recorded_with_its_reason(
    rest: Rest, browser: Browser, wish: str
) -> None:
    study = a_recorded_study(rest)
    address = f"/ui/studies/{study.id}/ask/{wish}"

    answer = browser.fill(address, reason="sale until noon")

    assert answer.headers["location"] == f"/ui/studies/{study.id}"
    assert rest.application.store.wish(study.id) is Wish(wish)
    newest = rest.application.store.audit(1)[0]
    assert (newest.actor, newest.reason) == ("admin", "sale until noon")
    assert f"Asked: {wish}." in browser.open(f"/ui/studies/{study.id}").text


def test_a_paused_study_can_be_resumed(rest: Rest, browser: Browser) -> None:
    study = a_recorded_study(rest)
    browser.fill(f"/ui/studies/{study.id}/ask/pause")

    assert f"/ui/studies/{study.id}/ask/resume" in browser.open(f"/ui/studies/{study.id}").addresses
    browser.fill(f"/ui/studies/{study.id}/ask/resume")

    assert rest.application.store.wish(study.id) is Wish.RUN


# -- promotions


def waiting(rest: Rest) -> Study:
    return a_recorded_study(
        rest,
        phase=Phase.APPROVAL,
        pending=None,
        trials=(
            judged(a_trial(0, kind=TrialKind.BASELINE)),
            judged(a_trial(1)),
        ),
    )


@pytest.mark.parametrize(("decision", "wish"), [("approve", Wish.APPROVE), ("reject", Wish.DISAPPROVE)])
def test_a_winner_that_waits_is_decided_on_with_confirmation(
    rest: Rest, browser: Browser, decision: str, wish: Wish
) -> None:
    study = waiting(rest)
    address = f"/ui/studies/{study.id}/decide/{decision}"
    listed = browser.open("/ui/promotions")

    assert address in listed.addresses
    page = browser.open(address)
    assert "incumbent" in page.text
    browser.send(page.form(), address, reason="seen in staging")
    assert rest.application.store.wish(study.id) is wish


def test_four_eyes_hold_on_the_page_too(rest: Rest) -> None:
    rest.ask(
        "PUT",
        "/v1/targets/vision",
        json={
            **{k: v for k, v in TARGET.items() if k != "slo"},
            "study": {**TARGET["study"], "four_eyes": True},
        },
        headers={"If-Match": rest.ask("GET", "/v1/targets/vision").headers["ETag"]},
    )
    study = waiting(rest)
    rest.secrets[Scope.APPROVER] = a_secret(rest.application, study.actor, Scope.APPROVER)

    answer = signed_in(rest, Scope.APPROVER).fill(f"/ui/studies/{study.id}/decide/approve")

    assert answer.status_code == 403
    assert "four eyes" in answer.text
    assert rest.application.store.wish(study.id) is Wish.RUN


def test_who_may_not_decide_is_told_who_may(rest: Rest) -> None:
    study = waiting(rest)

    page = signed_in(rest, Scope.OPERATOR).open(f"/ui/studies/{study.id}")

    assert "Somebody with the scope approver decides" in page.text
    assert f"/ui/studies/{study.id}/decide/approve" not in page.addresses


def test_a_promotion_is_certified_listed_with_its_worth_and_taken_back_with_a_reason() -> None:
    loop = promoted()
    row = loop.store.memory.studies[loop.study_id]
    (winner,) = row.study.trials
    confirmed = replace(winner, kind=TrialKind.CONFIRMATION, steps=(a_step(), a_step(1)))
    row.study = replace(row.study, trials=(confirmed,), reference_rate_per_second=300.0)
    terminal = Terminal(store=loop.store)
    terminal.clock, terminal.target = loop.clock, loop.target
    with serving(terminal) as rest:
        browser = signed_in(rest)
        address = f"/ui/studies/{loop.study_id}/ask/rollback"
        assert address in browser.open("/ui/promotions?waiting=false").addresses
        assert "It holds" in browser.open(f"/ui/studies/{loop.study_id}/certificate").text
        assert (
            "2,600 requests slow or failed" in browser.open(f"/ui/studies/{loop.study_id}/certificate").text
        )
        assert f"/ui/studies/{loop.study_id}/certificate" in browser.open("/ui/ledger").addresses
        assert browser.fill(address).status_code == 422
        answer = browser.fill(address, reason="incident 4711")
        loop.study_id = answer.headers["location"].rpartition("/")[2]
        loop.run()

        assert loop.study.outcome is Outcome.ROLLED_BACK
        assert "What was taken back?" in browser.open(answer.headers["location"]).text
        assert "rolled back" in browser.open("/ui/ledger").text
        assert loop.study.plan.reverses is not None
        before = loop.study.plan.reverses.before.configuration.describe()
        assert f"Serves {before}" in browser.open("/ui/targets/vision").text


# -- trials


def test_a_trial_shows_every_count_its_source_and_the_reason(rest: Rest, browser: Browser) -> None:
    study = a_recorded_study(rest)

    page = browser.open(f"/ui/studies/{study.id}/trials/0")

    for told in (
        "1,300 ended, 2 to 3 slow or failed, 1 failed",
        "2,600 ended, 3 to 4 slow or failed",
        "p50 10.0, p95 20.0, p99 30.0 ms",
        "5.00 ms in the queue, 10.0 ms computed",
        "memory 1.00 of 16.0 GB",
        "33.3 % slow or failed",
        "https://127.0.0.1:9090",
        "Promising.",
    ):
        assert told in page.text, told


def test_trials_are_listed_with_filters(rest: Rest, browser: Browser) -> None:
    study = a_recorded_study(rest, trials=(judged(a_trial(0)), a_trial(1)))

    accepted = browser.open("/ui/trials?verdict=accept&kind=&target=vision&sort=&since=").addresses
    nothing = browser.open("/ui/trials?verdict=void").text

    assert f"/ui/studies/{study.id}/trials/0" in accepted
    assert f"/ui/studies/{study.id}/trials/1" not in accepted
    assert "No trial fits" in nothing


def test_a_search_that_makes_no_sense_is_refused_with_the_field(browser: Browser) -> None:
    page = browser.open("/ui/trials?verdict=splendid", 422)

    assert "verdict" in page.text
    assert "What to do:" in page.text


# -- nights


def test_a_schedule_is_set_shown_and_removed(rest: Rest, browser: Browser) -> None:
    suggested = browser.open(SCHEDULE)
    answer = browser.fill(
        SCHEDULE, SCHEDULE, time_zone="Europe/Berlin", jitter="30m", blackout_dates="2026-12-24\n2026-12-25"
    )
    shown = browser.open("/ui/schedules").text
    again = browser.open(SCHEDULE).form(SCHEDULE).fields

    (kept,) = rest.application.nights.schedules()
    assert suggested.form(SCHEDULE).fields["cron"] == "30 2 * * *"
    assert answer.status_code == 303
    assert (kept.cron, kept.time_zone, kept.window, len(kept.blackout_dates)) == (
        "30 2 * * *",
        "Europe/Berlin",
        timedelta(hours=4),
        2,
    )
    assert "30 2 * * * Europe/Berlin" in shown
    assert (again["jitter"], again["blackout_dates"]) == ("30m", "2026-12-24\n2026-12-25")
    assert "paused" not in again
    browser.fill(SCHEDULE, f"{SCHEDULE}/remove")
    assert not rest.application.nights.schedules()


def test_a_schedule_that_somebody_changed_meanwhile_is_not_overwritten(rest: Rest, browser: Browser) -> None:
    unset = browser.open(SCHEDULE).form(SCHEDULE)
    browser.fill(SCHEDULE, SCHEDULE, cron="0 3 * * *")
    form = browser.open(SCHEDULE).form(SCHEDULE)
    browser.fill(SCHEDULE, SCHEDULE, cron="0 4 * * *")

    assert (browser.send(unset).status_code, browser.send(form).status_code) == (409, 412)
    assert rest.application.nights.schedules()[0].cron == "0 4 * * *"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cron", "at night"),
        ("cron", "0 0 30 2 *"),
        ("time_zone", "Mars"),
        ("window", "4"),
        ("blackout_dates", "soon"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_beside_its_field(
    rest: Rest, browser: Browser, field: str, value: str
) -> None:
    answer = browser.fill(SCHEDULE, SCHEDULE, **{field: value})

    assert answer.status_code == 422
    assert "Nothing was changed" in answer.text
    assert value in answer.text
    assert not rest.application.nights.schedules()


def test_a_freeze_is_added_by_the_clock_of_its_zone_and_ended(rest: Rest, browser: Browser) -> None:
    answer = browser.fill(
        "/ui/schedules",
        "/ui/freezes",
        from_date="2026-12-20",
        from_time="18:00",
        until_date="2026-12-27",
        until_time="06:00",
        time_zone="Europe/Berlin",
        reason="the holidays",
    )

    (freeze,) = rest.application.nights.standing(rest.application.clock.now()).freezes
    assert answer.status_code == 303
    assert (freeze.begins_at.isoformat(), freeze.reason) == ("2026-12-20T17:00:00+00:00", "the holidays")
    browser.fill("/ui/schedules", f"/ui/freezes/{freeze.number}/end")
    assert not rest.application.nights.standing(rest.application.clock.now()).freezes


def test_a_freeze_that_ends_before_it_begins_is_refused(rest: Rest, browser: Browser) -> None:
    answer = browser.fill(
        "/ui/schedules", "/ui/freezes", from_date="2026-12-20", until_date="2026-12-19", reason="the holidays"
    )

    assert answer.status_code == 422
    assert "an instant after the freeze begins" in answer.text
    assert not rest.application.nights.standing(rest.application.clock.now()).freezes


def test_the_line_is_stopped_with_a_reason_and_released(rest: Rest, browser: Browser) -> None:
    refused = browser.fill("/ui/line")
    browser.fill("/ui/line", reason="incident 4711")
    stopped = rest.application.nights.standing(rest.application.clock.now()).line

    assert refused.status_code == 422
    assert (stopped.reason, stopped.actor) == ("incident 4711", "admin")
    assert "Release the line?" in browser.open("/ui/line").text
    browser.fill("/ui/line")
    assert rest.application.nights.standing(rest.application.clock.now()).line.stopped_at is None


# -- the audit


def test_the_audit_is_searched_by_actor_object_and_time(rest: Rest, browser: Browser) -> None:
    browser.fill(BUDGET, BUDGET, p99_ms="80")

    mine = browser.open("/ui/audit?actor=admin&subject=&action=&since=&until=").text
    other = browser.open("/ui/audit?actor=nobody").text
    later = browser.open("/ui/audit?since=2099-01-01").text
    set_ = browser.open("/ui/audit?subject=vision&action=budget_set").text

    assert "budget set vision" in mine
    assert "operator" not in mine
    assert "No record fits" in other
    assert "No record fits" in later
    assert "budget set" in set_


def test_the_audits_chain_is_checked_on_demand(rest: Rest, browser: Browser) -> None:
    assert "Intact" in browser.open("/ui/audit/verification").text

    memory = rest.terminal.store.memory
    memory.audit[0] = replace(memory.audit[0], record=replace(memory.audit[0].record, actor="mallory"))

    assert "Broken at record" in browser.open("/ui/audit/verification").text


def test_what_others_wrote_is_shown_as_text(rest: Rest, browser: Browser) -> None:
    browser.fill(BUDGET, BUDGET, p99_ms="200", reason="<script>alert(1)</script>")

    for path in (BUDGET, "/ui/audit", "/ui/targets/vision"):
        answer = browser.ask("GET", path)
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert" in answer.text


def test_the_page_of_a_trial_shows_where_slow_requests_spent_their_time(rest: Rest, browser: Browser) -> None:
    study = a_recorded_study(rest, trials=(judged(a_trial(0)), judged(a_trial(1, steps=(a_fast_step(),)))))

    told = browser.open(f"/ui/studies/{study.id}/trials/0").text
    untold = browser.open(f"/ui/studies/{study.id}/trials/1").text

    assert "Where slow requests spent their time" in told
    assert "Mean time of a slow request by part" in told
    assert "70 % of their time was not inference" in told
    assert "1 of 2 without Triton" in told
    assert "Not known: Tempo: no answer within 2 s." in untold
    assert "Mean time of a slow request by part" not in untold


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ended. The incumbent stays", "Ended. The incumbent stays."),
        ("kept: nothing was better", "Kept: nothing was better."),
        ("config.pbtxt changed", "config.pbtxt changed."),
        ("p99 rose!", "p99 rose!"),
        ("  ", ""),
    ],
)
def test_a_text_begins_and_ends_like_a_sentence_unless_it_begins_with_a_name(text: str, shown: str) -> None:
    assert sentence(text) == shown
