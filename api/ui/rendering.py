"""From values to pages: one environment of templates, and the headers that every page has.

Templates only place what they are given, and escape all of it. The content policy lets a page load our own files and
nothing else, and run no script or style that is written into it: text that gets onto a page by mistake stays text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Scope

from api.schemas.studies import ConfigurationAnswer
from api.ui.assets import HTMX, Assets
from api.ui.session import Sessions
from autotuner.domain.access import Identity
from autotuner.domain.configuration import Configuration
from autotuner.domain.study import Phase
from autotuner.domain.titles import KIND_TITLES, PHASE_TITLES
from autotuner.report.tables import badge
from autotuner.report.text import UNKNOWN, figure, instant, length, milliseconds, percent, whole

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


MOST_REMEMBERED = 10_000
"""Instants and configurations whose words are remembered: a list shows the same ones again and again."""


@lru_cache(MOST_REMEMBERED)
def moment(at: datetime | None) -> Markup | str:
    """Return an instant in UTC, to the minute, as people and programs read it."""
    if at is None:
        return UNKNOWN
    known = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        known.isoformat(timespec="seconds"), known.strftime("%Y-%m-%d %H:%M UTC")
    )


def described(configuration: Configuration | ConfigurationAnswer | None) -> str:
    """Return a configuration in words, the same for what a list answers and what the records hold."""
    if configuration is None:
        return UNKNOWN
    if isinstance(configuration, ConfigurationAnswer):
        said = configuration.model_dump()
        configuration = Configuration(**{**said, "preferred_batch_size": tuple(said["preferred_batch_size"])})
    return _words(configuration)


_words = lru_cache(MOST_REMEMBERED)(Configuration.describe)


def sentence(text: str) -> str:
    """Return a text that begins like a sentence and ends like one; what begins with a name or a field stays so."""
    made = text.strip()
    if not made:
        return ""
    if made.split()[0].rstrip(",.;:!?").isalpha():
        made = made[0].upper() + made[1:]
    return made + ("" if made[-1] in ".!?…" else ".")


FILTERS: Mapping[str, Any] = {
    "badge": badge,
    "described": described,
    "figure": figure,
    "instant": instant,
    "kind": KIND_TITLES.__getitem__,
    "length": length,
    "milliseconds": milliseconds,
    "moment": moment,
    "percent": percent,
    "phase": lambda phase: PHASE_TITLES[Phase(phase)],
    "sentence": sentence,
    "whole": whole,
}


class Renderer:
    """Makes pages."""

    def __init__(self, sessions: Sessions) -> None:
        self.assets = Assets()
        self.sessions = sessions
        self._templates = Environment(
            loader=ChoiceLoader(
                [PackageLoader("api.ui", "templates"), PackageLoader("autotuner.report", "templates")]
            ),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(asset=self.assets.address, htmx=HTMX, timedelta=timedelta)

    def page(self, scope: Scope, template: str, status: int = 200, **given: Any) -> HTMLResponse:
        """Return a page, or a part of one, filled with what is given, for whoever asks in `scope`."""
        identity: Identity | None = scope.get("state", {}).get("identity")
        told = {
            "me": identity,
            "form_token": self.sessions.form_token(scope) if identity is not None else "",
            "here": scope["path"],
            **given,
        }
        text = self._templates.get_template(template).render(told)
        return HTMLResponse(text, status, headers=HEADERS)


def renderer_of(request: Request) -> Renderer:
    """Return what makes the pages of the service that a request is sent to."""
    found: Renderer = request.app.state.renderer
    return found
