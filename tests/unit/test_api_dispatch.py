"""Which route serves a request, and in whose threads: what reads in a few, what takes long or writes in others."""

from __future__ import annotations

import asyncio
import threading
from itertools import count
from typing import Any

import pytest
from starlette.routing import Match

from api.app import ROUTERS
from api.dispatch import ByRule
from api.lists import drawn, takes_long
from api.scopes import RULES, Rule, RuleBook
from api.ui import web
from api.ui.rules import PAGES
from autotuner.domain.access import Scope
from tests.rest import Rest

ROUTES = [route for router in (*ROUTERS, *web.ROUTERS) for route in router.routes]
EVERY = (*RULES, *PAGES)


def path_of(rule: Rule) -> str:
    """An address that the rule is for; parts that are chosen from a list are one of it."""
    made = rule.path.replace("{number}", "7").replace("{wish}", "approve")
    return "/".join("some" if part.startswith("{") else part for part in made.split("/"))


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: f"{rule.method} {rule.path}")
def test_a_request_is_served_by_the_first_route_that_takes_it(rule: Rule) -> None:
    path = path_of(rule)
    scope: dict[str, Any] = {"type": "http", "method": rule.method, "path": path, "root_path": ""}
    first = next(route for route in ROUTES if route.matches(scope)[0] is Match.FULL)

    found = RuleBook(EVERY).rule_for(rule.method, path)
    match, taken = ByRule(ROUTES).matches({**scope, "state": {"rule": found}})  # type: ignore[arg-type]

    assert match is Match.FULL
    assert taken["endpoint"] is first.endpoint  # type: ignore[attr-defined]
    assert taken["path_params"] == first.matches(scope)[1]["path_params"]


def test_what_has_no_rule_is_left_to_the_framework() -> None:
    assert ByRule([]).matches({"type": "http", "path": "/", "state": {}}) == (Match.NONE, {})


def threads_of(rest: Rest, monkeypatch: pytest.MonkeyPatch, part: str, asked: str) -> set[str]:
    """The names of the threads in which a method of the application's parts is called for an answer."""
    names: set[str] = set()
    owner, _, method = part.partition(".")
    parts = getattr(rest.application, owner)
    real = getattr(parts, method)

    def told(*arguments: Any, **named: Any) -> Any:
        names.add(threading.current_thread().name)
        return real(*arguments, **named)

    monkeypatch.setattr(parts, method, told)
    assert rest.ask("GET", asked, Scope.VIEWER).status_code == 200
    return names


def test_lists_are_read_in_the_threads_that_read(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = threads_of(rest, monkeypatch, "catalogue.trials", "/v1/trials")

    assert name.startswith("autotuner-work-answers")


def test_what_takes_long_keeps_no_list_waiting(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = threads_of(rest, monkeypatch, "store.first_broken_audit", "/v1/audit/verification")

    assert not name.startswith("autotuner-work-answers")


def test_an_endpoint_that_takes_long_is_the_same_endpoint() -> None:
    def endpoint() -> int:
        return 7

    assert takes_long(endpoint) is endpoint


def test_an_export_is_read_no_further_than_it_is_sent(rest: Rest) -> None:
    """A client that leaves after the beginning costs no more than that."""
    numbers = count()

    async def leave_after_two() -> list[str]:
        sent = drawn(rest.application, "first", (f"piece {number}" for number in numbers))
        return [await anext(sent), await anext(sent)]

    assert asyncio.run(leave_after_two()) == ["first", "piece 0"]
    assert next(numbers) == 1
