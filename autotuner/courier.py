"""Delivers notices from the outbox to webhooks: again and again with growing pauses, and in the end to nobody.

A message was written with what it tells of, so it is neither lost nor told of what did not happen. It may arrive twice
when whoever delivers it dies right after; its number says so. What is given up stays on record as dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from autotuner.errors import AutotunerError
from autotuner.ports import Clock, Message, MessageState, Outbox, Webhook

log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(hours=1)
MOST_ATTEMPTS = 12
"""About five hours, with pauses that double up to an hour."""

AT_ONCE = 20
NO_WEBHOOK = "no webhook is set"
RESULTS = {
    MessageState.DELIVERED: "delivered",
    MessageState.PENDING: "failed",
    MessageState.DEAD: "given up",
}
"""What an attempt came to, by the state it leaves a message in."""


def pause_after(attempts: int) -> timedelta:
    """Return how long to wait after so many failed attempts, from 1."""
    doubled: int = 2 ** min(attempts - 1, 20)
    return min(LONGEST_PAUSE, FIRST_PAUSE * doubled)


@dataclass(frozen=True)
class Courier:
    """Delivers what is due to every webhook."""

    outbox: Outbox
    webhooks: Sequence[Webhook]
    clock: Clock
    told: Callable[[str], None] = lambda _: None
    """Told what each attempt came to: `delivered`, `failed` or `given up`."""

    def deliver(self) -> int:
        """Try every message that is due, once; returns how many were tried. Raises Unavailable without the database."""
        due = self.outbox.due(self.clock.now(), AT_ONCE)
        for message in due:
            tried = self._tried(message)
            self.outbox.settle(tried)
            self.told(RESULTS[tried.state])
        return len(due)

    def _tried(self, message: Message) -> Message:
        """Return the message after one attempt at every webhook that has not taken it yet."""
        taken, failures = list(message.delivered_to), []
        for webhook in self.webhooks:
            if webhook.name in taken:
                continue
            try:
                webhook.send(message, self.clock.now())
            except AutotunerError as error:
                failures.append(f"{webhook.name}: {error}")
            else:
                taken.append(webhook.name)
        tried = replace(message, attempts=message.attempts + 1, delivered_to=tuple(taken))
        return _failed(tried, failures, self.clock.now()) if failures else self._delivered(tried)

    def _delivered(self, message: Message) -> Message:
        log.info("notice_delivered", extra={"number": message.number, "subject": message.notice.subject})
        error = "" if self.webhooks else NO_WEBHOOK
        return replace(message, state=MessageState.DELIVERED, error=error)


def _failed(message: Message, failures: Sequence[str], now: datetime) -> Message:
    error = "; ".join(failures)
    dead = message.attempts >= MOST_ATTEMPTS
    log.warning(
        "notice_dead" if dead else "notice_not_delivered",
        extra={"number": message.number, "attempts": message.attempts, "reason": error},
    )
    if dead:
        return replace(message, state=MessageState.DEAD, error=error)
    return replace(message, next_attempt_at=now + pause_after(message.attempts), error=error)
