"""Notices are signed, repeated with growing pauses, and given up visibly; their addresses are shown nowhere."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from autotuner.adapters.memory_store import Memory, MemoryOutbox
from autotuner.adapters.webhook import HttpWebhook, webhooks
from autotuner.courier import MOST_ATTEMPTS, NO_WEBHOOK, Courier, pause_after
from autotuner.domain.notices import Notice, NoticeKind, inconclusive_in_a_row, notices_of
from autotuner.domain.study import Outcome, Phase
from autotuner.errors import InvalidInput, Refused, Unavailable
from autotuner.ports import Message, MessageState
from tests.builders import START, ManualClock, a_budget, a_plan, a_study
from tests.studies import a_trial

SECRET = "s3cret"
NOTICE = Notice(NoticeKind.PROMOTED, "vision", "study-1", START, "vision: it <holds> & pays", {"winner": 3})


class Receiver:
    """A webhook in memory that fails as often as it is told."""

    def __init__(self, name: str = "first", failures: int = 0) -> None:
        self.name = name
        self.failures = failures
        self.taken: list[int] = []

    def send(self, message: Message, now: object) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise Unavailable(f"webhook {self.name}", "no answer")
        self.taken.append(message.number)


class Scene:
    """An outbox with one notice in it."""

    def __init__(self, *receivers: Receiver) -> None:
        self.memory, self.clock = Memory(), ManualClock()
        self.memory.tell([NOTICE])
        self.outbox = MemoryOutbox(self.memory)
        self.courier = Courier(self.outbox, receivers, self.clock)

    @property
    def message(self) -> Message:
        return self.outbox.messages()[0]


# -- delivery ----------------------------------------------------------------------------------------------


def test_a_notice_is_delivered_once_to_every_webhook() -> None:
    first, second = Receiver("first"), Receiver("second")
    scene = Scene(first, second)

    assert (scene.courier.deliver(), scene.courier.deliver()) == (1, 0)

    assert (first.taken, second.taken) == ([1], [1])
    assert (scene.message.state, scene.message.delivered_to) == (MessageState.DELIVERED, ("first", "second"))


def test_whoever_took_it_is_not_told_again_because_another_one_did_not() -> None:
    good, bad = Receiver("good"), Receiver("bad", failures=2)
    scene = Scene(good, bad)
    for _ in range(3):
        scene.courier.deliver()
        scene.clock.advance(timedelta(minutes=1))

    assert (good.taken, bad.taken) == ([1], [1])
    assert scene.message.state is MessageState.DELIVERED


def test_pauses_double_up_to_an_hour() -> None:
    pauses = [pause_after(attempts).total_seconds() for attempts in range(1, 13)]

    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]


def test_a_notice_that_nobody_takes_is_tried_with_pauses_and_then_dead() -> None:
    scene = Scene(Receiver(failures=10**6))
    attempts = 0
    for _ in range(400):
        attempts += scene.courier.deliver()
        scene.clock.advance(timedelta(minutes=2))

    assert attempts == MOST_ATTEMPTS
    assert (scene.message.state, scene.message.attempts) == (MessageState.DEAD, MOST_ATTEMPTS)
    assert "no answer" in scene.message.error


def test_without_a_webhook_a_notice_is_kept_and_says_so() -> None:
    scene = Scene()
    scene.courier.deliver()

    assert (scene.message.state, scene.message.error) == (MessageState.DELIVERED, NO_WEBHOOK)


# -- bodies ------------------------------------------------------------------------------------------------


def posted(webhook: Callable[[httpx.BaseTransport], HttpWebhook], status: int = 200) -> httpx.Request:
    """What a webhook posts to a server that answers with `status`."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status)

    webhook(httpx.MockTransport(answer)).send(Scene().message, START)
    return seen[0]


def plain(transport: httpx.BaseTransport) -> HttpWebhook:
    return HttpWebhook("https://hooks.example/abc-token", SECRET, transport=transport)


