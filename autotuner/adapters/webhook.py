"""Webhooks over HTTP: a signed JSON body, or the format that Slack takes.

A receiver checks a body by computing HMAC-SHA256 over the timestamp, a dot and the body with the secret that both
know, comparing it with the signature, and refusing old timestamps. An address may hold a secret (Slack's do): it is
shown nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

import httpx

from autotuner.errors import InvalidInput, Refused, Unavailable
from autotuner.ports import Message

LIMIT_SECONDS = 5.0
SLACK = "slack+"
ALLOWED = "https://… or http://…, slack+https://… for Slack, several separated by commas"


@dataclass(frozen=True)
class HttpWebhook:
    """One address that messages are posted to. secret: what bodies are signed with; unused for Slack."""

    url: str = field(repr=False)
    secret: str = field(repr=False)
    slack: bool = False
    transport: httpx.BaseTransport | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Host and the first digits of the address's digest."""
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        return f"{urlsplit(self.url).hostname}-{digest}"

    def send(self, message: Message, now: datetime) -> None:
        """Post a message. Raises Unavailable; Refused with the status of an answer that is no success."""
        body = json.dumps(slack_body(message) if self.slack else plain_body(message)).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "autotuner"}
        if not self.slack:
            headers |= signature_headers(message, body, self.secret, now)
        try:
            with httpx.Client(timeout=LIMIT_SECONDS, trust_env=False, transport=self.transport) as client:
                answer = client.post(self.url, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise Unavailable(f"webhook {self.name}", type(error).__name__) from None
        if not answer.is_success:
            raise Refused(f"webhook {self.name} answered with HTTP {answer.status_code}")


def webhooks(urls: str, secret: str) -> tuple[HttpWebhook, ...]:
    """Return the webhooks that a setting names. Raises InvalidInput, without repeating an address."""
    found = []
    for text in filter(None, (each.strip() for each in urls.split(","))):
        slack = text.startswith(SLACK)
        url = text.removeprefix(SLACK)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("webhooks", "(not shown)", ALLOWED)
        if not slack and not secret:
            raise InvalidInput(
                "webhook_secret", "", "a secret that bodies are signed with, as webhooks are set"
            )
        found.append(HttpWebhook(url, secret, slack))
    return tuple(found)


def plain_body(message: Message) -> dict[str, object]:
    """Return what a webhook is told; `id` is the same at every attempt."""
    notice = message.notice
    return {
        "id": message.number,
        "kind": notice.kind.value,
        "target": notice.target,
        "subject": notice.subject,
        "at": notice.at.isoformat(),
        "text": notice.text,
        "details": dict(notice.details),
    }


def slack_body(message: Message) -> dict[str, object]:
    """Return what Slack shows: the kind in bold and the sentence, with nothing that it would take for markup."""
    text = message.notice.text
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escaped)
    return {"text": f"*{message.notice.kind.value.replace('_', ' ')}* {text}"}


def signature_headers(message: Message, body: bytes, secret: str, now: datetime) -> dict[str, str]:
    """Return the headers that a receiver checks a body by. The timestamp is in seconds since 1970."""
    timestamp = str(int(now.timestamp()))
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {
        "X-Autotuner-Delivery": str(message.number),
        "X-Autotuner-Timestamp": timestamp,
        "X-Autotuner-Signature": f"v1={signed}",
    }
