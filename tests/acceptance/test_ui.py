"""The web UI in a real Chromium: a newcomer's whole way by keyboard alone, and what holds for every page.

The service is the real one over a store in memory; the study runs on a simulated target whose clock the test turns.
Without a Chromium these tests are skipped, unless AUTOTUNER_TEST_BROWSER says that there must be one.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from api.server import serve
from autotuner.bootstrap import Application
from autotuner.controller import Controller
from autotuner.domain.access import Scope
from autotuner.domain.configuration import Configuration
from autotuner.domain.study import Outcome, Phase, Study, TrialKind
from tests.acceptance.accessibility import faults_of
from tests.closed_loop.loop import ScriptedProposer
from tests.command_line import TARGET, Terminal
from tests.rest import a_secret, rest_settings

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
REQUIRED = "AUTOTUNER_TEST_BROWSER"
PATIENCE_MS = 10_000
MOST_TABS = 80

WIDTHS = {"wide": 1200, "phone": 360}
SCHEMES = ("light", "dark")


def chromium() -> str:
    """The program of a Chromium on this machine; skips, or fails where one is required, when there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        message = "no Chromium on this machine: apt-get install chromium"
        if os.environ.get(REQUIRED):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A running Chromium."""
    program = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Service:
    """The service at an address, its application, and the controller that the test turns."""

    address: str
    terminal: Terminal
    application: Application
    controller: Controller
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        """What an admin sends over REST."""
        return {"Authorization": f"Bearer {self.secret}"}

    @property
    def study(self) -> Study:
        """The newest study."""
        return self.application.store.study("latest")

    def carry(self, until: Callable[[Study], bool], most_ticks: int = 5000) -> Study:
        """Tick the newest study until something holds, or it has ended."""
        for _ in range(most_ticks):
            study = self.study
            if until(study) or study.phase is Phase.ENDED:
                return study
            tick = self.controller.tick(study.id, "vision")
            self.terminal.clock.advance(max(tick.look_after, timedelta(milliseconds=20)))
        raise AssertionError("nothing came of it")


@contextmanager
def service() -> Iterator[Service]:
    """Serve a store with one target whose winners must be approved, and whose study has one good candidate."""
    terminal = Terminal()
    terminal.settings = rest_settings()
    proposer = ScriptedProposer(Configuration(0, (), 1, 32), Configuration(2000, (4,), 2, 32))
    application = replace(terminal.application(terminal.settings), proposers=lambda plan: proposer)
    stop, ready = threading.Event(), threading.Event()
    addresses: list[str] = []

    def started(address: str) -> None:
        addresses.append(address)
        ready.set()

    serving = threading.Thread(target=serve, args=(application, stop, started, "127.0.0.1", 0))
    serving.start()
    try:
        assert ready.wait(30)
        secret = a_secret(application, "newcomer", Scope.ADMIN)
        yield Service(addresses[0], terminal, application, application.controller(), secret)
    finally:
        stop.set()
        serving.join(30)


def a_target(made: Service) -> None:
    """Register the target over REST, as `autotuner target apply` would."""
    study = {**TARGET["study"], "approval": "manual", "sampler": "tpe"}
    answer = httpx.post(
        f"{made.address}/v1/targets",
        json={**TARGET, "study": study},
        headers=made.headers,
    )
    assert answer.status_code == 201, answer.text


@contextmanager
def visiting(browser: Browser, made: Service, **options: Any) -> Iterator[Page]:
    """A page at the first address, whose errors and violated policies fail the test."""
    context: BrowserContext = browser.new_context(base_url=made.address, **options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(made.address) else said.append(request.url),
    )
    yield page
    context.close()
    assert said == []


def sign_in(page: Page, made: Service) -> None:
    page.goto("/ui/targets")
    page.get_by_label("Token").fill(made.secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Targets")).to_be_visible()


FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return '';
  const label = e.labels && e.labels[0] ? e.labels[0].innerText : '';
  return (e.getAttribute('aria-label') || label || e.innerText || e.textContent || '').trim();
}"""


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what is called so has the focus, and can be seen to have it."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED).startswith(name):
            style = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            assert style not in ("none", "hidden"), f"nobody sees that {name!r} has the focus"
            return
    raise AssertionError(f"{name!r} is not reached by keyboard at {page.url}")


