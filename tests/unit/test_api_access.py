"""Who is let through: the table of route and scope, tokens, and how often somebody may ask."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.app import routes
from api.guard import KNOWN_FOR, MOST_KNOWN, Known
from api.scopes import RULES, Rule, RuleBook
from autotuner.access import revoke_token
from autotuner.domain.access import INCLUDED, Identity, Scope, Token
from autotuner.errors import NotFound, Unavailable
from tests.builders import ManualClock
from tests.rest import Rest, a_secret, serving

GUARDED = [rule for rule in RULES if rule.scope is not None]
OPEN = [rule for rule in RULES if rule.scope is None]


def path_of(rule: Rule) -> str:
    return rule.path.replace("{name}", "vision").replace("{study_id}", "latest").replace("{number}", "0")


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    assert sorted(routes()) == sorted((rule.method, rule.path) for rule in RULES)


def test_a_route_without_a_rule_keeps_the_service_from_starting() -> None:
    book = RuleBook([Rule("GET", "/healthz", None)])

    with pytest.raises(LookupError, match="/v1/secret"):
        book.check_complete([("GET", "/healthz"), ("GET", "/v1/secret")])


@pytest.mark.parametrize("rule", GUARDED, ids=lambda rule: f"{rule.method} {rule.path}")
@pytest.mark.parametrize("scope", Scope)
def test_a_route_opens_to_the_scopes_that_include_its_own_and_to_no_other(
    rest: Rest, rule: Rule, scope: Scope
) -> None:
    answer = rest.ask(rule.method, path_of(rule), scope)

    assert rule.scope is not None
    if rule.scope in INCLUDED[scope]:
        assert answer.status_code not in (401, 403)
    else:
        assert answer.status_code == 403
        assert answer.json()["type"] == "urn:autotuner:problem:forbidden"
        assert rule.scope.value in answer.json()["detail"]


@pytest.mark.parametrize("rule", GUARDED, ids=lambda rule: f"{rule.method} {rule.path}")
def test_nobody_passes_without_a_token_whatever_is_sent(rest: Rest, rule: Rule) -> None:
    answer = rest.client.request(rule.method, path_of(rule), content=b"{not json")

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("rule", OPEN, ids=lambda rule: f"{rule.method} {rule.path}")
def test_open_routes_ask_nothing(rest: Rest, rule: Rule) -> None:
    assert rest.client.request(rule.method, rule.path).status_code == 200


def test_only_what_says_nothing_of_targets_is_open() -> None:
    assert [rule.path for rule in OPEN] == ["/healthz", "/readyz", "/v1/openapi.json"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic YTpi",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Bearer autotuner_short",
        f"Bearer {'x' * 20_000}",
    ],
)
def test_what_is_no_token_of_ours_is_refused_and_not_repeated(rest: Rest, header: str) -> None:
    answer = rest.client.get("/v1/me", headers={"Authorization": header} if header else {})

    assert answer.status_code == 401
    assert (
        header.removeprefix("Bearer ").strip() in ("", "Basic YTpi", "Bearer")
        or "nonsense" not in answer.text
    )


def test_the_caller_is_told_who_they_are(rest: Rest) -> None:
    told = rest.get("/v1/me", Scope.OPERATOR)

    assert (told["actor"], told["scopes"]) == ("operator", ["operator"])
    assert told["source"].startswith("token ")


def test_a_token_works_until_it_expires(rest: Rest) -> None:
    secret = a_secret(rest.application, "anna", Scope.VIEWER, days=1)
    headers = {"Authorization": f"bearer {secret}"}

    rest.terminal.clock.advance(timedelta(hours=23))
    assert rest.client.get("/v1/me", headers=headers).status_code == 200
    rest.terminal.clock.advance(timedelta(hours=1))
    late = rest.client.get("/v1/me", headers=headers)

    assert late.status_code == 401
    assert late.json()["detail"] == "not authenticated: the token has expired"


def test_a_token_works_until_it_is_revoked(rest: Rest) -> None:
    headers = {"Authorization": f"Bearer {a_secret(rest.application, 'anna', Scope.VIEWER)}"}
    assert rest.client.get("/v1/me", headers=headers).status_code == 200
    newest = next(each for each in rest.application.tokens.newest() if each.actor == "anna")

    revoke_token(rest.application.tokens, rest.application.clock, newest.id, "bob", "")
    rest.terminal.clock.advance(KNOWN_FOR)

    answer = rest.client.get("/v1/me", headers=headers)
    assert answer.json()["detail"] == "not authenticated: the token was revoked"


def test_who_was_let_in_is_let_in_again_for_a_moment_without_the_database(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    found = rest.application.tokens.by_digest

    def counted(digest: str) -> Token | None:
        asked.append(digest)
        return found(digest)

    monkeypatch.setattr(rest.application.tokens, "by_digest", counted)
    for seconds in (0.0, 1.9, 0.2, 0.0):
        rest.terminal.clock.advance(timedelta(seconds=seconds))
        assert rest.ask("GET", "/v1/me", Scope.VIEWER).status_code == 200

    assert len(asked) == 2


def test_those_who_were_let_in_are_remembered_in_bounds() -> None:
    known = Known(ManualClock())
    for number in range(MOST_KNOWN + 1):
        known.keep(str(number), Identity(str(number), frozenset(), "test"))

    last = known.find(str(MOST_KNOWN))
    assert known.find("0") is None
    assert last is not None
    assert last.actor == str(MOST_KNOWN)


def test_the_last_use_is_noticed_to_the_minute(rest: Rest) -> None:
    secret = a_secret(rest.application, "anna", Scope.VIEWER)
    headers = {"Authorization": f"Bearer {secret}"}
    uses = []
    for seconds in (0, 30, 31):
        rest.terminal.clock.advance(timedelta(seconds=seconds))
        rest.client.get("/v1/me", headers=headers)
        token = next(each for each in rest.application.tokens.newest() if each.actor == "anna")
        uses.append(token.last_used_at)

    assert uses[0] == uses[1]
    assert uses[2] == rest.terminal.clock.now()


def test_an_actor_who_asks_too_often_waits() -> None:
    with serving(api_requests_per_minute=60) as rest:
        allowed = [rest.ask("GET", "/v1/me", Scope.VIEWER).status_code for _ in range(6)]
        refused = rest.ask("GET", "/v1/me", Scope.VIEWER)
        other = rest.ask("GET", "/v1/me", Scope.ADMIN)
        rest.terminal.clock.advance(timedelta(seconds=int(refused.headers["Retry-After"])))
        later = rest.ask("GET", "/v1/me", Scope.VIEWER)

    assert allowed == [200] * 6
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert refused.json()["type"] == "urn:autotuner:problem:too-many-requests"
    assert (other.status_code, later.status_code) == (200, 200)


def test_who_shows_unknown_tokens_too_often_costs_the_database_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = f"Bearer autotuner_{'A' * 43}"
    with serving(api_failures_per_minute=20) as rest:
        first = [rest.client.get("/v1/me", headers={"Authorization": unknown}).status_code for _ in range(2)]

        def unasked(_digest: str) -> None:
            raise AssertionError("the database was asked")

        monkeypatch.setattr(rest.application.tokens, "by_digest", unasked)
        answer = rest.client.get("/v1/me", headers={"Authorization": unknown})

    assert first == [401, 401]
    assert answer.status_code == 429


def test_a_database_that_does_not_answer_is_no_refusal_of_the_token(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_digest: str) -> None:
        raise Unavailable("postgres", "connection refused")

    monkeypatch.setattr(rest.application.tokens, "by_digest", away)

    answer = rest.ask("GET", "/v1/me")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


def test_the_book_of_rules_knows_paths_and_methods() -> None:
    book = RuleBook([Rule("GET", "/v1/targets/{name}", Scope.VIEWER)])

    assert book.rule_for("GET", "/v1/targets/vision").scope is Scope.VIEWER
    with pytest.raises(NotFound):
        book.rule_for("GET", "/v1/targets/vision/more")
