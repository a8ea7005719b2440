"""Who sees which page: the table of page and scope, sessions, forms of other sites, and what every page forbids."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from api.app import pages
from api.guard import KNOWN_FOR
from api.scopes import Rule
from api.ui.rules import PAGES
from api.ui.session import COOKIE, LIFE, Sessions
from autotuner.access import revoke_token
from autotuner.domain.access import INCLUDED, Scope
from autotuner.errors import Unauthenticated
from tests.browser import Browser, Document, as_nobody, signed_in
from tests.builders import ManualClock
from tests.rest import Rest, serving

GUARDED = [rule for rule in PAGES if rule.scope is not None]
OPEN = [rule for rule in PAGES if rule.scope is None]
WRITING = [rule for rule in GUARDED if rule.method == "POST"]


@pytest.fixture(scope="module")
def service() -> Iterator[Rest]:
    """The service over an empty store, for tests that change nothing in it."""
    with serving() as made:
        yield made


@pytest.fixture
def shared(service: Rest) -> Rest:
    """The same service, and a browser that has been nowhere yet."""
    service.client.cookies.clear()
    return service


def path_of(rule: Rule) -> str:
    known = {"name": "vision", "study_id": "latest", "number": "1", "asset": "ui.css"}
    known["wish"] = "approve" if "/decide/" in rule.path else "pause"
    return rule.path.format(**known)


def named(rule: Rule) -> str:
    return f"{rule.method} {rule.path}"


def test_every_page_has_a_rule_and_every_rule_a_page() -> None:
    assert sorted(pages()) == sorted((rule.method, rule.path) for rule in PAGES)


def test_only_the_entrance_is_open() -> None:
    assert {rule.path for rule in OPEN} == {"/", "/ui", "/ui/static/{asset}", "/ui/sign-in", "/ui/sign-out"}


@pytest.mark.parametrize("rule", GUARDED, ids=named)
@pytest.mark.parametrize("scope", Scope)
def test_a_page_opens_to_the_scopes_that_include_its_own_and_to_no_other(
    shared: Rest, rule: Rule, scope: Scope
) -> None:
    browser = signed_in(shared, scope)

    answer = browser.ask(rule.method, path_of(rule))

    assert rule.scope is not None
    refused = answer.status_code == 403 and f"needs the scope {rule.scope}" in answer.text
    assert refused is (rule.scope not in INCLUDED[scope])


@pytest.mark.parametrize("rule", GUARDED, ids=named)
def test_nobody_sees_or_writes_anything_without_a_session(shared: Rest, rule: Rule) -> None:
    answer = Browser(shared, None).ask(rule.method, path_of(rule))

    if rule.method == "GET":
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/ui/sign-in?next=%2Fui%2F")
    else:
        assert answer.status_code == 401


@pytest.mark.parametrize("rule", GUARDED, ids=named)
def test_a_bearer_token_opens_no_page(shared: Rest, rule: Rule) -> None:
    answer = shared.ask(rule.method, path_of(rule), Scope.ADMIN, follow_redirects=False)

    assert answer.status_code in (303, 401)


def test_a_session_opens_nothing_of_the_rest_api(rest: Rest) -> None:
    browser = signed_in(rest)
    browser.rest.client.cookies.set(COOKIE, browser.rest.client.cookies[COOKIE], path="/")

    assert browser.ask("GET", "/v1/me").status_code == 401


@pytest.mark.parametrize("rule", WRITING, ids=named)
def test_every_write_needs_the_token_of_a_form_of_its_own_session(shared: Rest, rule: Rule) -> None:
    browser = signed_in(shared)

    without = browser.ask("POST", path_of(rule), data={"reason": "x"})
    forged = browser.ask("POST", path_of(rule), data={"reason": "x", "form_token": "0" * 64})

    assert (without.status_code, forged.status_code) == (403, 403)
    assert "not of your session" in forged.text


@pytest.mark.parametrize("rule", [r for r in PAGES if r.method == "POST"], ids=named)
@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}],
)
def test_no_page_of_another_site_can_write(shared: Rest, rule: Rule, headers: dict[str, str]) -> None:
    browser = signed_in(shared)

    answer = browser.ask("POST", path_of(rule), data={}, headers=headers)

    assert answer.status_code == 403
    assert "another site" in answer.text


def test_a_session_is_kept_from_scripts_other_sites_and_other_paths(rest: Rest) -> None:
    answer = rest.client.post(
        "/ui/sign-in", data={"token": rest.secrets[Scope.VIEWER]}, follow_redirects=False
    )

    cookie = answer.headers["set-cookie"]
    assert answer.headers["location"] == "/ui/targets"
    assert {"HttpOnly", "Path=/ui", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert "Secure" not in cookie
    assert rest.secrets[Scope.VIEWER] not in cookie


def test_a_session_over_tls_is_for_tls_alone(rest: Rest) -> None:
    rest.client.base_url = "https://testserver"
    answer = rest.client.post(
        "/ui/sign-in", data={"token": rest.secrets[Scope.VIEWER]}, follow_redirects=False
    )

    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("wanted", "led_to"),
    [
        ("/ui/audit?actor=anna", "/ui/audit?actor=anna"),
        ("https://evil.example/", "/ui/targets"),
        ("//evil.example/ui/", "/ui/targets"),
        ("/ui/../v1/me", "/ui/targets"),
        ("/ui//evil.example", "/ui/targets"),
        ("/v1/me", "/ui/targets"),
        ("/ui/x\r\nSet-Cookie: a=b", "/ui/targets"),
    ],
)
def test_signing_in_leads_to_pages_of_ours_alone(shared: Rest, wanted: str, led_to: str) -> None:
    answer = shared.client.post(
        "/ui/sign-in",
        data={"token": shared.secrets[Scope.VIEWER], "next": wanted},
        follow_redirects=False,
    )

    assert answer.headers["location"] == led_to


def test_an_unknown_token_is_refused_and_not_repeated(rest: Rest) -> None:
    answer = rest.client.post("/ui/sign-in", data={"token": "autotuner_not-one-of-ours"})

    assert answer.status_code == 401
    assert "the token is unknown" in answer.text
    assert "not-one-of-ours" not in answer.text


def test_guessing_tokens_at_the_entrance_is_limited() -> None:
    with serving(api_failures_per_minute=20) as rest:
        statuses = [
            rest.client.post("/ui/sign-in", data={"token": f"guess {n}"}).status_code for n in range(4)
        ]

    assert statuses == [401, 401, 429, 429]


def test_a_session_ends_with_its_token(rest: Rest) -> None:
    browser = signed_in(rest, Scope.VIEWER)
    assert browser.ask("GET", "/ui/targets").status_code == 200
    token = next(each for each in rest.application.tokens.newest() if each.actor == "viewer")

    revoke_token(rest.application.tokens, rest.application.clock, token.id, "bob", "")
    rest.terminal.clock.advance(KNOWN_FOR)

    assert browser.ask("GET", "/ui/targets").status_code == 303


def test_a_session_ends_after_a_working_day(rest: Rest) -> None:
    browser = signed_in(rest)
    rest.terminal.clock.advance(LIFE - timedelta(seconds=1))
    assert browser.ask("GET", "/ui/targets").status_code == 200
    rest.terminal.clock.advance(timedelta(seconds=2))

    assert browser.ask("GET", "/ui/targets").status_code == 303


def test_signing_out_ends_the_session_in_this_browser(rest: Rest) -> None:
    browser = signed_in(rest)

    answer = browser.fill("/ui/targets", "/ui/sign-out")

    assert answer.headers["location"] == "/ui/sign-in"
    assert browser.ask("GET", "/ui/targets").status_code == 303


def test_sessions_are_opened_by_who_has_the_key_and_by_nobody_else() -> None:
    clock = ManualClock()
    mine, same, other = Sessions(clock, "k" * 32), Sessions(clock, "k" * 32), Sessions(clock)
    sealed = mine.seal("a token")
    scope = {"type": "http", "headers": [(b"cookie", f"{COOKIE}={sealed}".encode())]}

    assert same.credential(scope) == "a token"
    assert same.form_token(scope) == mine.form_token(scope) != other.form_token(scope)
    with pytest.raises(Unauthenticated, match="sign in again"):
        other.credential(scope)
    assert "k" * 32 not in repr(mine)


@pytest.mark.parametrize("cookie", ["", "x", "å", "a" * 5000, "gAAAAA=="])
def test_a_cookie_that_is_no_session_is_none(shared: Rest, cookie: str) -> None:
    answer = shared.client.get(
        "/ui/targets", headers=[(b"Cookie", f"{COOKIE}={cookie}".encode("latin-1"))], follow_redirects=False
    )

    assert answer.status_code == 303


def test_a_token_too_long_for_a_cookie_is_refused_with_what_to_do(rest: Rest) -> None:
    sessions = Sessions(rest.application.clock)

    with pytest.raises(Exception, match="autotuner token create"):
        sessions.seal("x" * 4000)


@pytest.mark.parametrize(
    "path", ["/ui/sign-in", "/ui/targets", "/ui/nowhere", "/ui/targets/unknown", "/ui/audit"]
)
def test_every_page_lets_no_script_or_style_run_that_is_not_a_file_of_ours(shared: Rest, path: str) -> None:
    browser = signed_in(shared)

    answer = browser.ask("GET", path)

    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Cache-Control"] == "no-store"
    document = Document(answer.text)
    for tag, told in document.tags:
        assert tag != "style"
        assert not [name for name in told if name.startswith("on") or name == "style"], (tag, told)
        if tag == "script":
            assert str(told["src"]).startswith("/ui/static/")


def test_files_are_served_under_an_address_that_changes_with_them(rest: Rest) -> None:
    document = Browser(rest, None).open("/ui/sign-in")
    sheets = [str(told["href"]) for tag, told in document.tags if tag == "link" and "stylesheet" in str(told)]

    assert len(sheets) == 2
    for address in sheets:
        answer = rest.client.get(address)
        assert "?v=" in address
        assert answer.headers["content-type"].startswith("text/css")
        assert "immutable" in answer.headers["Cache-Control"]
    assert rest.client.get("/ui/static/README.md").status_code == 404
    assert rest.client.get("/ui/static/..%2Frules.py").status_code == 404


def test_no_page_names_another_host(rest: Rest) -> None:
    browser = signed_in(rest)
    for path in ("/ui/sign-in", "/ui/targets", "/ui/studies", "/ui/schedules", "/ui/audit"):
        for _tag, told in browser.open(path).tags:
            loaded = [str(told.get(name) or "") for name in ("src", "href", "action", "hx-get")]
            assert [address for address in loaded if "//" in address] == []


def test_what_is_wrong_is_said_with_what_to_do(rest: Rest) -> None:
    browser = signed_in(rest)

    unknown = browser.open("/ui/targets/unknown", 404)
    nowhere = browser.open("/ui/nowhere", 404)

    assert "no target is known as 'unknown'" in unknown.text
    assert "What to do:" in unknown.text
    assert "Check the address" in nowhere.text


def test_who_comes_by_a_link_of_another_site_can_go_on(rest: Rest) -> None:
    with as_nobody(rest) as browser:
        page = browser.open("/ui/sign-in?next=%2Fui%2Faudit")

    assert "/ui/audit" in page.addresses


def test_a_page_that_asks_for_news_is_led_to_the_entrance_when_its_session_has_ended(rest: Rest) -> None:
    answer = Browser(rest, None).ask("GET", "/ui/studies/latest/live", headers={"HX-Request": "true"})

    assert (answer.status_code, answer.headers["HX-Redirect"]) == (401, "/ui/sign-in")


def test_the_secret_of_a_session_is_in_no_page_and_no_log(
    rest: Rest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    browser = signed_in(rest)
    secret, cookie = rest.secrets[Scope.ADMIN], rest.client.cookies[COOKIE]

    shown = [browser.ask("GET", path).text for path in ("/ui/targets", "/ui/audit", "/ui/nowhere")]

    for text in [*shown, caplog.text]:
        assert secret not in text
        assert cookie not in text
