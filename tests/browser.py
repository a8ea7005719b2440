"""A browser without JavaScript, for pages of the web UI: keeps cookies, follows redirects, sends forms as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from api.ui.session import COOKIE
from autotuner.domain.access import Scope
from tests.rest import Rest

WITHOUT_CONTENT = {"input", "meta", "link", "br", "hr", "img", "path", "rect", "line", "circle"}


@dataclass
class SentForm:
    """A form on a page: where it goes, how, and what its fields hold."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Document(HTMLParser):
    """What a test asks of a page: its text, its links, its forms and the ids on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[SentForm] = []
        self.links: list[tuple[str, str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._words: list[str] = []
        self._inside: list[str] = []
        self._filled = ""
        self.feed(text)

    @property
    def text(self) -> str:
        """The words of the page, one space between them."""
        return re.sub(r"\s+", " ", " ".join(self._words))

    @property
    def addresses(self) -> list[str]:
        """Where the links lead."""
        return [address for address, _ in self.links]

    def form(self, action: str = "") -> SentForm:
        """The form that goes to an address; the page's own when none is given."""
        return next(each for each in self.forms if each.action == action and each.method == "post")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append((tag, told))
        if tag not in WITHOUT_CONTENT:
            self._inside.append(tag)
        if tag == "form":
            self.forms.append(SentForm(told.get("action") or "", told.get("method") or "get"))
        if tag == "a":
            self.links.append((told.get("href") or "", ""))
        if self.forms and tag == "input" and told.get("name"):
            checked = told.get("type") != "checkbox" or "checked" in told
            if checked:
                value = told.get("value")
                self.forms[-1].fields[str(told["name"])] = "on" if value is None else value
        if self.forms and tag == "textarea":
            self._filled = str(told["name"])
            self.forms[-1].fields[self._filled] = ""

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass
        if tag == "textarea":
            self._filled = ""

    def handle_data(self, data: str) -> None:
        if self._filled:
            self.forms[-1].fields[self._filled] += data
        if not set(self._inside) & {"style", "script"}:
            self._words.append(data.strip())


@dataclass
class Browser:
    """Somebody's browser. scope None: nobody signed in."""

    rest: Rest
    scope: Scope | None = Scope.ADMIN

    def ask(self, method: str, address: str, **options: Any) -> Any:
        """Send one request and follow no redirect."""
        return self.rest.client.request(method, address, follow_redirects=False, **options)

    def open(self, address: str, status: int = 200) -> Document:
        """Open a page; it must have this status."""
        answer = self.rest.client.get(address)
        assert answer.status_code == status, answer.text
        return Document(answer.text)

    def send(self, form: SentForm, page: str = "", /, **changed: str) -> Any:
        """Send a form, as it is on the page at `page`, with some fields changed, and follow no redirect."""
        return self.ask("POST", form.action or page, data={**form.fields, **changed})

    def fill(self, page: str, action: str = "", /, **changed: str) -> Any:
        """Open a page and send the form on it that goes to `action`."""
        return self.send(self.open(page).form(action), page, **changed)


def signed_in(rest: Rest, scope: Scope = Scope.ADMIN) -> Browser:
    """A browser in which somebody with this scope has signed in."""
    rest.client.cookies.clear()
    answer = rest.client.post(
        "/ui/sign-in", data={"token": rest.secrets[scope], "next": ""}, follow_redirects=False
    )
    assert answer.status_code == 303, answer.text
    assert COOKIE in rest.client.cookies
    return Browser(rest, scope)


@contextmanager
def as_nobody(rest: Rest) -> Iterator[Browser]:
    """A browser without a session; the one there was is given back."""
    kept: Mapping[str, str] = dict(rest.client.cookies)
    rest.client.cookies.clear()
    yield Browser(rest, None)
    for name, value in kept.items():
        rest.client.cookies.set(name, value, path="/ui")