def press(page: Page, name: str) -> None:
    """Reach something by keyboard, press it, and wait for the page it leads to."""
    tab_to(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def write(page: Page, name: str, text: str) -> None:
    """Reach a field by keyboard and replace what is in it."""
    tab_to(page, name)
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def test_a_newcomer_finds_the_whole_way_by_keyboard_alone(browser: Browser) -> None:
    with service() as made, visiting(browser, made) as page:
        page.goto("/")
        field = page.get_by_role("textbox", name="Token")
        expect(field).to_be_focused()  # from the start, nobody has to reach it
        page.keyboard.type(made.secret)
        expect(field).to_have_value(made.secret)
        page.keyboard.press("Enter")
        expect(page.get_by_text("No target is registered yet")).to_be_visible()
        a_target(made)
        page.reload()
        press(page, "vision")
        sets_a_budget(page)
        schedules_and_starts(page)
        watches(page, made)
        approves(page, made)
        reads_why(page)


def sets_a_budget(page: Page) -> None:
    press(page, "Change the SLO budget")
    write(page, "Harm budget", "2900")
    write(page, "Reason", "agreed with the search team")
    press(page, "Make the new version")
    expect(page.get_by_role("rowheader", name="version 2 in force")).to_be_visible()


def schedules_and_starts(page: Page) -> None:
    press(page, "vision")
    press(page, "Set a schedule")
    write(page, "Time zone", "Europe/Berlin")
    press(page, "Set the schedule")
    expect(page.get_by_role("cell", name="30 2 * * * Europe/Berlin")).to_be_visible()
    press(page, "Targets")
    press(page, "vision")
    press(page, "Start a study")
    press(page, "Start the study")
    expect(page.get_by_role("heading", name="Study of vision")).to_be_visible()


def watches(page: Page, made: Service) -> None:
    """See it run without loading the page again, keep the focus on a point meanwhile, and open its trial."""
    page.evaluate("() => { window.kept = true }")
    made.carry(is_measuring_a_candidate)
    expect(page.get_by_role("heading", name="The trial under way")).to_be_visible()
    expect(page.get_by_role("heading", name="Trying candidates on the canary")).to_be_visible()
    tab_to(page, "#1 incumbent")
    address = page.evaluate(ADDRESS)
    seen = live_address(page)
    steps = len(made.study.trials[-1].steps)
    made.carry(lambda study: len(study.trials[-1].steps) != steps)
    expect(page.locator(f'[hx-get="{seen}"]')).to_have_count(0)
    assert page.evaluate("() => window.kept") is True
    assert page.evaluate(ADDRESS) == address
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Trial #1")).to_be_visible()
    expect(page.get_by_role("heading", name="What the verdict rests on")).to_be_visible()


def is_measuring_a_candidate(study: Study) -> bool:
    """Whether a candidate is under way and one of its levels has been judged."""
    trial = study.trial
    return (
        trial is not None
        and trial.kind is TrialKind.CANDIDATE
        and trial.verdict is None
        and bool(trial.steps)
    )


ADDRESS = "() => document.activeElement.getAttribute('href')"


def live_address(page: Page) -> str:
    """Where the live part of a study is asked for; it names the newest entry that is shown."""
    return str(page.locator("[hx-get]").get_attribute("hx-get"))


NO_TIMERS = "window.setInterval = () => 0"
LOST = "retry: 3600000\n\n"
"""A stream that ends at once and is not asked for again for an hour."""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
def test_a_study_is_seen_live_by_its_stream_and_without_it(browser: Browser, stream: bool) -> None:
    """Without the page's timer only the stream brings news; without a stream only the timer does."""
    with service() as made, visiting(browser, made) as page:
        a_target(made)
        started = httpx.post(f"{made.address}/v1/studies", json={"target": "vision"}, headers=made.headers)
        assert started.status_code == 201, started.text
        sign_in(page, made)
        if stream:
            page.add_init_script(NO_TIMERS)
        else:
            page.route(
                "**/events?*", lambda route: route.fulfill(body=LOST, content_type="text/event-stream")
            )
        with page.expect_response(lambda answer: "/events?" in answer.url):
            page.goto(f"/ui/studies/{made.study.id}")
        made.carry(lambda study: study.trial is not None)
        expect(page.get_by_role("heading", name="The trial under way: #0")).to_be_visible()
        made.carry(lambda study: study.phase is Phase.APPROVAL)
        expect(page.get_by_role("link", name="Approve…")).to_be_visible()
        cancelled = httpx.post(f"{made.address}/v1/studies/latest/cancel", headers=made.headers)
        assert cancelled.status_code == 202, cancelled.text
        made.carry(lambda study: False)
        expect(page.get_by_role("heading", name="Why it ended so")).to_be_visible()
        expect(page.locator("[hx-get]")).to_have_count(0)


def approves(page: Page, made: Service) -> None:
    waiting = made.carry(lambda study: study.phase is Phase.APPROVAL)
    assert waiting.phase is Phase.APPROVAL, waiting.reason
    press(page, "Promotions")
    press(page, "Approve the winner of vision")
    write(page, "Reason", "seen in staging")
    press(page, "Approve: promote the winner")
    expect(page.get_by_text("Asked: approve.")).to_be_visible()
    ended = made.carry(lambda study: False)
    assert ended.outcome is Outcome.PROMOTED, ended.reason


def reads_why(page: Page) -> None:
    expect(page.get_by_role("heading", name="Promoted")).to_be_visible()
    expect(page.get_by_text("Why this one?")).to_be_visible()
    expect(page.get_by_text("measured again on fresh data")).to_be_visible()
    expect(page.locator("[hx-get]")).to_have_count(0)
    press(page, "vision")
    expect(page.get_by_role("link", name="Promoted: ")).to_be_visible()
    press(page, "Sign out")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.fixture(scope="module")
def lived_in() -> Iterator[Service]:
    """A service with a target, a loosened budget, a schedule, a freeze, a promoted study and one that waits."""
    with service() as made:
        a_target(made)
        store, clock = made.application.store, made.terminal.clock
        with httpx.Client(base_url=made.address, headers=made.headers) as rest:
            rest.post("/v1/studies", json={"target": "vision", "study": {"approval": "automatic"}})
            made.carry(lambda study: False)
            assert made.study.outcome is Outcome.PROMOTED
            budget = {**TARGET["slo"], "p99_ms": 120, "reason": "the mobile team agreed"}
            rest.put("/v1/targets/vision/slo-budget", json=budget, headers={"If-Match": '"1"'})
            rest.put("/v1/targets/vision/schedule", json={"cron": "30 2 * * *", "jitter": "30m"})
            begins, ends = clock.now() + timedelta(days=1), clock.now() + timedelta(days=2)
            freeze = {"begins_at": begins.isoformat(), "ends_at": ends.isoformat(), "reason": "the holidays"}
            assert rest.post("/v1/freezes", json=freeze).status_code == 201
            clock.advance(timedelta(hours=1))
            assert rest.post("/v1/studies", json={"target": "vision"}).status_code == 201
            running = made.carry(is_measuring_a_candidate)
            assert is_measuring_a_candidate(running), running.reason
        assert len(store.studies()) == 2
        yield made


ADDRESSES = {
    "targets": "/ui/targets",
    "target": "/ui/targets/vision",
    "budget": "/ui/targets/vision/slo-budget",
    "diagnosis": "/ui/targets/vision/diagnosis",
    "start": "/ui/targets/vision/start",
    "schedule": "/ui/targets/vision/schedule",
    "studies": "/ui/studies",
    "running study": "/ui/studies/{running}",
    "promoted study": "/ui/studies/{promoted}",
    "confirm": "/ui/studies/{running}/ask/cancel",
    "trial": "/ui/studies/{promoted}/trials/2",
    "trials": "/ui/trials",
    "promotions": "/ui/promotions?waiting=false",
    "ledger": "/ui/ledger",
    "certificate": "/ui/studies/{promoted}/certificate",
    "roll back": "/ui/studies/{promoted}/ask/rollback",
    "waiting": "/ui/promotions",
    "schedules": "/ui/schedules",
    "line": "/ui/line",
    "audit": "/ui/audit",
    "verification": "/ui/audit/verification",
    "error": "/ui/trials?verdict=splendid",
}


def address_of(made: Service, name: str) -> str:
    running, promoted = (study.id for study in made.application.store.studies())
    return ADDRESSES[name].format(running=running, promoted=promoted)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_can_be_read_by_everybody(
    browser: Browser, lived_in: Service, width: str, scheme: str
) -> None:
    """Contrast, names, labels, headings, and nothing that scrolls sideways; in light and dark, wide and narrow."""
    faults: dict[str, list[str]] = {}
    options: dict[str, Any] = {"viewport": {"width": WIDTHS[width], "height": 900}, "color_scheme": scheme}
    context = browser.new_context(base_url=lived_in.address, **options)
    page = context.new_page()
    page.goto("/ui/sign-in")
    faults["sign in"] = faults_of(page)
    sign_in(page, lived_in)
    for name in ADDRESSES:
        page.goto(address_of(lived_in, name))
        faults[name] = faults_of(page)
    context.close()

    assert {name: found for name, found in faults.items() if found} == {}


def test_no_page_says_an_error_to_the_console_or_asks_another_host(
    browser: Browser, lived_in: Service
) -> None:
    with visiting(browser, lived_in) as page:
        sign_in(page, lived_in)
        for name in ADDRESSES:
            if name != "error":
                page.goto(address_of(lived_in, name))


def test_everything_but_the_live_view_works_without_javascript(browser: Browser, lived_in: Service) -> None:
    with visiting(browser, lived_in, java_script_enabled=False) as page:
        sign_in(page, lived_in)
        page.get_by_role("link", name="vision").first.click()
        page.get_by_role("link", name="See the study").click()
        expect(page.get_by_role("heading", name="Throughput against p99")).to_be_visible()
        page.get_by_role("link", name="Pause…").click()
        page.get_by_role("button", name="Pause the study").click()
        expect(page.get_by_text("Asked: pause.")).to_be_visible()
        page.get_by_role("link", name="Resume…").click()
        page.get_by_role("button", name="Resume the study").click()


def test_marks_of_the_chart_differ_without_colour_and_open_their_trials(
    browser: Browser, lived_in: Service
) -> None:
    with visiting(browser, lived_in) as page:
        sign_in(page, lived_in)
        page.goto(address_of(lived_in, "promoted study"))
        chart = page.locator(".wide .chart").first
        shapes = {
            verdict: chart.locator(f".mark-{verdict}").first.evaluate("mark => mark.tagName")
            for verdict in ("accept", "reject")
        }
        assert shapes == {"accept": "circle", "reject": "path"}
        expect(chart.locator(".ceiling")).to_have_count(1)
        expect(chart.locator(".ring")).to_have_count(2)
        chart.locator("a.point").first.click()
        expect(page.get_by_role("heading", name="What the verdict rests on")).to_be_visible()


def test_the_check_of_pages_sees_what_is_wrong(browser: Browser) -> None:
    """A check that never fails says nothing."""
    page = browser.new_page(viewport={"width": 360, "height": 600})
    page.set_content(
        "<html><body style='background:#fff'><p style='color:#bbb'>pale</p><input><a href='#'></a><h3>x</h3>"
        "<p id='a'>1</p><p id='a'>2</p><div style='width:900px'>wide</div></body></html>"
    )
    found = " ".join(faults_of(page))
    page.close()

    for fault in ("contrast", "label", "name", "language", "heading", "twice", "sideways"):
        assert fault in found
