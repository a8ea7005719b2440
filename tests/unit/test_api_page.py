"""The page of the REST API: each of its examples is sent, one after another, and answered as the page says."""

from __future__ import annotations

from dataclasses import dataclass

from api.scopes import RULES, RuleBook
from tests.documents import ROOT, blocks
from tests.rest import serving

PAGE = ROOT / "docs" / "api.md"


@dataclass(frozen=True)
class Example:
    """One exchange: what is sent, and the status and headers that come back."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    status: int
    answered: dict[str, str]


def parsed(block: str) -> Example:
    asked, _, answer = block.partition("HTTP/1.1 ")
    head, _, body = asked.partition("\n\n")
    first, *lines = head.splitlines()
    method, path = first.split(" ")
    status, *answered = answer.strip().splitlines()
    return Example(method, path, headers_in(lines), body.strip(), int(status), headers_in(answered))


def headers_in(lines: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition(": ") for line in lines)}


def test_every_example_is_answered_as_the_page_says() -> None:
    examples = [parsed(block) for block in blocks(PAGE, "http")]

    assert len(examples) >= 12
    with serving(target_addresses="10.0.0.0/8") as rest:
        for each in examples:
            answer = rest.ask(each.method, each.path, headers=each.headers, content=each.body.encode())
            assert answer.status_code == each.status, (each.method, each.path, answer.text)
            assert {name: answer.headers[name] for name in each.answered} == each.answered, each.path


def test_every_part_of_the_api_has_an_example_or_is_named() -> None:
    text = PAGE.read_text("utf-8")
    book = RuleBook(RULES)
    shown = {
        book.rule_for(e.method, e.path.partition("?")[0]).path for e in map(parsed, blocks(PAGE, "http"))
    }
    unnamed = [
        rule.path
        for rule in RULES
        if rule.path not in shown
        and rule.path.replace("{study_id}", "{id}") not in text
        and rule.path.rpartition("/")[2] not in text
    ]

    assert unnamed == []
