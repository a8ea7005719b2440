"""Nothing that somebody writes into a target can change what a query means."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.instruments.promql import quoted, samples_of, selector
from tests.prometheus_stub import MATCHER, PrometheusStub

HOSTILE = [
    '"} or vector(1) or {a="',
    "\\",
    '\\"',
    "a\nb",
    "{name}",
    "a|b",
    ".*",
    "x\x00y",
    "\u202e",
    "\U0001d54f",
    "'",
    "`",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_selects_exactly_itself_whatever_it_holds(value: str) -> None:
    with PrometheusStub(100.0) as stub:
        stub.put(99.0, {"up": 1}, label=value)
        stub.put(99.0, {"up": 2}, label="other")
        for values in ([value], [value, "second"]):
            answer = stub.answered(samples_of(selector(["up"], {"label": values}), 10))
            found = json.loads(answer.body)["data"]["result"]
            assert [each["metric"]["label"] for each in found] == [value]


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_every_text_ends_inside_its_quotes(values: list[str]) -> None:
    text = selector(["up"], {"label": values})
    assert MATCHER.sub("", text[1:-1]) == ""
    assert len(MATCHER.findall(text[1:-1])) == 2


@given(st.text())
def test_a_quoted_text_has_no_quote_line_end_or_control_of_its_own(value: str) -> None:
    inside = quoted(value)[1:-1]
    assert '"' not in inside.replace('\\"', "").replace("\\\\", "")
    assert inside.isprintable()


@pytest.mark.parametrize("label", ["", "a-b", 'a="b"', "ä", "1a", "a b"])
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="no label"):
        selector(["up"], {label: ["x"]})


def test_a_span_is_asked_for_in_milliseconds() -> None:
    assert samples_of('{a="b"}', 1.0004) == '{a="b"}[1001ms]'