def test_a_body_is_signed_with_its_timestamp() -> None:
    request = posted(plain)
    timestamp = request.headers["X-Autotuner-Timestamp"]
    signed = hmac.new(SECRET.encode(), timestamp.encode() + b"." + request.content, hashlib.sha256)

    assert timestamp == str(int(START.timestamp()))
    assert request.headers["X-Autotuner-Signature"] == f"v1={signed.hexdigest()}"
    assert request.headers["X-Autotuner-Delivery"] == "1"
    told = json.loads(request.content)
    assert (told["id"], told["kind"], told["details"]) == (1, "promoted", {"winner": 3})


def test_slack_gets_its_own_format_and_no_markup_from_a_sentence() -> None:
    request = posted(lambda t: HttpWebhook("https://hooks.example/x", SECRET, slack=True, transport=t))

    assert json.loads(request.content) == {"text": "*promoted* vision: it &lt;holds&gt; &amp; pays"}
    assert "X-Autotuner-Signature" not in request.headers


@pytest.mark.parametrize("status", [302, 400, 404, 500])
def test_an_answer_that_is_no_success_is_a_failure_that_shows_no_address(status: int) -> None:
    with pytest.raises(Refused) as refused:
        posted(plain, status)

    assert str(status) in str(refused.value)
    assert "abc-token" not in str(refused.value)


def test_no_answer_is_a_failure_that_shows_no_address() -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"cannot connect to {request.url}")

    with pytest.raises(Unavailable) as failed:
        plain(httpx.MockTransport(silent)).send(Scene().message, START)

    assert "abc-token" not in str(failed.value) + repr(plain(httpx.MockTransport(silent)))
    assert failed.value.__cause__ is None


def test_a_setting_names_webhooks_of_both_kinds() -> None:
    found = webhooks("https://a.example/1, slack+https://b.example/2", SECRET)

    assert [(each.url, each.slack) for each in found] == [
        ("https://a.example/1", False),
        ("https://b.example/2", True),
    ]
    assert len({each.name for each in found}) == 2
    assert webhooks("", "") == ()


@pytest.mark.parametrize(
    ("urls", "secret", "field"),
    [
        ("ftp://a.example/token", SECRET, "webhooks"),
        ("just-a-token", SECRET, "webhooks"),
        ("https://a.example/token", "", "webhook_secret"),
    ],
)
def test_webhooks_that_cannot_be_used_are_refused_without_repeating_them(
    urls: str, secret: str, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        webhooks(urls, secret)

    assert refused.value.field == field
    assert "token" not in str(refused.value)


# -- what is told ------------------------------------------------------------------------------------------


def test_a_spent_harm_budget_is_told_when_the_study_turns_back() -> None:
    study = a_study(plan=a_plan(slo=a_budget(harm_budget_requests=5)))
    harmed = replace(study, trials=(a_trial(0, window=None, tail=None, closed_harm_requests=7.0),))
    back = replace(
        harmed, phase=Phase.RESTORATION, intended=Outcome.ABORTED, reason="the harm budget is spent"
    )

    (told,) = notices_of(harmed, back, START)

    assert (told.kind, told.details) == (
        NoticeKind.HARM_BUDGET_SPENT,
        {"harm_requests": 7.0, "budget": 5},
    )
    assert notices_of(back, replace(back, phase=Phase.ENDED, outcome=Outcome.ABORTED), START) == ()


@pytest.mark.parametrize(
    ("outcomes", "row"),
    [
        ((), 0),
        (("kept", "inconclusive"), 0),
        (("inconclusive", "inconclusive", "promoted"), 2),
        (("inconclusive", None, "inconclusive"), 2),
    ],
)
def test_a_row_of_inconclusive_nights_is_broken_by_a_conclusion_alone(
    outcomes: tuple[str | None, ...], row: int
) -> None:
    assert inconclusive_in_a_row(outcomes) == row
